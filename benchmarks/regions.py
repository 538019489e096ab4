"""Key ranges: scans that wait for the ranges they read, against scans that wait for the whole table, and against none that wait.

    make bench NAME=regions SCALE=tiny|small|full

The flow of `benchmarks.shop` (join, lookups, aggregate by purchase) is cut into ten ranges of `purc_id`. After each chunk of
change a few scans come together; nine of ten read one range, the others the whole table. At the full scale they are the paper's 1,000:
50 of each range, 100 of each of four groups of three ranges, 100 of the whole table. Four warehouses take turns, chunk by chunk:

    ranges   each scan waits for the ranges that it reads
    whole    headgate without ranges
    seq      the whole table is brought forward before each scan, one scan at a time
    none     scans do not wait for anything: no maintenance
    one      as whole, but its tables have a range map, of one range; only for what such a map costs by itself

(The experiment is that of HBelt, chapter 4 of "On-demand ETL for real-time analytics": 7 to 9 times the throughput of seq, with
1,000 scans on a cluster of six nodes, where all regions of a server are refreshed together. Here only the ranges that are read are.)
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any, cast

import headgate
from benchmarks.processor import cost, processor_seconds
from benchmarks.report import SCALES, publish, say
from benchmarks.shop import Shop, project
from headgate import Warehouse
from headgate.capture.memory import MemorySource

SIDES = ("ranges", "whole")
MORE_SIDES = {"tiny": (), "small": ("seq", "none"), "full": ("seq", "none")}
ONE = "one"
RANGES = 10
LINES = {"tiny": 12_000, "small": 288_000, "full": 2_880_000}
SIZES = {"tiny": (120,), "small": (600, 6_000, 24_000), "full": tuple(1_200 * step for step in range(1, 11))}
"""Changed line items of a chunk."""
CHUNKS = {"tiny": 1, "small": 20, "full": 20}
SCANS = {"tiny": 3, "small": 5, "full": 50}
"""Scans after each chunk, at the same time."""
ALL_LINES = {"tiny": 240, "small": 60_000, "full": 200_000}
"""Changed line items of the batch of which one range is compared with all."""
SPARK = {"spark.master": "local[2]", "spark.driver.memory": "3g"}
LOWEST, HIGHEST = -(1 << 63), (1 << 63) - 1
BOUNDS = [number * (1 << 62) // RANGES for number in range(1, RANGES)]
"""The shop's keys are spread evenly over 62 bits."""

Scan = tuple[int, ...]
"""The ranges that a scan reads, one behind the other."""
EVERY: Scan = tuple(range(RANGES))
LEAST_SECONDS = 5.0
"""Processor seconds that all ranges take, where one of them is compared with all."""

TARGETS = {
    "latency_vs_whole": ("<=", 0.5),
    "cpu_with_catch_up_vs_whole": ("<=", 1.1),
    "single_range_cost": ("<=", 0.35),
    "one_range_overhead": ("<=", 1.1),
}


@dataclass
class Side:
    """One of the warehouses that are compared."""

    name: str
    warehouse: Warehouse
    shop: Shop
    latencies: list[float] = field(default_factory=list)
    reading: list[float] = field(default_factory=list)
    """Seconds of each scan after its ranges were there."""
    seconds: float = 0.0
    processor: float = 0.0

    @property
    def source(self) -> MemorySource:
        return self.warehouse.source("shop")

    def chunk(self, lines: int, scans: Sequence[Scan]) -> None:
        """A chunk of change, then the scans."""
        self.shop.commit_change(self.source, lines)
        began, used = time.perf_counter(), processor_seconds()
        if self.name == "seq":
            for scan in scans:
                self.latencies.append(self._scan(scan))
        else:
            with ThreadPoolExecutor(len(scans)) as pool:
                self.latencies += pool.map(self._scan, scans)
        self.seconds += time.perf_counter() - began
        self.processor += processor_seconds() - used

    def catch_up(self) -> None:
        self.processor += cost(self.warehouse.refresh).processor

    def _scan(self, scan: Scan) -> float:
        began = time.perf_counter()
        if self.name == "seq":
            self.warehouse.refresh()
        stale = "1h" if self.name == "none" else "0s"
        where = "" if scan == EVERY else f" WHERE {within(scan)}"
        with self.warehouse.sql(
            f"SELECT count(*), sum(revenue), sum(lines) FROM store_sales{where}", max_staleness=stale
        ) as answer:
            answer.to_arrow()
            waited = answer.receipt.waited if answer.receipt is not None else None
        took = time.perf_counter() - began
        self.reading.append(took - (waited.capture + waited.queue + waited.spark if waited is not None else 0.0))
        return took


