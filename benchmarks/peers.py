"""Peers: an answer after a change against what a user would do instead, and what reading and the files' layout cost.

    make bench NAME=peers SCALE=tiny|small|full
    python -m benchmarks.peers --scale small --lines 288000 --rounds 3 --parts answers reading     (parts of it, on fewer rows)

The answer groups all of store_sales (see `benchmarks.shop`) by store. `r600` is one job of about 600 changed rows, `r6000` ten and
`r60000` a hundred, committed before the clock starts; it stops when the rows are here. Every side takes its turn on the same
change, and all answers must be equal. `cpu` is processor time of this process, its Spark and their children. The answer was asked
at three jobs before: headgate keeps it by then, and moves it on by the changes. `headgate_reading` is headgate without that, on a
change of its own of the same size.

    vs_recompute    Spark runs the flow and the answer over plain copies of the sources
    vs_by_hand      delta-rs' MERGE keeps store_sales, Spark reads it
    vs_duckdb       as recomputation, by DuckDB
    pipelines       the same answer by a run of Spark Declarative Pipelines, once
    read_vs_plain   an answer that needs no work, over the same query by plain Spark on a copy in files of 64,000 rows
    layout_*        whole reads against files of one row group; lookups of 48 keys against files of 8,000 rows
    after_load      a 600-row answer right after a load, over the same when nothing else is to be done
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from benchmarks import pipelines
from benchmarks.maintenance import LINES, Loaded, load
from benchmarks.peers_sides import (
    ANSWER,
    PLAIN_ROWS,
    ByHand,
    Copies,
    DuckRecompute,
    Row,
    Side,
    SparkRecompute,
    rows_of,
)
from benchmarks.processor import Cost, cost
from benchmarks.report import SCALES, earlier, in_turns, median, merged, publish, say, seconds
from benchmarks.shop import LINES_PER_PURCHASE
from headgate.delta.changes import JOB, WEIGHT, JobId
from headgate.runtime.reading.keeping import Keep
from headgate.warehouse.base import FileLimits
from headgate.warehouse.changes import ChangeSet
from headgate.warehouse.spec import TableSpec
from headgate.warehouse.versioned import VersionedTable

JOBS = {"r600": 1, "r6000": 10, "r60000": 100}
TINY_JOBS = {"r600": 1, "r6000": 2, "r60000": 4}
"""A tiny shop has too few purchases for more."""
ROUNDS = {"tiny": 1, "small": 5, "full": 5}
WARM_UP_JOBS = {"tiny": 1, "small": 20, "full": 20}
LOADED_LINES = {"tiny": 12_000, "small": 1_000_000, "full": 1_000_000}
LOADS = {"tiny": 1, "small": 2, "full": 2}
ASKED_BEFORE = 3
PARTS = ("answers", "pipelines", "reading", "loads")
LOOKED_UP = 48
QUIET_SECONDS = 300
ASKED = ANSWER.format(sales="store_sales")
TARGETS = {
    "vs_recompute.r600": (">=", 3.0),
    "vs_recompute.r6000": (">=", 2.5),
    "vs_recompute.r60000": (">=", 1.2),
    "cpu_vs_recompute.r600": (">=", 4.0),
    "vs_by_hand.r600": (">=", 2.5),
    "read_vs_plain": ("<=", 1.2),
    "read_vs_plain_overlay": ("<=", 1.4),
    "point_vs_plain": ("<=", 0.3),
    "layout_scan": ("<=", 1.15),
    "layout_lookup": ("<=", 1.6),
    "after_load": ("<=", 1.5),
}
FULL_TARGETS = {"vs_recompute.r600": (">=", 15.0)}
"""Instead of those above, where recomputing reads ten times as much."""


def asked(loaded: Loaded, text: str = ASKED, max_staleness: str = "0s") -> list[Row]:
    with loaded.warehouse.sql(text, max_staleness=max_staleness) as answer:
        return rows_of(answer.to_arrow())


def asked_reading(loaded: Loaded, max_staleness: str = "0s") -> list[Row]:
    """The answer without kept ones; what is kept stays at the job where it is."""
    kept = loaded.warehouse._engine.reader.kept
    choose, kept.choose = kept.choose, lambda observed: Keep(False, "the benchmark reads it")
    before = [(query, query.kept) for query in kept._queries.values()]
    try:
        return asked(loaded, max_staleness=max_staleness)
    finally:
        kept.choose = choose
        for query, answer in before:
            query.kept = answer


def change(loaded: Loaded, jobs: int) -> pa.Array:
    """Commits the transactions of so many jobs; gives the keys of the purchases that they touch."""
    shop = loaded.shop
    first, gone = shop.next_number, set(shop._gone)
    for _ in range(jobs):
        shop.commit_job(loaded.source, "mixed")
    return shop.key(np.array([*range(first, shop.next_number), *(shop._gone - gone)]))


def change_figures(
    loaded: Loaded, copies: Copies, sides: dict[str, Side], sizes: dict[str, int], rounds: int
) -> dict[str, object]:
    """Every side's answer to changes of every size, given in jobs; of several rounds, one comes before that is not counted."""
    costs: dict[str, dict[str, list[Cost]]] = {}

    def turn(size: str, jobs: int, counted: bool) -> None:
        if size == "r60000":
            loaded.warehouse.materialize()
        answers: dict[str, list[Row]] = {}

        def keep(name: str, side: Side) -> None:
            answers[name] = side()

        purchases = change(loaded, jobs)
        reading = cost(partial(keep, "headgate_reading", partial(asked_reading, loaded)))
        if counted:
            costs.setdefault(size, {}).setdefault("headgate_reading", []).append(reading)
        copies.take(purchases)
        if answers.pop("headgate_reading") != sides["by_hand"]():
            raise SystemExit("headgate reads another answer than the one by hand")
        if size == "r60000":
            loaded.warehouse.materialize()
        purchases = change(loaded, jobs)

        for name, side in {"headgate": partial(asked, loaded), **sides}.items():
            found = cost(partial(keep, name, side))
            if counted:
                costs.setdefault(size, {}).setdefault(name, []).append(found)
            if name == "headgate":
                copies.take(purchases)
        for name, answer in answers.items():
            if answer != answers["headgate"]:
                raise SystemExit(f"{name} answers {answer[:2]} …, headgate {answers['headgate'][:2]} …")

    for _ in range(ASKED_BEFORE):
        purchases = change(loaded, 1)
        asked(loaded)
        copies.take(purchases)
        sides["by_hand"]()
    if rounds == 1 and loaded.shop.lines > LINES["tiny"]:
        turn("r600", 1, counted=False)
    for size, jobs in sizes.items():
        for number in range(rounds if rounds == 1 else rounds + 1):
            turn(size, jobs, counted=rounds == 1 or number > 0)
        shown = {name: _median(found) for name, found in costs[size].items()}
        say(
            f"  {size}: "
            + ", ".join(f"{name} {each.seconds:.2f} s / {each.processor:.2f}" for name, each in shown.items())
        )
    medians = {size: {name: _median(found) for name, found in each.items()} for size, each in costs.items()}

    def ratios(side: str, of: Callable[[Cost], float]) -> dict[str, float]:
        return {size: of(each[side]) / of(each["headgate"]) for size, each in medians.items()}

    return {
        "vs_recompute": ratios("recompute", lambda cost: cost.seconds),
        "cpu_vs_recompute": ratios("recompute", lambda cost: cost.processor),
        "vs_recompute_reading": {
            size: each["recompute"].seconds / each["headgate_reading"].seconds for size, each in medians.items()
        },
        "vs_by_hand": ratios("by_hand", lambda cost: cost.seconds),
        "cpu_vs_by_hand": ratios("by_hand", lambda cost: cost.processor),
        "vs_duckdb": ratios("duckdb", lambda cost: cost.seconds),
        "seconds": {size: {name: found.seconds for name, found in each.items()} for size, each in medians.items()},
        "cpu_seconds": {
            size: {name: found.processor for name, found in each.items()} for size, each in medians.items()
        },
    }


