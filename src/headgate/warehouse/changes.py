"""Weighted changes of a range of jobs: rows in memory, in Parquet files, or both.

Columns are the table's, then `__job` and `__weight`. Only rows of jobs in (after, upto] count: slicing files reads
nothing, for what they hold of each job is known. Rows in memory are ordered by job.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import StructType

from headgate.dataflow.relation import quoted
from headgate.delta.changes import JOB, WEIGHT, JobId
from headgate.ranges.key_expression import key_expression
from headgate.ranges.key_set import KeySet
from headgate.ranges.range_map import sql_predicate
from headgate.warehouse.local import empty_frame, local_frame
from headgate.warehouse.problems import damaged
from headgate.warehouse.spec import TableSpec, arrow_columns
from headgate.warehouse.storage import Folder

Matching = Callable[[pa.Table], pa.Table]
"""Gives some of the rows, and of these the same when it is asked again."""


def every(rows: pa.Table) -> pa.Table:
    """The rows."""
    return rows


class TooManyRows(Exception):
    """The driver would hold more rows than it may: executors have to do the work."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        super().__init__(f"{rows:,} rows are too many for the driver")


@dataclass(frozen=True, slots=True)
class Within:
    """Restricts rows to keys of the column that cuts the table into ranges."""

    column: str
    keys: KeySet

    @property
    def sql(self) -> str:
        return sql_predicate(quoted(self.column), self.keys)

    @property
    def expression(self) -> ds.Expression:
        """The same for Arrow."""
        return key_expression(self.column, self.keys)

    def rows(self, table: pa.Table) -> pa.Table:
        return table.filter(self.expression)


class Tally(NamedTuple):
    """What a file, or several, have of a job."""

    job: int
    rows: int
    growth: int
    """The sum of the weights."""


