"""Maintenance: how long a job takes against recomputation, hand-written Spark, one big job, and a tenth of the data.

    make bench NAME=maintenance SCALE=tiny|small|full

A job is 48 purchases with their line items (see `benchmarks.shop`); it is done when its snapshot can be read. Everything that
is compared takes turns within one run; figures are medians.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

import headgate
from benchmarks.overlay import overlay_figures
from benchmarks.report import in_turns, median, parse_scale, publish, say, seconds
from benchmarks.shop import Shop, project
from headgate import Warehouse
from headgate.capture.memory import MemorySource

LINES = {"tiny": 24_000, "small": 2_880_000, "full": 28_800_000}
ROUNDS = {"tiny": 2, "small": 9, "full": 7}
WARM_UP_JOBS = {"tiny": 2, "small": 20, "full": 30}
"""Until code is compiled and the footers of most files have been read: a warehouse that has been open for a while."""
STREAM_JOBS = {"tiny": 5, "small": 210, "full": 210}
MEMORY_ROWS = {"tiny": (10_000, 50_000), "small": (2_000_000, 10_000_000), "full": (2_000_000, 10_000_000)}
OVERLAY_ROWS = {"tiny": 10_000, "small": 2_880_000, "full": 2_880_000}
SPARK = {"spark.master": "local[2]", "spark.driver.memory": "6g"}

HAND_WRITTEN = """
SELECT p.purc_id, i.__sk, c.customer_sk, s.store_sk, m.promotion_sk, d.date_sk,
       SUM(l.qty) AS qty, SUM(l.qty * l.price) AS revenue, COUNT(*) AS lines
FROM delta_purchases p
JOIN lookup_customer c ON c.customer_id = p.customer_id
JOIN lookup_store s ON s.store_id = p.store_id
JOIN lookup_promotion m ON m.promotion_id = p.promotion_id
JOIN lookup_dates d ON d.sold_on = p.sold_on
JOIN delta_lineitems l ON l.purc_id = p.purc_id
JOIN lookup_item i ON i.item_id = l.item_id AND i.__end_at IS NULL
GROUP BY p.purc_id, i.__sk, c.customer_sk, s.store_sk, m.promotion_sk, d.date_sk
"""

TARGETS = {
    "growth_10x": ("<=", 1.5),
    "stream_vs_one_job": ("<=", 1.25),
    "coalesced_speedup": (">=", 20.0),
    "job_vs_handwritten": ("<=", 2.5),
    "overlay_read.inserts": ("<=", 1.1),
    "overlay_read.updates": ("<=", 1.5),
    "materialize_inserts": (">=", 0.5),
    "peak_rss_mb": ("<=", 2048.0),
    "rss_growth": ("<=", 1.2),
}


@dataclass
class Loaded:
    """A warehouse with the shop's data in it."""

    warehouse: Warehouse
    shop: Shop
    source: MemorySource

    def job(self, kind: str) -> float:
        self.shop.commit_job(self.source, kind)
        return seconds(self.warehouse.refresh)


def load(folder: Path, lines: int, warm_up_jobs: int, *, uuid_keys: bool = False) -> Loaded:
    kind = "uuid" if uuid_keys else "bigint"
    place = folder / f"{kind}-{lines}"
    shop = Shop(lines, uuid_keys=uuid_keys)
    warehouse = headgate.open(project(place / "warehouse", place / "flows", "string" if uuid_keys else "bigint", SPARK))
    source = warehouse.source("shop")
    say(f"loading {lines:,} line items, {kind} keys")
    shop.load(source)
    took = seconds(warehouse.refresh)
    say(f"  loaded and built in {took:.0f} s")
    loaded = Loaded(warehouse, shop, source)
    for _ in range(warm_up_jobs):
        loaded.job("mixed")
    return loaded


def recompute(warehouse: Warehouse) -> float:
    """The flow run from scratch over the same replicas, its result made but not kept."""
    session, text = warehouse.from_scratch("store_sales")
    return seconds(lambda: session.sql(text).write.format("noop").mode("overwrite").save())


class HandWritten:
    """The tightest PySpark for one job's delta: lookups cached, no state, no snapshot."""

    def __init__(self, loaded: Loaded) -> None:
        self._shop = loaded.shop
        self._session = loaded.warehouse.spark_for_small_jobs
        for name in ("customer", "store", "promotion", "dates"):
            frame = self._session.createDataFrame(loaded.warehouse.table(f"shop.{name}").to_arrow()).cache()
            frame.createOrReplaceTempView(f"lookup_{name}")
            frame.count()
        item = self._session.createDataFrame(loaded.warehouse.table("item").to_arrow()).cache()
        item.createOrReplaceTempView("lookup_item")
        item.count()

    def run(self) -> float:
        numbers = self._shop.new_numbers(48)
        purchases, lines = self._shop.purchase_rows(numbers), self._shop.line_rows(numbers, 12)
        return seconds(lambda: self._collect(purchases, lines))

    def _collect(self, purchases: pa.Table, lines: pa.Table) -> None:
        self._session.createDataFrame(purchases).createOrReplaceTempView("delta_purchases")
        self._session.createDataFrame(lines).createOrReplaceTempView("delta_lineitems")
        if self._session.sql(HAND_WRITTEN).toArrow().num_rows == 0:
            raise SystemExit("the hand-written job found nothing")