def pipelines_figure(
    loaded: Loaded, copies: Copies, session: SparkSession, folder: Path, scale: str
) -> dict[str, object]:
    """One answer by Spark Declarative Pipelines, of which every run computes everything: no need to repeat."""
    if scale == "tiny" or (why := pipelines.missing()) is not None:
        return {"pipelines": None if scale == "tiny" else why}
    side = pipelines.Pipelines(copies, session, folder)
    copies.take(change(loaded, 1))
    side.link()
    answers: list[list[Row]] = [asked(loaded)]
    found = cost(lambda: answers.append(side.answer()))
    if answers[0] != answers[1]:
        raise SystemExit("the pipeline answers differently")
    return {"pipelines": {"seconds": found.seconds, "processor": found.processor}}


def _median(costs: list[Cost]) -> Cost:
    return Cost(*(median(values) for values in zip(*costs, strict=True)))


def read_figures(loaded: Loaded, session: SparkSession, folder: Path, rounds: int) -> dict[str, float]:
    """Reads that need no work, with 60,000 changes in the overlay and after they are folded."""
    loaded.warehouse.materialize()
    change(loaded, (TINY_JOBS if loaded.shop.lines <= LINES["tiny"] else JOBS)["r60000"])
    asked(loaded)
    plain = _plain_copy(loaded, folder)
    ticket = asked(loaded, "SELECT MAX(ticket) AS ticket FROM store_sales", "1h")[0][0]
    point = f"SELECT * FROM {{}} WHERE ticket = {ticket}"

    def ratio(mine: Callable[[], object], other: Callable[[], object]) -> float:
        if mine() != other():
            raise SystemExit("headgate reads other rows than plain Spark")
        actions = {"mine": partial(seconds, mine), "other": partial(seconds, other)}
        in_turns(actions, 2)
        times = in_turns(actions, rounds)
        return median(times["mine"]) / median(times["other"])

    def plain_point() -> list[Row]:
        return rows_of(session.sql(point.format("plain_sales")).toArrow())

    def plain_whole() -> list[Row]:
        return rows_of(session.sql(ASKED.replace("store_sales", "plain_sales")).toArrow())

    def own_files() -> list[Row]:
        return rows_of(session.sql(ASKED.replace("store_sales", "own_files")).toArrow())

    session.read.parquet(*plain).createOrReplaceTempView("plain_sales")
    whole = partial(asked_reading, loaded, "1h")
    found = {"read_vs_plain_overlay": ratio(whole, plain_whole)}
    found["point_vs_plain_overlay"] = ratio(partial(asked, loaded, point.format("store_sales"), "1h"), plain_point)
    loaded.warehouse.materialize()
    found["read_vs_plain"] = ratio(whole, plain_whole)
    found["point_vs_plain"] = ratio(partial(asked, loaded, point.format("store_sales"), "1h"), plain_point)
    files = DeltaTable(loaded.warehouse.location("store_sales")).file_uris()
    session.read.parquet(*files).createOrReplaceTempView("own_files")
    found["layout_scan"] = ratio(own_files, plain_whole)
    return found


