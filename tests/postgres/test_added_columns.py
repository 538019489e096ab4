"""A column that the source gets is carried on: live and while the warehouse was closed, and history is never made again."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

import headgate
from headgate.runtime.spark_sessions import SparkSessions
from tests.postgres.warehouses import project, rows

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
