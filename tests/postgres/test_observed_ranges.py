"""Key ranges over rows that are observed, by polls and by reading the table whole again: only what differs is a change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
import pytest

import headgate
from headgate.runtime.spark.sessions import SparkSessions
from headgate.runtime.stages.ways import Way
from tests.postgres.warehouses import project

FLOWS = """
CREATE MATERIALIZED VIEW doubled AS SELECT id, 2 * price AS twice FROM bank.prices;
CREATE STREAMING TABLE price;
CREATE FLOW price_cdc AS AUTO CDC INTO price FROM bank.prices KEYS (id) STORED AS SCD TYPE 2;
"""


def ask(warehouse: headgate.Warehouse, text: str, job: int | None = None) -> list[tuple[Any, ...]]:
    with warehouse.sql(text, job) as answer:
        return sorted(tuple(row.values()) for row in answer.to_arrow().to_pylist())


def jobs(warehouse: headgate.Warehouse, table: str = "doubled") -> list[int]:
    found = next(each for each in warehouse.ranges() if each.table == table)
    return [int(each.through) for each in found.ranges]


@pytest.mark.parametrize("way", [Way.NARROW, Way.WIDE])
def test_observed_rows_concern_every_range_by_itself(
    connection: psycopg.Connection, database: str, tmp_path: Path, spark_sessions: SparkSessions, way: Way
) -> None:
    connection.execute(
        "CREATE TABLE prices (id int PRIMARY KEY, price int, at timestamptz NOT NULL DEFAULT now());"
        "CREATE INDEX ON prices (at);"
        "INSERT INTO prices VALUES (1, 10), (11, 20), (21, 30)"
    )
    settings: dict[str, Any] = project(tmp_path, database, "timestamp", ["prices"], FLOWS)
    settings["background"] = {"system_jobs": False}
    settings["sources"]["bank"]["tables"]["prices"] = {"updated": "at", "ranges": {"column": "id", "bounds": [10, 20]}}
    with headgate.open(settings) as warehouse:
        warehouse._engine.batches.ways.forced = way
        assert ask(warehouse, "SELECT id, twice FROM doubled") == [(1, 20), (11, 40), (21, 60)]
        first = jobs(warehouse)[0]
        connection.execute("UPDATE prices SET price = 31, at = now() WHERE id = 21; INSERT INTO prices VALUES (12, 5)")
        assert ask(warehouse, "SELECT id, twice FROM doubled WHERE id BETWEEN 10 AND 19") == [(11, 40), (12, 10)]
        polled = jobs(warehouse)[1]
        assert jobs(warehouse) == jobs(warehouse, "bank.prices") == [first, polled, first]
        # Polls do not see what has gone; the table is emptied and its rows are observed, most of them as they were.
        connection.execute("DELETE FROM prices WHERE id = 11")
        warehouse.sources["bank"].resnapshot(["prices"])
        assert ask(warehouse, "SELECT id, twice FROM doubled WHERE id >= 20") == [(21, 62)]
        last = jobs(warehouse)[2]
        assert first < polled < last
        assert jobs(warehouse) == jobs(warehouse, "bank.prices") == [first, polled, last]
        assert ask(warehouse, "SELECT id, twice FROM doubled WHERE id < 10") == [(1, 20)]
        assert ask(warehouse, "SELECT id, twice FROM doubled") == [(1, 20), (12, 10), (21, 62)]
        assert ask(warehouse, "SELECT id, twice FROM doubled", polled) == [(1, 20), (11, 40), (12, 10), (21, 62)]
        assert ask(warehouse, "SELECT id, price, __end_at IS NULL FROM price") == [
            (1, 10, True),
            (11, 20, False),
            (12, 5, True),
            (21, 30, False),
            (21, 31, True),
        ]
