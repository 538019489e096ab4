"""A PostgreSQL source in a warehouse: flows over captured tables are what the database has, by every method."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

import headgate
from headgate.runtime.spark.sessions import SparkSessions

TABLES = """
CREATE TABLE accounts (id int PRIMARY KEY, branch text NOT NULL, balance numeric(12, 2) NOT NULL,
                       changed timestamptz NOT NULL DEFAULT clock_timestamp());
CREATE INDEX ON accounts (changed);
CREATE TABLE branches (name text PRIMARY KEY, city text, changed timestamptz NOT NULL DEFAULT clock_timestamp());
CREATE INDEX ON branches (changed);
INSERT INTO accounts SELECT i, 'b' || i % 3, 100 FROM generate_series(1, 30) i;
INSERT INTO branches VALUES ('b0', 'Bern'), ('b1', 'Genf'), ('b2', NULL);
"""
FLOWS = """
CREATE STREAMING TABLE branch;
CREATE FLOW branch_cdc AS AUTO CDC INTO branch FROM bank.branches KEYS (name) STORED AS SCD TYPE 2 TRACK HISTORY ON (city);
CREATE MATERIALIZED VIEW totals AS
SELECT b.city, COUNT(*) AS accounts, SUM(a.balance) AS total
FROM bank.accounts a JOIN bank.branches b ON b.name = a.branch GROUP BY b.city;
"""
TOTALS = "SELECT b.city, count(*), sum(a.balance) FROM accounts a JOIN branches b ON b.name = a.branch GROUP BY b.city"


def project(folder: Path, dsn: str, capture: str) -> dict[str, object]:
    (folder / "flows").mkdir(exist_ok=True)
    (folder / "flows/bank.sql").write_text(FLOWS)
    table = {"updated": "changed"} if capture == "timestamp" else {}
    return {
        "name": "bank",
        "storage": str(folder / "warehouse"),
        "libraries": [{"glob": {"include": f"{folder}/flows/**"}}],
        "sources": {
            "bank": {
                "type": "postgres",
                "dsn": dsn,
                "capture": capture,
                "tables": {"accounts": table, "branches": table},
            }
        },
    }


def transfer(connection: psycopg.Connection, source: int, target: int, amount: int) -> None:
    with connection.transaction():
        for account, change in ((source, -amount), (target, amount)):
            connection.execute(
                "UPDATE accounts SET balance = balance + %s, changed = clock_timestamp() WHERE id = %s",
                (change, account),
            )


@pytest.mark.parametrize("capture", ["log", "trigger", "timestamp"])
def test_flows_are_what_the_database_has(
    spark_sessions: SparkSessions,
    database: str,
    connection: psycopg.Connection,
    tmp_path: Path,
    capture: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    settings = project(tmp_path, database, capture)
    connection.execute(TABLES)

    def compare(warehouse: headgate.Warehouse) -> None:
        with warehouse.table("totals") as answer:
            found = {tuple(row.values()) for row in answer.to_arrow().to_pylist()}
        assert found == set(connection.execute(TOTALS).fetchall())

    with headgate.open(settings) as warehouse:
        assert ("only the versions that polls saw: dimension=branch" in caplog.text) == (capture == "timestamp")
        assert warehouse.refresh() == 1
        compare(warehouse)
        transfer(connection, 1, 2, 30)
        connection.execute("UPDATE branches SET city = 'Chur', changed = clock_timestamp() WHERE name = 'b2'")
        assert warehouse.refresh() == 2
        compare(warehouse)
        assert warehouse.refresh() == 2
        transfer(connection, 4, 5, 7)
    transfer(connection, 7, 8, 9)
    with headgate.open(settings) as warehouse:
        warehouse.refresh()
        compare(warehouse)
        with warehouse.sql("SELECT city, __end_at IS NULL FROM branch WHERE name = 'b2' ORDER BY __start_at") as answer:
            assert [tuple(row.values()) for row in answer.to_arrow().to_pylist()] == [(None, False), ("Chur", True)]
        with warehouse.sql("SELECT SUM(total) AS total FROM totals") as answer:
            assert answer.to_arrow().to_pylist() == [{"total": 3000}]
