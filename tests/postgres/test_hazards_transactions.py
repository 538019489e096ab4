"""Transactions of every kind: huge, tiny and many, rolled back in part or whole, prepared, truncating."""

from __future__ import annotations

from pathlib import Path

import psycopg

from headgate.delta.events import TRUNCATE
from tests.postgres.logged import EVERYTHING, logged, source_rows


def test_a_transaction_larger_than_memory_goes_through_files(
    database: str, connection: psycopg.Connection, tmp_path: Path
) -> None:
    connection.execute("CREATE TABLE a (id int PRIMARY KEY, v text); CREATE TABLE b (id int PRIMARY KEY)")
    with logged(database, tmp_path, "a", "b", group_bytes=1 << 18, transaction_bytes=1 << 18) as source:
        connection.execute("INSERT INTO b VALUES (1)")
        with connection.transaction():
            connection.execute("INSERT INTO a SELECT i, repeat('x', 100) FROM generate_series(1, 20000) AS i")
            connection.execute("INSERT INTO b VALUES (2)")
            connection.execute("UPDATE a SET v = 'y' WHERE id % 2 = 0")
            connection.execute("DELETE FROM a WHERE id % 3 = 0")
        connection.execute("INSERT INTO b VALUES (3)")
        source.catch_up()
        before, large, after = source.log.transactions(0, EVERYTHING)[1:]
        assert (before.rows, large.rows, after.rows) == ({"b": 1}, {"a": 20000 + 10000 + 6666, "b": 1}, {"b": 1})
        assert list((tmp_path / "files").iterdir())
        for table in "ab":
            assert source.replica(table) == source_rows(connection, table)
        sequences = [row["__sequence"] for table in "ab" for row in source.events(table, after=before.position)][:-1]
        assert len(sequences) == len(set(sequences)) and min(sequences) >= 0


def test_many_small_transactions_keep_their_bounds(
    database: str, connection: psycopg.Connection, tmp_path: Path
) -> None:
    connection.execute("CREATE TABLE a (id int PRIMARY KEY, v int); CREATE TABLE b (id int PRIMARY KEY, v int)")
    connection.execute("INSERT INTO a VALUES (0, 0)")
    with logged(database, tmp_path, "a", "b", group_bytes=1 << 14) as source:
        connection.execute(
            "DO $$ BEGIN FOR i IN 1..500 LOOP UPDATE a SET v = i; INSERT INTO b VALUES (i, i); COMMIT; END LOOP; END $$"
        )
        source.catch_up()
        small = source.log.transactions(0, EVERYTHING)[1:]
        assert [each.rows for each in small] == [{"a": 1, "b": 1}] * 500
        versions = {row["__position"]: row["v"] for row in source.events("a") if row["v"]}
        assert versions == {row["__position"]: row["v"] for row in source.events("b")}
        assert [versions[each.position] for each in small] == list(range(1, 501))


def test_what_was_rolled_back_is_never_seen(database: str, connection: psycopg.Connection, tmp_path: Path) -> None:
    connection.execute("CREATE TABLE a (id int PRIMARY KEY, v text)")
    with logged(database, tmp_path, "a") as source:
        with psycopg.connect(database) as other:
            other.execute("INSERT INTO a VALUES (1, 'whole')")
            other.rollback()
        with connection.transaction():
            connection.execute("INSERT INTO a VALUES (2, 'kept')")
            with connection.transaction(force_rollback=True):
                connection.execute("INSERT INTO a VALUES (3, 'dropped')")
                with connection.transaction():
                    connection.execute("INSERT INTO a VALUES (4, 'dropped with its parent')")
            with connection.transaction():
                connection.execute("INSERT INTO a VALUES (5, 'kept')")
        source.catch_up()
        assert [row["id"] for row in source.events("a")] == [2, 5]
        assert len(source.log.transactions(0, EVERYTHING)) == 2


def test_a_prepared_transaction_counts_when_it_commits(
    database: str, connection: psycopg.Connection, tmp_path: Path
) -> None:
    connection.execute("CREATE TABLE a (id int PRIMARY KEY, v text)")
    with logged(database, tmp_path, "a") as source:
        connection.execute("BEGIN; INSERT INTO a VALUES (1, 'prepared'); PREPARE TRANSACTION 'first'")
        connection.execute("BEGIN; INSERT INTO a VALUES (2, 'given up'); PREPARE TRANSACTION 'second'")
        connection.execute("INSERT INTO a VALUES (3, 'between')")
        source.catch_up()
        assert [row["id"] for row in source.events("a")] == [3]
        connection.execute("COMMIT PREPARED 'first'")
        connection.execute("ROLLBACK PREPARED 'second'")
        source.catch_up()
        assert [row["id"] for row in source.events("a")] == [3, 1]


def test_a_truncation_empties_all_its_tables_in_order(
    database: str, connection: psycopg.Connection, tmp_path: Path
) -> None:
    connection.execute(
        "CREATE TABLE a (id int PRIMARY KEY); CREATE TABLE b (id int PRIMARY KEY REFERENCES a); CREATE TABLE uncaptured (id int);"
        "INSERT INTO a VALUES (1); INSERT INTO b VALUES (1)"
    )
    with logged(database, tmp_path, "a", "b") as source:
        with connection.transaction():
            connection.execute("INSERT INTO a VALUES (2)")
            connection.execute("TRUNCATE a, uncaptured RESTART IDENTITY CASCADE")
            connection.execute("INSERT INTO a VALUES (3)")
        connection.execute("INSERT INTO b VALUES (3)")
        source.catch_up()
        assert [row["__op"] for row in source.events("a")].count(TRUNCATE) == 1
        for table in "ab":
            assert source.replica(table) == source_rows(connection, table)


def test_an_empty_transaction_is_not_kept(database: str, connection: psycopg.Connection, tmp_path: Path) -> None:
    connection.execute("CREATE TABLE a (id int PRIMARY KEY)")
    with logged(database, tmp_path, "a") as source:
        connection.execute("CREATE TABLE other (id int); INSERT INTO other VALUES (1); UPDATE a SET id = 1 WHERE false")
        source.catch_up()
        assert len(source.log.transactions(0, EVERYTHING)) == 1