def stream_figures(loaded: Loaded, jobs: int, rounds: int) -> dict[str, object]:
    """The same kind of rows as `jobs` closed jobs run together, as one job, and one job at a time.

    Of *stream* the flow sees the same rows either way. Of *updates* it does not: as one job, what is overwritten within the
    job never reaches it, so that one job has about a third of the changes.
    """

    def run(kind: str, *, together: bool) -> float:
        for _ in range(jobs):
            loaded.shop.commit_job(loaded.source, kind)
            if together:
                loaded.warehouse.close_job()
        return seconds(loaded.warehouse.refresh)

    def both(kind: str) -> dict[str, float]:
        actions = {"together": lambda: run(kind, together=True), "one_job": lambda: run(kind, together=False)}
        in_turns(actions, 1)
        return {name: median(times) for name, times in in_turns(actions, rounds).items()}

    stream, updates = both("stream"), both("updates")
    single = sum(loaded.job("stream") for _ in range(jobs))
    return {
        "stream_vs_one_job": stream["together"] / stream["one_job"],
        "stream_of_updates_vs_one_job": updates["together"] / updates["one_job"],
        "coalesced_speedup": single / stream["together"],
        "stream_seconds": {**stream, "one_at_a_time": single},
        "stream_of_updates_seconds": updates,
    }


def check(loaded: Loaded) -> None:
    """The maintained table equals the flow run from scratch."""
    session, text = loaded.warehouse.from_scratch("store_sales")
    sums = (
        "COUNT(*) AS n, SUM(qty) AS qty, SUM(revenue) AS revenue, SUM(lines) AS lines, SUM(item_sk % 1000003) AS item"
    )
    expected = session.sql(f"SELECT {sums} FROM ({text})").collect()
    found = loaded.warehouse.sql(f"SELECT {sums} FROM store_sales").collect()
    if expected != found:
        raise SystemExit(f"the maintained table is wrong: {found}, from scratch {expected}")


def memory_figures(rows: tuple[int, int]) -> dict[str, float]:
    def peak(count: int) -> float:
        say(f"loading a table of {count:,} rows in a process of its own")
        command = [sys.executable, "-m", "benchmarks.load_memory", "--rows", str(count)]
        done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=1800)
        return float(json.loads(done.stdout.strip().splitlines()[-1])["peak_rss_mb"])

    few, many = (peak(count) for count in rows)
    return {"peak_rss_mb": many, "peak_rss_mb_fifth": few, "rss_growth": many / few}


def main() -> None:
    scale = parse_scale(__doc__ or "")
    rounds, lines = ROUNDS[scale], LINES[scale]
    results: dict[str, object] = {}
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as place:
        folder = Path(place)
        growth: dict[str, float] = {}
        for uuid_keys in (True, False):
            here, tenth = (
                load(folder, each, WARM_UP_JOBS[scale], uuid_keys=uuid_keys) for each in (lines, lines // 10)
            )
            times = in_turns({"here": lambda h=here: h.job("mixed"), "tenth": lambda t=tenth: t.job("mixed")}, rounds)
            growth["uuid" if uuid_keys else "scattered"] = median(times["here"]) / median(times["tenth"])
            tenth.warehouse.close()
            if uuid_keys:
                check(here)
                here.warehouse.close()
        say("jobs against recomputation and hand-written Spark")
        hand = HandWritten(here)
        for _ in range(3):
            hand.run()
        jobs = in_turns(
            {"mixed": lambda: here.job("mixed"), "inserts": lambda: here.job("inserts"), "hand": hand.run}, rounds
        )
        full = in_turns({"recompute": lambda: recompute(here.warehouse)}, 3)
        results["recompute_over_incremental"] = median(full["recompute"]) / median(jobs["mixed"])
        results["growth_10x"] = max(growth.values())
        results["growth"] = growth
        results["job_vs_handwritten"] = median(jobs["inserts"]) / median(jobs["hand"])
        results["seconds"] = {name: median(found) for name, found in {**jobs, **full}.items()}
        say("a stream of jobs")
        results |= stream_figures(here, STREAM_JOBS[scale], 3)
        check(here)
        here.warehouse.close()
        say("reading and folding overlays")
        results |= overlay_figures(folder / "overlay", OVERLAY_ROWS[scale], rounds)
        results |= memory_figures(MEMORY_ROWS[scale])
    targets = {**TARGETS, "recompute_over_incremental": (">=", {"tiny": 0.0, "small": 5.0, "full": 30.0}[scale])}
    publish("maintenance", scale, results, targets)


if __name__ == "__main__":
    main()
