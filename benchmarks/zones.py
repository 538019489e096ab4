"""Zones: what it gains that pool weights know about consistency zones. A slow lookup shares the machine with fast operators and readers.

    make bench NAME=zones SCALE=tiny|small|full

The flow is the pipelined join of "Incremental ETL Pipeline Scheduling for Near Real-Time Data Warehouses", section 4, as user
procedures with staging tables outside of headgate:

    orders ──┬──────────────► keep_orders ┐ zone orders_old: both take each job together
             │          ┌───► match_items ┘
    items ──► lookup ───┤
             │          └───► keep_items  ┐ zone items_old
             └──────────────► match_orders┘

Eleven of twelve rows are orders, so while the lookup is slow, the orders' operators pile up input that they cannot work on.
Readers run a heavy query again and again. Spark has more slots than the machine has cores, which is what pool weights share out.

Rows arrive at 150 (low) or 700 (high) a second; a query at bound 0 closes a job at random intervals. Each round, a lookup is made
so expensive that the high rate's lookups take half of what the machine can do. Each of the jobs has a latency: from its
query's arrival until all tables are there. Policies take turns; `zone_aware_vs_plain` is plain's mean latency over
zone-aware's, of one round. Without a backlog both policies give the same weights; `growth` tells whether one built up: the mean latency
of the last quarter of the jobs over that of the first.
"""

from __future__ import annotations

import json
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from benchmarks.executors import PlainWeights, open_with
from benchmarks.report import OUTPUT, median, parse_scale, publish, say, seconds
from benchmarks.spark import spark_settings
from benchmarks.zones_plot import Series, draw
from headgate import Call, Procedure, Warehouse
from headgate.runtime.execution.executor import Executor
from headgate.runtime.spark.sessions import SparkSessions

JOBS = {"tiny": 3, "small": 70, "full": 70}
WARM_UP_JOBS = {"tiny": 1, "small": 10, "full": 10}
ROUNDS = {"tiny": 1, "small": 3, "full": 5}
MEAN_INTERVAL = {"tiny": 0.5, "small": 1.5, "full": 1.5}
RATES = {"low": 150.0, "high": 700.0}
ORDERS_PER_ITEM = 11
LOOKUP_SHARE = 0.5
"""Of the machine, at the high rate."""
READERS = 3
READERS_TASKS = 16
COMMITS_PER_SECOND = 4.0
SLOTS = 8
POLICIES = ("plain", "zone_aware")

READERS_QUERY = f"""
SELECT SUM(crc32(CAST(o.id * 31 + r.id AS STRING)) % 7) AS found
FROM shop.orders o CROSS JOIN range(0, 12800, 1, {READERS_TASKS}) r WHERE o.id < 200
"""
JOBS_QUERY = " UNION ALL ".join(
    f"SELECT COUNT(*) AS calls FROM {name}" for name in ("keep_orders", "match_items", "keep_items", "match_orders")
)


def expensive(rounds: int) -> str:
    """A Spark expression that takes long for each row: `rounds` hashes, one after another."""
    return f"aggregate(sequence(1, {rounds}), id, (found, step) -> xxhash64(found, step))"


def rounds_of_lookup(session: SparkSession) -> int:
    """How many hashes a lookup takes, so that the high rate's lookups need their share of the machine as it is now."""
    trial, rows = 10_000, 10 * SLOTS
    items_per_second = RATES["high"] / (1 + ORDERS_PER_ITEM)

    def run() -> None:
        session.range(0, rows, 1, SLOTS).selectExpr(f"max({expensive(trial)}) AS found").collect()

    # The first ones are slower, until Java has compiled them.
    per_row = min(seconds(run) for _ in range(8)) / rows
    return max(1, round(trial * LOOKUP_SHARE / items_per_second / per_row))


