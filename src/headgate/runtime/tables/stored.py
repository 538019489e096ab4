"""A table with its arrangements.

An arrangement is a copy of some columns sorted by other columns than the table's key, so that rows are found by them. It
takes the same changes as its table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from threading import RLock

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from headgate.delta.changes import NO_JOB, JobId
from headgate.ranges.key_set import ALL, KeySet
from headgate.ranges.range_map import ONE_RANGE, UNCUT, RangeMap, Ranges
from headgate.runtime.tables.gaps import Gap, Gaps
from headgate.runtime.tables.jobs import JobChain
from headgate.runtime.tables.lookup_keys import as_typed, usable_prefix
from headgate.runtime.tables.table_changes import of_columns
from headgate.warehouse.changes import ChangeSet
from headgate.warehouse.divided import Division
from headgate.warehouse.spec import TableSpec
from headgate.warehouse.statistics import DataFile
from headgate.warehouse.table_ranges import TableRanges
from headgate.warehouse.versioned import VersionedTable

_KEPT_COUNTS = 64
_NEVER = JobId(-1)


class StoredTable:
    """The one writer of a versioned table and of its arrangements."""

    def __init__(self, main: VersionedTable, session: Callable[[], SparkSession], *, small_rows: int) -> None:
        self.versioned = main
        """The table with all ranges, which is folded."""
        self.main: TableRanges = main
        """What is read, and takes changes: the ranges that this is of."""
        self._session = session
        self.arrangements: dict[tuple[str, ...], VersionedTable] = {}
        self.small_rows = small_rows
        """A table with at most this many rows is small: it is read whole rather than looked up."""
        self._counts: dict[JobId, int] = {}
        self.gaps = Gaps()
        self._missing: tuple[Gaps, Division | None, dict[int, Gap]] | None = None
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
        gaps, division, known = self.gaps, self.division, self._missing
        # Asked whenever somebody wants to know where the table stands; while it is loaded every range has a gap.
        if known is None or known[0] is not gaps or known[1] is not division:
            known = self._missing = (gaps, division, self._ranges_of(gaps))
        return known[2]

    def _ranges_of(self, gaps: Gaps) -> dict[int, Gap]:
        found: dict[int, Gap] = {}
        for gap in gaps.open:
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
            self.versioned.add_files(attempt, files)
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
            for table in self.physical():
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
        """The table and its arrangements, with all ranges."""
        return [self.versioned, *self.arrangements.values()]

    def parts(self) -> Sequence[TableRanges]:
        """The same, of the ranges that this is of."""
        return self.physical()

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
            for arrangement in self.parts()[1:]:
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
        for table in self.parts():
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
        super().__init__(whole.versioned, whole._session, small_rows=small_rows)
        self.main = whole.versioned.within(ranges)
        self._whole = whole
        self._ranges = ranges
        self.lock = whole.lock

    def _note_changed(self, rows: int) -> None:
        self._whole._note_changed(rows)

    def physical(self) -> list[VersionedTable]:
        return self._whole.physical()

    def parts(self) -> Sequence[TableRanges]:
        # Arrangements come and go.
        return [self.main, *(table.within(self._ranges) for table in self._whole.arrangements.values())]

    @property
    def throughs(self) -> tuple[JobId, ...]:
        throughs = self._whole.throughs
        return tuple(throughs[number] for number in sorted(self._whole.holding(self.main.keys)))

    @property
    def missing(self) -> dict[int, Gap]:
        numbers = self._whole.holding(self.main.keys)
        return {number: gap for number, gap in self._whole.missing.items() if number in numbers}

    def readable_from(self, keys: KeySet = ALL) -> JobId:
        return self._whole.readable_from(self.main.keys)

    def skip_to(self, job: JobId, after: JobId = _NEVER, keys: KeySet = ALL) -> None:
        self._whole.skip_to(job, after, self.main.keys)

    def came_back(self, job: JobId, keys: KeySet = ALL) -> None:
        self._whole.came_back(job, self.main.keys)

    def skipped_to(self, after: JobId, keys: KeySet = ALL) -> JobId:
        return self._whole.skipped_to(after, self.main.keys)
