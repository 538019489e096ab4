"""A table that changes its shape is stopped for its readers: they hear why, others go on, and a new snapshot is the remedy."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

import headgate
from headgate.errors import FlowFailed, SnapshotGone, UnknownTable
from headgate.runtime.spark.sessions import SparkSessions
from tests.postgres.warehouses import project, rows

FLOWS = """
CREATE STREAMING TABLE city;
CREATE FLOW city_cdc AS AUTO CDC INTO city FROM bank.cities KEYS (id) STORED AS SCD TYPE 2;
CREATE MATERIALIZED VIEW names AS SELECT name, COUNT(*) AS n FROM bank.cities GROUP BY name;
CREATE MATERIALIZED VIEW amounts AS SELECT SUM(amount) AS total FROM bank.payments;
"""
VERSIONS = "SELECT id, name, __end_at IS NULL FROM city ORDER BY id, __start_at"


@pytest.mark.parametrize("capture", ["log", "trigger"])
def test_readers_of_a_stopped_table_hear_why_and_a_new_snapshot_keeps_history(
    spark_sessions: SparkSessions, database: str, connection: psycopg.Connection, tmp_path: Path, capture: str
) -> None:
    connection.execute(
        "CREATE TABLE cities (id int PRIMARY KEY, name text); CREATE TABLE payments (id int PRIMARY KEY, amount int);"
        "INSERT INTO cities VALUES (1, 'Bern'), (2, 'Genf'), (3, 'Chur'); INSERT INTO payments VALUES (1, 10)"
    )
    settings = project(tmp_path, database, capture, ["cities", "payments"], FLOWS)
    heard: list[tuple[str, int, bool]] = []
    with headgate.open(
        settings, progress=lambda name, found: heard.append((name, found.rows, found.is_done))
    ) as warehouse:
        assert warehouse.refresh() == 1
        assert heard[-1] == ("bank", 4, True)
        connection.execute("UPDATE cities SET name = 'Thun' WHERE id = 2")
        assert warehouse.close_job() == 2
        connection.execute("ALTER TABLE cities ALTER name TYPE varchar(20)")
        connection.execute("UPDATE cities SET name = 'Biel' WHERE id = 1; DELETE FROM cities WHERE id = 3")
        connection.execute("INSERT INTO cities VALUES (4, 'Sion'); INSERT INTO payments VALUES (2, 5)")
        with pytest.raises(
            FlowFailed,
            match=r"bank\.cities cannot be followed .* from text to character varying.*refresh\(table=.bank\.cities.\)",
        ):
            warehouse.refresh()
        assert warehouse.newest_job == 3
        # Earlier jobs are complete, others go on, and what reads both is answered at the last job of the one that is stopped.
        assert sorted(rows(warehouse, "SELECT name FROM names")) == [("Bern",), ("Chur",), ("Thun",)]
        assert rows(warehouse, "SELECT total FROM amounts") == [(15,)]
        assert set(rows(warehouse, "SELECT name, total FROM names, amounts")) == {
            ("Bern", 10),
            ("Chur", 10),
            ("Thun", 10),
        }
        connection.execute("INSERT INTO payments VALUES (3, 1)")
        with pytest.raises(FlowFailed, match="cannot be followed"):
            warehouse.refresh()
        assert rows(warehouse, "SELECT total FROM amounts") == [(16,)]
    with headgate.open(settings) as warehouse:
        with pytest.raises(FlowFailed, match="cannot be followed"):
            warehouse.refresh()
        assert rows(warehouse, VERSIONS) == [
            (1, "Bern", True),
            (2, "Genf", False),
            (2, "Thun", True),
            (3, "Chur", True),
        ]
        with pytest.raises(UnknownTable, match=r"no table bank\.towns"):
            warehouse.refresh(table="bank.towns")
        job = warehouse.refresh(table="bank.cities")
        assert rows(warehouse, VERSIONS) == [
            (1, "Bern", False),
            (1, "Biel", True),
            (2, "Genf", False),
            (2, "Thun", True),
            (3, "Chur", False),
            (4, "Sion", True),
        ]
        # In between the two tables were not from one moment.
        with pytest.raises(SnapshotGone):
            warehouse.table("bank.cities", job=job - 1)
        connection.execute("UPDATE cities SET name = 'Visp' WHERE id = 4")
        warehouse.refresh()
        assert (4, "Visp", True) in rows(warehouse, VERSIONS)
        assert not warehouse.failures
