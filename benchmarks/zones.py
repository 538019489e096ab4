"""Zones: what pool weights gain that know about consistency zones. A quick zone shares Spark with zones that wait for a slow lookup.

    make bench NAME=zones SCALE=tiny|small|full

The flow is the pipelined join of "Incremental ETL Pipeline Scheduling for Near Real-Time Data Warehouses", section 4, as user
procedures with staging tables outside of headgate, and beside it a zone that waits for no lookup:

    orders ──┬──────────────► keep_orders  ┐ zone orders_old: both take each job together
             │          ┌───► match_items  ┘
    items ──► lookup ───┤
             │          └───► keep_items   ┐ zone items_old
             └──────────────► match_orders ┘
    parcels ──┬─────────────► keep_parcels ┐ zone parcels_old
              └─────────────► match_parcels┘

The lookup asks a registry, which answers after some seconds, for many rows as for few. Meanwhile the orders' operators pile up
input that they cannot work on; when the answer is there, they work through it job by job. Plain weights take the whole pile for
work and give these operators a larger share of Spark than the parcels'; zone-aware ones count the job that a zone can work on.

An operator's work on a job is more tasks than Spark has slots. A task sleeps, so that slots are scarce and not the machine's
cores, whatever else the machine does.

Two streams of queries with bound 0 come at random intervals: over the slow zones' tables and over the quick zone's. A latency is from
a query's arrival until its tables are there. Policies take turns; a ratio is plain's mean latency over zone-aware's, of one round.
"""

from __future__ import annotations

import json
import tempfile
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from benchmarks.report import OUTPUT, median, parse_scale, publish, say
from benchmarks.spark import spark_settings
from benchmarks.stage_executors import PlainWeights, open_with
from benchmarks.zones_plot import Series, draw
from headgate import Call, Procedure, Warehouse
from headgate.runtime.execution.executor import Executor
from headgate.runtime.spark.sessions import SparkSessions

QUERIES = {"tiny": 2, "small": 12, "full": 40}
"""Of each stream."""
ROUNDS = {"tiny": 1, "small": 2, "full": 5}
MEAN_INTERVAL = {"tiny": 0.5, "small": 5.0, "full": 5.0}
REGISTRY_SECONDS = {"tiny": 1.0, "small": 15.0, "full": 15.0}
TASK_SECONDS = {"tiny": 0.01, "small": 0.125, "full": 0.125}
ROWS_PER_COMMIT = {"orders": 48, "items": 4, "parcels": 48}
COMMITS_PER_SECOND = 4.0
SLOTS, TASKS = 8, 16
POLICIES = {"plain": PlainWeights, "zone_aware": Executor}
TABLES = {
    "quick": ("keep_parcels", "match_parcels"),
    "slow": ("keep_orders", "match_items", "keep_items", "match_orders"),
}


class Staging:
    """A staging table: its writer and its reader must be at the same job, or one of them a step ahead."""

    def __init__(self, task_seconds: float) -> None:
        self._rows: dict[int, int] = {}
        self._lock = threading.Lock()
        self._task_milliseconds = round(task_seconds * 1000)
        self.through = 0
        self.read_through = 0
        self.matches = 0

    def keep(self, changes: DataFrame, call: Call) -> None:
        ids = self._work(changes)
        with self._lock:
            self._together(call.job, self.read_through)
            self._rows |= dict.fromkeys(ids, call.job)
            self.through = call.job

    def match(self, changes: DataFrame, call: Call) -> None:
        ids = self._work(changes)
        with self._lock:
            self._together(call.job, self.through)
            self.matches += sum(id in self._rows for id in ids)
            self.read_through = call.job

    def _work(self, changes: DataFrame) -> list[int]:
        sleep = f"java_method('java.lang.Thread', 'sleep', {self._task_milliseconds} + id * 0)"
        changes.sparkSession.range(0, TASKS, 1, TASKS).selectExpr(sleep).collect()
        found: list[int] = changes.select("id").toArrow()["id"].to_pylist()
        return found

    def _together(self, job: int, other: int) -> None:
        if other not in (0, job - 1, job):
            raise RuntimeError(f"at job {job} the other side of the zone is at job {other}")


def procedures(scale: str) -> list[Procedure]:
    orders, items, parcels = (Staging(TASK_SECONDS[scale]) for _ in range(3))

    def look_up(changes: DataFrame, call: Call) -> DataFrame:
        time.sleep(REGISTRY_SECONDS[scale])
        return changes.where("__weight > 0").selectExpr("id", "id * 7 AS found")

    def operator(name: str, on: str, function: object, staging: str) -> Procedure:
        return Procedure(name, on, function, reads=[staging], writes=[staging])  # type: ignore[arg-type]

    return [
        # Its jobs are asked for at the same time: it only writes.
        Procedure("lookup", "shop.items", look_up, columns={"id": "bigint", "found": "bigint"}, key=["id"]),
        operator("keep_orders", "shop.orders", orders.keep, "orders_old"),
        operator("match_items", "lookup", orders.match, "orders_old"),
        operator("keep_items", "lookup", items.keep, "items_old"),
        operator("match_orders", "shop.orders", items.match, "items_old"),
        operator("keep_parcels", "shop.parcels", parcels.keep, "parcels_old"),
        operator("match_parcels", "shop.parcels", parcels.match, "parcels_old"),
    ]