class Staging:
    """A staging table: its writer and its reader must be at the same job, or one of them a step ahead."""

    def __init__(self) -> None:
        self._rows: dict[int, int] = {}
        self._lock = threading.Lock()
        self.through = 0
        self.read_through = 0
        self.matches = 0

    def keep(self, changes: DataFrame, call: Call) -> None:
        ids = changes.select("id").toArrow()["id"].to_pylist()
        with self._lock:
            self._together(call.job, self.read_through)
            self._rows |= dict.fromkeys(ids, call.job)
            self.through = call.job

    def match(self, changes: DataFrame, call: Call) -> None:
        ids = changes.select("id").toArrow()["id"].to_pylist()
        with self._lock:
            self._together(call.job, self.through)
            self.matches += sum(id in self._rows for id in ids)
            self.read_through = call.job

    def _together(self, job: int, other: int) -> None:
        if other not in (0, job - 1, job):
            raise RuntimeError(f"at job {job} the other side of the zone is at job {other}")


def procedures(rounds: int) -> list[Procedure]:
    orders, items = Staging(), Staging()

    def look_up(changes: DataFrame, call: Call) -> DataFrame:
        return changes.where("__weight > 0").repartition(SLOTS).selectExpr("id", f"{expensive(rounds)} AS found")

    columns = {"id": "bigint", "found": "bigint"}
    return [
        Procedure("lookup", "shop.items", look_up, reads=["registry"], columns=columns, key=["id"]),
        Procedure("keep_orders", "shop.orders", orders.keep, reads=["orders_old"], writes=["orders_old"]),
        Procedure("match_items", "lookup", orders.match, reads=["orders_old"], writes=["orders_old"]),
        Procedure("keep_items", "lookup", items.keep, reads=["items_old"], writes=["items_old"]),
        Procedure("match_orders", "shop.orders", items.match, reads=["items_old"], writes=["items_old"]),
    ]


def open_shop(folder: Path, policy: str, rounds: int) -> Warehouse:
    columns: Mapping[str, object] = {"columns": {"id": "bigint"}, "key": ["id"]}
    return open_with(
        PlainWeights if policy == "plain" else Executor,
        {
            "name": "zones",
            "storage": str(folder),
            "sources": {"shop": {"type": "memory", "tables": {"orders": columns, "items": columns}}},
            "background": {"system_jobs": False},
        },
        procedures(rounds),
    )


@dataclass
class Feed:
    """Commits orders and items at a rate."""

    warehouse: Warehouse
    _orders: int = 0
    _items: int = 0
    _ended: threading.Event = field(default_factory=threading.Event)

    def commit(self, rows: float) -> None:
        items = max(1, round(rows / (1 + ORDERS_PER_ITEM)))
        orders = items * ORDERS_PER_ITEM
        with self.warehouse.source("shop").transaction() as transaction:
            transaction.insert_many("orders", pa.table({"id": np.arange(self._orders, self._orders + orders)}))
            transaction.insert_many("items", pa.table({"id": np.arange(self._items, self._items + items)}))
        self._orders += orders
        self._items += items

    def run(self, rate: float) -> None:
        due = time.monotonic()
        while not self._ended.wait(max(0.0, due - time.monotonic())):
            due += 1 / COMMITS_PER_SECOND
            self.commit(rate / COMMITS_PER_SECOND)

    def end(self) -> None:
        self._ended.set()


