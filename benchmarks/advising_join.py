"""The paper's join at growing update rates, on both platforms: incremental against recomputed, and what the choice by cost loses.

On Spark the warehouse takes the same changes in each way. In PostgreSQL the kept result is a table: incremental deletes the rows of
changed keys and joins the changed rows; recomputed joins all.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from random import Random

import psycopg
import pyarrow as pa

import headgate
from benchmarks.report import say, seconds
from headgate import Warehouse
from headgate.capture.postgres.private_server import PostgresServer
from headgate.runtime.stages.ways import Way

COLUMNS = {
    "lines": {"columns": {"id": "bigint", "order_id": "bigint", "qty": "int"}, "key": ["id"]},
    "orders": {"columns": {"order_id": "bigint", "status": "int"}, "key": ["order_id"]},
}
FLOW = """
CREATE MATERIALIZED VIEW joined AS
SELECT l.id, o.order_id, o.status, l.qty FROM shop.lines l JOIN shop.orders o ON o.order_id = l.order_id WHERE o.status < 9;
"""


def join_figures(folder: Path, server: PostgresServer, rows: int, rates: tuple[float, ...]) -> dict[str, object]:
    """Per rate the seconds of each way on each platform, the rate from which recomputing is quicker, and the worst regret."""
    spark = _spark(folder, rows, rates)
    database = _database(server, rows, rates)
    ratio = {
        "spark": {rate: found["recompute"] / min(found["narrow"], found["wide"]) for rate, found in spark.items()},
        "postgres": {rate: found["recompute"] / found["incremental"] for rate, found in database.items()},
    }
    return {
        "join_seconds": {"spark": _named(spark), "postgres": _named(database)},
        "join_recompute_over_incremental": {name: _shown(found) for name, found in ratio.items()},
        "join_incremental_pays_up_to": {
            name: max((rate for rate, found in each.items() if found > 1), default=0.0) for name, each in ratio.items()
        },
        "regret_of_ways": max(found["chosen"] / min(found[way] for way in Way) for found in spark.values()),
    }


def _named(found: Mapping[float, Mapping[str, float]]) -> dict[str, Mapping[str, float]]:
    return {f"{100 * rate:g} %": each for rate, each in found.items()}


def _shown(found: Mapping[float, float]) -> dict[str, float]:
    return {f"{100 * rate:g} %": value for rate, value in found.items()}


def _lines(random: Random, keys: list[int], rows: int) -> pa.Table:
    return pa.table(
        {
            "id": pa.array(keys, pa.int64()),
            "order_id": pa.array([random.randrange(rows // 4) for _ in keys], pa.int64()),
            "qty": pa.array([random.randrange(100) for _ in keys], pa.int32()),
        }
    )


def _spark(folder: Path, rows: int, rates: tuple[float, ...]) -> dict[float, dict[str, float]]:
    (folder / "flows").mkdir(parents=True)
    (folder / "flows/flows.sql").write_text(FLOW)
    project = {
        "name": "join",
        "storage": str(folder / "warehouse"),
        "libraries": [{"glob": {"include": f"{folder}/flows/**"}}],
        "spark": {"spark.master": "local[2]"},
        "sources": {"shop": {"type": "memory", "tables": COLUMNS}},
        "background": {"system_jobs": False, "idle_after": "1h"},
    }
    random, found = Random(4), {}
    with headgate.open(project) as warehouse:
        with warehouse.source("shop").transaction(initial=True) as transaction:
            transaction.insert_many("lines", _lines(random, list(range(rows)), rows))
            orders = {"order_id": pa.array(range(rows // 4), pa.int64())}
            statuses = pa.array([random.randrange(10) for _ in range(rows // 4)], pa.int32())
            transaction.insert_many("orders", pa.table({**orders, "status": statuses}))
        warehouse.refresh()
        warehouse.materialize()
        for way in Way:
            _job(warehouse, random, rows, 0.01, way)
        for rate in rates:
            say(f"the join on Spark at {100 * rate:g} %")
            found[rate] = {str(way): _job(warehouse, random, rows, rate, way) for way in Way}
        # Once all ways are known, the choice is by what they took.
        for rate in rates:
            found[rate]["chosen"] = _job(warehouse, random, rows, rate, None)
    return found


def _job(warehouse: Warehouse, random: Random, rows: int, rate: float, way: Way | None) -> float:
    """Seconds of the view's batch after so many of the rows have changed."""
    keys = random.sample(range(rows), max(1, int(rows * rate)))
    with warehouse.source("shop").transaction() as transaction:
        transaction.insert_many("lines", _lines(random, keys, rows))
    engine = warehouse._engine
    job = warehouse.close_job()
    engine.executor.bring(["shop.lines"], job)
    engine.ways.forced = way
    began = time.perf_counter()
    engine.executor.bring(["joined"], job)
    took = time.perf_counter() - began
    engine.ways.forced = None
    warehouse.materialize()
    return took


def _database(server: PostgresServer, rows: int, rates: tuple[float, ...]) -> dict[float, dict[str, float]]:
    joined = "SELECT l.id, o.order_id, o.status, l.qty FROM {lines} l JOIN orders o USING (order_id) WHERE o.status < 9"
    found = {}
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.execute(
            f"CREATE TABLE orders AS SELECT n AS order_id, (random() * 9)::int AS status FROM generate_series(0, {rows // 4}) n;"
            f"CREATE TABLE lines AS SELECT n AS id, (random() * {rows // 4})::int AS order_id, 1 AS qty"
            f" FROM generate_series(0, {rows - 1}) n;"
            "ALTER TABLE orders ADD PRIMARY KEY (order_id); ALTER TABLE lines ADD PRIMARY KEY (id);"
            f"CREATE TABLE kept AS {joined.format(lines='lines')}; CREATE INDEX ON kept (id); ANALYZE"
        )
        for rate in rates:
            connection.execute(
                "DROP TABLE IF EXISTS changed; CREATE TABLE changed AS SELECT id, order_id, qty + 1 AS qty FROM lines"
                f" WHERE random() < {rate}; ANALYZE changed;"
                "UPDATE lines l SET qty = c.qty FROM changed c WHERE c.id = l.id"
            )
            incremental = (
                "BEGIN; DELETE FROM kept k USING changed c WHERE c.id = k.id;"
                f"INSERT INTO kept {joined.format(lines='changed')}; COMMIT"
            )
            recompute = (
                f"BEGIN; DROP TABLE kept; CREATE TABLE kept AS {joined.format(lines='lines')};"
                "CREATE INDEX ON kept (id); COMMIT"
            )
            found[rate] = {
                "incremental": _timed(connection, incremental),
                "recompute": _timed(connection, recompute),
            }
            connection.execute("VACUUM ANALYZE")
    return found


def _timed(connection: psycopg.Connection, text: str) -> float:
    return seconds(lambda: connection.execute(text.encode()))
