"""All or some ranges of a table: reads their snapshots, takes their changes.

Snapshot i is the newest base at or before i, minus the keys touched since, plus their last image. Base, pins and retention are
the whole table's; changes are those of the ranges, whose job may be another than that of other ranges. Rows of other ranges,
which the base may hold as of another job, are never given.

One owner applies; any thread may read, on a state that never changes under it.
"""

from __future__ import annotations

from functools import partial
from types import TracebackType

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from headgate.delta.changes import JobId
from headgate.errors import SnapshotGone
from headgate.ranges.key_set import ALL, KeySet
from headgate.ranges.range_map import Ranges
from headgate.warehouse.base import Base, FileLimits
from headgate.warehouse.changes import ChangeSet, Within
from headgate.warehouse.divided import DividedOverlay
from headgate.warehouse.index import FileIndex
from headgate.warehouse.lookup import Lookup
from headgate.warehouse.overlay import Overlay, jobs_within
from headgate.warehouse.spec import TableSpec
from headgate.warehouse.versioned_state import VersionedState


class Pin:
    """Keeps one snapshot readable until it is released."""

    def __init__(self, table: TableRanges, job: JobId, base: Base) -> None:
        self.job = job
        self.base = base
        self._table = table

    def frame(self, session: SparkSession) -> DataFrame:
        return self._table.frame(session, self.job)

    def release(self) -> None:
        """Releasing twice is releasing once."""
        self._table.unpin(self)

    def __enter__(self) -> Pin:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


