"""A table with its arrangements, and the views through which a batch of jobs reads tables.

An arrangement is a copy of some columns sorted by other columns than the table's key, so that rows are found by them. It
takes the same changes as its table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from threading import Lock, RLock

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from headgate.dataflow.relation import same_values
from headgate.delta.changes import NO_JOB, JobId
from headgate.ranges.key_set import ALL, KeySet
from headgate.ranges.range_map import ONE_RANGE, UNCUT, RangeMap, Ranges
from headgate.runtime.spark.collecting import Collector
from headgate.runtime.spark.views import Execution, Views, any_time
from headgate.runtime.tables.gaps import Gap, Gaps
from headgate.runtime.tables.jobs import JobChain
from headgate.runtime.tables.lookup_keys import as_typed, usable_prefix
from headgate.runtime.tables.table_changes import TableChanges, of_columns
from headgate.warehouse.changes import ChangeSet, TooManyRows
from headgate.warehouse.divided import Division
from headgate.warehouse.spec import TableSpec
from headgate.warehouse.statistics import DataFile
from headgate.warehouse.table_ranges import within
from headgate.warehouse.versioned import Pin, VersionedTable

_KEPT_COUNTS = 64
_NEVER = JobId(-1)


class StoredTable:
    """The one writer of a versioned table and of its arrangements."""

    def __init__(self, main: VersionedTable, session: Callable[[], SparkSession], *, small_rows: int) -> None:
        self.main = main
        self._session = session
        self.arrangements: dict[tuple[str, ...], VersionedTable] = {}
        self.small_rows = small_rows
        """A table with at most this many rows is small: it is read whole rather than looked up."""
        self._counts: dict[JobId, int] = {}
        self.gaps = Gaps()
        self._whole: StoredTable = self
        """The table that has all ranges."""
        self.division: Division | None = None
        """How the table is cut into ranges; None for one range."""
        self._some: dict[Ranges, StoredTable] = {}
        self.changed_rows = 0
        """Since the table was opened; its first rows are no changes."""
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
        """The job that all ranges have, those that are missing included."""
        return min(self.throughs)

    @property
    def level(self) -> JobId:
        """The job that all ranges have which are not missing: the table can be folded up to there."""
        return self.main.through

    @property
    def ranges(self) -> Ranges:
        """The numbers of all ranges."""
        return ONE_RANGE if self.division is None else self.division.map.all

    @property
    def range_map(self) -> RangeMap:
        return UNCUT if self.division is None else self.division.map

    @property
    def throughs(self) -> tuple[JobId, ...]:
        """The job of each range; the least is the table's. A missing range has the last job at which it was known."""
        missing, jobs = self.missing, self.main.throughs
        return tuple(min(job, missing[place].after) if place in missing else job for place, job in enumerate(jobs))

    @property
    def known_throughs(self) -> list[JobId]:
        """The jobs of ranges but those whose rows were never known: these are not behind, but to be loaded."""
        missing = self.missing
        unknown = {number for number, gap in missing.items() if gap.is_first}
        return [job for number, job in enumerate(self.throughs) if number not in unknown]

    @property
    def missing(self) -> dict[int, Gap]:
        """Ranges that nobody can read now at jobs after the gap's, with the reason. They come back when they are made anew."""
        found: dict[int, Gap] = {}
        for gap in self.gaps.open:
            for number in self.holding(gap.keys):
                found[number] = min(found.get(number, gap), gap, key=lambda each: each.after)
        return found

    @property
    def has_unknown_rows(self) -> bool:
        """Whether some ranges were never known: the table, or one that it derives from, is being loaded."""
        return any(gap.is_first for gap in self.gaps.open)

    def leave_out(self, ranges: Ranges, reason: str) -> None:
        """From now on the ranges are missing: nobody reads them, and nobody waits for them."""
        with self.lock:
            throughs = self.throughs
            for number in sorted(ranges - self.missing.keys()):
                self.gaps = self.gaps.opened(Gap(self._keys_of(number), throughs[number], None, reason))
            self._leave_missing_out()

    def await_rows(self, reason: str) -> None:
        """No row of the table, which is empty, is known yet at any job."""
        self.restore(Gaps((Gap(ALL, _NEVER, None, reason),)))

    def take_rows(self, ranges: Ranges, attempt: str, files: Sequence[DataFile], read_at: int, chain: JobChain) -> None:
        """Takes data files with all rows of missing ranges as their source had them at a position; called with the journal's lock held.

        The ranges enter at a later job than any that is closed: whoever has pinned one of those has a base without the files.
        """
        if self.arrangements:
            raise ValueError(f"table {self.name} has arrangements, which would lack the rows")
        with self.lock:
            self.main.add_files(attempt, files)
            for number in ranges:
                self.gaps = self.gaps.entering(self._keys_of(number), read_at, JobId(chain.newest + 1))
            # Snapshots of jobs at which nobody reads the ranges have other rows now.
            self._counts, self._some = {}, {}

    def schedule_rebuild(self, ranges: Ranges, chain: JobChain) -> JobId:
        """Missing ranges are to be made anew, at the newest job: the table is not folded up to there. Gives the job."""
        with self.lock:
            for number in ranges:
                self.gaps = self.gaps.due(self._keys_of(number), chain.newest)
            return chain.newest

    def cancel_rebuild(self, ranges: Ranges) -> None:
        """Missing ranges could not be made anew."""
        with self.lock:
            for number in ranges:
                self.gaps = self.gaps.due(self._keys_of(number), None)

    def foldable(self, chain: JobChain) -> JobId:
        """The last job to which the table may be folded, or let jobs go: before the one at which missing ranges are made anew."""
        with self.lock if self.gaps.open else nullcontext():
            return self.gaps.durable_job(chain.newest)

    def restore(self, gaps: Gaps) -> None:
        """The gaps that the ledger knows of a table which was just opened."""
        with self.lock:
            self.gaps = Gaps((*self.gaps.found, *gaps.found))
            self._leave_missing_out()

    def _keys_of(self, number: int) -> KeySet:
        return ALL if self.division is None else self.division.map.keys_of([number])

    def _leave_missing_out(self) -> None:
        """Has the table's files follow what is missing, by range: ranges may be others than when a gap was opened."""
        if not self.gaps.found:
            return
        missing = self.missing
        self.gaps = self.gaps.open_for({self._keys_of(number): gap for number, gap in missing.items()})
        for table in self.physical():
            table.leave_out(frozenset(missing))

    def stand(self) -> JobId:
        """The job from which changes bring the table on: of ranges that are missing, one at which it still has rows."""
        if not self.missing:
            return self.through
        with self.lock:
            for table in self._whole.physical():
                table.stand(frozenset(self.missing))
            return self.level

    def through_of(self, keys: KeySet) -> JobId:
        """The job that all ranges with some of the keys have."""
        throughs = self.throughs
        return min((throughs[number] for number in self.holding(keys)), default=self.through)

    def holding(self, keys: KeySet) -> Ranges:
        """The ranges that hold some of the keys; one at least."""
        return ONE_RANGE if self.division is None else self.division.map.holding(keys) or ONE_RANGE

    def divide(self, division: Division | None) -> None:
        """Cuts the table and its arrangements into ranges, or makes one of them; those concerned stand at one job."""
        with self.lock:
            if division == self.division:
                return
            for table in self.physical():
                table.divide(division)
            self.division = division
            self._some = {}
            self._leave_missing_out()

    def within(self, ranges: Ranges) -> StoredTable:
        """Some of the ranges as a table of their own."""
        if self.division is None or ranges == self.ranges:
            return self
        with self.lock:
            if ranges not in self._some:
                self._some[ranges] = _StoredRanges(self, ranges, small_rows=self.small_rows)
            return self._some[ranges]

    def readable_from(self, keys: KeySet = ALL) -> JobId:
        """The oldest job at which readers find the table's rows; consumers may need changes from before."""
        return max(self.main.retain_from, self.gaps.known_from(self.main.retain_from, keys))

    def skip_to(self, job: JobId, after: JobId = _NEVER, keys: KeySet = ALL) -> None:
        """Tells that the table's rows are not known at jobs before this one, or between an earlier one and this."""
        if job > max(after, NO_JOB):
            with self.lock:
                why = "its first rows came later, or a job failed on its data"
                self.gaps = self.gaps.since(self.main.oldest_job).skipped(keys, after, job, why)

    def came_back(self, job: JobId, keys: KeySet = ALL) -> None:
        """Tells that ranges which were missing are there again, at a job."""
        with self.lock:
            self.gaps = self.gaps.closed(keys, job)
            self._leave_missing_out()

    def skipped_to(self, after: JobId, keys: KeySet = ALL) -> JobId:
        """The job before which rows are not known, if that is later than `after`; else no job."""
        return self.gaps.known_from(after, keys)

    def attach(self, by: tuple[str, ...], arrangement: VersionedTable) -> None:
        """From now on the arrangement takes the same changes as the table, and has the same ranges."""
        arrangement.divide(self.division)
        arrangement.leave_out(frozenset(self.missing))
        self.arrangements[by] = arrangement

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
        return self.count(job) <= self.small_rows

    def schema_of(self, columns: tuple[str, ...]) -> StructType:
        return StructType([self.spec.schema[column] for column in columns])

    def apply(self, changes: ChangeSet | None, through: JobId) -> None:
        with self.lock:
            if changes is not None and not self.is_empty(self.level):
                self._note_changed(changes.rows)
            for arrangement in self.physical()[1:]:
                arrangement.apply(changes and of_columns(changes, arrangement.spec), through)
            self.main.apply(changes, through)

    def _note_changed(self, rows: int) -> None:
        self.changed_rows += rows

    def changes(self, after: JobId, upto: JobId) -> ChangeSet | None:
        return self.main.changes(after, upto)

    def lookup(
        self, columns: tuple[str, ...], values: pa.Table, job: JobId, select: tuple[str, ...]
    ) -> pa.Table | None:
        """Rows (at least those) whose columns equal one of the values; None when no sort order helps."""
        for table in self.physical():
            if not set(select) <= set(table.spec.schema.names):
                continue
            prefix = usable_prefix(table.spec.sort, columns)
            if not prefix:
                continue
            keys = as_typed(values, columns, prefix, table.spec)
            if keys is not None:
                return table.lookup(prefix, keys, job, select, self._session())
        return None


