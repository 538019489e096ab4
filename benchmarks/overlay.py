"""Reading a table whose newest changes are in the overlay, and folding them in."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
from deltalake import write_deltalake
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from benchmarks.report import in_turns, median, seconds
from headgate.delta.changes import JOB, WEIGHT, JobId
from headgate.runtime.spark.sessions import SparkSessions
from headgate.warehouse.base import FileLimits
from headgate.warehouse.changes import ChangeSet
from headgate.warehouse.spec import TableSpec
from headgate.warehouse.versioned import VersionedTable

SPEC = TableSpec(
    "lines",
    StructType()
    .add("id", "long")
    .add("item", "long")
    .add("qty", "integer")
    .add("price", "double")
    .add("note", "string"),
    ("id",),
)
QUERY = "SELECT COUNT(*) AS n, SUM(qty) AS qty, SUM(price) AS price, COUNT(DISTINCT item % 100) AS items FROM {view}"


def overlay_figures(folder: Path, rows: int, rounds: int) -> dict[str, object]:
    sessions = SparkSessions({"spark.master": "local[2]", "spark.driver.memory": "6g"}, "overlay benchmark")
    inserts, replaced = rows // 24, rows // 48
    base = _rows(np.arange(rows) * 2)
    new = _rows(np.arange(rows, rows + inserts) * 2)
    places = np.sort(np.random.default_rng(5).choice(rows, replaced, replace=False))
    old = base.take(pa.array(places))
    changed = old.set_column(2, "qty", pa.array((old.column("qty").to_numpy() + 1).astype(np.int32)))
    results: dict[str, object] = {}
    reads: dict[str, float] = {}
    for name, changes in {
        "inserts": _weighted(new, 1),
        "updates": pa.concat_tables([_weighted(old, -1), _weighted(changed, 1)]),
    }.items():
        overlaid, folded = _table(folder / f"{name}-overlaid", base), _table(folder / f"{name}-folded", base)
        overlaid.apply(_changes(changes), JobId(2))
        folded.apply(_changes(changes), JobId(2))
        prepared = folded.materialize(sessions.bulk, JobId(2))
        actions = {
            "overlaid": lambda table=overlaid: _read(table, sessions.query),
            "folded": lambda table=folded: _read(table, sessions.query),
        }
        in_turns(actions, 3)
        times = in_turns(actions, rounds)
        if overlaid.frame(sessions.query, JobId(2)).count() != folded.frame(sessions.query, JobId(2)).count():
            raise SystemExit("the overlay reads other rows than the folded table")
        reads[name] = median(times["overlaid"]) / median(times["folded"])
        if name == "updates":
            row_bytes = sum(file.bytes for file in prepared.adds) / sum(file.rows for file in prepared.adds)
            results["bytes_rewritten_per_byte_changed"] = prepared.removes.bytes / (row_bytes * prepared.changed_rows)
    results["overlay_read"] = reads
    results["materialize_inserts"] = _insert_figure(folder, base, new, rounds)
    sessions.stop()
    return results


def _insert_figure(folder: Path, base: pa.Table, new: pa.Table, rounds: int) -> float:
    """How fast new rows are folded in, as a part of how fast delta-rs appends them."""
    numbers = iter(range(rounds * 2 + 10))
    place = folder / "appended"
    write_deltalake(str(place), base.slice(0, 1000))

    def fold() -> float:
        table = _table(folder / f"fold-{next(numbers)}", base.slice(0, 1000))
        table.apply(_changes(_weighted(new, 1)), JobId(2))
        return seconds(lambda: table.materialize(None, JobId(2)))

    def append() -> float:
        return seconds(lambda: write_deltalake(str(place), new, mode="append"))

    times = in_turns({"fold": fold, "append": append}, rounds)
    return median(times["append"]) / median(times["fold"])


def _table(folder: Path, base: pa.Table) -> VersionedTable:
    table = VersionedTable.open(str(folder), SPEC, limits=FileLimits(rows_per_file=30_000))
    table.apply(ChangeSet.of_table(SPEC, _weighted(base, 1, 1), JobId(0), JobId(1)), JobId(1))
    table.materialize(None, JobId(1))
    table.release(JobId(1))
    return table


def _read(table: VersionedTable, session: SparkSession) -> float:
    frame = table.frame(session, JobId(2))

    def aggregate() -> None:
        frame.createOrReplaceTempView("overlay_read")
        session.sql(QUERY.format(view="overlay_read")).collect()

    return seconds(aggregate)


def _rows(numbers: np.ndarray) -> pa.Table:
    return pa.table(
        {
            "id": numbers,
            "item": numbers * 7919 % 18_000,
            "qty": (numbers % 9).astype(np.int32),
            "price": numbers % 1_000 / 7.0,
            "note": pa.array([f"note {number % 977}" for number in numbers.tolist()]),
        }
    )


def _weighted(rows: pa.Table, weight: int, job: int = 2) -> pa.Table:
    count = rows.num_rows
    rows = rows.append_column(JOB, pa.array(np.full(count, job, dtype=np.int64)))
    return rows.append_column(WEIGHT, pa.array(np.full(count, weight, dtype=np.int64)))


def _changes(rows: pa.Table) -> ChangeSet:
    return ChangeSet.of_table(SPEC, rows, JobId(1), JobId(2))
