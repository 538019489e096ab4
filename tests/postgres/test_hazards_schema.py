"""Tables that change their shape while they are captured."""

from __future__ import annotations

from pathlib import Path

import psycopg

from tests.postgres.logged import EVERYTHING, logged, source_rows


def test_an_added_column_is_carried_on(database: str, connection: psycopg.Connection, tmp_path: Path) -> None:
    connection.execute("CREATE TABLE a (id int PRIMARY KEY, v text); INSERT INTO a VALUES (1, 'x')")
    with logged(database, tmp_path, "a") as source:
        connection.execute("INSERT INTO a VALUES (2, 'y')")
        with connection.transaction():
            connection.execute("INSERT INTO a VALUES (3, 'z')")
            connection.execute("ALTER TABLE a ADD COLUMN more int")
            connection.execute("INSERT INTO a VALUES (4, 'after', 4)")
        connection.execute("UPDATE a SET more = 1 WHERE id = 1")
        source.catch_up()
        assert not source.method.problems
        assert [column.name for column in source.method.tables["a"].columns] == ["id", "v", "more"]
        assert [(row["id"], row.get("more")) for row in source.events("a")] == [
            (1, None),
            (2, None),
            (3, None),
            (4, 4),
            (1, 1),
        ]
    with logged(database, tmp_path, "a") as source:
        connection.execute("INSERT INTO a VALUES (5, 'again', 5)")
        source.catch_up()
        assert not source.method.problems
        assert source.events("a")[-1]["more"] == 5


def test_a_column_added_while_closed_is_carried_on(
    database: str, connection: psycopg.Connection, tmp_path: Path
) -> None:
    connection.execute("CREATE TABLE a (id int PRIMARY KEY, v text)")
    with logged(database, tmp_path, "a"):
        pass
    connection.execute(
        "INSERT INTO a VALUES (1, 'x'); ALTER TABLE a ADD COLUMN more int; INSERT INTO a VALUES (2, 'y', 2)"
    )
    connection.execute("ALTER TABLE a ADD COLUMN most int; INSERT INTO a VALUES (3, 'z', 3, 3)")
    with logged(database, tmp_path, "a") as source:
        source.catch_up()
        assert not source.method.problems
        assert [(row["id"], row["more"], row["most"]) for row in source.events("a")] == [
            (1, None, None),
            (2, 2, None),
            (3, 3, 3),
        ]


def test_other_changes_stop_the_table_and_no_other(
    database: str, connection: psycopg.Connection, tmp_path: Path
) -> None:
    for table in ("renamed", "dropped", "retyped", "defaulted", "well"):
        connection.execute(
            f"CREATE TABLE {table} (id int PRIMARY KEY, v text); INSERT INTO {table} VALUES (1, 'x')".encode()
        )
    with logged(database, tmp_path, "renamed", "dropped", "retyped", "defaulted", "well") as source:
        connection.execute("ALTER TABLE renamed RENAME COLUMN v TO w; ALTER TABLE dropped DROP COLUMN v")
        connection.execute(
            "ALTER TABLE retyped ALTER v TYPE varchar(9); ALTER TABLE defaulted ADD COLUMN n int DEFAULT 7"
        )
        for table in ("renamed", "retyped", "well"):
            connection.execute(f"INSERT INTO {table} VALUES (2, 'y')".encode())
        connection.execute("INSERT INTO dropped VALUES (2)")
        connection.execute("UPDATE defaulted SET v = 'z'; TRUNCATE renamed")
        source.catch_up()
        assert {name: problem.what.split(": ")[1] for name, problem in source.method.problems.items()} == {
            "renamed": "the column v was renamed to w",
            "dropped": "the column v was dropped",
            "retyped": "the column v was changed from text to character varying(9)",
        }
        assert source.replica("well") == source_rows(connection, "well")
        raw = source.events("renamed__raw")
        assert [(row["__op"], row["columns"], row["new"]) for row in raw] == [
            (1, ["id", "w"], ["2", "y"]),
            (2, ["id", "w"], None),
        ]
        # No change tells the values of rows from before, so the table is read whole by itself.
        assert source.replica("defaulted") == source_rows(connection, "defaulted")

        source.method.resnapshot(["dropped"])
        assert sorted(source.method.problems) == ["renamed", "retyped"]
        connection.execute("INSERT INTO defaulted VALUES (3, 'after')")
        source.catch_up()
        assert source.replica("defaulted") == source_rows(connection, "defaulted")
        assert [row["id"] for row in source.replica("dropped")] == [1, 2]


def test_a_dropped_table_is_noticed(database: str, connection: psycopg.Connection, tmp_path: Path) -> None:
    connection.execute("CREATE TABLE a (id int PRIMARY KEY); CREATE TABLE b (id int PRIMARY KEY)")
    with logged(database, tmp_path, "a", "b") as source:
        connection.execute("DROP TABLE a; CREATE TABLE a (id int PRIMARY KEY); INSERT INTO b VALUES (1)")
        source.catch_up()
        assert "dropped" in source.method.problems["a"].what
        assert source.replica("b") == [{"id": 1}]
    with logged(database, tmp_path, "a", "b") as source:
        source.method.resnapshot(["a"])
        connection.execute("INSERT INTO a VALUES (7)")
        source.catch_up()
        assert (source.replica("a"), source.method.problems) == ([{"id": 7}], {})


def test_a_table_taken_out_of_the_publication_for_a_while_is_noticed(
    database: str, connection: psycopg.Connection, tmp_path: Path
) -> None:
    connection.execute("CREATE TABLE a (id int PRIMARY KEY); CREATE TABLE b (id int PRIMARY KEY)")
    with logged(database, tmp_path, "a", "b"):
        pass
    connection.execute("ALTER PUBLICATION headgate_test_source DROP TABLE a")
    connection.execute("INSERT INTO a VALUES (1)")
    connection.execute("ALTER PUBLICATION headgate_test_source ADD TABLE a")
    with logged(database, tmp_path, "a", "b") as source:
        source.catch_up()
        assert "publication" in source.method.problems["a"].what


def test_columns_that_the_source_computes_are_left_out(
    database: str, connection: psycopg.Connection, tmp_path: Path
) -> None:
    connection.execute("CREATE TABLE a (id int PRIMARY KEY, double int GENERATED ALWAYS AS (id * 2) STORED, v text)")
    connection.execute("INSERT INTO a (id, v) VALUES (1, 'loaded')")
    with logged(database, tmp_path, "a") as source:
        connection.execute("INSERT INTO a (id, v) VALUES (2, 'streamed')")
        source.catch_up()
        assert source.replica("a") == [{"id": 1, "v": "loaded"}, {"id": 2, "v": "streamed"}]
        assert len(source.log.transactions(0, EVERYTHING)) == 2