@dataclass(frozen=True)
class ChangeSet:
    """Changes of the jobs in (after, upto]."""

    schema: StructType
    after: JobId
    upto: JobId
    table: pa.Table | None
    files: tuple[str, ...]
    rows: int
    bytes: int
    within: Within | None = None
    """Which rows of the files count; `rows` and `bytes` are upper bounds then, too."""
    sliced: bool = False
    """Whether files may have rows of other jobs."""
    tallies: tuple[Tally, ...] = ()
    """What the files have of the jobs that count."""

    @classmethod
    def of_table(cls, spec: TableSpec, table: pa.Table, after: JobId, upto: JobId) -> ChangeSet:
        """Rows in memory; columns are brought to the spec's order and types."""
        return cls(spec.change_schema, after, upto, conform(table, spec), (), table.num_rows, table.nbytes)

    @classmethod
    def of_files(cls, spec: TableSpec, folder: str, after: JobId, upto: JobId) -> ChangeSet:
        """Rows in the Parquet files of a folder, as Spark wrote them."""
        place = Folder.at(folder)
        rows, size, files = 0, 0, []
        tallies: list[Tally] = []
        for file in place.files():
            if not file.name.endswith(".parquet"):
                continue
            found = footer(place.file(file.name), place)
            if found.num_rows:
                rows, size = rows + found.num_rows, size + file.bytes
                tallies += _tallies(place.file(file.name), place, found)
                files.append(place.child(file.name).address)
        return cls(spec.change_schema, after, upto, None, tuple(files), rows, size, tallies=tuple(tallies))

    @property
    def in_memory(self) -> bool:
        return not self.files

    @property
    def growth(self) -> int:
        """By how many rows the table grows (of some ranges, for changes in files: at most)."""
        inside = 0 if self.table is None else int(pc.sum(self.table.column(WEIGHT)).as_py() or 0)
        if self.within is not None:
            return inside + self.rows - (0 if self.table is None else self.table.num_rows)
        return inside + sum(tally.growth for tally in self.tallies)

    @property
    def removed(self) -> int:
        """How many rows are taken away (of some ranges, for changes in files: at most)."""
        return self.rows if self.within is not None else (self.rows - self.growth) // 2

    @property
    def is_one_job(self) -> bool:
        """Whether all changes, which are in files, are of one job (as far as footers tell): then no key changes twice."""
        if self.upto - self.after == 1:
            return True
        jobs = _bounds(self.files, JOB)
        return jobs is not None and jobs[0] == jobs[1]

    def slice(self, after: JobId, upto: JobId) -> ChangeSet:
        """The changes of the jobs in (after, upto], a part of this range."""
        lower, upper = JobId(max(after, self.after)), JobId(min(upto, self.upto))
        if (lower, upper) == (self.after, self.upto):
            return self
        part = None if self.table is None else slice_jobs(self.table, lower, upper)
        if part is not None and not self.files:
            return replace(self, after=lower, upto=upper, table=part, rows=part.num_rows, bytes=part.nbytes)
        tallies = tuple(tally for tally in self.tallies if lower < tally.job <= upper)
        rows = sum(tally.rows for tally in tallies) + (0 if part is None else part.num_rows)
        size = self.bytes * rows // max(1, self.rows)
        return replace(self, after=lower, upto=upper, table=part, rows=rows, bytes=size, tallies=tallies, sliced=True)

    def followed_by(self, other: ChangeSet) -> ChangeSet:
        """Together with the changes of later jobs; both are in memory."""
        table = pa.concat_tables([self.table, other.table])
        return replace(self, upto=other.upto, table=table, rows=table.num_rows, bytes=table.nbytes)

    def frame(self, session: SparkSession) -> DataFrame:
        """The changes as one DataFrame."""
        parts = []
        if self.files:
            rows = parquet_frame(session, self.schema, [spark_path(file) for file in self.files])
            if self.sliced:
                # Only then: numbers in a query are in its generated code, which for other numbers is compiled again.
                rows = rows.where((sf.col(JOB) > self.after) & (sf.col(JOB) <= self.upto))
            parts.append(rows if self.within is None else rows.where(self.within.sql))
        if self.table is not None and (self.table.num_rows or not parts):
            parts.append(local_frame(session, self.table, self.schema))
        if not parts:
            return empty_frame(session, self.schema)
        return parts[0] if len(parts) == 1 else parts[0].union(parts[1])

    def inserts_only(self) -> bool:
        """Whether no change has a negative weight (files: as far as their footers tell)."""
        if self.table is not None and self.table.num_rows:
            lowest = pc.min(self.table.column(WEIGHT)).as_py()
            if lowest < 0:
                return False
        if not self.files:
            return True
        weights = _bounds(self.files, WEIGHT)
        return weights is not None and weights[0] > 0

    def read(self, most_rows: int, where: ds.Expression | None = None) -> pa.Table:
        """The rows, ordered by job, of files those for which `where` is true; raises `TooManyRows` when files have more."""
        parts = [] if self.table is None else [self.table]
        if self.files:
            within = (ds.field(JOB) > self.after) & (ds.field(JOB) <= self.upto)
            within = within if self.within is None else within & self.within.expression
            where = within if where is None else within & where
            parts.insert(0, read_files(self.files, arrow_columns(self.schema), where, most_rows))
        return in_job_order(pa.concat_tables(parts, promote_options="default"))


def spark_path(file: str) -> str:
    return f"file://{file}"


def parquet_frame(
    session: SparkSession, schema: StructType, paths: Sequence[str], options: Mapping[str, str] | None = None
) -> DataFrame:
    """The rows of Parquet files, read by executors. The paths go to Java as one text, not by a call for each."""
    reader = session.read.schema(schema).options(**{"__globPaths__": "false", **(options or {})})
    java = session._jvm.java.util.regex.Pattern.compile("\0").split("\0".join(paths))  # type: ignore[union-attr]
    return DataFrame(reader._jreader.parquet(java), session)


def conform(table: pa.Table, spec: TableSpec) -> pa.Table:
    """The spec's columns and types, in job order."""
    wanted = spec.change_arrow_schema
    table = table.select(wanted.names)
    if not table.schema.equals(wanted):
        table = table.cast(wanted)
    return in_job_order(table)


def in_job_order(table: pa.Table) -> pa.Table:
    jobs = job_array(table)
    if len(jobs) > 1 and bool((jobs[1:] < jobs[:-1]).any()):
        return table.take(pa.array(np.argsort(jobs, kind="stable")))
    return table


def job_array(table: pa.Table) -> npt.NDArray[np.int64]:
    return np.asarray(table.column(JOB), dtype=np.int64)


def slice_jobs(table: pa.Table, after: int, upto: int) -> pa.Table:
    jobs = job_array(table)
    start, end = np.searchsorted(jobs, [after, upto], side="right")
    return table.slice(int(start), int(end - start))


def footer(path: str, folder: Folder) -> pq.FileMetaData:
    try:
        return pq.read_metadata(path, filesystem=folder.filesystem)
    except (OSError, pa.ArrowException) as error:
        raise damaged(path, error) from error


