"""Snapshots: what consistency costs. Streams of OLAP queries over store_sales while purchases keep coming.

    make bench NAME=snapshots SCALE=tiny|small|full

The first experiment of "Real-Time Snapshot Maintenance with Incremental ETL Pipelines" on the shop of `benchmarks.shop`.
Every stream asks the ten queries of `benchmarks.olap` one at a time, in an order of its own. As soon as a query has its
snapshot, its client commits the next part of the update stream, then reads; so every query but the first finds one part
per query before it, and the update stream is as long in every configuration:

    read-heavy     21 streams; a part is 48 purchases with 576 line items (10K + 120K rows in 210 queries)
    update-heavy    7 streams; a part is six times that (20K + 240K rows in 70 queries)

    headgate       bound 0; queries that wait share jobs, stages take all closed jobs as one batch
    nrt            queries read what is there without waiting; all tables are refreshed back to back in the background
    seq            bound 0; each query has a job of its own, run one at a time: the next one begins when it has its snapshot
    seq_sharing    as headgate, but one stage after another and one job at a time (queries still share jobs)
    eager          as headgate (update-heavy only), and system jobs run as soon as no query waits or came for 0.25 s

Throughput is queries over the time until all of them are answered and all of the update stream is in store_sales. Latency is
from asking to the last row, without the client's commit. Every run starts on a copy of the same loaded
warehouse, warmed up; configurations take turns, and ratios are those of one round.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path

import headgate
from benchmarks.maintenance import LINES, SPARK, Loaded, check
from benchmarks.olap import QUERIES, permutation
from benchmarks.report import median, parse_scale, publish, say, seconds
from benchmarks.shop import LINES_PER_PURCHASE, PURCHASES_PER_JOB, Shop, project
from headgate.runtime.spark_sessions import SparkSessions

ROUNDS = {"tiny": 1, "small": 5, "full": 5}
STREAM_JOBS = {"tiny": 5, "small": 210, "full": 210}
STREAM_ROUNDS = {"tiny": 1, "small": 3, "full": 3}

SETTINGS: Mapping[str, Mapping[str, object]] = {
    "headgate": {},
    "nrt": {},
    "seq": {"executor": "one_by_one"},
    "seq_sharing": {"executor": "one_by_one"},
    "eager": {"background": {"idle_after": "250ms"}},
}
"""What a configuration's project says."""

PAPER = {
    "read_heavy": {"headgate": 2.22, "nrt": 2.30, "seq": 1.37},
    "update_heavy": {"headgate": 0.82, "nrt": 0.93, "seq": 0.63},
    "seq_vs_stream": 650 / 399,
    "stream_vs_one_job": 399 / 370,
    "latency": "plots only, no figures",
}
"""Queries per second, and times without queries."""

TARGETS = {
    "read_heavy_vs_nrt": (">=", 0.95),
    "update_heavy_vs_nrt": (">=", 0.88),
    "read_heavy_vs_seq": (">=", 2.0),
    "update_heavy_vs_seq": (">=", 1.5),
}


@dataclass(frozen=True)
class Workload:
    name: str
    streams: int
    queries: int
    """That each stream asks."""
    jobs_per_part: int
    configurations: tuple[str, ...]


def workloads(scale: str) -> tuple[Workload, Workload]:
    read, update = ((3, 2), (2, 2)) if scale == "tiny" else ((21, 10), (7, 10))
    common = ("headgate", "nrt", "seq", "seq_sharing")
    return (
        Workload("read_heavy", read[0], read[1], 1, common),
        Workload("update_heavy", update[0], update[1], 6, (*common, "eager")),
    )


@dataclass
class Run:
    """One configuration's run of a workload."""

    seconds: float = 0.0
    queries: int = 0
    latencies: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    jobs: int = 0
    executions: int = 0
    committing: float = 0.0
    system_jobs: int = 0

    @property
    def throughput(self) -> float:
        return self.queries / self.seconds

    @property
    def mean_latency(self) -> float:
        return _mean([second for found in self.latencies.values() for second in found])


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
            ask(loaded, list(QUERIES))
            warehouse.materialize()
            say(f"  loaded and built in {took:.0f} s")

    def _project(self, place: Path) -> dict[str, object]:
        return project(place / "warehouse", self._folder / "flows", "bigint", SPARK)

    def open(self, settings: Mapping[str, object]) -> Loaded:
        """A copy, open, with a shop that goes on where the base's ended."""
        self._copies += 1
        place = self._folder / f"copy-{self._copies}"
        shutil.copytree(self._folder / "base", place)
        warehouse = headgate.open({**self._project(place), **settings})
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
        before, executed = warehouse.newest_job, warehouse.status.executions
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
        run.jobs, run.executions = warehouse.newest_job - before, warehouse.status.executions - executed
        run.system_jobs = sum(action.what == "system job" for action in warehouse.status.actions)
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
                if answer.receipt.missed:
                    raise SystemExit(f"the bound was missed: {answer.receipt}")
            with self._noting:
                latency = has_snapshot - asked + time.perf_counter() - reading
                self.run.latencies[name].append(latency)
                self.run.queries += 1
                self.run.committing += reading - has_snapshot

    def _commit_part(self) -> None:
        with self._writing:
            for _ in range(self._workload.jobs_per_part):
                self._loaded.shop.commit_job(self._loaded.source, "inserts")