def latencies(folder: Path, policy: str, rate: str, rounds: int, jobs: int, interval: float) -> list[float]:
    """Of each job, in order, the seconds from its query's arrival until all tables are there."""
    with open_shop(folder, policy, rounds) as warehouse:
        feed = Feed(warehouse)
        for _ in range(2):
            feed.commit(240)
            warehouse.refresh()
        done = threading.Event()

        def read() -> int:
            count, session = 0, warehouse.session()
            while not done.is_set():
                with session.sql(READERS_QUERY, max_staleness="any") as answer:
                    answer.collect()
                count += 1
            return count

        def job() -> tuple[int, float]:
            with warehouse.session().sql(JOBS_QUERY, max_staleness=0) as answer:
                waited = answer.receipt.waited
                return answer.job, waited.capture + waited.queue + waited.spark

        random = Random(5)
        asked: list[Future[tuple[int, float]]] = []
        first = warehouse.newest_job
        with ThreadPoolExecutor(jobs + READERS + 1) as pool:
            readers = [pool.submit(read) for _ in range(READERS)]
            feeding = pool.submit(feed.run, RATES[rate])
            try:
                for _ in range(jobs):
                    time.sleep(interval * random.uniform(0.5, 1.5))
                    asked.append(pool.submit(job))
                found = [each.result()[1] for each in asked]
            finally:
                done.set()
                feed.end()
            feeding.result()
            reads = sum(reader.result() for reader in readers)
        say(
            f"  {rate} rate, {policy}: mean latency {sum(found) / jobs:.2f} s, last {found[-1]:.2f} s,"
            f" {warehouse.newest_job - first} jobs, {reads} reads"
        )
        return found


def figures(series: Series) -> dict[str, object]:
    ratio: dict[str, float] = {}
    details: dict[str, object] = {}
    for rate, policies in series.items():
        means = {policy: [sum(each) / len(each) for each in found] for policy, found in policies.items()}
        ratios = [plain / aware for plain, aware in zip(means["plain"], means["zone_aware"], strict=True)]
        ratio[rate] = median(ratios)
        pooled = {policy: [value for each in found for value in each] for policy, found in policies.items()}
        details[rate] = {
            "spread": f"{min(ratios):.3f} to {max(ratios):.3f}",
            "of_medians": median(pooled["plain"]) / median(pooled["zone_aware"]),
            "growth": {policy: median([_growth(each) for each in found]) for policy, found in policies.items()},
            "mean_seconds": {policy: median(found) for policy, found in means.items()},
            "median_seconds": {policy: median(found) for policy, found in pooled.items()},
        }
    return {"zone_aware_vs_plain": ratio, "latency": details}


def _growth(found: Sequence[float]) -> float:
    quarter = max(1, len(found) // 4)
    return sum(found[-quarter:]) / sum(found[:quarter])


def main() -> None:
    scale = parse_scale(__doc__ or "")
    series: dict[str, dict[str, list[list[float]]]] = {rate: {policy: [] for policy in POLICIES} for rate in RATES}
    sessions = SparkSessions(spark_settings(scale, "2g", SLOTS), "headgate zones")
    try:
        with tempfile.TemporaryDirectory(prefix="headgate-bench-") as place:
            hashes = [rounds_of_lookup(sessions.small)]
            say("warming up")
            latencies(Path(place) / "warm-up", "plain", "high", hashes[0], WARM_UP_JOBS[scale], MEAN_INTERVAL[scale])
            for number in range(ROUNDS[scale]):
                hashes.append(rounds_of_lookup(sessions.small))
                say(f"round {number + 1} of {ROUNDS[scale]}: a lookup is {hashes[-1]:,} hashes")
                for rate in RATES:
                    for policy in POLICIES if number % 2 == 0 else POLICIES[::-1]:
                        folder = Path(place) / f"{number}-{rate}-{policy}"
                        found = latencies(folder, policy, rate, hashes[-1], JOBS[scale], MEAN_INTERVAL[scale])
                        series[rate][policy].append(found)
    finally:
        sessions.stop()
    draw(OUTPUT / "zones.png", {rate: f"{RATES[rate]:g} rows/s" for rate in RATES}, series)
    (OUTPUT / "zones_series.json").write_text(json.dumps(series) + "\n", encoding="utf-8")
    publish(
        "zones",
        scale,
        {**figures(series), "lookup_hashes": median(hashes[1:])},
        {"zone_aware_vs_plain.high": (">=", 1.0)},
    )


if __name__ == "__main__":
    main()