def _plain_copy(loaded: Loaded, folder: Path) -> list[str]:
    folder.mkdir()
    with loaded.warehouse.sql("SELECT * FROM store_sales ORDER BY ticket, item_sk", max_staleness="1h") as answer:
        rows = answer.to_arrow()
    files = []
    for start in range(0, rows.num_rows, PLAIN_ROWS):
        files.append(str(folder / f"{start:09d}.parquet"))
        pq.write_table(rows.slice(start, PLAIN_ROWS), files[-1], row_group_size=PLAIN_ROWS)
    return files


def lookup_figure(loaded: Loaded, folder: Path, rounds: int) -> float:
    """Lookups of scattered keys in the default layout over those in files of 8,000 rows."""
    stored = loaded.warehouse.replica("shop.lineitems").main
    rows = stored.collected(stored.through, most_rows=1 << 32)
    spec = TableSpec("lines", stored.spec.schema, stored.spec.key, stored.spec.sort)
    count = rows.num_rows
    rows = rows.append_column(JOB, pa.array(np.ones(count, np.int64)))
    changes = ChangeSet.of_table(
        spec, rows.append_column(WEIGHT, pa.array(np.ones(count, np.int64))), JobId(0), JobId(1)
    )
    tables = {"default": FileLimits(), "small": FileLimits(rows_per_file=8_000)}
    opened = {}
    for name, limits in tables.items():
        opened[name] = VersionedTable.open(str(folder / name), spec, limits=limits)
        opened[name].apply(changes, JobId(1))
        opened[name].materialize(None, JobId(1))
    random = np.random.default_rng(3)

    def look(table: VersionedTable, keys: pa.Table) -> float:
        return seconds(lambda: table.lookup(("purc_id",), keys, JobId(1), spec.columns))

    times: dict[str, list[float]] = {name: [] for name in opened}
    for number in range(rounds * 10):
        keys = rows.select(["purc_id"]).take(pa.array(random.integers(0, count, LOOKED_UP)))
        for name, table in opened.items():
            found = look(table, keys)
            if number >= rounds * 2:
                times[name].append(found)
    return median(times["default"]) / median(times["small"])


