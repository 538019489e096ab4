"""Keys that change, tables without a primary key, and keys that the log does not tell."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from headgate.capture.postgres.log_tables import TableDefinition
from headgate.capture.postgres.problems import SourceSetup
from headgate.delta.events import DELETE, UPSERT
from tests.postgres.logged import logged, source_rows


def test_a_changed_key_is_a_delete_and_an_upsert(database: str, connection: psycopg.Connection, tmp_path: Path) -> None:
    connection.execute("CREATE TABLE a (id int PRIMARY KEY, v text)")
    connection.execute("INSERT INTO a VALUES (1, 'one'), (2, 'two'), (3, 'three')")
    with logged(database, tmp_path, "a") as source:
        connection.execute("UPDATE a SET id = id + 10 WHERE id < 3")
        # Two rows swap their keys by way of a third.
        with connection.transaction():
            connection.execute("UPDATE a SET id = 99 WHERE id = 11")
            connection.execute("UPDATE a SET id = 11 WHERE id = 12")
            connection.execute("UPDATE a SET id = 12 WHERE id = 99")
        source.catch_up()
        assert source.replica("a") == source_rows(connection, "a")
        first = source.log.transactions(0, 1 << 62)[1]
        moves = [row for row in source.events("a") if row["__position"] == first.position]
        assert [(row["__op"], row["id"], row["v"]) for row in moves] == [
            (DELETE, 1, None),
            (UPSERT, 11, "one"),
            (DELETE, 2, None),
            (UPSERT, 12, "two"),
        ]


def test_a_table_without_a_primary_key_needs_the_whole_old_row(
    database: str, connection: psycopg.Connection, tmp_path: Path
) -> None:
    connection.execute("CREATE TABLE a (id int NOT NULL, v text)")
    wish = TableDefinition("a", "a", key=("id",))
    with (
        pytest.raises(SourceSetup, match=r"ALTER TABLE .* REPLICA IDENTITY FULL"),
        logged(database, tmp_path, wish),
    ):
        pass
    connection.execute("ALTER TABLE a REPLICA IDENTITY FULL")
    with logged(database, tmp_path, wish) as source:
        connection.execute("INSERT INTO a VALUES (1, 'x'), (2, 'y'), (3, NULL)")
        connection.execute("UPDATE a SET v = 'z' WHERE id = 1")
        connection.execute("UPDATE a SET id = 20 WHERE id = 2")
        connection.execute("DELETE FROM a WHERE id = 3")
        source.catch_up()
        assert source.replica("a") == source_rows(connection, "a")
        assert [row["v"] for row in source.events("a") if row["__op"] == DELETE] == [None, None]


def test_a_declared_key_beside_the_primary_key_needs_the_whole_old_row(
    database: str, connection: psycopg.Connection, tmp_path: Path
) -> None:
    connection.execute("CREATE TABLE a (id int PRIMARY KEY, code text NOT NULL UNIQUE)")
    wish = TableDefinition("a", "a", key=("code",))
    with pytest.raises(SourceSetup, match="does not tell the key"), logged(database, tmp_path, wish):
        pass
    connection.execute("ALTER TABLE a REPLICA IDENTITY USING INDEX a_code_key")
    with logged(database, tmp_path, wish) as source:
        connection.execute("INSERT INTO a VALUES (1, 'x'), (2, 'y')")
        connection.execute("UPDATE a SET id = 3 WHERE code = 'x'")
        connection.execute("UPDATE a SET code = 'z' WHERE code = 'y'")
        source.catch_up()
        assert source.replica("a", ["code"]) == source_rows(connection, "a", ["code"])


def test_a_replica_identity_that_loses_the_key_stops_the_table(
    database: str, connection: psycopg.Connection, tmp_path: Path
) -> None:
    connection.execute(
        "CREATE TABLE a (id int PRIMARY KEY, code text NOT NULL UNIQUE); INSERT INTO a VALUES (1, 'x'), (2, 'y')"
    )
    with logged(database, tmp_path, "a") as source:
        connection.execute("ALTER TABLE a REPLICA IDENTITY USING INDEX a_code_key")
        connection.execute("DELETE FROM a WHERE id = 1")
        source.catch_up()
        assert "does not tell the key (id)" in source.method.problems["a"].what
        assert [row["old"] for row in source.events("a__raw")] == [[None, "x"]]
        connection.execute("ALTER TABLE a REPLICA IDENTITY DEFAULT")
        source.method.resnapshot(["a"])
        connection.execute("DELETE FROM a WHERE id = 2")
        source.catch_up()
        assert (source.replica("a"), source.method.problems) == ([], {})


def test_tables_that_inherit_are_not_their_parents_and_partitions_are(
    database: str, connection: psycopg.Connection, tmp_path: Path
) -> None:
    connection.execute(
        "CREATE TABLE parent (id int PRIMARY KEY, v text); CREATE TABLE child (more int) INHERITS (parent);"
        "CREATE TABLE parted (id int PRIMARY KEY, v text) PARTITION BY RANGE (id);"
        "CREATE TABLE parted_low PARTITION OF parted FOR VALUES FROM (0) TO (10);"
        "CREATE TABLE parted_high PARTITION OF parted FOR VALUES FROM (10) TO (20);"
        "INSERT INTO parted VALUES (1, 'low'), (11, 'high'); INSERT INTO child VALUES (1, 'child', 1)"
    )
    with logged(database, tmp_path, "parent", "parted") as source:
        connection.execute("INSERT INTO parent VALUES (1, 'parent'); INSERT INTO child VALUES (2, 'child', 2)")
        connection.execute("INSERT INTO parted VALUES (2, 'low')")
        connection.execute("UPDATE parted SET id = 12 WHERE id = 1")
        source.catch_up()
        assert source.replica("parent") == [{"id": 1, "v": "parent"}]
        assert source.replica("parted") == source_rows(connection, "parted")


def test_an_unlogged_table_is_refused(database: str, connection: psycopg.Connection, tmp_path: Path) -> None:
    connection.execute("CREATE UNLOGGED TABLE a (id int PRIMARY KEY)")
    with pytest.raises(SourceSetup, match="SET LOGGED"), logged(database, tmp_path, "a"):
        pass