def read_files(files: tuple[str, ...], schema: pa.Schema, where: ds.Expression, most_rows: int) -> pa.Table:
    """Rows of Parquet files, NULL where one lacks a column, up to a number; a damaged file is named."""
    try:
        return at_most(files_dataset(files, schema).to_batches(filter=where), schema, most_rows)
    except (OSError, pa.ArrowException) as error:
        raise find_damaged([Folder.at(file).path for file in files], Folder.at(files[0]), error) from error


def at_most(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, most_rows: int, matching: Matching = every
) -> pa.Table:
    """The rows of the batches that match, at most so many; with one more, no further batch is read."""
    found, rows = [], 0
    for batch in batches:
        rows += batch.num_rows
        found.append(batch)
        if rows > most_rows:
            kept = matching(pa.Table.from_batches(found, schema))
            found, rows = kept.to_batches(), kept.num_rows
            if rows > most_rows:
                raise TooManyRows(rows)
    return matching(pa.Table.from_batches(found, schema))


def files_dataset(files: Sequence[str], schema: pa.Schema) -> ds.Dataset:
    """The rows of Parquet files, whose checksums are compared when they are read."""
    options = ds.ParquetFragmentScanOptions(page_checksum_verification=True)
    form = ds.ParquetFileFormat(default_fragment_scan_options=options)
    paths = [Folder.at(file).path for file in files]
    return ds.dataset(paths, schema=schema, format=form, filesystem=Folder.at(files[0]).filesystem)


def find_damaged(paths: list[str], folder: Folder, error: BaseException) -> Exception:
    """The error that names which of several files cannot be read."""
    for path in paths:
        try:
            pq.read_table(path, filesystem=folder.filesystem, page_checksum_verification=True)
        except (OSError, pa.ArrowException) as problem:
            return damaged(path, problem)
    return damaged(", ".join(paths[:3]), error)


def tallies_of(rows: pa.Table | pa.RecordBatch) -> list[Tally]:
    """What the rows have of each job."""
    jobs = np.asarray(rows.column(JOB), dtype=np.int64)
    first = int(jobs.min()) if len(jobs) else 0
    counts = np.bincount(jobs - first)
    sums = np.bincount(jobs - first, weights=np.asarray(rows.column(WEIGHT), dtype=np.float64))
    return [Tally(first + int(each), int(counts[each]), int(sums[each])) for each in np.flatnonzero(counts)]


def _tallies(path: str, folder: Folder, metadata: pq.FileMetaData) -> list[Tally]:
    """The same of a file; unless its footer tells, two columns are read, a piece at a time."""
    jobs, weights = _footer_bounds(metadata, JOB), _footer_bounds(metadata, WEIGHT)
    if jobs is not None and weights is not None and jobs[0] == jobs[1] and weights[0] == weights[1]:
        return [Tally(jobs[0], metadata.num_rows, metadata.num_rows * weights[0])]
    rows: Counter[int] = Counter()
    growths: Counter[int] = Counter()
    try:
        with pq.ParquetFile(path, filesystem=folder.filesystem) as file:
            for batch in file.iter_batches(columns=[JOB, WEIGHT]):
                for tally in tallies_of(batch):
                    rows[tally.job] += tally.rows
                    growths[tally.job] += tally.growth
    except (OSError, pa.ArrowException) as error:
        raise damaged(path, error) from error
    return [Tally(job, count, growths[job]) for job, count in rows.items()]


def _bounds(files: tuple[str, ...], column: str) -> tuple[int, int] | None:
    """The least and the greatest value of a whole-number column, as far as the files' footers tell."""
    low, high = [], []
    for file in files:
        folder = Folder.at(file)
        found = _footer_bounds(footer(folder.path, folder), column)
        if found is None:
            return None
        low.append(found[0])
        high.append(found[1])
    return (min(low), max(high)) if low else None


def _footer_bounds(metadata: pq.FileMetaData, column: str) -> tuple[int, int] | None:
    """The same of one file that has rows."""
    low, high = [], []
    names = {metadata.schema.column(number).path: number for number in range(metadata.num_columns)}
    for number in range(metadata.num_row_groups):
        found = metadata.row_group(number).column(names[column]).statistics
        if found is None or not found.has_min_max:
            return None
        low.append(int(found.min))
        high.append(int(found.max))
    return (min(low), max(high)) if low else None
