"""Folding changes that do not fit the driver: Spark reads, sorts and writes; the driver only sees footers.

The base files that can hold dead rows, and those to merge (`compaction`), are rewritten together with the images: range-partitioned
by the sort order, sorted and written. Statistics tell which can hold dead rows, unless the caller knows, and how to cut the rows;
where the leading column is no whole number, Spark looks at a sample of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from math import ceil

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import ArrayType, MapType, StructType

from headgate.delta.changes import WEIGHT
from headgate.warehouse.base import FileLimits
from headgate.warehouse.borders import RowsBetween, borders, part_text
from headgate.warehouse.changes import ChangeSet, footer
from headgate.warehouse.compaction import joined, plan
from headgate.warehouse.files import THREADS, Folded, described
from headgate.warehouse.frames import check_timestamps, column, quoted, stored_frame, without
from headgate.warehouse.images import images_frame
from headgate.warehouse.index import FileIndex, Places
from headgate.warehouse.problems import storage_problems
from headgate.warehouse.spec import TableSpec
from headgate.warehouse.statistics import UNKNOWN, DataFile, Range, indexed_columns, ranges_of
from headgate.warehouse.storage import Folder

ROWS_PER_TASK = 256_000
FILES_PER_TASK = 16


def bulk_fold(
    session: SparkSession,
    folder: Folder,
    attempt: str,
    index: FileIndex,
    changes: ChangeSet,
    spec: TableSpec,
    limits: FileLimits,
    touched: Places | None = None,
) -> Folded:
    """Writes the files of the next base with Spark; `touched` are those of the old one that hold dead rows, if that is known."""
    check_timestamps(session, spec)
    with storage_problems(folder, changes.bytes):
        frame = changes.frame(session)
        arrived = _pieces_of(changes, spec)
        names = [column(name) for name in spec.columns]
        places = joined(plan(index, limits.rows_per_file))
        dead, rows = None, frame.select(*names)
        if not changes.inserts_only():
            images = frame if changes.table is None and changes.is_one_job else images_frame(frame, spec)
            dead, rows = (images.where(f"{WEIGHT} {sign} 0").select(*names) for sign in "<>")
            places = np.union1d(places, _within(index, arrived) if touched is None else touched)
        growth = changes.growth
        if changes.within is not None:
            # Files may have rows of other ranges.
            growth = int(frame.agg(sf.sum(WEIGHT)).collect()[0][0] or 0)
        removes = index.take(places)
        if len(removes):
            stored = stored_frame(session, folder, removes, spec)
            kept = stored if dead is None else without(stored, dead, spec, small=False, null_is_dead=None)
            rows = kept.union(rows)
        count = changes.rows + removes.rows
        known = [*arrived, *_stored_pieces(removes)] if arrived is not None else []
        _write(rows, folder.child(attempt), spec, count, limits, known)
        folded = Folded(written_files(folder, attempt, spec), removes, changes.rows)
        folded.require_growth(growth, spec.name)
        return folded


def _pieces_of(changes: ChangeSet, spec: TableSpec) -> list[RowsBetween] | None:
    """Where changes lie, by the leading column; None where statistics do not tell."""
    lead = spec.lead
    if not pa.types.is_integer(spec.arrow_schema.field(lead).type):
        return None
    pieces = []
    for file in changes.files:
        place = Folder.at(file)
        found = footer(place.path, place)
        pieces.append((ranges_of(found, spec.arrow_schema, (lead,)).get(lead, UNKNOWN), found.num_rows))
    if changes.table is not None and changes.table.num_rows:
        values = changes.table.column(lead)
        bounds = pc.min_max(values).as_py()
        pieces.append((Range(bounds["min"], bounds["max"], values.null_count), changes.table.num_rows))
    known = [
        RowsBetween(each.low, each.high, rows)
        for each, rows in pieces
        if isinstance(each.low, int) and isinstance(each.high, int)
    ]
    # A range that is not known may be that of NULLs alone.
    return known if all(each.low is not None or each.nulls == rows for each, rows in pieces) else None


def _stored_pieces(files: FileIndex) -> list[RowsBetween]:
    return [RowsBetween(*known) for known in zip(files.lows, files.highs, files.rows_of[files.ranged], strict=True)]


def _within(index: FileIndex, changes: list[RowsBetween] | None) -> Places:
    """The base files that can hold rows which the changes took away."""
    if changes is None:
        return np.arange(len(index))
    chosen = index.may_hold_nulls | index.is_unknown
    for piece in changes:
        chosen[index.ranged] |= (index.lows <= piece.high) & (index.highs >= piece.low)
    return np.flatnonzero(chosen)


def _write(
    rows: DataFrame, place: Folder, spec: TableSpec, count: int, limits: FileLimits, pieces: Sequence[RowsBetween]
) -> None:
    """`pieces` say where the rows lie, by the leading column; none where that is not known."""
    sort = [name for name in spec.sort if not isinstance(spec.schema[name].dataType, ArrayType | MapType | StructType)]
    order = [column(name) for name in sort]
    share = max(limits.rows_per_file, min(FILES_PER_TASK * limits.rows_per_file, ROWS_PER_TASK))
    tasks = max(1, ceil(count / share))
    most = rows.sparkSession.conf.get("spark.sql.leafNodeDefaultParallelism", None)
    if most is not None and tasks > int(most):
        # Fewer tasks that take longer: others find a free slot. What they read is read by as few.
        tasks = int(most)
        rows = rows.coalesce(tasks)
    cuts = borders(pieces, tasks)
    if cuts:
        part = sf.expr(part_text(quoted(spec.lead), cuts))
        rows = rows.repartitionById(len(cuts) + 1, part).sortWithinPartitions(*order)
    elif order and tasks > 1:
        rows = rows.repartitionByRange(tasks, *order).sortWithinPartitions(*order)
    elif order:
        rows = rows.coalesce(1).sortWithinPartitions(*order)
    writer = rows.write.mode("append").option("maxRecordsPerFile", limits.rows_per_file)
    writer = writer.option("parquet.block.row.count.limit", limits.rows_per_group)
    writer.option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false").parquet(place.spark_address)


def written_files(folder: Folder, attempt: str, spec: TableSpec) -> tuple[DataFile, ...]:
    """The non-empty files of an attempt, with the ranges their footers give."""
    schema: pa.Schema = spec.arrow_schema
    columns = indexed_columns(schema, (*spec.sort, *spec.key))
    names = []
    for file in folder.files(attempt):
        if file.name.endswith(".parquet"):
            names.append(file.name)
        else:
            # Hadoop's checksum files make every read slower; Parquet pages carry checksums of their own.
            folder.delete(file.name)

    def describe(name: str) -> DataFile:
        return described(folder, name, footer(folder.file(name), folder), schema, columns)

    with ThreadPoolExecutor(THREADS) as pool:
        return tuple(file for file in pool.map(describe, names) if file.rows)
