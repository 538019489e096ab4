"""Values that are stored out of line: an update that leaves them alone does not tell them."""

from __future__ import annotations

from pathlib import Path

import psycopg

from headgate.capture.postgres.pgoutput_raw import raw_name
from tests.postgres.logged import logged, source_rows

_LARGE = "(SELECT string_agg(md5(n::text), '') FROM generate_series(1, 400) AS n)"
_TABLE = (
    "CREATE TABLE a (id int PRIMARY KEY, n int, big text, other text);"
    f"ALTER TABLE a ALTER big SET STORAGE EXTERNAL; INSERT INTO a SELECT i, 0, {_LARGE}, 'o' FROM generate_series(1, 3) i"
)


def test_an_unchanged_value_is_named_and_left_to_the_replica(
    database: str, connection: psycopg.Connection, tmp_path: Path
) -> None:
    connection.execute(_TABLE)
    with logged(database, tmp_path, "a") as source:
        connection.execute("UPDATE a SET n = 1 WHERE id = 1")
        connection.execute("UPDATE a SET big = big || 'x' WHERE id = 2")
        connection.execute("UPDATE a SET big = NULL, n = 2 WHERE id = 3")
        source.catch_up()
        assert [row["__unchanged"] for row in source.events("a")[3:]] == [["big"], [], []]
        assert source.replica("a") == source_rows(connection, "a")


def test_with_the_whole_old_row_nothing_is_left_out(
    database: str, connection: psycopg.Connection, tmp_path: Path
) -> None:
    connection.execute(_TABLE)
    connection.execute("ALTER TABLE a REPLICA IDENTITY FULL")
    with logged(database, tmp_path, "a") as source:
        connection.execute("UPDATE a SET n = 1 WHERE id = 1")
        connection.execute("UPDATE a SET id = 20 WHERE id = 2")
        source.catch_up()
        assert not any(row["__unchanged"] for row in source.events("a"))
        assert source.replica("a") == source_rows(connection, "a")


def test_a_changed_key_with_an_unchanged_value_stops_the_table_and_names_the_remedy(
    database: str, connection: psycopg.Connection, tmp_path: Path
) -> None:
    connection.execute(_TABLE)
    connection.execute("CREATE TABLE b (id int PRIMARY KEY)")
    with logged(database, tmp_path, "a", "b") as source:
        connection.execute("UPDATE a SET n = 1 WHERE id = 1")
        connection.execute("UPDATE a SET id = 20 WHERE id = 2")
        connection.execute("UPDATE a SET n = 3 WHERE id = 3")
        connection.execute("INSERT INTO b VALUES (1)")
        source.catch_up()
        problem = source.method.problems["a"]
        assert "big" in problem.what and "ALTER TABLE public.a REPLICA IDENTITY FULL" in problem.hint
        transactions = source.log.transactions(0, 1 << 62)
        assert [sorted(each.rows) for each in transactions] == [["a"], ["a"], [raw_name("a")], [raw_name("a")], ["b"]]
        assert problem.position == transactions[2].position

        connection.execute("ALTER TABLE a REPLICA IDENTITY FULL")
        source.method.resnapshot(["a"])
        assert not source.method.problems
        connection.execute("UPDATE a SET id = 30 WHERE id = 3; INSERT INTO b VALUES (2)")
        source.catch_up()
        for table in "ab":
            assert source.replica(table) == source_rows(connection, table)