class _StoredRanges(StoredTable):
    """Some ranges of a table."""

    def __init__(self, whole: StoredTable, ranges: Ranges, *, small_rows: int) -> None:
        super().__init__(within(whole.main, ranges), whole._session, small_rows=small_rows)
        self._whole = whole
        self._ranges = ranges
        self.lock = whole.lock

    def _note_changed(self, rows: int) -> None:
        self._whole._note_changed(rows)

    def physical(self) -> list[VersionedTable]:
        # Arrangements come and go.
        return [self.main, *(within(table, self._ranges) for table in self._whole.arrangements.values())]

    @property
    def _keys(self) -> KeySet:
        return self.main._within.keys  # type: ignore[no-any-return, attr-defined]

    @property
    def throughs(self) -> tuple[JobId, ...]:
        throughs = self._whole.throughs
        return tuple(throughs[number] for number in sorted(self._whole.holding(self._keys)))

    @property
    def missing(self) -> dict[int, Gap]:
        numbers = self._whole.holding(self._keys)
        return {number: gap for number, gap in self._whole.missing.items() if number in numbers}

    def readable_from(self, keys: KeySet = ALL) -> JobId:
        return self._whole.readable_from(self._keys)

    def skip_to(self, job: JobId, after: JobId = _NEVER, keys: KeySet = ALL) -> None:
        self._whole.skip_to(job, after, self._keys)

    def came_back(self, job: JobId, keys: KeySet = ALL) -> None:
        self._whole.came_back(job, self._keys)

    def skipped_to(self, after: JobId, keys: KeySet = ALL) -> JobId:
        return self._whole.skipped_to(after, self._keys)


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
        self._whole: dict[tuple[StoredTable | VersionedTable, JobId], str] = {}
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

    def arranged(self, arrangement: VersionedTable, job: JobId) -> str:
        """A view of all rows of a table's arrangement at the job."""
        place = (arrangement, job)
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

    def __init__(
        self, views: Views, table: StoredTable, after: JobId, upto: JobId, filters: Sequence[str] = ()
    ) -> None:
        self.batches = 0
        """How many have them."""
        self._views = views
        self._lock = Lock()
        self._found = table.changes(after, upto)
        self._filters = filters
        self._spec = table.spec
        self._most_rows = table.main.limits.driver_rows
        self._read: TableChanges | None = None

    def read(self) -> TableChanges | None:
        with self._lock:
            if self._read is None and self._found is not None and self._found.rows:
                self._read = TableChanges(self._spec, self._found.read(self._most_rows), self._views, self._filters)
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
        self.filters: Callable[[str], Sequence[str]] = lambda table: ()
        """By table the conditions that several flows have on its rows."""
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
                self._changes[place] = SharedChanges(views.another(), table, after, upto, self.filters(table.name))
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