class TableRanges:
    """All ranges of a table, or those with some keys."""

    def __init__(self, state: VersionedState, within: Within | None = None) -> None:
        self._state = state
        self._within = within
        self._readings = state.new_readings()

    @property
    def spec(self) -> TableSpec:
        return self._state.spec

    @property
    def limits(self) -> FileLimits:
        return self._state.limits

    @property
    def keys(self) -> KeySet:
        """The keys that the ranges hold."""
        return ALL if self._within is None else self._within.keys

    @property
    def _overlay(self) -> Overlay:
        overlay, ranges = self._state.overlay, self._ranges
        return overlay if ranges is None else overlay.only(ranges)

    @property
    def _ranges(self) -> Ranges | None:
        """The ranges that hold the keys now, which may have been split or merged since; None for all."""
        overlay = self._state.overlay
        if self._within is None:
            return None
        return overlay.division.map.holding(self.keys) if isinstance(overlay, DividedOverlay) else frozenset()

    @property
    def through(self) -> JobId:
        return self._overlay.upto

    @property
    def throughs(self) -> tuple[JobId, ...]:
        """The job of each range."""
        return self._overlay.throughs

    @property
    def base_through(self) -> JobId:
        return self._state.bases[-1].through

    @property
    def newest_index(self) -> FileIndex:
        """The files of the newest base."""
        return self._state.bases[-1].index

    @property
    def rows(self) -> int:
        """Rows of the newest base."""
        return self.newest_index.rows

    @property
    def retain_from(self) -> JobId:
        return self._state.retain_from

    @property
    def oldest_job(self) -> JobId:
        """No job before this one can be asked for, now or after the table was opened again."""
        return min(self.retain_from, self.base_through)

    # changes in, changes out

    def apply(self, changes: ChangeSet | None, through: JobId) -> None:
        """Takes the changes of exactly the jobs (self.through, through]."""
        state, spec = self._state, self.spec
        with state.lock:
            before = self.through
            if through < before:
                raise ValueError(f"table {spec.name} is at job {before}, cannot apply up to {through}")
            if changes is not None and changes.table is not None and not jobs_within(changes.table, before, through):
                raise ValueError(f"changes for table {spec.name} must lie in jobs ({before}, {through}]")
            overlay = state.overlay.append(changes, through, self._ranges)
            if overlay.memory_bytes > self.limits.overlay_bytes or overlay.memory_rows > self.limits.driver_rows:
                overlay = overlay.spill(state.staging.folder)
            state.overlay = overlay

    def changes(self, after: JobId, upto: JobId) -> ChangeSet | None:
        """The changes of the jobs in (after, upto]; None when nothing changed."""
        overlay = self._overlay
        if after < overlay.after or upto > overlay.upto:
            raise self._gone(f"changes of jobs ({after}, {upto}]")
        return overlay.slice(after, upto)

    def change_parts(self, after: JobId, upto: JobId) -> list[ChangeSet]:
        """The same as they lie in memory and files, oldest first; files stay while a job up to `after` is pinned."""
        overlay = self._overlay
        if after < overlay.after or upto > overlay.upto:
            raise self._gone(f"changes of jobs ({after}, {upto}]")
        return [part for part in overlay.parts(after, upto) if part.rows]

    # snapshots

    def count(self, job: JobId) -> int:
        """How many rows the snapshot has (of some ranges, for changes in files: at most)."""
        return self._readings.rows.count(*self._snapshot(job), job)

    def changed(self, after: JobId, upto: JobId) -> bool:
        """Whether the snapshots of the two jobs can differ."""
        overlay = self._overlay
        return after < overlay.after or overlay.slice(after, upto) is not None

    def collected(self, job: JobId, most_rows: int | None = None) -> pa.Table:
        """The whole snapshot in the driver's memory; raises `TooManyRows` for more than the driver may hold, or `most_rows`."""
        # Pinned, because the files of a base go when it is replaced meanwhile and nobody holds it.
        with self.pin(job) as pin:
            rows = self._readings.rows.all(pin.base, self._overlay, job, most_rows)
        return rows if self._within is None else self._within.rows(rows)

    def lookup(
        self,
        columns: tuple[str, ...],
        keys: pa.Table,
        job: JobId,
        select: tuple[str, ...],
        session: SparkSession | None = None,
    ) -> pa.Table:
        """Rows of the snapshot at `job` whose `columns`, a prefix of the sort order, equal one of the key rows.

        Raises `TooManyRows` for more than the driver may hold.
        """
        with self.pin(job) as pin:
            return self._looked_up(Lookup(self.spec, columns, keys), pin, select, session)

    def picked(self, values: pa.Array, job: JobId, select: tuple[str, ...], most_bytes: int) -> pa.Table | None:
        """Rows of the snapshot whose leading column has one of the values; None when the driver would have to read more."""
        lookup = Lookup(self.spec, (self.spec.lead,), pa.table({self.spec.lead: values}))
        with self.pin(job) as pin:
            changes = self._overlay.slice(pin.base.through, job)
            if pin.base.index.bytes_to_read(lookup.wanted) > most_bytes or not (changes is None or changes.in_memory):
                return None
            return self._looked_up(lookup, pin, select, None)

    def _looked_up(self, lookup: Lookup, pin: Pin, select: tuple[str, ...], session: SparkSession | None) -> pa.Table:
        within = self._within
        wanted = select if within is None else tuple(dict.fromkeys((*select, within.column)))
        rows = self._readings.rows.lookup(lookup, pin.base, self._overlay, pin.job, wanted, session)
        return rows if within is None else within.rows(rows).select(list(select))

    def frame(self, session: SparkSession, job: JobId) -> DataFrame:
        """The whole snapshot at `job`, usable while the job is pinned, or nothing is materialized."""
        base, overlay = self._snapshot(job)
        images = partial(self._readings.rows.images, base, overlay, job)
        frame = self._readings.frames.frame(session, base, overlay, job, images)
        return frame if self._within is None else frame.where(self._within.sql)

    def pin(self, job: JobId) -> Pin:
        """Keeps the snapshot at `job` readable until the pin is released."""
        with self._state.lock:
            base, _ = self._snapshot(job)
            pin = Pin(self, job, base)
            self._state.pins.add(pin)
            return pin

    def pin_later(self, held: Pin, job: JobId) -> Pin:
        """Keeps a snapshot that follows the one of a pin which is held, whether others could still ask for it or not."""
        with self._state.lock:
            if held not in self._state.pins or not held.job <= job <= self.through:
                raise self._gone(f"job {job}")
            pin = Pin(self, job, self._state.newest_base(job))
            self._state.pins.add(pin)
            return pin

    def unpin(self, pin: Pin) -> None:
        self._state.unpin(pin)

    def _snapshot(self, job: JobId) -> tuple[Base, Overlay]:
        """What the snapshot of a job consists of."""
        with self._state.lock:
            overlay = self._overlay
            base = self._state.base_at(job) if job <= overlay.upto else None
        if base is None:
            raise self._gone(f"job {job}")
        return base, overlay

    def _gone(self, what: str) -> SnapshotGone:
        return SnapshotGone(
            f"table {self.spec.name} does not hold {what}",
            hint=f"it holds jobs {self.retain_from} to {self.through}; refresh it, or read a job it holds",
        )
