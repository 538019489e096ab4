"""Wide: large changes against recomputation, the choice between the ways, and what stays in the driver.

    make bench NAME=wide SCALE=tiny|small|full [PARTS="ways fresh"] [SIZES="r600 r6000"]

Parts that are named, and sizes of the ways, run alone and are written beside what `out/wide.json` has of the others.

The flow is store_sales (see `benchmarks.shop`); a change is mixed, on scattered keys, in one job. The three ways, and the one that
headgate chooses, take turns; a job is done when a query has its snapshot, and everything is folded before the next one.

    wide_vs_recompute       by share of changed line items: seconds when the flow is recomputed over those when it is kept wide;
                            both keep the replicas
    regret                  the chosen way over the best of the possible ones, worst over the sizes whose spreads do not overlap
    fresh_600k_vs_recompute commit to answer over plain Spark's: compute the flow over plain copies, keep it, answer from it
    narrow_job              processor seconds of a small job over those of the commit before
    load_vs_spark           rows per second of a first load until a flow over it answers, over a Spark job that sorts, writes
                            and aggregates the same rows
    driver_growth …         on a standalone cluster, see `benchmarks.wide_cluster`
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import headgate
from benchmarks.compare import checked_out
from benchmarks.maintenance import LINES, SPARK, Loaded, check, load
from benchmarks.peers_sides import ANSWER, Copies, SparkRecompute, plain_answer, rows_of
from benchmarks.report import OUTPUT, SCALES, earlier, in_turns, median, merged, publish, say, seconds
from benchmarks.wide_cluster import cluster_figures
from benchmarks.wide_plot import draw
from headgate.runtime.stages.ways import Way

ROOT = Path(__file__).parent.parent
BEFORE = "dcfa067"
"""The commit before batches could be wide."""
PARTS = ("ways", "shares", "fresh", "load", "cluster", "small_jobs")
WAYS = ("narrow", "wide", "recompute")
SHARES = {"p1": 0.01, "p5": 0.05, "p20": 0.2}
SIZES = {
    "tiny": {"r600": 600},
    "small": {"r600": 600, "r6000": 6_000, "r60000": 60_000, "r600000": 600_000, "r2880000": 2_880_000},
    "full": {"r600": 600, "r6000": 6_000, "r60000": 60_000, "r600000": 600_000},
}
FRESH = {"tiny": 4_800, "small": 600_000, "full": 600_000}
ROUNDS = {"tiny": 1, "small": 2, "full": 3}
FEW_LINES = 10_000
"""Up to here a size has one round that is not counted; then code is compiled."""
MANY_LINES = 1_000_000
"""From here on a size has one round, for the plot."""
LOADED = {"tiny": 50_000, "small": 3_000_000, "full": 3_000_000}
CHUNK = 200_000


def targets(scale: str) -> dict[str, tuple[str, float]]:
    least = {"p1": 5.0, "p5": 2.5, "p20": 1.0} if scale == "full" else {"p1": 1.5, "p5": 1.0}
    return {
        **{f"wide_vs_recompute.{share}": (">=", bound) for share, bound in least.items()},
        "regret": ("<=", 1.2),
        "fresh_600k_vs_recompute": ("<=", 1.3),
        "narrow_job": ("<=", 1.1),
        "load_vs_spark": (">=", 0.4),
        "driver_growth.heap": ("<=", 1.2),
        "driver_growth.arrow": ("<=", 1.2),
        "driver_growth.python": ("<=", 1.2),
        "driver_cpu_share": ("<=", 0.15),
        "longest_task_vs_mean": ("<=", 1.5),
        "scale_out": (">=", 1.3),
    }


def changed(loaded: Loaded, lines: int, way: str | None, choices: list[str] | None = None) -> float:
    """Seconds of one job of so many changed line items, taken in a way or, with None, in the one that is chosen.

    Why it was chosen goes to `choices`.
    """
    ways = loaded.warehouse._engine.batches.ways
    loaded.shop.commit_change(loaded.source, lines)
    ways.forced = None if way is None else Way(way)
    began = time.perf_counter()
    try:
        with loaded.warehouse.sql("SELECT 1 FROM store_sales", max_staleness=0) as _:
            took = time.perf_counter() - began
    finally:
        ways.forced = None
    if choices is not None:
        choices.append(str(ways.last["store_sales"]))
    loaded.warehouse.materialize()
    return took


def way_figures(loaded: Loaded, sizes: Mapping[str, int], rounds: int) -> dict[str, object]:
    """The three ways and the choice, by size; the chosen one comes last, when there is something to choose from."""
    times: dict[str, dict[str, list[float]]] = {}
    choices: dict[str, list[str]] = {size: [] for size in sizes}
    for size, lines in sizes.items():
        # No more than the driver may hold are narrow, whatever is asked for.
        most = loaded.warehouse._engine.batches.many_rows
        ways = {way: partial(changed, loaded, lines, way) for way in WAYS if way != "narrow" or lines < most}
        if lines <= FEW_LINES and rounds > 1:
            in_turns(ways, 1)
        times[size] = in_turns(
            {**ways, "chosen": partial(changed, loaded, lines, None, choices[size])},
            1 if lines > MANY_LINES else rounds,
        )
        say(f"  {size}: " + ", ".join(f"{way} {median(found):.2f} s" for way, found in times[size].items()))
    return {
        "way_seconds": {size: {way: median(found) for way, found in each.items()} for size, each in times.items()},
        "way_spreads": times,
        "way_choices": choices,
    }


def share_figures(loaded: Loaded, lines: int, rounds: int) -> dict[str, object]:
    ratios, took = {}, {}
    for share, part in SHARES.items():
        actions = {way: partial(changed, loaded, int(lines * part), way) for way in ("wide", "recompute")}
        found = {way: median(times) for way, times in in_turns(actions, rounds).items()}
        ratios[share], took[share] = found["recompute"] / found["wide"], found
        say(f"  {share}: wide {found['wide']:.2f} s, recompute {found['recompute']:.2f} s")
    return {"wide_vs_recompute": ratios, "share_seconds": took}


def fresh_figures(loaded: Loaded, folder: Path, lines: int, rounds: int) -> dict[str, object]:
    """Commit to answer, against plain Spark over copies that are brought up to date for nothing."""
    session, _ = loaded.warehouse.from_scratch("store_sales")
    copies = Copies(loaded.warehouse, folder / "copies")
    plain = SparkRecompute(copies, session)
    mine: list[float] = []
    other: list[float] = []
    kept = folder / "kept"

    def ours() -> list[tuple[object, ...]]:
        with loaded.warehouse.sql(ANSWER.format(sales="store_sales"), max_staleness="0s") as answer:
            return rows_of(answer.to_arrow())

    def theirs() -> list[tuple[object, ...]]:
        plain.sales().write.mode("overwrite").parquet(str(kept))
        return plain_answer(session, [str(kept)])

    for _ in range(rounds):
        loaded.shop.commit_change(loaded.source, lines)
        answers: dict[str, list[tuple[object, ...]]] = {}

        def keep(name: str, side: Callable[[], list[tuple[object, ...]]], found: dict[str, object] = answers) -> None:
            found[name] = side()

        mine.append(seconds(partial(keep, "headgate", ours)))
        copies.write_sources()
        other.append(seconds(partial(keep, "recompute", theirs)))
        if answers["headgate"] != answers["recompute"]:
            raise SystemExit("headgate and the recomputation answer differently")
        loaded.warehouse.materialize()
    return {
        "fresh_600k_vs_recompute": median(mine) / median(other),
        "fresh_seconds": {"headgate": mine, "recompute_and_keep": other},
    }


def load_figures(folder: Path, rows: int) -> dict[str, object]:
    """A first load of three columns until a flow over it answers, against the tightest Spark job on the same rows."""
    flows = folder / "load_flows"
    flows.mkdir()
    (flows / "flow.sql").write_text(
        "CREATE MATERIALIZED VIEW by_place AS"
        " SELECT place, COUNT(*) AS n, SUM(amount) AS amount FROM shop.facts GROUP BY place;\n",
        encoding="utf-8",
    )
    project = {
        "name": "load",
        "storage": str(folder / "load"),
        "libraries": [{"glob": {"include": f"{flows}/**"}}],
        "spark": SPARK,
        "sources": {
            "shop": {
                "type": "memory",
                "tables": {
                    "facts": {"columns": {"id": "bigint", "place": "int", "amount": "bigint"}, "key": ["id"]},
                    "warm": {"columns": {"id": "bigint", "amount": "bigint"}, "key": ["id"]},
                },
            }
        },
    }
    query = "SELECT COUNT(*) AS places, SUM(n) AS n, SUM(amount) AS amount FROM"
    with headgate.open(project) as warehouse:
        session, _ = warehouse.from_scratch("by_place")
        source = warehouse.source("shop")
        with source.transaction() as transaction:
            transaction.insert_many("warm", pa.table({"id": np.arange(1000), "amount": np.arange(1000)}))
        warehouse.refresh()
        found: list[list[tuple[object, ...]]] = []

        def ours() -> None:
            with source.transaction(initial=True) as transaction:
                for start in range(0, rows, CHUNK):
                    transaction.insert_many("facts", _facts(start, min(CHUNK, rows - start)))
            with warehouse.sql(f"{query} by_place", max_staleness=0) as answer:
                found.append(rows_of(answer.to_arrow()))

        copy = folder / "facts.parquet"
        with pq.ParquetWriter(copy, _facts(0, 1).schema) as writer:
            for start in range(0, rows, CHUNK):
                writer.write_table(_facts(start, min(CHUNK, rows - start)))

        def theirs() -> None:
            place = str(folder / "sorted")
            session.read.parquet(str(copy)).orderBy("id").write.mode("overwrite").parquet(place)
            session.read.parquet(place).createOrReplaceTempView("sorted_facts")
            grouped = "(SELECT place, COUNT(*) AS n, SUM(amount) AS amount FROM sorted_facts GROUP BY place)"
            found.append(rows_of(session.sql(f"{query} {grouped}").toArrow()))

        theirs()
        spark_seconds = median([seconds(theirs) for _ in range(3)])
        own_seconds = seconds(ours)
    if any(each != found[0] for each in found):
        raise SystemExit(f"the load is wrong: {found}")
    return {
        "load_vs_spark": spark_seconds / own_seconds,
        "load_seconds": {"headgate": own_seconds, "spark": spark_seconds},
    }


def _facts(start: int, count: int) -> pa.Table:
    numbers = np.arange(start, start + count)
    return pa.table(
        {
            "id": numbers * 7919 % 1_000_000_007,
            "place": (numbers % 1_000).astype(np.int32),
            "amount": numbers % 9_973,
        }
    )


def narrow_figures(lines: int, jobs: int, rounds: int) -> dict[str, object]:
    """Small jobs here and at the commit before, each in processes of its own."""
    with ExitStack() as ends:
        try:
            before = ends.enter_context(checked_out(BEFORE))
        except subprocess.CalledProcessError:
            say(f"the commit {BEFORE} is not known here: nothing is compared with it")
            return {"narrow_job": None}
        found: dict[str, list[dict[str, float]]] = {"before": [], "here": []}
        for _ in range(rounds):
            for name, code in (("before", before), ("here", ROOT)):
                found[name].append(_small_jobs(code, lines, jobs))
    spent = {name: median([each["processor"] for each in runs]) for name, runs in found.items()}
    return {
        "narrow_job": spent["here"] / spent["before"],
        "narrow_cpu_seconds": spent,
        "narrow_executions": {name: median([each["executions"] for each in runs]) for name, runs in found.items()},
    }


def _small_jobs(code: Path, lines: int, jobs: int) -> dict[str, float]:
    """What one small job takes, in a process that runs the code of a checkout."""
    done = subprocess.run(
        [sys.executable, "-P", str(ROOT / "benchmarks" / "wide_small_jobs.py"), str(lines), str(jobs)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(code / "src"), str(ROOT)])},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return cast(dict[str, float], json.loads(done.stdout.strip().splitlines()[-1]))


def over_the_shop(folder: Path, scale: str, parts: Sequence[str], sizes: Sequence[str]) -> dict[str, object]:
    """The parts that change one loaded shop, which is compared with the flow from scratch at the end."""
    rounds, lines = ROUNDS[scale], LINES[scale]
    results: dict[str, object] = {}
    loaded = load(folder, lines, 3)
    if "ways" in parts:
        say("the ways, by size")
        results |= way_figures(loaded, {size: SIZES[scale][size] for size in sizes}, rounds)
    if "shares" in parts:
        say("the ways, by share")
        results |= share_figures(loaded, lines, rounds)
    if "fresh" in parts:
        say("fresh answers")
        results |= fresh_figures(loaded, folder, FRESH[scale], rounds)
    check(loaded)
    loaded.warehouse.close()
    return results


def regret(times: Mapping[str, Mapping[str, Sequence[float]]], rows: Mapping[str, int]) -> dict[str, object]:
    """The chosen way over the best, by size; 1 where their spreads overlap."""
    regrets = {}
    for size, each in times.items():
        if rows[size] > MANY_LINES:
            continue
        best = min((way for way in each if way != "chosen"), key=lambda way: median(each[way]))
        apart = min(each["chosen"]) > max(each[best])
        regrets[size] = median(each["chosen"]) / median(each[best]) if apart else 1.0
    return {"regret": max(regrets.values(), default=None), "regrets": regrets}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", choices=SCALES, default="small")
    parser.add_argument("--parts", nargs="+", choices=PARTS, help="only these")
    parser.add_argument("--sizes", nargs="+", help="of the ways, only these sizes")
    asked = parser.parse_args()
    scale, rows = asked.scale, SIZES[asked.scale]
    parts = asked.parts or PARTS
    results = {} if asked.parts is None else earlier("wide", scale)
    found: dict[str, object] = {}
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as place:
        folder = Path(place)
        if {"ways", "shares", "fresh"} & set(parts):
            found |= over_the_shop(folder, scale, parts, asked.sizes or list(rows))
        if "load" in parts:
            say("a first load")
            found |= load_figures(folder, LOADED[scale])
        if "cluster" in parts:
            say("on a cluster")
            found |= cluster_figures(folder / "cluster", scale)
        if "small_jobs" in parts and scale != "tiny":
            say("small jobs, here and at the commit before")
            found |= narrow_figures(LINES[scale] // 10, 12, 2)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    results = merged(results, {**found, "ended_at": dict.fromkeys(parts, now)})
    spreads = cast(dict[str, dict[str, list[float]]], results.get("way_spreads", {}))
    if spreads:
        results |= regret(spreads, rows)
        seconds_of = {
            size: {way: median(times) for way, times in spreads[size].items()} for size in rows if size in spreads
        }
        draw(OUTPUT / "wide.png", seconds_of, rows)
    publish("wide", scale, results, targets(scale))


if __name__ == "__main__":
    main()