def measured(base: Base, workload: Workload, configuration: str, checked: bool) -> Run:
    loaded = base.open(SETTINGS[configuration])
    try:
        for _ in range(2):
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


def stream_figures(base: Base, jobs: int, rounds: int) -> dict[str, object]:
    """The update stream without queries: jobs one at a time, as a stream of closed jobs, and as one job."""
    staged, sequential = base.open({}), base.open({"executor": "one_by_one"})
    times: dict[str, list[float]] = defaultdict(list)
    try:
        for loaded in (staged, sequential):
            loaded.job("inserts")
        for _ in range(rounds):
            for name, loaded in {"stream": staged, "one_job": staged, "seq": sequential}.items():
                for _ in range(jobs):
                    loaded.shop.commit_job(loaded.source, "inserts")
                    if name != "one_job":
                        loaded.warehouse.close_job()
                times[name].append(seconds(loaded.warehouse.refresh))
                say(f"  {jobs} jobs, {name}: {times[name][-1]:.1f} s")
    finally:
        for loaded in (staged, sequential):
            base.drop(loaded)
    return {
        "seq_vs_stream": median(_ratios(times["seq"], times["stream"])),
        "stream_vs_one_job": median(_ratios(times["stream"], times["one_job"])),
        "no_queries": {
            f"{name}_seconds": {"median": median(found), "spread": _spread(found)} for name, found in times.items()
        },
    }


def _ratios(over: Sequence[float], under: Sequence[float]) -> list[float]:
    return [one / other for one, other in zip(over, under, strict=True)]


def _spread(values: Sequence[float]) -> str:
    return f"{min(values):.3f} to {max(values):.3f}"


def figures(workload: Workload, runs: Mapping[str, Sequence[Run]]) -> dict[str, object]:
    """Ratios of throughput within rounds, and what each configuration did."""
    rates = {name: [run.throughput for run in found] for name, found in runs.items()}
    results: dict[str, object] = {}
    spreads: dict[str, str] = {}
    for other in ("nrt", "seq", "seq_sharing"):
        key = f"{workload.name}_vs_{other}"
        ratios = _ratios(rates["headgate"], rates[other])
        results[key], spreads[key] = median(ratios), _spread(ratios)
    if "eager" in rates:
        key = f"{workload.name}_system_jobs_gain"
        ratios = _ratios(rates["eager"], rates["headgate"])
        results[key], spreads[key] = median(ratios), _spread(ratios)
    results[workload.name] = {
        "spread": spreads,
        "queries_per_second": {name: median(found) for name, found in rates.items()},
        "queries_per_second_spread": {name: _spread(found) for name, found in rates.items()},
        "jobs": {name: median([run.jobs for run in found]) for name, found in runs.items()},
        "batches": {name: median([run.executions for run in found]) for name, found in runs.items()},
        "system_jobs": {name: median([run.system_jobs for run in found]) for name, found in runs.items()},
        "mean_latency": {name: median([run.mean_latency for run in found]) for name, found in runs.items()},
        "latency": {query: _latencies(query, runs) for query in QUERIES},
    }
    return results


def _latencies(query: str, runs: Mapping[str, Sequence[Run]]) -> dict[str, float]:
    """A query's mean latency per configuration, of all rounds."""
    found = {name: [second for run in each for second in run.latencies.get(query, ())] for name, each in runs.items()}
    return {name: _mean(times) for name, times in found.items() if times}


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def main() -> None:
    scale = parse_scale(__doc__ or "")
    results: dict[str, object] = {}
    sessions = SparkSessions(SPARK, "headgate snapshots")
    try:
        with tempfile.TemporaryDirectory(prefix="headgate-bench-") as place:
            base = Base(Path(place), LINES[scale])
            for workload in workloads(scale):
                runs: dict[str, list[Run]] = {name: [] for name in workload.configurations}
                for number in range(ROUNDS[scale]):
                    say(f"{workload.name}, round {number + 1} of {ROUNDS[scale]}")
                    turn = number % len(workload.configurations)
                    for name in (*workload.configurations[turn:], *workload.configurations[:turn]):
                        checked = number == 0 and name == "headgate"
                        runs[name].append(measured(base, workload, name, checked))
                results |= figures(workload, runs)
            say("the update stream without queries")
            results |= stream_figures(base, STREAM_JOBS[scale], STREAM_ROUNDS[scale])
    finally:
        sessions.stop()
    publish("snapshots", scale, {**results, "paper": PAPER}, TARGETS)


if __name__ == "__main__":
    main()
