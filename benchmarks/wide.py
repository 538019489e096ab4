"""Wide: large changes against recomputation, the choice between the ways, and what stays in the driver.

    make bench NAME=wide SCALE=tiny|small|full

The flow is store_sales (see `benchmarks.shop`); a change is mixed, on scattered keys, in one job. The three ways, and the one that
headgate chooses, take turns; a job is done when a query has its snapshot, and everything is folded before the next one.

    wide_vs_recompute       by share of changed line items: seconds when the flow is recomputed over those when it is kept wide;
                            both keep the replicas
    regret                  the chosen way over the best of the three, worst over the sizes whose spreads do not overlap
    fresh_600k_vs_recompute commit to answer over plain Spark's: compute the flow over plain copies, keep it, answer from it
    narrow_job              processor seconds of a small job over those of the commit before
    load_vs_spark           rows per second of a first load until a flow over it answers, over a Spark job that sorts, writes
                            and aggregates the same rows
    driver_growth …         on a standalone cluster, see `benchmarks.wide_cluster`
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import headgate
from benchmarks.compare import checked_out
from benchmarks.maintenance import LINES, SPARK, Loaded, check, load
from benchmarks.peers_sides import ANSWER, Copies, SparkRecompute, plain_answer, rows_of
from benchmarks.report import OUTPUT, in_turns, median, parse_scale, publish, say, seconds
from benchmarks.wide_cluster import cluster_figures
from benchmarks.wide_plot import draw
from headgate.runtime.stages.ways import Way

ROOT = Path(__file__).parent.parent
BEFORE = "dcfa067"
"""The commit before batches could be wide."""
WAYS = ("narrow", "wide", "recompute")
SHARES = {"p1": 0.01, "p5": 0.05, "p20": 0.2}
SIZES = {
    "tiny": {"r600": 600},
    "small": {"r600": 600, "r6000": 6_000, "r60000": 60_000, "r600000": 600_000},
    "full": {"r600": 600, "r6000": 6_000, "r60000": 60_000, "r600000": 600_000},
}
FRESH = {"tiny": 4_800, "small": 600_000, "full": 600_000}
ROUNDS = {"tiny": 1, "small": 2, "full": 3}
FEW_LINES = 10_000
"""Up to here a size has one round that is not counted; then code is compiled."""
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


def changed(loaded: Loaded, lines: int, way: str | None) -> float:
    """Seconds of one job of so many changed line items, taken in a way or, with None, in the one that is chosen."""
    ways = loaded.warehouse._engine.batches.ways
    loaded.shop.commit_change(loaded.source, lines)
    ways.forced = None if way is None else Way(way)
    began = time.perf_counter()
    try:
        with loaded.warehouse.sql("SELECT 1 FROM store_sales", max_staleness=0) as _:
            took = time.perf_counter() - began
    finally:
        ways.forced = None
    loaded.warehouse.materialize()
    return took


def way_figures(loaded: Loaded, scale: str, rounds: int) -> dict[str, object]:
    """The three ways and the choice, by size; the chosen one comes last, when there is something to choose from."""
    times: dict[str, dict[str, list[float]]] = {}
    for size, lines in SIZES[scale].items():
        ways = {way: partial(changed, loaded, lines, way) for way in WAYS}
        if lines <= FEW_LINES and scale != "tiny":
            in_turns(ways, 1)
        times[size] = in_turns({**ways, "chosen": partial(changed, loaded, lines, None)}, rounds)
        say(f"  {size}: " + ", ".join(f"{way} {median(found):.2f} s" for way, found in times[size].items()))
    regrets = {}
    for size, each in times.items():
        best = min(WAYS, key=lambda way: median(each[way]))
        apart = min(each["chosen"]) > max(each[best])
        regrets[size] = median(each["chosen"]) / median(each[best]) if apart else 1.0
    return {
        "regret": max(regrets.values()),
        "regrets": regrets,
        "way_seconds": {size: {way: median(found) for way, found in each.items()} for size, each in times.items()},
        "way_spreads": times,
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
        found = in_turns(
            {"before": partial(_small_jobs, before, lines, jobs), "here": partial(_small_jobs, ROOT, lines, jobs)},
            rounds,
        )
    here, other = median(found["here"]), median(found["before"])
    return {"narrow_job": here / other, "narrow_cpu_seconds": {"here": here, "before": other}}


def _small_jobs(code: Path, lines: int, jobs: int) -> float:
    """Processor seconds of one small job, in a process that runs the code of a checkout."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "wide_small_jobs.py"), str(lines), str(jobs)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(code / "src"), str(ROOT)])},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return float(json.loads(done.stdout.strip().splitlines()[-1])["processor"])


def main() -> None:
    scale = parse_scale(__doc__ or "")
    rounds, lines = ROUNDS[scale], LINES[scale]
    results: dict[str, object] = {}
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as place:
        folder = Path(place)
        loaded = load(folder, lines, 3)
        say("the ways, by size")
        results |= way_figures(loaded, scale, rounds)
        say("the ways, by share")
        results |= share_figures(loaded, lines, rounds)
        say("fresh answers")
        results |= fresh_figures(loaded, folder, FRESH[scale], rounds)
        check(loaded)
        loaded.warehouse.close()
        say("a first load")
        results |= load_figures(folder, LOADED[scale])
        say("on a cluster")
        results |= cluster_figures(folder / "cluster", scale)
        if scale != "tiny":
            say("small jobs, here and at the commit before")
            results |= narrow_figures(lines // 10, 12, 2)
    draw(OUTPUT / "wide.png", results["way_seconds"], SIZES[scale])  # type: ignore[arg-type]
    publish("wide", scale, results, targets(scale))


if __name__ == "__main__":
    main()
