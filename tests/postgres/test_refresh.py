"""Recovery by `refresh`: one table or all, by every method of capture, and nothing keeps the others from going on."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

import headgate
from headgate.capture.postgres.problems import SourceSetup
from headgate.errors import DefiniteError, FlowFailed, UnknownTable
from headgate.runtime.spark.sessions import SparkSessions
from tests.postgres.warehouses import project, rows

TABLES = """
CREATE TABLE cities (id int PRIMARY KEY, name text, at timestamptz NOT NULL DEFAULT clock_timestamp());
CREATE TABLE payments (id int PRIMARY KEY, amount int, at timestamptz NOT NULL DEFAULT clock_timestamp());
INSERT INTO cities VALUES (1, 'Bern'), (2, 'Genf'); INSERT INTO payments VALUES (1, 10)
"""
FLOWS = """
CREATE STREAMING TABLE city;
CREATE FLOW city_cdc AS AUTO CDC INTO city FROM bank.cities KEYS (id) STORED AS SCD TYPE 2;
CREATE MATERIALIZED VIEW names AS SELECT name, COUNT(*) AS n FROM bank.cities GROUP BY name;
CREATE MATERIALIZED VIEW lengths AS SELECT length(name) AS letters, SUM(n) AS n FROM names GROUP BY length(name);
CREATE MATERIALIZED VIEW amounts AS SELECT SUM(amount) AS total FROM bank.payments;
"""
NAMES = "SELECT name FROM names ORDER BY name"


def settings(folder: Path, dsn: str, capture: str) -> dict[str, object]:
    found = project(folder, dsn, capture, ["cities", "payments"], FLOWS)
    if capture == "timestamp":
        tables = found["sources"]["bank"]["tables"]  # type: ignore[index]
        for table in tables:
            tables[table] = {"updated": "at"}
    return found


@pytest.mark.parametrize("capture", ["log", "trigger", "timestamp"])
def test_a_dropped_table_keeps_no_other_from_being_read_again(
    spark_sessions: SparkSessions, database: str, connection: psycopg.Connection, tmp_path: Path, capture: str
) -> None:
    connection.execute(TABLES)
    told = r"bank\.payments cannot be followed any further"
    with headgate.open(settings(tmp_path, database, capture)) as warehouse:
        warehouse.refresh()
        connection.execute("DROP TABLE payments; INSERT INTO cities VALUES (3, 'Chur')")
        with pytest.raises(FlowFailed, match=told):
            warehouse.refresh(full=True)
        assert rows(warehouse, NAMES) == [("Bern",), ("Chur",), ("Genf",)]
        with pytest.raises(SourceSetup, match="no table payments"):
            warehouse.refresh(table="bank.payments")
        connection.execute("INSERT INTO cities VALUES (4, 'Sion')")
        with pytest.raises(FlowFailed, match=told):
            warehouse.refresh()
        assert rows(warehouse, NAMES) == [("Bern",), ("Chur",), ("Genf",), ("Sion",)]
    # Nor does it keep the warehouse from being opened.
    with headgate.open(settings(tmp_path, database, capture)) as warehouse:
        assert list(warehouse.sources["bank"].problems) == ["payments"]
        connection.execute("UPDATE cities SET name = 'Visp', at = clock_timestamp() WHERE id = 4")
        # Others that fail are not what was asked for.
        warehouse.refresh(table="bank.cities")
        assert rows(warehouse, NAMES) == [("Bern",), ("Chur",), ("Genf",), ("Visp",)]
        assert rows(warehouse, "SELECT total FROM amounts") == [(10,)]
        connection.execute("CREATE TABLE payments (id int PRIMARY KEY, amount int, at timestamptz DEFAULT now())")
        connection.execute("INSERT INTO payments VALUES (2, 7)")
        warehouse.refresh(table="bank.payments")
        assert rows(warehouse, "SELECT total FROM amounts") == [(7,)]
        connection.execute("INSERT INTO payments VALUES (3, 1)")
        warehouse.refresh()
        assert rows(warehouse, "SELECT total FROM amounts") == [(8,)] and not warehouse.failures


def test_a_flow_is_built_again_from_its_inputs(
    spark_sessions: SparkSessions, database: str, connection: psycopg.Connection, tmp_path: Path
) -> None:
    connection.execute(TABLES)
    with headgate.open(settings(tmp_path, database, "log")) as warehouse:
        warehouse.refresh()
        before = {name: warehouse.location(name) for name in ("names", "lengths", "amounts")}
        connection.execute("INSERT INTO cities VALUES (3, 'Lausanne')")
        warehouse.refresh(table="NAMES")
        # Also what reads it: the new table has no changes from before.
        moved = {name for name, place in before.items() if warehouse.location(name) != place}
        assert moved == {"names", "lengths"}
        assert rows(warehouse, "SELECT * FROM lengths ORDER BY letters") == [(4, 2), (8, 1)]
        connection.execute("INSERT INTO cities VALUES (4, 'Sion')")
        warehouse.refresh()
        assert rows(warehouse, "SELECT * FROM lengths ORDER BY letters") == [(4, 3), (8, 1)]
        with pytest.raises(DefiniteError, match=r"city keeps history, .*refresh\(table='bank\.cities'\)"):
            warehouse.refresh(table="city")
        with pytest.raises(UnknownTable, match=r"no table citys.*city"):
            warehouse.refresh(table="citys")
        with pytest.raises(DefiniteError, match="exclude each other"):
            warehouse.refresh(table="names", full=True)
    with headgate.open(settings(tmp_path, database, "log")) as warehouse:
        warehouse.refresh()
        assert rows(warehouse, NAMES) == [("Bern",), ("Genf",), ("Lausanne",), ("Sion",)]
