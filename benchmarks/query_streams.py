"""Streams of OLAP queries over the shop's store_sales while its purchases keep coming: one run of one configuration."""

from __future__ import annotations

import shutil
import threading
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from copy import deepcopy
from dataclasses import asdict, dataclass, field
from pathlib import Path

import headgate
from benchmarks.maintenance import Loaded, check
from benchmarks.olap import QUERIES, permutation
from benchmarks.report import say, seconds
from benchmarks.shop import LINES_PER_PURCHASE, PURCHASES_PER_JOB, Shop, project
from benchmarks.stage_executors import OneByOne, open_with
from headgate.runtime.execution.executor import Executor

REVENUE = "CAST(SUM(l.qty * l.price) AS DECIMAL(8, 2))"
"""As narrow as TPC-DS has it, about: Spark sums up wider decimals digit by digit."""
ROWS_PER_FILE = 64_000
"""Larger than the default, which suits lookups: here most of the time goes into reading whole tables."""

SETTINGS: Mapping[str, Mapping[str, object]] = {
    "headgate": {},
    "nrt": {},
    "seq": {},
    "eager": {"background": {"idle_after": "250ms"}},
}
"""What a configuration's project says."""


@dataclass(frozen=True)
class Workload:
    name: str
    streams: int
    queries: int
    """That each stream asks."""
    jobs_per_part: int
    configurations: tuple[str, ...]


@dataclass
class Run:
    """One configuration's run of a workload."""

    seconds: float = 0.0
    queries: int = 0
    latencies: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    waits: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    """By where the queries waited."""
    jobs: int = 0
    executions: int = 0
    committing: float = 0.0
    system_jobs: int = 0

    @property
    def throughput(self) -> float:
        return self.queries / self.seconds

    @property
    def mean_latency(self) -> float:
        return mean([second for found in self.latencies.values() for second in found])


class Base:
    """A loaded warehouse on disk, and copies of it to run on."""

    def __init__(self, folder: Path, lines: int) -> None:
        self._folder = folder
        self._copies = 0
        self._shop = Shop(lines)
        with headgate.open(self._project(folder / "base")) as warehouse:
            say(f"loading {lines:,} line items")
            self._shop.load(warehouse.source("shop"))
            took = seconds(warehouse.refresh)
            loaded = Loaded(warehouse, self._shop, warehouse.source("shop"))
            loaded.job("inserts")
            warehouse.materialize()
            say(f"  loaded and built in {took:.0f} s")

    def _project(self, place: Path) -> dict[str, object]:
        shop = project(place / "warehouse", self._folder / "flows", "bigint", {}, REVENUE)
        return {**shop, "limits": {"rows_per_file": ROWS_PER_FILE}}

    def open(self, settings: Mapping[str, object], executor: type[Executor] = Executor) -> Loaded:
        """A copy, open, with a shop that goes on where the base's ended."""
        self._copies += 1
        place = self._folder / f"copy-{self._copies}"
        shutil.copytree(self._folder / "base", place)
        warehouse = open_with(executor, {**self._project(place), **settings})
        return Loaded(warehouse, deepcopy(self._shop), warehouse.source("shop"))

    def drop(self, loaded: Loaded) -> None:
        place = Path(loaded.warehouse.project.storage).parent
        loaded.warehouse.close()
        shutil.rmtree(place)


def ask(loaded: Loaded, names: Sequence[str]) -> None:
    for name in names:
        with loaded.warehouse.sql(QUERIES[name]) as answer:
            answer.to_arrow()


class Clients:
    """The streams of one run, and the update stream."""

    def __init__(self, loaded: Loaded, workload: Workload, configuration: str) -> None:
        self._loaded = loaded
        self._workload = workload
        self._is_nrt = configuration == "nrt"
        self._turn = threading.Lock() if configuration == "seq" else nullcontext()
        self._writing = threading.Lock()
        self._noting = threading.Lock()
        self.run = Run()

    def measure(self) -> Run:
        warehouse, run = self._loaded.warehouse, self.run
        newest, before = warehouse.newest_job, warehouse.status
        done = threading.Event()
        start = time.perf_counter()
        with ThreadPoolExecutor(self._workload.streams + 1) as pool:
            refreshing = pool.submit(self._refresh_until, done) if self._is_nrt else None
            streams = [pool.submit(self._stream, number) for number in range(self._workload.streams)]
            try:
                for stream in streams:
                    stream.result()
            finally:
                done.set()
            if refreshing is not None:
                refreshing.result()
        warehouse.refresh()
        run.seconds = time.perf_counter() - start
        after = warehouse.status
        run.jobs, run.executions = warehouse.newest_job - newest, after.executions - before.executions
        run.system_jobs = sum(each.what == "system job" and each.at >= before.at for each in after.actions)
        return run

    def _refresh_until(self, done: threading.Event) -> None:
        while not done.is_set():
            self._loaded.warehouse.refresh()

    def _stream(self, number: int) -> None:
        session = self._loaded.warehouse.session()
        for name in permutation(number)[: self._workload.queries]:
            asked = time.perf_counter()
            with self._turn:
                answer = session.sql(QUERIES[name], max_staleness="any" if self._is_nrt else 0)
                has_snapshot = time.perf_counter()
                self._commit_part()
            reading = time.perf_counter()
            with answer:
                answer.to_arrow()
                receipt = answer.receipt
            if receipt.missed:
                raise SystemExit(f"the bound was missed: {receipt}")
            with self._noting:
                latency = has_snapshot - asked + time.perf_counter() - reading
                self.run.latencies[name].append(latency)
                for where, waited in asdict(receipt.waited).items():
                    self.run.waits[where].append(waited)
                self.run.queries += 1
                self.run.committing += reading - has_snapshot

    def _commit_part(self) -> None:
        with self._writing:
            for _ in range(self._workload.jobs_per_part):
                self._loaded.shop.commit_job(self._loaded.source, "inserts")


def measured(base: Base, workload: Workload, configuration: str, checked: bool) -> Run:
    loaded = base.open(SETTINGS[configuration], OneByOne if configuration == "seq" else Executor)
    try:
        loaded.job("inserts")
        ask(loaded, permutation(0)[: workload.queries])
        purchases = loaded.shop.next_number
        run = Clients(loaded, workload, configuration).measure()
        _check_whole(loaded)
        if checked:
            check(loaded)
        parts = (loaded.shop.next_number - purchases) / PURCHASES_PER_JOB
        if parts != run.queries * workload.jobs_per_part:
            raise SystemExit(f"the update stream had {parts} parts for {run.queries} queries")
        say(
            f"  {workload.name} {configuration}: {run.throughput:.2f} queries/s, {run.seconds:.1f} s, {run.jobs} jobs,"
            f" {run.executions} batches, {run.system_jobs} system jobs, {run.committing:.1f} s of commits"
        )
        return run
    finally:
        base.drop(loaded)


def _check_whole(loaded: Loaded) -> None:
    """Everything that was bought is in store_sales."""
    with loaded.warehouse.sql("SELECT SUM(lines) AS lines FROM store_sales", max_staleness="any") as answer:
        found = answer.collect()[0].lines
    expected = loaded.shop.next_number * LINES_PER_PURCHASE
    if found != expected:
        raise SystemExit(f"store_sales has {found} lines, {expected} were bought")


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
