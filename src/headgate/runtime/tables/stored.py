"""A table with its arrangements, and the views through which a batch of jobs reads tables.

An arrangement is a copy of some columns sorted by other columns than the table's key, so that rows are found by them. It
takes the same changes as its table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from threading import Lock, RLock

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from headgate.dataflow.relation import quoted
from headgate.delta.changes import NO_JOB, JobId
from headgate.runtime.spark.collecting import Collector
from headgate.runtime.spark.views import Views
from headgate.runtime.tables.table_changes import TableChanges
from headgate.warehouse.changes import ChangeSet, conform
from headgate.warehouse.spec import TableSpec
from headgate.warehouse.versioned import Pin, VersionedTable

_KEPT_COUNTS = 64


class StoredTable:
    """The one writer of a versioned table and of its arrangements."""

    def __init__(self, main: VersionedTable, session: Callable[[], SparkSession], *, small_rows: int) -> None:
        self.main = main
        self._session = session
        self.arrangements: dict[tuple[str, ...], VersionedTable] = {}
        self._small_rows = small_rows
        self._counts: dict[JobId, int] = {}
        self._skipped_to = NO_JOB
        self.lock = RLock()
        """Held while changes are applied: whoever holds it finds the table and its arrangements at one job."""

    @property
    def spec(self) -> TableSpec:
        return self.main.spec

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def through(self) -> JobId:
        return self.main.through

    @property
    def readable_from(self) -> JobId:
        """The oldest job at which readers find the table's rows; consumers may need changes from before."""
        return max(self.main.retain_from, self._skipped_to)

    def skip_to(self, job: JobId) -> None:
        """Tells that the table's rows are not known at jobs before this one: a job failed there."""
        self._skipped_to = max(self._skipped_to, job)

    def skipped_to(self, after: JobId) -> JobId:
        """The job before which rows are not known, if that is later than `after`; else no job."""
        return self._skipped_to if self._skipped_to > after else NO_JOB

    def physical(self) -> list[VersionedTable]:
        return [self.main, *self.arrangements.values()]

    def count(self, job: JobId) -> int:
        """How many rows the snapshot has; it never changes, so it is counted once."""
        counts = self._counts
        if job not in counts:
            if len(counts) > _KEPT_COUNTS:
                counts = self._counts = {}
            counts[job] = self.main.count(job)
        return counts[job]

    def is_empty(self, job: JobId) -> bool:
        return self.count(job) == 0

    def is_small(self, job: JobId) -> bool:
        return self.count(job) <= self._small_rows

    def schema_of(self, columns: tuple[str, ...]) -> StructType:
        return StructType([self.spec.schema[column] for column in columns])

    def apply(self, changes: ChangeSet | None, through: JobId) -> None:
        with self.lock:
            for arrangement in self.arrangements.values():
                arrangement.apply(changes and _of_columns(changes, arrangement.spec), through)
            self.main.apply(changes, through)

    def changes(self, after: JobId, upto: JobId) -> ChangeSet | None:
        return self.main.changes(after, upto)

    def lookup(
        self, columns: tuple[str, ...], values: pa.Table, job: JobId, select: tuple[str, ...]
    ) -> pa.Table | None:
        """Rows (at least those) whose columns equal one of the values; None when no sort order helps."""
        for table in self.physical():
            if not set(select) <= set(table.spec.schema.names):
                continue
            prefix = _usable_prefix(table.spec.sort, columns)
            if not prefix:
                continue
            keys = _as_typed(values, columns, prefix, table.spec)
            if keys is not None:
                return table.lookup(prefix, keys, job, select, self._session())
        return None


def _of_columns(changes: ChangeSet, spec: TableSpec) -> ChangeSet:
    """The changes as a table with fewer columns sees them."""
    table = None if changes.table is None else conform(changes.table, spec)
    return replace(changes, schema=spec.change_schema, table=table)


def _usable_prefix(sort: tuple[str, ...], columns: tuple[str, ...]) -> tuple[str, ...]:
    prefix: list[str] = []
    for column in sort:
        if column not in columns:
            break
        prefix.append(column)
    return tuple(prefix)


def _as_typed(values: pa.Table, columns: tuple[str, ...], prefix: tuple[str, ...], spec: TableSpec) -> pa.Table | None:
    """The values of the prefix columns in the table's types, or None when equality could mean something else."""
    arrays = []
    for column in prefix:
        wanted = spec.arrow_schema.field(column).type
        array = values.column(columns.index(column))
        if array.type != wanted:
            if not (pa.types.is_null(array.type) or (pa.types.is_integer(array.type) and pa.types.is_integer(wanted))):
                return None
            try:
                array = array.cast(wanted)
            except pa.ArrowInvalid:
                return None
        arrays.append(array)
    return pa.table(arrays, names=list(prefix))


