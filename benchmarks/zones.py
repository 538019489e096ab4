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

Rows arrive at 150 (low) or 700 (high) a second; a query at bound 0 closes a job at random intervals. A lookup is made so expensive,
once and for all runs, that the high rate's lookups take half of what the machine can do. Each of the jobs has a latency: from its
query's arrival until all tables are there. Policies take turns; `zone_aware_vs_plain` is plain's mean latency over
zone-aware's, of one round.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import matplotlib

matplotlib.use("Agg")
import numpy as np
import pyarrow as pa
from matplotlib import pyplot
from pyspark.sql import DataFrame, SparkSession

import headgate
from benchmarks.report import OUTPUT, median, parse_scale, publish, say, seconds
from headgate import Call, Procedure, Warehouse
from headgate.runtime.spark_sessions import SparkSessions

JOBS = {"tiny": 4, "small": 70, "full": 70}
WARM_UP_JOBS = {"tiny": 1, "small": 10, "full": 10}
ROUNDS = {"tiny": 1, "small": 3, "full": 5}
MEAN_INTERVAL = {"tiny": 0.5, "small": 1.5, "full": 1.5}
RATES = {"low": 150.0, "high": 700.0}
ORDERS_PER_ITEM = 11
LOOKUP_SHARE = 0.5
"""Of the machine, at the high rate."""
READERS = 2
READERS_TASKS = 16
COMMITS_PER_SECOND = 4.0
SLOTS = 8
POLICIES = ("plain", "zone_aware")
COLOURS = {"plain": "#c0392b", "zone_aware": "#1f77b4"}
SPARK = {"spark.master": f"local[{SLOTS}]", "spark.driver.memory": "2g"}

READERS_QUERY = f"""
SELECT SUM(crc32(CAST(o.id * 31 + r.id AS STRING)) % 7) AS found
FROM shop.orders o CROSS JOIN range(0, 3200, 1, {READERS_TASKS}) r WHERE o.id < 200
"""
JOBS_QUERY = " UNION ALL ".join(
    f"SELECT COUNT(*) AS calls FROM {name}" for name in ("keep_orders", "match_items", "keep_items", "match_orders")
)


def expensive(rounds: int) -> str:
    """A Spark expression that takes long for each row: `rounds` hashes, one after another."""
    return f"aggregate(sequence(1, {rounds}), id, (found, step) -> xxhash64(found, step))"


def rounds_of_lookup(session: SparkSession) -> int:
    """How many hashes a lookup takes, so that the high rate's lookups need their share of the machine as it is now."""
    trial, rows = 2_000, 20 * SLOTS
    items_per_second = RATES["high"] / (1 + ORDERS_PER_ITEM)

    def run() -> None:
        session.range(0, rows, 1, SLOTS).selectExpr(f"max({expensive(trial)}) AS found").collect()

    run()
    per_row = min(seconds(run) for _ in range(3)) / rows
    return max(1, round(trial * LOOKUP_SHARE / items_per_second / per_row))


class Staging:
    """A staging table: its writer and its reader must be at the same job, or one of them a step ahead."""

    def __init__(self) -> None:
        self._rows: dict[int, int] = {}
        self._lock = threading.Lock()
        self.through = 0
        self.read_through = 0

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
            self.matches = sum(id in self._rows for id in ids)
            self.read_through = call.job

    def _together(self, job: int, other: int) -> None:
        if other not in (0, job - 1, job):
            raise RuntimeError(f"at job {job} the other side of the zone is at job {other}")


def procedures(rounds: int) -> list[Procedure]:
    orders, items = Staging(), Staging()

    def look_up(changes: DataFrame, call: Call) -> DataFrame:
        return changes.where("__weight > 0").repartition(SLOTS).selectExpr("id", f"{expensive(rounds)} AS found")

    found = {"columns": {"id": "bigint", "found": "bigint"}, "key": ["id"]}
    zone = {"reads": ["orders_old"], "writes": ["orders_old"]}
    other = {"reads": ["items_old"], "writes": ["items_old"]}
    return [
        Procedure("lookup", "shop.items", look_up, reads=["registry"], **found),  # type: ignore[arg-type]
        Procedure("keep_orders", "shop.orders", orders.keep, **zone),
        Procedure("match_items", "lookup", orders.match, **zone),
        Procedure("keep_items", "lookup", items.keep, **other),
        Procedure("match_orders", "shop.orders", items.match, **other),
    ]


def open_shop(folder: Path, policy: str, rounds: int) -> Warehouse:
    columns: Mapping[str, object] = {"columns": {"id": "bigint"}, "key": ["id"]}
    return headgate.open(
        {
            "name": "zones",
            "storage": str(folder),
            "spark": SPARK,
            "sources": {"shop": {"type": "memory", "tables": {"orders": columns, "items": columns}}},
            "pool_weights": policy,
            "background": {"system_jobs": False},
        },
        procedures=procedures(rounds),
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


Series = Mapping[str, Mapping[str, Sequence[Sequence[float]]]]
"""By rate and policy, the latencies of each round."""


def draw(path: Path, series: Series) -> None:
    """Latency over the number of the job: a panel per rate, a line per policy, each round thin and their median thick."""
    figure, axes = pyplot.subplots(1, len(series), figsize=(11, 4.2))
    for axis, (rate, policies) in zip(axes, series.items(), strict=True):
        for policy, found in policies.items():
            numbers = range(1, len(found[0]) + 1)
            for each in found:
                axis.plot(numbers, each, color=COLOURS[policy], linewidth=0.6, alpha=0.4)
            middle = [median(values) for values in zip(*found, strict=True)]
            axis.plot(numbers, middle, color=COLOURS[policy], linewidth=2, label=policy.replace("_", "-"))
        axis.set_title(f"{RATES[rate]:g} rows/s")
        axis.set_xlabel("job")
        axis.set_ylabel("latency (s)")
        axis.set_ylim(bottom=0)
        axis.grid(alpha=0.3)
        axis.legend(fontsize="small")
    figure.tight_layout()
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=110, metadata={"Software": None})
    pyplot.close(figure)


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
            "mean_seconds": {policy: median(found) for policy, found in means.items()},
            "median_seconds": {policy: median(found) for policy, found in pooled.items()},
        }
    return {"zone_aware_vs_plain": ratio, "latency": details, "series": series}


def main() -> None:
    scale = parse_scale(__doc__ or "")
    series: dict[str, dict[str, list[list[float]]]] = {rate: {policy: [] for policy in POLICIES} for rate in RATES}
    sessions = SparkSessions(SPARK, "headgate zones")
    try:
        rounds = rounds_of_lookup(sessions.small)
        say(f"a lookup is {rounds:,} hashes")
        with tempfile.TemporaryDirectory(prefix="headgate-bench-") as place:
            say("warming up")
            latencies(Path(place) / "warm-up", "plain", "high", rounds, WARM_UP_JOBS[scale], MEAN_INTERVAL[scale])
            for number in range(ROUNDS[scale]):
                for rate in RATES:
                    for policy in POLICIES if number % 2 == 0 else POLICIES[::-1]:
                        folder = Path(place) / f"{number}-{rate}-{policy}"
                        found = latencies(folder, policy, rate, rounds, JOBS[scale], MEAN_INTERVAL[scale])
                        series[rate][policy].append(found)
    finally:
        sessions.stop()
    draw(OUTPUT / "zones.png", series)
    publish("zones", scale, {"lookup_hashes": rounds, **figures(series)}, {"zone_aware_vs_plain.high": (">=", 1.0)})


if __name__ == "__main__":
    main()