def within(scan: Scan) -> str:
    low = LOWEST if scan[0] == 0 else BOUNDS[scan[0] - 1]
    high = HIGHEST if scan[-1] == RANGES - 1 else BOUNDS[scan[-1]] - 1
    return f"ticket BETWEEN {low} AND {high}"


def courses(scale: str, chunks: int, scans: int) -> list[list[Scan]]:
    """After each chunk what is scanned, in an order that is the same in each run."""
    choice = random.Random(7)
    if scale == "full":
        ranges = [(number,) for number in range(RANGES)]
        groups = [tuple(range(first, first + 3)) for first in (0, 2, 5, 7)]
        every: list[Scan] = [*(50 * ranges), *(100 * groups), *(100 * [EVERY])]
        choice.shuffle(every)
        return [every[first : first + scans] for first in range(0, chunks * scans, scans)]
    return [
        [(choice.randrange(RANGES),) if choice.random() < 0.9 else EVERY for _ in range(scans)] for _ in range(chunks)
    ]


def opened(folder: Path, name: str, lines: int) -> Side:
    place = folder / name
    settings = project(place / "warehouse", place / "flows", "bigint", SPARK)
    if name in ("ranges", ONE):
        tables = cast("dict[str, Any]", settings)["sources"]["shop"]["tables"]
        tables["purchases"]["ranges"] = {"column": "purc_id", "bounds": BOUNDS if name == "ranges" else []}
        tables["lineitems"]["ranges"] = {"column": "purc_id"}
    side = Side(name, headgate.open(settings), Shop(lines))
    say(f"loading {lines:,} line items: {name}")
    side.shop.load(side.source)
    side.warehouse.refresh()
    side.warehouse.materialize()
    return side


def size_figures(sides: list[Side], lines: int, scans: list[list[Scan]]) -> dict[str, Any]:
    """All sides over the same course of chunks and scans."""
    for side in sides:
        side.latencies, side.reading, side.seconds, side.processor = [], [], 0.0, 0.0
    for course in scans:
        for side in sides:
            side.chunk(lines, course)
    for side in sides:
        if side.name in ("ranges", "whole"):
            side.catch_up()
        elif side.name == "none":
            side.warehouse.refresh()
    found = {side.name: side for side in sides}
    rates = {name: len(side.latencies) / side.seconds for name, side in found.items()}
    latencies = {name: fmean(side.latencies) for name, side in found.items()}
    return {
        "lines": lines,
        "latency_vs_whole": latencies["ranges"] / latencies["whole"],
        "cpu_with_catch_up_vs_whole": found["ranges"].processor / found["whole"].processor,
        **{f"vs_{name}": rates["ranges"] / rates[name] for name in ("seq", "none") if name in rates},
        "scans_a_second": rates,
        "latency_seconds": latencies,
        # All that scanning ranges which are there before the others could save.
        "reading_seconds": {name: fmean(side.reading) for name, side in found.items()},
    }