class BatchViews:
    """Views that the stages of one batch share: each table's changes and whole tables are entered once."""

    def __init__(self, session: SparkSession, kept: KeptViews, collector: Collector | None = None) -> None:
        """`collector` runs small queries together with those of other batches."""
        self._views = Views(session)
        self._kept = kept
        self._collector = collector
        kept.begin()
        self._changes: dict[tuple[StoredTable, JobId, JobId], SharedChanges] = {}
        self._whole: dict[tuple[str, JobId], str] = {}
        self._pins: list[Pin] = []

    @property
    def session(self) -> SparkSession:
        return self._views.session

    def of_rows(self, rows: pa.Table, schema: StructType) -> str:
        return self._views.of_rows(rows, schema)

    def of_frame(self, frame: DataFrame) -> str:
        return self._views.of_frame(frame)

    def collect(self, text: str) -> tuple[pa.Table, StructType]:
        """Runs the query and brings its rows to the driver."""
        # Nobody else is to wait for the scan of a large table.
        if self._collector is None or self._pins:
            return self._views.collect(text)
        return self._collector.collect(text)

    def changes(self, table: StoredTable, after: JobId, upto: JobId) -> TableChanges | None:
        """The table's changes in (after, upto]."""
        place = (table, after, upto)
        if place not in self._changes:
            self._changes[place] = self._kept.lend_changes(self.session, table, after, upto)
        return self._changes[place].read()

    def whole(self, table: StoredTable, job: JobId) -> str:
        """A view of all of the table's rows at the job."""
        place = (table.name, job)
        if place not in self._whole:
            if table.is_small(job):
                self._whole[place] = self._kept.view(self.session, table, job)
            else:
                self._whole[place] = self._pinned(table.main, job)
        return self._whole[place]

    def matching(self, table: StoredTable, job: JobId, columns: tuple[str, ...], keys: str) -> str | None:
        """The table's rows at the job that have the column values of a row of the relation; None if it is empty."""
        if table.is_empty(job):
            return None
        same = " AND ".join(f"w.{quoted(name)} <=> k.{quoted(name)}" for name in columns)
        return f"(SELECT w.* FROM {self.whole(table, job)} w LEFT SEMI JOIN {keys} k ON {same})"

    def arranged(self, arrangement: VersionedTable, job: JobId) -> str:
        """A view of all rows of a table's arrangement at the job."""
        place = (arrangement.spec.name, job)
        if place not in self._whole:
            self._whole[place] = self._pinned(arrangement, job)
        return self._whole[place]

    def _pinned(self, table: VersionedTable, job: JobId) -> str:
        pin = table.pin(job)
        self._pins.append(pin)
        return self.of_frame(pin.frame(self.session))

    def close(self) -> None:
        self._views.close()
        for pin in self._pins:
            pin.release()
        for table, after, upto in self._changes:
            self._kept.take_changes_back(self.session, table, after, upto)
        self._kept.end()


class SharedChanges:
    """A table's changes in (after, upto], for the batches that are open at the same time; read when first asked for."""

    def __init__(self, session: SparkSession, table: StoredTable, after: JobId, upto: JobId) -> None:
        self.batches = 0
        """How many have them."""
        self._views = Views(session)
        self._lock = Lock()
        self._found = table.changes(after, upto)
        self._spec = table.spec
        self._read: TableChanges | None = None

    def read(self) -> TableChanges | None:
        with self._lock:
            if self._read is None and self._found is not None and self._found.rows:
                self._read = TableChanges(self._spec, self._found.read(), self._views)
            return self._read

    def close(self) -> None:
        self._views.close()


class KeptViews:
    """Views that batches share, which may run in several threads: the changes that they take, and small tables, which are kept
    from batch to batch while they do not change."""

    def __init__(self) -> None:
        self._changes: dict[tuple[int, StoredTable, JobId, JobId], SharedChanges] = {}
        self._kept: dict[tuple[int, StoredTable], tuple[JobId, Views, str]] = {}
        self._retired: list[Views] = []
        self._batches = 0
        self._lock = Lock()

    def begin(self) -> None:
        """A batch begins that may name views."""
        with self._lock:
            self._batches += 1

    def end(self) -> None:
        """A batch ends; views that were replaced go when no batch can still name them."""
        with self._lock:
            self._batches -= 1
            retired = self._retired if self._batches == 0 else []
            if retired:
                self._retired = []
        for views in retired:
            views.close()

    def lend_changes(self, session: SparkSession, table: StoredTable, after: JobId, upto: JobId) -> SharedChanges:
        """The table's changes, until they are taken back."""
        place = (id(session), table, after, upto)
        with self._lock:
            if place not in self._changes:
                self._changes[place] = SharedChanges(session, table, after, upto)
            shared = self._changes[place]
            shared.batches += 1
            return shared

    def take_changes_back(self, session: SparkSession, table: StoredTable, after: JobId, upto: JobId) -> None:
        place = (id(session), table, after, upto)
        with self._lock:
            shared = self._changes[place]
            shared.batches -= 1
            if shared.batches:
                return
            del self._changes[place]
        shared.close()

    def view(self, session: SparkSession, table: StoredTable, job: JobId) -> str:
        # A table that is built anew has the name of the one that it replaces.
        place = (id(session), table)
        kept = self._kept.get(place)
        if kept is not None and kept[0] <= job and not table.main.changed(kept[0], job):
            return kept[2]
        views = Views(session)
        name = views.of_rows(table.main.collected(job), table.spec.schema)
        with self._lock:
            before = self._kept.get(place)
            if before is not None:
                self._retired.append(before[1])
            self._kept[place] = (job, views, name)
        return name

    def forget(self, table: str) -> None:
        with self._lock:
            for place in [place for place in self._kept if place[1].name == table]:
                self._retired.append(self._kept.pop(place)[1])
