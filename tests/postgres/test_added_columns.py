"""A column that the source gets is carried on: live and while the warehouse was closed, and history is never made again."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

import headgate
from headgate.runtime.spark.sessions import SparkSessions
from tests.postgres.warehouses import project, rows
from tests.waiting import eventually

FLOWS = """
CREATE STREAMING TABLE city;
CREATE FLOW city_cdc AS AUTO CDC INTO city FROM bank.cities KEYS (id) STORED AS SCD TYPE 2 TRACK HISTORY ON * EXCEPT (note);
CREATE MATERIALIZED VIEW names AS SELECT name, COUNT(*) AS n FROM bank.cities GROUP BY name;
"""
VERSIONS = "SELECT * FROM city ORDER BY id, name"


@pytest.mark.parametrize("capture", ["log", "trigger"])
def test_an_added_column_is_carried_on(
    spark_sessions: SparkSessions, database: str, connection: psycopg.Connection, tmp_path: Path, capture: str
) -> None:
    connection.execute(
        "CREATE TABLE cities (id int PRIMARY KEY, name text, note text); INSERT INTO cities VALUES (1, 'Bern'), (2, 'Genf')"
    )
    settings = project(tmp_path, database, capture, ["cities"], FLOWS)
    with headgate.open(settings) as warehouse:
        warehouse.refresh()
        connection.execute("INSERT INTO cities VALUES (3, 'Chur')")
        connection.execute("ALTER TABLE cities ADD COLUMN zip int; INSERT INTO cities VALUES (4, 'Thun', NULL, 3600)")
        connection.execute("UPDATE cities SET zip = 3000 WHERE id = 1")
        warehouse.refresh()
        found = "SELECT id, name, zip FROM bank.cities ORDER BY id"
        after = [(1, "Bern", 3000), (2, "Genf", None), (3, "Chur", None), (4, "Thun", 3600)]
        assert rows(warehouse, found) == after
        # The dimension has the columns that it was made with, so a change of another one is none of its.
        versions = [(1, "Bern", None), (2, "Genf", None), (3, "Chur", None), (4, "Thun", None)]
        assert rows(warehouse, VERSIONS) == versions
        warehouse.flow("zips", "SELECT zip, COUNT(*) AS n FROM bank.cities GROUP BY zip")
        assert set(rows(warehouse, "SELECT * FROM zips")) == {(3000, 1), (3600, 1), (None, 2)}
        connection.execute("ALTER TABLE cities ADD COLUMN canton text; UPDATE cities SET canton = 'BE' WHERE id = 1")
        warehouse.refresh()
        connection.execute("UPDATE cities SET name = 'Berne', canton = 'Bern' WHERE id = 1")
    connection.execute("ALTER TABLE cities ADD COLUMN mayor text")
    connection.execute("UPDATE cities SET mayor = 'Ada', zip = 7000 WHERE id = 3")
    with headgate.open(settings) as warehouse:
        warehouse.refresh()
        warehouse.materialize()
        assert rows(warehouse, VERSIONS) == [(1, "Bern", None), (1, "Berne", None), *versions[1:]]
        assert set(rows(warehouse, "SELECT * FROM zips")) == {(3000, 1), (3600, 1), (7000, 1), (None, 1)}
        assert set(rows(warehouse, "SELECT name FROM names")) == {("Berne",), ("Genf",), ("Chur",), ("Thun",)}
    with headgate.open(settings) as warehouse:
        assert rows(warehouse, "SELECT id, zip, canton, mayor FROM bank.cities ORDER BY id") == [
            (1, 3000, "Bern", None),
            (2, None, None, None),
            (3, 7000, None, "Ada"),
            (4, 3600, None, None),
        ]
        connection.execute("DELETE FROM cities WHERE id = 4")
        warehouse.refresh()
        assert rows(warehouse, "SELECT COUNT(*) FROM city WHERE __end_at IS NULL") == [(3,)]


@pytest.mark.parametrize("capture", ["log", "trigger", "timestamp"])
def test_a_column_that_is_added_with_values_is_carried_on(
    spark_sessions: SparkSessions, database: str, connection: psycopg.Connection, tmp_path: Path, capture: str
) -> None:
    """Rows from before have them without being written, so no change tells: the table is read whole by itself."""
    connection.execute(
        "CREATE TABLE cities (id int PRIMARY KEY, name text, note text, at timestamptz DEFAULT clock_timestamp());"
        "CREATE TABLE notes (id int PRIMARY KEY, at timestamptz DEFAULT clock_timestamp());"
        "INSERT INTO cities VALUES (1, 'Bern'), (2, 'Genf')"
    )
    settings = project(tmp_path, database, capture, ["cities", "notes"], FLOWS)
    if capture == "timestamp":
        settings["sources"]["bank"]["tables"] = {"cities": {"updated": "at"}, "notes": {"updated": "at"}}  # type: ignore[index]
    with headgate.open(settings) as warehouse:
        warehouse.refresh()
        connection.execute("ALTER TABLE cities ADD COLUMN rank int NOT NULL DEFAULT 7")
        connection.execute("INSERT INTO cities (id, name, rank) VALUES (3, 'Chur', 1); INSERT INTO notes VALUES (1)")
        warehouse.refresh()
        assert not warehouse.failures
        found = "SELECT id, rank FROM bank.cities ORDER BY id"
        assert rows(warehouse, found) == [(1, 7), (2, 7), (3, 1)]
        # Nothing that could be read before is gone, and the dimension has the columns that it was made with.
        assert warehouse.table("bank.cities", job=1).to_arrow().num_rows == 2
        assert rows(warehouse, "SELECT id, name FROM city ORDER BY id") == [(1, "Bern"), (2, "Genf"), (3, "Chur")]
        warehouse.flow("ranks", "SELECT rank, COUNT(*) AS n FROM bank.cities GROUP BY rank")
        assert set(rows(warehouse, "SELECT * FROM ranks")) == {(7, 2), (1, 1)}
        # Values that differ from row to row cannot be known otherwise either; and the flows that run go on.
        connection.execute("ALTER TABLE cities ADD COLUMN code int NOT NULL DEFAULT (random() * 0)::int + 4")
        connection.execute("UPDATE cities SET name = 'Berne', rank = 2, at = clock_timestamp() WHERE id = 1")
        warehouse.refresh()
        assert rows(warehouse, "SELECT id, rank, code FROM bank.cities ORDER BY id") == [
            (1, 2, 4),
            (2, 7, 4),
            (3, 1, 4),
        ]
        assert set(rows(warehouse, "SELECT * FROM ranks")) == {(7, 1), (2, 1), (1, 1)}
    connection.execute(
        "ALTER TABLE cities ADD COLUMN open boolean NOT NULL DEFAULT true; DELETE FROM cities WHERE id = 3"
    )
    connection.execute("INSERT INTO cities (id, name, open) VALUES (4, 'Sion', false)")
    with headgate.open(settings) as warehouse:
        warehouse.refresh()
        # Reading the table whole also shows what polls do not see.
        assert rows(warehouse, "SELECT id, open FROM bank.cities ORDER BY id") == [(1, True), (2, True), (4, False)]
        assert not warehouse.failures


def test_a_column_is_there_before_anything_is_written(
    spark_sessions: SparkSessions, database: str, connection: psycopg.Connection, tmp_path: Path
) -> None:
    connection.execute("CREATE TABLE cities (id int PRIMARY KEY, name text, note text); INSERT INTO cities VALUES (1)")
    with headgate.open(project(tmp_path, database, "log", ["cities"], FLOWS)) as warehouse:
        warehouse.refresh()
        connection.execute("ALTER TABLE cities ADD COLUMN zip int")
        connection.execute("ALTER TABLE cities ADD COLUMN rank int NOT NULL DEFAULT 7")

        def found() -> bool:
            warehouse.refresh()
            return {"zip", "rank"} <= set(warehouse.table("bank.cities").dataframe.columns)

        eventually(found)
        assert rows(warehouse, "SELECT id, zip, rank FROM bank.cities") == [(1, None, 7)]
        assert not warehouse.failures