def load_figure(loaded: Loaded, lines: int, loads: int) -> dict[str, object]:
    """The first answer to 600 changed rows after a load, over one when nothing else is to be done."""

    def small_answer() -> float:
        change(loaded, 1)
        return seconds(partial(asked, loaded))

    busy: list[float] = []
    idle: list[float] = []
    for _ in range(loads):
        with loaded.source.transaction() as transaction:
            numbers = loaded.shop.new_numbers(lines // LINES_PER_PURCHASE)
            transaction.insert_many("purchases", loaded.shop.purchase_rows(numbers))
            transaction.insert_many("lineitems", loaded.shop.line_rows(numbers, LINES_PER_PURCHASE))
        say(f"  loaded {lines:,} line items, answered in {seconds(partial(asked, loaded)):.1f} s")
        busy += [small_answer() for _ in range(3)]
        end = time.monotonic() + QUIET_SECONDS
        while loaded.warehouse._engine.upkeep.has_files and time.monotonic() < end:
            time.sleep(0.2)
        small_answer()
        idle += [small_answer() for _ in range(3)]
    return {"after_load": median(busy) / median(idle), "after_load_seconds": {"busy": busy, "idle": idle}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", choices=SCALES, default="small")
    parser.add_argument("--lines", type=int, help="line items instead of the scale's")
    parser.add_argument("--rounds", type=int, help="rounds instead of the scale's")
    parser.add_argument("--sizes", nargs="+", choices=JOBS, help="of the answers, only these")
    parser.add_argument("--parts", nargs="+", choices=PARTS, help="only these, beside what runs of others found")
    given = parser.parse_args()
    scale, parts = given.scale, given.parts or PARTS
    rounds = given.rounds or ROUNDS[scale]
    lines = given.lines or LINES[scale]
    results: dict[str, object] = {"lines": lines, "rounds": rounds}
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as place:
        folder = Path(place)
        loaded = load(folder, lines, WARM_UP_JOBS[scale])
        session, _ = loaded.warehouse.from_scratch("store_sales")
        copies = Copies(loaded.warehouse, folder / "copies")
        sides: dict[str, Side] = {
            "recompute": SparkRecompute(copies, session).answer,
            "by_hand": ByHand(copies, session, loaded.warehouse.spark_for_small_jobs).answer,
            "duckdb": DuckRecompute(copies).answer,
        }
        if "answers" in parts:
            say("answers after changes")
            jobs = TINY_JOBS if scale == "tiny" else JOBS
            sizes = {size: jobs[size] for size in given.sizes or JOBS}
            results |= change_figures(loaded, copies, sides, sizes, rounds)
        if "pipelines" in parts:
            results |= pipelines_figure(loaded, copies, session, folder / "pipelines", scale)
        if "reading" in parts:
            say("reading")
            results |= read_figures(loaded, session, folder / "plain", rounds)
            results["layout_lookup"] = lookup_figure(loaded, folder / "layouts", rounds)
        if "loads" in parts:
            say("after loads")
            results |= load_figure(loaded, min(LOADED_LINES[scale], lines), LOADS[scale])
        loaded.warehouse.close()
    if given.parts is not None:
        results = merged(earlier("peers", scale), results)
    publish("peers", scale, results, TARGETS | FULL_TARGETS if scale == "full" else TARGETS)


if __name__ == "__main__":
    main()
