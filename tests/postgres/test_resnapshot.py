"""A new snapshot takes wider types over, says which it cannot, and leaves nothing torn when it is cut short."""

from __future__ import annotations

import re
from pathlib import Path

import psycopg
import pytest
from pyspark.sql.types import (
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
)

import headgate
from headgate.errors import FlowFailed, SnapshotGone
from headgate.runtime.spark.sessions import SparkSessions
from headgate.runtime.tables.wider import holds_all
from tests.postgres.warehouses import project, rows

FLOWS = """
CREATE STREAMING TABLE city;
CREATE FLOW city_cdc AS AUTO CDC INTO city FROM bank.cities KEYS (id) STORED AS SCD TYPE 2;
CREATE MATERIALIZED VIEW totals AS SELECT city, SUM(amount) AS total, COUNT(*) AS n FROM bank.payments GROUP BY city;
CREATE MATERIALIZED VIEW most AS SELECT MAX(total) AS most FROM totals;
CREATE MATERIALIZED VIEW dear AS SELECT id FROM bank.payments WHERE amount > 15;
"""
TABLES = """
CREATE TABLE cities (id int PRIMARY KEY, name text, size int);
CREATE TABLE payments (id int PRIMARY KEY, city int, amount int);
INSERT INTO cities VALUES (1, 'Bern', 100), (2, 'Genf', 200);
INSERT INTO payments VALUES (1, 1, 10), (2, 2, 20), (3, 2, 30);
"""
TOTALS = "SELECT city, SUM(amount), COUNT(*) FROM payments GROUP BY city"


def check(warehouse: headgate.Warehouse, connection: psycopg.Connection) -> None:
    """Compares the replica of payments and the flows over it with the source."""
    for ours, theirs in (
        ("SELECT id, city, amount FROM bank.payments", "SELECT id, city, amount FROM payments"),
        ("SELECT city, total, n FROM totals", TOTALS),
        ("SELECT most FROM most", f"SELECT MAX(sum) FROM ({TOTALS}) AS t"),
        ("SELECT id FROM dear", "SELECT id FROM payments WHERE amount > 15"),
    ):
        assert sorted(rows(warehouse, ours)) == sorted(connection.execute(theirs.encode()).fetchall())


@pytest.mark.slow
@pytest.mark.parametrize("capture", ["log", "trigger"])
def test_wider_types_are_taken_over_and_history_is_not_made_up(
    spark_sessions: SparkSessions, database: str, connection: psycopg.Connection, tmp_path: Path, capture: str
) -> None:
    connection.execute(TABLES)
    settings = project(tmp_path, database, capture, ["cities", "payments"], FLOWS)
    with headgate.open(settings) as warehouse:
        warehouse.refresh()
        connection.execute("UPDATE payments SET amount = 25 WHERE id = 2")
        warehouse.refresh()
        since = rows(warehouse, "SELECT id, __commit_at FROM bank.payments ORDER BY id")
        # One that no job has taken when the table is stopped.
        connection.execute("UPDATE payments SET amount = 11 WHERE id = 1")
        connection.execute("ALTER TABLE payments ALTER amount TYPE bigint, ALTER id TYPE bigint")
        connection.execute("INSERT INTO payments VALUES (5000000000, 1, 7000000000)")
        with pytest.raises(FlowFailed, match=r"bank\.payments cannot be followed .* from integer to bigint.*refresh"):
            warehouse.refresh()
        warehouse.refresh(table="bank.payments")
        check(warehouse, connection)
        # Rows that did not change are as old as they were.
        assert rows(warehouse, "SELECT id, __commit_at FROM bank.payments WHERE id IN (2, 3) ORDER BY id") == since[1:]
        connection.execute(
            "UPDATE payments SET amount = amount + 9000000000 WHERE id = 3; DELETE FROM payments WHERE id = 2"
        )
        warehouse.refresh()
        check(warehouse, connection)
        assert not warehouse.failures
        # A dimension has its history with the type that it had.
        connection.execute(
            "ALTER TABLE cities ALTER size TYPE bigint; UPDATE cities SET size = 3000000000 WHERE id = 1"
        )
        with pytest.raises(
            FlowFailed, match=r"bank\.cities is .*size:bigint.* a dimension has its history.*another name"
        ):
            warehouse.refresh(table="bank.cities")
        connection.execute("INSERT INTO payments VALUES (6, 1, 6)")
        with pytest.raises(FlowFailed, match="a dimension has its history"):
            warehouse.refresh()
        check(warehouse, connection)
        assert rows(warehouse, "SELECT id, size FROM city ORDER BY id") == [(1, 100), (2, 200)]
    with headgate.open(settings) as warehouse:
        connection.execute("INSERT INTO payments VALUES (7, 2, 70)")
        with pytest.raises(FlowFailed, match="a dimension has its history"):
            warehouse.refresh()
        check(warehouse, connection)
        connection.execute("ALTER TABLE payments ALTER amount TYPE text")
        with pytest.raises(FlowFailed):
            warehouse.refresh(table="bank.payments")
        told = [str(failure) for failure in warehouse.failures]
        assert any(re.search(r"amount:string.*and was.*amount:bigint.*another name", each) for each in told)


