"""Snapshots: what consistency costs. Streams of OLAP queries over store_sales while purchases keep coming.

    make bench NAME=snapshots SCALE=tiny|small|full

The first experiment of "Real-Time Snapshot Maintenance with Incremental ETL Pipelines" on the shop of `benchmarks.shop`.
Every stream asks the ten queries of `benchmarks.olap` one at a time, in an order of its own. As soon as a query has its
snapshot, its client commits the next part of the update stream, then reads; so every query but the first finds one part
per query before it, and the update stream is as long in every configuration:

    read-heavy     21 streams; a part is 48 purchases with 576 line items (10K + 120K rows in 210 queries)
    update-heavy    7 streams; a part is six times that (20K + 240K rows in 70 queries)

    headgate       bound 0; queries that wait share jobs, stages take all closed jobs as one batch, and the same query at the
                   same snapshot is read once (in all configurations; it seldom happens where each query has its own)
    nrt            queries read what is there without waiting; all tables are refreshed back to back in the background
    seq            bound 0; each query has a job of its own, run one at a time: the next one begins when it has its snapshot
    eager          as headgate (update-heavy only), and system jobs run as soon as no query waits or came for 0.25 s

Throughput is queries over the time until all of them are answered and all of the update stream is in store_sales. Latency is
from asking to the last row, without the client's commit. Every run starts on a copy of the same loaded
warehouse, warmed up; configurations take turns, and ratios are those of one round. Before them a run of
headgate is not counted: Java compiles in it.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.maintenance import LINES
from benchmarks.olap import QUERIES
from benchmarks.query_streams import Base, Run, Workload, mean, measured
from benchmarks.report import median, parse_scale, publish, say, seconds
from benchmarks.spark import spark_settings
from benchmarks.stage_executors import OneByOne
from headgate.runtime.spark.sessions import SparkSessions

ROUNDS = {"tiny": 1, "small": 5, "full": 5}
STREAM_JOBS = {"tiny": 5, "small": 210, "full": 210}
STREAM_ROUNDS = {"tiny": 1, "small": 3, "full": 3}

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


def workloads(scale: str) -> tuple[Workload, Workload]:
    read, update = ((2, 2), (2, 1)) if scale == "tiny" else ((21, 10), (7, 10))
    common = ("headgate", "nrt", "seq")
    return (
        Workload("read_heavy", read[0], read[1], 1, common),
        Workload("update_heavy", update[0], update[1], 6, (*common, "eager")),
    )


def stream_figures(base: Base, jobs: int, rounds: int) -> dict[str, object]:
    """The update stream without queries: jobs one at a time, as a stream of closed jobs, and as one job."""
    staged, sequential = base.open({}), base.open({}, OneByOne)
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
    for other in ("nrt", "seq"):
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
        "mean_wait": {
            name: {where: median([mean(run.waits[where]) for run in found]) for where in found[0].waits}
            for name, found in runs.items()
        },
        "latency": {query: _latencies(query, runs) for query in QUERIES},
    }
    return results


def _latencies(query: str, runs: Mapping[str, Sequence[Run]]) -> dict[str, float]:
    """A query's mean latency per configuration, of all rounds."""
    found = {name: [second for run in each for second in run.latencies.get(query, ())] for name, each in runs.items()}
    return {name: mean(times) for name, times in found.items() if times}


def main() -> None:
    scale = parse_scale(__doc__ or "")
    results: dict[str, object] = {}
    sessions = SparkSessions(spark_settings(scale, "6g"), "headgate snapshots")
    try:
        with tempfile.TemporaryDirectory(prefix="headgate-bench-") as place:
            base = Base(Path(place), LINES[scale])
            for workload in workloads(scale):
                if scale != "tiny":
                    say(f"{workload.name}, not counted")
                    measured(base, workload, "headgate", False)
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