def open_shop(folder: Path, policy: str, scale: str) -> Warehouse:
    columns: Mapping[str, object] = {"columns": {"id": "bigint"}, "key": ["id"]}
    return open_with(
        POLICIES[policy],
        {
            "name": "zones",
            "storage": str(folder),
            "sources": {"shop": {"type": "memory", "tables": dict.fromkeys(ROWS_PER_COMMIT, columns)}},
            "background": {"system_jobs": False},
        },
        procedures(scale),
    )


@dataclass
class Feed:
    """Commits rows of all tables at a rate."""

    warehouse: Warehouse
    _commits: int = 0
    _ended: threading.Event = field(default_factory=threading.Event)

    def commit(self) -> None:
        with self.warehouse.source("shop").transaction() as transaction:
            for table, rows in ROWS_PER_COMMIT.items():
                first = self._commits * rows
                transaction.insert_many(table, pa.table({"id": np.arange(first, first + rows)}))
        self._commits += 1

    def run(self) -> None:
        due = time.monotonic()
        while not self._ended.wait(max(0.0, due - time.monotonic())):
            due += 1 / COMMITS_PER_SECOND
            self.commit()

    def end(self) -> None:
        self._ended.set()


def latencies(folder: Path, policy: str, scale: str) -> dict[str, list[float]]:
    """By stream, of each query in order, the seconds from its arrival until its tables are there."""
    with open_shop(folder, policy, scale) as warehouse:
        feed = Feed(warehouse)
        for _ in range(2):
            feed.commit()
            warehouse.refresh()

        def ask(text: str) -> float:
            with warehouse.session().sql(text, max_staleness=0) as answer:
                waited = answer.receipt.waited
                return waited.capture + waited.queue + waited.spark

        def stream(name: str) -> list[float]:
            random = Random(name)
            text = " UNION ALL ".join(f"SELECT COUNT(*) AS calls FROM {table}" for table in TABLES[name])
            asked: list[Future[float]] = []
            for _ in range(QUERIES[scale]):
                time.sleep(MEAN_INTERVAL[scale] * random.uniform(0.5, 1.5))
                asked.append(pool.submit(ask, text))
            return [each.result() for each in asked]

        first = warehouse.newest_job
        with ThreadPoolExecutor(len(TABLES) * (QUERIES[scale] + 1) + 1) as pool:
            feeding = pool.submit(feed.run)
            try:
                streams = {name: pool.submit(stream, name) for name in TABLES}
                found = {name: each.result() for name, each in streams.items()}
            finally:
                feed.end()
            feeding.result()
        means = ", ".join(f"{name} {sum(each) / len(each):.2f} s" for name, each in found.items())
        say(f"  {policy}: mean latency {means}; {warehouse.newest_job - first} jobs")
        return found


def figures(series: Series) -> dict[str, object]:
    ratio: dict[str, float] = {}
    details: dict[str, object] = {}
    for stream, policies in series.items():
        means = {policy: [sum(each) / len(each) for each in found] for policy, found in policies.items()}
        ratios = [plain / aware for plain, aware in zip(means["plain"], means["zone_aware"], strict=True)]
        ratio[stream] = median(ratios)
        pooled = {policy: [value for each in found for value in each] for policy, found in policies.items()}
        details[stream] = {
            "spread": f"{min(ratios):.3f} to {max(ratios):.3f}",
            "of_medians": median(pooled["plain"]) / median(pooled["zone_aware"]),
            "mean_seconds": {policy: median(found) for policy, found in means.items()},
            "median_seconds": {policy: median(found) for policy, found in pooled.items()},
        }
    return {"zone_aware_vs_plain": ratio, "latency": details}


def main() -> None:
    scale = parse_scale(__doc__ or "")
    series: dict[str, dict[str, list[list[float]]]] = {name: {policy: [] for policy in POLICIES} for name in TABLES}
    sessions = SparkSessions(spark_settings(scale, "2g", SLOTS), "headgate zones")
    try:
        with tempfile.TemporaryDirectory(prefix="headgate-bench-") as place:
            say("warming up")
            latencies(Path(place) / "warm-up", "plain", "tiny")
            for number in range(ROUNDS[scale]):
                say(f"round {number + 1} of {ROUNDS[scale]}")
                for policy in list(POLICIES)[:: 1 if number % 2 == 0 else -1]:
                    found = latencies(Path(place) / f"{number}-{policy}", policy, scale)
                    for name, each in found.items():
                        series[name][policy].append(each)
    finally:
        sessions.stop()
    draw(OUTPUT / "zones.png", {name: f"the {name} zone" for name in TABLES}, series)
    (OUTPUT / "zones_series.json").write_text(json.dumps(series) + "\n", encoding="utf-8")
    publish(
        "zones",
        scale,
        figures(series),
        {"zone_aware_vs_plain.quick": (">=", 0.95), "zone_aware_vs_plain.slow": (">=", 0.95)},
    )


if __name__ == "__main__":
    main()