@pytest.mark.parametrize("cut_short", ["while tables are read", "before the job is closed"])
def test_a_crash_within_a_new_snapshot_leaves_nothing_torn(
    spark_sessions: SparkSessions,
    database: str,
    connection: psycopg.Connection,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    cut_short: str,
) -> None:
    connection.execute(TABLES)
    flows = "CREATE MATERIALIZED VIEW n AS SELECT COUNT(*) AS n FROM bank.cities;"
    settings = project(tmp_path, database, "log", ["cities", "payments"], flows)

    def crash(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    with headgate.open(settings) as warehouse:
        assert warehouse.refresh() == 1
        connection.execute("ALTER TABLE cities ALTER name TYPE varchar(20)")
        connection.execute("INSERT INTO cities VALUES (3, 'Chur', 30); INSERT INTO payments VALUES (4, 3, 40)")
        with pytest.raises(FlowFailed, match="cannot be followed"):
            warehouse.refresh()
        assert warehouse.newest_job == 2
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            if cut_short == "while tables are read":
                patch.setattr("headgate.capture.postgres.load.copy_tables", crash)
            else:
                patch.setattr(warehouse._engine, "cut", crash)
            warehouse.refresh(table="bank.cities")
    with headgate.open(settings) as warehouse:
        warehouse.refresh()
        assert rows(warehouse, "SELECT n FROM n") == [(3,)]
        # At job 2 payments has what belongs to a city that cities lacks.
        with pytest.raises(SnapshotGone):
            warehouse.table("bank.cities", job=2)
        assert not warehouse.failures


@pytest.mark.parametrize(
    ("wide", "narrow", "holds"),
    [
        (LongType(), IntegerType(), True),
        (IntegerType(), LongType(), False),
        (ShortType(), ByteType(), True),
        (DoubleType(), FloatType(), True),
        (DoubleType(), IntegerType(), True),
        (DoubleType(), LongType(), False),
        (FloatType(), IntegerType(), False),
        (DecimalType(12, 2), DecimalType(10, 2), True),
        (DecimalType(12, 4), DecimalType(10, 2), True),
        (DecimalType(10, 4), DecimalType(10, 2), False),
        (DecimalType(10, 0), IntegerType(), True),
        (DecimalType(20, 2), LongType(), False),
        (StringType(), IntegerType(), False),
        (IntegerType(), DateType(), False),
        (DateType(), DateType(), True),
    ],
)
def test_a_type_holds_all_values_of_another(wide: DataType, narrow: DataType, holds: bool) -> None:
    assert holds_all(wide, narrow) == holds
