"""Views of tables for batches: each table's changes, and whole tables, are entered into Spark once for all that read them."""

from __future__ import annotations

from threading import Lock

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from headgate.dataflow.relation import same_values
from headgate.delta.changes import JobId
from headgate.runtime.spark.collecting import Collector
from headgate.runtime.spark.views import Execution, Views, any_time
from headgate.runtime.tables.stored import StoredTable
from headgate.runtime.tables.table_changes import TableChanges
from headgate.warehouse.changes import TooManyRows
from headgate.warehouse.table_ranges import Pin, TableRanges


class BatchViews:
    """Views that the stages of one batch share: each table's changes and whole tables are entered once."""

    def __init__(
        self,
        session: SparkSession,
        kept: KeptViews,
        most_rows: int,
        collector: Collector | None = None,
        execution: Execution = any_time,
    ) -> None:
        """`most_rows` may come to the driver at once; `collector` runs small queries together with those of other batches."""
        self._views = Views(session, collector, execution)
        self._kept = kept
        self._most_rows = most_rows
        kept.begin()
        self._changes: dict[tuple[StoredTable, JobId, JobId], SharedChanges] = {}
        self._whole: dict[tuple[StoredTable | TableRanges, JobId], str] = {}
        self._pins: list[Pin] = []

    @property
    def session(self) -> SparkSession:
        return self._views.session

    def of_rows(self, rows: pa.Table, schema: StructType) -> str:
        return self._views.of_rows(rows, schema)

    def of_rows_later(self, rows: pa.Table, schema: StructType) -> str:
        """A view that is there when `collect` needs it; rows are entered while others are looked up."""
        return self._views.of_rows_later(rows, schema)

    def of_frame(self, frame: DataFrame) -> str:
        return self._views.of_frame(frame)

    def sql(self, text: str) -> DataFrame:
        return self._views.sql(text)

    def another(self) -> Views:
        """Views of the same session that can be closed by themselves."""
        return self._views.another()

    def collect(self, text: str) -> tuple[pa.Table, StructType]:
        """Runs the query and brings its rows to the driver; raises `TooManyRows` for more than it may hold."""
        # Few rows may match very many: executors stop where one more than the driver may hold is there.
        text = f"SELECT * FROM ({text}) LIMIT {self._most_rows + 1}"
        # Nobody else is to wait for the scan of a large table.
        rows, schema = self._views.collect(text, alone=bool(self._pins))
        if rows.num_rows > self._most_rows:
            raise TooManyRows(rows.num_rows)
        return rows, schema

    def changes(self, table: StoredTable, after: JobId, upto: JobId) -> TableChanges | None:
        """The table's changes in (after, upto]."""
        place = (table, after, upto)
        if place not in self._changes:
            self._changes[place] = self._kept.lend_changes(self._views, table, after, upto)
        return self._changes[place].read()

    def whole(self, table: StoredTable, job: JobId) -> str:
        """A view of all of the table's rows at the job."""
        place = (table, job)
        if place not in self._whole:
            self._whole[place] = self._small(table, job) or self._pinned(table.main, job)
        return self._whole[place]

    def _small(self, table: StoredTable, job: JobId) -> str | None:
        """A view of the rows of a small table, which the driver has; None for others."""
        if not table.is_small(job):
            return None
        try:
            return self._kept.view(self._views, table, job)
        except TooManyRows:
            # Few rows are left, but the files still have those that went.
            return None

    def matching(
        self, table: StoredTable, job: JobId, columns: tuple[str, ...], keys: str, *, same_types: bool = False
    ) -> str | None:
        """The table's rows at the job that have the column values of a row of the relation; None if it is empty.

        `same_types` tells that the relation's columns have the types of the table's.
        """
        if table.is_empty(job):
            return None
        hashable = same_types and "collate" not in table.spec.schema.simpleString()
        same = same_values("w", "k", [(name, name) for name in columns], same_types=hashable)
        return f"(SELECT w.* FROM {self.whole(table, job)} w LEFT SEMI JOIN {keys} k ON {same})"

    def arranged(self, arrangement: TableRanges, job: JobId) -> str:
        """A view of all rows of a table's arrangement at the job."""
        place = (arrangement, job)
        if place not in self._whole:
            self._whole[place] = self._pinned(arrangement, job)
        return self._whole[place]

    def _pinned(self, table: TableRanges, job: JobId) -> str:
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

    def __init__(self, views: Views, table: StoredTable, after: JobId, upto: JobId) -> None:
        self.batches = 0
        """How many have them."""
        self._views = views
        self._lock = Lock()
        self._found = table.changes(after, upto)
        self._spec = table.spec
        self._most_rows = table.main.limits.driver_rows
        self._read: TableChanges | None = None

    def read(self) -> TableChanges | None:
        with self._lock:
            if self._read is None and self._found is not None and self._found.rows:
                self._read = TableChanges(self._spec, self._found.read(self._most_rows), self._views)
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

    def lend_changes(self, views: Views, table: StoredTable, after: JobId, upto: JobId) -> SharedChanges:
        """The table's changes for the session of these views, until they are taken back."""
        place = (id(views.session), table, after, upto)
        with self._lock:
            if place not in self._changes:
                self._changes[place] = SharedChanges(views.another(), table, after, upto)
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

    def view(self, views: Views, table: StoredTable, job: JobId) -> str:
        """A view of all rows of the table, for the session of these views."""
        # A table that is built anew has the name of the one that it replaces.
        place = (id(views.session), table)
        kept = self._kept.get(place)
        if kept is not None and kept[0] <= job and not table.main.changed(kept[0], job):
            return kept[2]
        views = views.another()
        name = views.of_rows(table.main.collected(job, table.small_rows), table.spec.schema)
        with self._lock:
            before = self._kept.get(place)
            if before is not None:
                self._retired.append(before[1])
            self._kept[place] = (job, views, name)
        return name

    def retire(self, views: Views) -> None:
        """Closes views when no batch can still name them; called inside a batch."""
        with self._lock:
            self._retired.append(views)

    def forget(self, table: str) -> None:
        with self._lock:
            for place in [place for place in self._kept if place[1].name == table]:
                self._retired.append(self._kept.pop(place)[1])
