"""Results at a second platform: point answers from PostgreSQL, and what shipping adds to a job.

serving_vs_spark     a point answer of Spark over one from the platform, both through a session of the warehouse
serving_vs_psycopg   the same point answer over psycopg straight on the table, with parameters, as an application would
ship_overhead        a job with two placed tables, until they are there, over the same job without a platform
join_*, regret_of_ways: see `advising_join`
cut_seconds, chosen_*, regret: see `advising_cuts`
choice_seconds       choosing the stored result of a flow with eight operators, swaps included

python -m benchmarks.advising --scale small
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from decimal import Decimal
from pathlib import Path
from random import Random

import psycopg
import pyarrow as pa

import headgate
from benchmarks.advising_cuts import cut_figures
from benchmarks.advising_join import join_figures
from benchmarks.report import in_turns, median, parse_scale, publish, say, seconds
from headgate import Warehouse
from headgate.advising.costs import NEVER, CostFragment, Operator
from headgate.advising.swaps import choose_with_swaps
from headgate.capture.postgres.private_server import PostgresServer

ROWS = {"tiny": 5_000, "small": 200_000, "full": 4_000_000}
JOINED = {"tiny": 2_000, "small": 100_000, "full": 1_000_000}
RATES = {"tiny": (0.01,), "small": (0.001, 0.01, 0.1, 0.5, 1.0), "full": (0.001, 0.01, 0.1, 0.3, 0.5, 1.0)}
ROUNDS = {"tiny": 5, "small": 200, "full": 400}
JOBS = {"tiny": 2, "small": 15, "full": 25}
CHANGED = {"tiny": 50, "small": 600, "full": 600}
TARGETS = {
    "serving_vs_spark": (">=", 20.0),
    "serving_vs_psycopg": ("<=", 3.0),
    "ship_overhead": ("<=", 1.4),
    "regret": ("<=", 1.15),
}
FLOWS = """
CREATE MATERIALIZED VIEW by_customer{placed} AS
SELECT customer, COUNT(*) AS n, SUM(price) AS revenue, MAX(day) AS latest FROM shop.sales GROUP BY customer;
CREATE MATERIALIZED VIEW by_item{placed} AS SELECT item, SUM(price) AS revenue FROM shop.sales GROUP BY item;
"""
COLUMNS = {"id": "bigint", "customer": "int", "item": "int", "price": "decimal(12,2)", "day": "date"}
POINT = "SELECT customer, n, revenue, latest FROM by_customer WHERE customer = "


def main() -> None:
    scale = parse_scale(__doc__ or "")
    with ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory()))
        server = opened.enter_context(PostgresServer(fsync=True))
        placed = opened.enter_context(_warehouse(folder / "placed", server.dsn))
        plain = opened.enter_context(_warehouse(folder / "plain", None))
        say(f"loading {ROWS[scale]:,} rows, twice")
        for warehouse in (placed, plain):
            _load(warehouse, ROWS[scale])
        _ship(placed)
        results: dict[str, object] = {"rows": ROWS[scale]}
        results |= _points(placed, server, ROWS[scale] // 10, ROUNDS[scale])
        results |= _jobs(placed, plain, ROWS[scale], CHANGED[scale], JOBS[scale])
        results["choice_seconds"] = _choice()
        publish("advising", scale, results, TARGETS)
        results |= join_figures(folder / "join", server, JOINED[scale], RATES[scale])
        publish("advising", scale, results, TARGETS)
        results |= cut_figures(folder / "cuts", scale)
    publish("advising", scale, results, TARGETS)


def _warehouse(folder: Path, dsn: str | None) -> Warehouse:
    (folder / "flows").mkdir(parents=True)
    place = "" if dsn is None else " TBLPROPERTIES ('place' = 'serving')"
    (folder / "flows/flows.sql").write_text(FLOWS.replace("{placed}", place))
    return headgate.open(
        {
            "name": "advising",
            "storage": str(folder / "warehouse"),
            "libraries": [{"glob": {"include": f"{folder}/flows/**"}}],
            "spark": {"spark.master": "local[2]"},
            "sources": {"shop": {"type": "memory", "tables": {"sales": {"columns": COLUMNS, "key": ["id"]}}}},
            "platforms": {} if dsn is None else {"serving": {"type": "postgres", "dsn": dsn}},
            "background": {"system_jobs": False, "idle_after": "1h"},
        }
    )


def _sales(random: Random, keys: range, rows: int) -> pa.Table:
    days = [random.randrange(18_000, 20_000) for _ in keys]
    return pa.table(
        {
            "id": pa.array(keys, pa.int64()),
            "customer": pa.array([random.randrange(max(1, rows // 10)) for _ in keys], pa.int32()),
            "item": pa.array([random.randrange(1_000) for _ in keys], pa.int32()),
            "price": pa.array([Decimal(random.randrange(10_000)) / 100 for _ in keys], pa.decimal128(12, 2)),
            "day": pa.array(days, pa.int32()).cast(pa.date32()),
        }
    )


def _load(warehouse: Warehouse, rows: int) -> None:
    with warehouse.source("shop").transaction(initial=True) as transaction:
        transaction.insert_many("sales", _sales(Random(1), range(rows), rows))
    warehouse.refresh()
    warehouse.materialize()


def _ship(warehouse: Warehouse) -> None:
    """Waits until the platform has the newest job."""
    shipper = warehouse.platforms._platforms["serving"].shipper
    warehouse._engine.signal.wait_until(lambda: shipper.shipped == warehouse.newest_job, time.monotonic() + 600)
    if shipper.shipped != warehouse.newest_job:
        raise SystemExit(f"the platform does not follow: {shipper.trouble}")


def _points(warehouse: Warehouse, server: PostgresServer, customers: int, rounds: int) -> dict[str, object]:
    session, random = warehouse.session(), Random(2)
    job = warehouse.newest_job

    def served(key: int) -> list[object]:
        with session.sql(f"{POINT}{key}", max_staleness="10m") as answer:
            rows = answer.to_arrow()
            if answer.receipt.platform != "serving":
                raise SystemExit(f"not served: {answer.receipt.why_platform}")
            return [list(row.values()) for row in rows.to_pylist()]

    def picked(key: int) -> list[object]:
        """As a job that is named is read: by the driver, without a plan."""
        with session.sql(f"{POINT}{key}", job) as answer:
            return [list(row.values()) for row in answer.to_arrow().to_pylist()]

    def planned(key: int) -> list[object]:
        with session.sql(f"{POINT}{key}", job) as answer:
            return [list(row) for row in answer.dataframe.collect()]

    with psycopg.connect(server.dsn, autocommit=True) as connection:

        def direct(key: int) -> list[object]:
            text = "SELECT customer, n, revenue, latest FROM headgate.by_customer WHERE customer = %s"
            return [list(row) for row in connection.execute(text, [key]).fetchall()]

        ways: dict[str, Callable[[int], list[object]]] = {
            "serving": served,
            "psycopg": direct,
            "picked": picked,
            "spark": planned,
        }
        for key in range(8):
            found = {name: way(key) for name, way in ways.items()}
            if any(rows != found["psycopg"] for rows in found.values()):
                raise SystemExit(f"answers differ: {found}")
        quick = {
            name: (lambda way=ways[name]: seconds(lambda: way(random.randrange(customers))))
            for name in ("serving", "psycopg", "picked")
        }
        times = in_turns(quick, rounds)
        slow = {"spark": lambda: seconds(lambda: planned(random.randrange(customers)))}
        times |= in_turns(slow, max(5, rounds // 10))
    took = {name: median(found) * 1000 for name, found in times.items()}
    return {
        "milliseconds": took,
        "serving_vs_spark": took["spark"] / took["serving"],
        "serving_vs_psycopg": took["serving"] / took["psycopg"],
        "serving_vs_picked": took["picked"] / took["serving"],
    }


def _jobs(placed: Warehouse, plain: Warehouse, rows: int, changed: int, jobs: int) -> dict[str, object]:
    randoms = {"placed": Random(3), "plain": Random(3)}
    counters = {"placed": rows, "plain": rows}

    def job(name: str, warehouse: Warehouse, after: Callable[[], None]) -> float:
        start = counters[name]
        counters[name] += changed
        changes = _sales(randoms[name], range(start, start + changed), rows)
        with warehouse.source("shop").transaction() as transaction:
            transaction.insert_many("sales", changes)

        def run() -> None:
            warehouse.refresh()
            after()

        return seconds(run)

    actions = {
        "plain": lambda: job("plain", plain, lambda: None),
        "placed": lambda: job("placed", placed, lambda: _ship(placed)),
    }
    in_turns(actions, 2)
    times = {name: median(found) for name, found in in_turns(actions, jobs).items()}
    return {"job_seconds": times, "ship_overhead": times["placed"] / times["plain"]}


def _choice() -> float:
    operators = [
        Operator(f"u{number}", 1.0 + number, NEVER if number == 5 else 0.5 * number, is_row_wise=number % 3 != 0)
        for number in range(8)
    ]
    return seconds(lambda: choose_with_swaps(CostFragment(tuple(operators))))


if __name__ == "__main__":
    main()
