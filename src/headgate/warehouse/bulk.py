"""Folding changes that do not fit the driver: Spark reads, sorts and writes; the driver only sees footers.

Without removed rows nothing of the base is read: the rows are range-partitioned by the sort order, sorted and
written. Otherwise Spark first tells which base files hold dead rows, and those are rewritten together with the
images.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from math import ceil
from urllib.parse import unquote

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import ArrayType, MapType, StructType

from headgate.delta.changes import WEIGHT
from headgate.warehouse.base import FileLimits
from headgate.warehouse.changes import ChangeSet, footer
from headgate.warehouse.files import described
from headgate.warehouse.folding import THREADS, Folded
from headgate.warehouse.frames import check_timestamps, column, stored_frame, without
from headgate.warehouse.images import images_frame
from headgate.warehouse.index import FileIndex
from headgate.warehouse.problems import storage_problems
from headgate.warehouse.spec import TableSpec
from headgate.warehouse.statistics import DataFile, indexed_columns
from headgate.warehouse.storage import Folder

ROWS_PER_TASK = 256_000
FILES_PER_TASK = 16
FILE = "__file"


def bulk_fold(
    session: SparkSession,
    folder: Folder,
    attempt: str,
    index: FileIndex,
    changes: ChangeSet,
    spec: TableSpec,
    limits: FileLimits,
) -> Folded:
    """Writes the files of the next base with Spark."""
    check_timestamps(session, spec)
    with storage_problems(folder, changes.bytes):
        frame = changes.frame(session)
        removes: tuple[DataFile, ...] = ()
        if changes.inserts_only():
            rows = frame.select(*(column(name) for name in spec.columns))
        else:
            images = frame if changes.table is None and changes.is_one_job else images_frame(frame, spec)
            names = [column(name) for name in spec.columns]
            dead, rows = (images.where(f"{WEIGHT} {sign} 0").select(*names) for sign in "<>")
            removes = _files_with(session, folder, index, dead, spec)
            if removes:
                stored = stored_frame(session, folder, removes, spec)
                rows = without(stored, dead, spec, small=False, null_is_dead=None).union(rows)
        count = changes.rows + sum(file.rows for file in removes)
        _write(rows, folder.child(attempt), spec, count, limits)
        return Folded(written_files(folder, attempt, spec), removes)


def _files_with(
    session: SparkSession, folder: Folder, index: FileIndex, dead: DataFrame, spec: TableSpec
) -> tuple[DataFile, ...]:
    """The base files that hold a dead row."""
    if not index.files:
        return ()
    keys = [column(name) for name in spec.key]
    stored = stored_frame(session, folder, index.files, spec).select(*keys, sf.input_file_name().alias(FILE))
    living = without(stored, dead, spec, small=False, null_is_dead=None)
    counts = {_relative(row[0], folder): row[1] for row in living.groupBy(FILE).count().collect()}
    return tuple(file for file in index.files if counts.get(file.path, 0) != file.rows)


def _relative(address: str, folder: Folder) -> str:
    path = unquote(address)
    return path[path.index(folder.path) + len(folder.path) + 1 :]


def _write(rows: DataFrame, place: Folder, spec: TableSpec, count: int, limits: FileLimits) -> None:
    sort = [name for name in spec.sort if not isinstance(spec.schema[name].dataType, ArrayType | MapType | StructType)]
    order = [column(name) for name in sort]
    share = max(limits.rows_per_file, min(FILES_PER_TASK * limits.rows_per_file, ROWS_PER_TASK))
    tasks = max(1, ceil(count / share))
    most = rows.sparkSession.conf.get("spark.sql.leafNodeDefaultParallelism", None)
    if most is not None and tasks > int(most):
        # Fewer tasks that take longer: others find a free slot. What they read is read by as few.
        tasks = int(most)
        rows = rows.coalesce(tasks)
    if order and tasks > 1:
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