def single_range_figures(side: Side, lines: int, rounds: int, least_seconds: float) -> dict[str, float]:
    """Processor seconds of bringing one of the ranges forward, over those of all, which take so many seconds at least."""
    one: list[float] = []
    every: list[float] = []
    while len(one) < rounds:
        side.shop.commit_change(side.source, lines)
        number = len(one) % RANGES
        one.append(cost(partial(side._scan, (number,))).processor)
        side.warehouse.refresh()
        side.shop.commit_change(side.source, lines)
        every.append(cost(lambda: side._scan(EVERY)).processor)
        if every[-1] < least_seconds:
            # Too little to tell the ranges from what every execution costs.
            lines, one, every = 2 * lines, [], []
            say(f"one range against all: chunks of {lines:,} line items")
    return {
        "single_range_lines": lines,
        "single_range_cost": fmean(one) / fmean(every),
        "single_range_cpu_seconds": fmean(one),
        "all_ranges_cpu_seconds": fmean(every),
    }


def one_range_figures(one: Side, whole: Side, lines: int, rounds: int) -> dict[str, Any]:
    """Processor seconds of a job where tables have a map of one range, over those where they have none."""
    spent: dict[str, list[float]] = {ONE: [], "whole": []}
    executions = {}
    for number in range(rounds + 1):
        for side in (one, whole) if number % 2 else (whole, one):
            executor = side.warehouse._engine.executor
            side.shop.commit_change(side.source, lines)
            before, took = executor.executions, cost(side.warehouse.refresh).processor
            executions[side.name] = executor.executions - before
            # The first one plans.
            spent[side.name] += [took] if number else []
    if len(set(executions.values())) > 1:
        raise SystemExit(f"one range is not brought forward by as many executions: {executions}")
    return {
        "one_range_overhead": sum(spent[ONE]) / sum(spent["whole"]),
        "one_range_cpu_seconds": {name: fmean(found) for name, found in spent.items()},
    }


def check(sides: list[Side]) -> None:
    """All sides hold the same in the end."""
    text = "SELECT count(*), sum(qty), sum(revenue), sum(lines) FROM store_sales"
    found = {side.name: side.warehouse.sql(text, max_staleness="0s").collect() for side in sides}
    if len({repr(rows) for rows in found.values()}) > 1:
        raise SystemExit(f"the warehouses differ: {found}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__ or "")
    parser.add_argument("--scale", choices=SCALES, default="small")
    parser.add_argument("--sides", nargs="*", choices=MORE_SIDES["full"], help="beside ranges and whole, only these")
    parser.add_argument("--sizes", nargs="+", type=int, help="changed line items of a chunk instead of the scale's")
    parser.add_argument("--chunks", type=int, help="chunks of each size instead of the scale's")
    arguments = parser.parse_args()
    scale = str(arguments.scale)
    names = (*SIDES, *(MORE_SIDES[scale] if arguments.sides is None else arguments.sides))
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as folder:
        sides = [opened(Path(folder), name, LINES[scale]) for name in names]
        divided = {each.table: each for each in sides[0].warehouse.ranges()}["store_sales"]
        if divided.column != "ticket" or len(divided.ranges) != RANGES:
            raise SystemExit(f"store_sales is not aligned: {divided}")
        if scale != "tiny":
            say("warming up")
            size_figures(sides, SIZES[scale][0], courses("small", 3, SCANS[scale]))
        sizes = []
        for lines in arguments.sizes or SIZES[scale]:
            say(f"chunks of {lines:,} line items")
            sizes.append(size_figures(sides, lines, courses(scale, arguments.chunks or CHUNKS[scale], SCANS[scale])))
            say(
                f"  {', '.join(f'{name} {value:.2f}' for name, value in sizes[-1].items() if isinstance(value, float))}"
            )
        check(sides)
        results |= {name: value for name, value in sizes[-1].items() if name != "lines"}
        results["sizes"] = sizes
        say("one range against all")
        tiny = scale == "tiny"
        results |= single_range_figures(sides[0], ALL_LINES[scale], 1 if tiny else 2, 0.0 if tiny else LEAST_SECONDS)
        sides.append(opened(Path(folder), ONE, LINES[scale]))
        say("a map of one range against none")
        results |= one_range_figures(sides[-1], sides[1], SIZES[scale][-1 if tiny else 1], 1 if tiny else 6)
        for side in sides:
            side.warehouse.close()
    publish("regions", scale, results, {} if scale == "tiny" else TARGETS)


if __name__ == "__main__":
    main()
