"""A table at every retained job: a base in Delta, and an overlay of the jobs since.

    jobs   ... 40 ........... 70 ..................... 95
               base v7        base v8 (newest)         through
               |--------------- overlay ---------------|

Snapshot i is the newest base at or before i, minus the keys touched since, plus their last image. `release(job)`
tells that no consumer needs changes up to that job or snapshots before it; `pin(job)` keeps one snapshot all the
same. Older bases, overlay rows and staged files go when neither asks for them.

One owner applies and materializes; any thread may read, on a state that never changes under it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from threading import RLock
from types import TracebackType

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from headgate.delta.changes import NO_JOB, JobId
from headgate.errors import CorruptWarehouse, SnapshotGone
from headgate.ranges.range_map import Ranges
from headgate.warehouse.base import Base, FileLimits
from headgate.warehouse.changes import ChangeSet
from headgate.warehouse.divided import DividedOverlay, Division
from headgate.warehouse.folding import Fold, Prepared
from headgate.warehouse.index import FileIndex
from headgate.warehouse.lookup import Lookup
from headgate.warehouse.overlay import Overlay, jobs_within
from headgate.warehouse.rewriting import Rest, no_rest
from headgate.warehouse.snapshot_rows import SnapshotRows
from headgate.warehouse.snapshots import SnapshotFrames
from headgate.warehouse.spec import TableSpec
from headgate.warehouse.staging import Staging
from headgate.warehouse.statistics import DataFile
from headgate.warehouse.storage import Folder
from headgate.warehouse.store import OVERLAY, DeltaStore, Step, Verify, no_step, unverified


class Pin:
    """Keeps one snapshot readable until it is released."""

    def __init__(self, table: VersionedTable, job: JobId, base: Base) -> None:
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


class VersionedTable:
    """A table readable at every retained job: the owner of its bases, its overlay and its pins.

    `SnapshotFrames` and `SnapshotRows` read these for executors and for the driver, `Fold` writes the next base's files, `DeltaStore`
    commits and vacuums them, `Staging` has all other files.
    """

    def __init__(self, store: DeltaStore, bases: Sequence[Base], limits: FileLimits, step: Step) -> None:
        self.spec = store.spec
        self.store = store
        self.limits = limits
        self._step = step
        self._staging = Staging(store.folder.child(OVERLAY))
        self._lock = RLock()
        self._bases = tuple(bases)
        through = self._bases[-1].through
        self._overlay: Overlay = Overlay(store.spec, through, through)
        self._range_views: dict[Ranges, VersionedTable] = {}
        """Parts of the table that are read by themselves."""
        self._retain_from = through
        self._pins: set[Pin] = set()
        self._frames = SnapshotFrames(store.spec, store.folder, self._staging, limits.local_rows)
        self._rows = SnapshotRows(store.spec, store.folder, limits)

    @classmethod
    def open(
        cls,
        location: str,
        spec: TableSpec,
        *,
        version: int | None = None,
        through: JobId = NO_JOB,
        limits: FileLimits | None = None,
        step: Step = no_step,
    ) -> VersionedTable:
        """Opens the table at the version that holds job `through`, undoing any later commit.

        Without a version the table is new: what an earlier attempt left in its folder is undone. What the overlay had
        staged is deleted: its changes are made again from their origin.
        """
        folder = Folder.at(location)
        store = DeltaStore.open(folder, spec, step)
        if store.version != (version or 0):
            store.restore(version or 0)
        # The version may be from before columns were added.
        store.widen(spec)
        folder.delete_folder(OVERLAY)
        folder.child(OVERLAY).create()
        return cls(store, [Base(store.version, through, store.index)], limits or FileLimits(), step)

    def find_damage(self) -> CorruptWarehouse | None:
        """Reads all files of the newest base; the error of one that cannot be read."""
        try:
            for path in self._bases[-1].index.paths:
                self._rows.reader.rows([path])
        except CorruptWarehouse as error:
            return error
        return None

    # what there is

    @property
    def through(self) -> JobId:
        return self._overlay.upto

    @property
    def base_through(self) -> JobId:
        return self._bases[-1].through

    @property
    def version(self) -> int:
        """The Delta version of the newest base."""
        return self._bases[-1].version

    @property
    def is_pinned(self) -> bool:
        return bool(self._pins)

    @property
    def retain_from(self) -> JobId:
        return self._retain_from

    @property
    def oldest_job(self) -> JobId:
        """No job before this one can be asked for, now or after the table was opened again."""
        return min(self._retain_from, self.base_through)

    @property
    def bytes(self) -> int:
        """Bytes of the newest base and the overlay."""
        return self._bases[-1].index.bytes + self._overlay.bytes

    @property
    def overlay_bytes(self) -> int:
        return self._overlay.bytes

    @property
    def lead_bytes(self) -> int:
        """Changes that cannot be materialized, as some ranges have not reached their jobs."""
        return self._overlay.lead_bytes

    @property
    def has_files(self) -> bool:
        """Whether changes that are not in the newest base lie in files: a bulk load that wants to be folded."""
        changes = self._overlay.slice(self.base_through, self.through)
        return changes is not None and bool(changes.files)

    @property
    def overlay_files(self) -> set[str]:
        """The files in which changes of the overlay lie."""
        return self._overlay.files()

    @property
    def overlay_rows(self) -> int:
        """Changes in the overlay."""
        return self._overlay.rows

    @property
    def rows(self) -> int:
        """Rows of the newest base."""
        return self._bases[-1].index.rows

    @property
    def newest_index(self) -> FileIndex:
        """The files of the newest base."""
        return self._bases[-1].index

    def kept_versions(self) -> set[int]:
        """Delta versions that readers and consumers still need."""
        return {base.version for base in self._bases}

    # changes in, changes out

    def apply(self, changes: ChangeSet | None, through: JobId, ranges: Ranges | None = None) -> None:
        """Takes the changes of exactly the jobs (self.through, through]; of some ranges, of the jobs that these lack."""
        with self._lock:
            overlay = self._overlay
            before = overlay.upto if ranges is None else overlay.only(ranges).upto
            if through < before:
                raise ValueError(f"table {self.spec.name} is at job {before}, cannot apply up to {through}")
            if changes is not None and changes.table is not None and not jobs_within(changes.table, before, through):
                raise ValueError(f"changes for table {self.spec.name} must lie in jobs ({before}, {through}]")
            overlay = overlay.append(changes, through, ranges)
            if overlay.memory_bytes > self.limits.overlay_bytes or overlay.memory_rows > self.limits.driver_rows:
                overlay = overlay.spill(self._staging.folder)
            self._overlay = overlay

    def divide(self, division: Division | None) -> None:
        """Cuts the table into ranges, or into other ones; nothing is written. Ranges that are concerned stand at one job."""
        with self._lock:
            if division is not None:
                self._overlay = DividedOverlay.of(self._overlay, division)
            elif isinstance(self._overlay, DividedOverlay):
                self._overlay = self._overlay.undivided()
            self._forget_range_views()

    def leave_out(self, ranges: Ranges) -> None:
        """From now on just these ranges take no part in the table's job: their rows stay as they are. Of one range nothing is said."""
        with self._lock:
            if isinstance(self._overlay, DividedOverlay):
                self._overlay = self._overlay.leave_out(ranges)

    def stand(self, ranges: Ranges) -> None:
        """Puts ranges that are left out at the oldest job that the table holds, so that changes can follow."""
        with self._lock:
            if isinstance(self._overlay, DividedOverlay):
                self._overlay = self._overlay.stand(ranges, max(self.base_through, self._retain_from))

    @property
    def throughs(self) -> tuple[JobId, ...]:
        """The job of each range."""
        return self._overlay.throughs

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
        """How many rows the snapshot has (for changes in files: at most)."""
        return self._rows.count(*self._state(job), job)

    def changed(self, after: JobId, upto: JobId) -> bool:
        """Whether the snapshots of the two jobs can differ."""
        overlay = self._overlay
        return after < overlay.after or overlay.slice(after, upto) is not None

    def collected(self, job: JobId, most_rows: int | None = None) -> pa.Table:
        """The whole snapshot in the driver's memory; raises `TooManyRows` for more than the driver may hold, or `most_rows`."""
        # Pinned, because the files of a base go when it is replaced meanwhile and nobody holds it.
        with self.pin(job) as pin:
            return self._rows.all(pin.base, self._overlay, job, most_rows)

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
        lookup = Lookup(self.spec, columns, keys)
        with self.pin(job) as pin:
            return self._rows.lookup(lookup, pin.base, self._overlay, job, select, session)

    def picked(self, values: pa.Array, job: JobId, select: tuple[str, ...], most_bytes: int) -> pa.Table | None:
        """Rows of the snapshot whose leading column has one of the values; None when the driver would have to read more."""
        lookup = Lookup(self.spec, (self.spec.lead,), pa.table({self.spec.lead: values}))
        with self.pin(job) as pin:
            changes = self._overlay.slice(pin.base.through, job)
            if pin.base.index.bytes_to_read(lookup.wanted) > most_bytes or not (changes is None or changes.in_memory):
                return None
            return self._rows.lookup(lookup, pin.base, self._overlay, job, select, None)

    def frame(self, session: SparkSession, job: JobId) -> DataFrame:
        """The whole snapshot at `job`, usable while the job is pinned, or nothing is materialized."""
        base, overlay = self._state(job)
        return self._frames.frame(session, base, overlay, job, partial(self._rows.images, base, overlay, job))

    def pin(self, job: JobId) -> Pin:
        """Keeps the snapshot at `job` readable until the pin is released."""
        with self._lock:
            base, _ = self._state(job)
            pin = Pin(self, job, base)
            self._pins.add(pin)
            return pin

    def pin_later(self, held: Pin, job: JobId) -> Pin:
        """Keeps a snapshot that follows the one of a pin which is held, whether others could still ask for it or not."""
        with self._lock:
            if held not in self._pins or not held.job <= job <= self.through:
                raise self._gone(f"job {job}")
            pin = Pin(self, job, next(base for base in reversed(self._bases) if base.through <= job))
            self._pins.add(pin)
            return pin

    def unpin(self, pin: Pin) -> None:
        with self._lock:
            self._pins.discard(pin)
            if pin.base is not self._bases[-1] or pin.job < self._retain_from:
                self._trim()

    def release(self, job: JobId) -> None:
        """No consumer needs changes of jobs up to `job`, or a snapshot before it, any more."""
        with self._lock:
            self._retain_from = JobId(max(self._retain_from, min(job, self.through)))
            self._trim()

    # materialization

    def prepare(self, session: SparkSession | None, upto: JobId, rest: Rest = no_rest) -> Prepared:
        """Writes the data files of a base through job `upto`; nothing reads them before `commit`."""
        with self._lock:
            base, overlay = self._bases[-1], self._overlay
        if not base.through <= upto <= overlay.upto:
            raise ValueError(
                f"table {self.spec.name} can be materialized through jobs {base.through} to {overlay.upto}"
            )
        changes = overlay.slice(base.through, upto)
        attempt = self.store.begin()
        fold = Fold(self.store.folder, self.spec, self.limits, self._rows.reader)
        try:
            images = partial(self._rows.images, base, overlay, upto)
            folded = fold.write(session, base, changes, images, attempt, rest)
        except BaseException:
            self.store.end(attempt, discard=True)
            raise
        self._step("data-files")
        return Prepared(folded.adds, folded.removes, folded.changed_rows, attempt, upto)

    def commit(self, prepared: Prepared) -> int:
        """Makes a prepared base current in one Delta commit and returns its version."""
        with self._lock:
            version = self.store.commit(prepared.adds, prepared.removes, {"through": prepared.upto})
            self.store.end(prepared.attempt, discard=not prepared.adds)
            self._bases = (*self._bases, Base(version, prepared.upto, self.store.index))
            self._trim()
            return version

    def add_files(self, attempt: str, files: Sequence[DataFile]) -> int:
        """Makes data files of an attempt part of the newest base, which stays at its job, in one Delta commit; returns its version.

        They hold keys that nobody reads at a job so far: a snapshot that is pinned goes on without them.
        """
        with self._lock:
            version = self.store.commit(files, None, {"through": self.base_through})
            self.store.end(attempt, discard=not files)
            if files:
                self._bases = (*self._bases, Base(version, self.base_through, self.store.index, took_files=True))
                self._trim()
            return version

    def abandon(self, prepared: Prepared) -> None:
        """Deletes the files of a prepared base that will not be committed."""
        self.store.end(prepared.attempt, discard=True)

    def materialize(self, session: SparkSession | None, upto: JobId) -> Prepared:
        """`prepare` and `commit`; gives what was written."""
        prepared = self.prepare(session, upto)
        self.commit(prepared)
        return prepared

    def repair(self) -> int:
        """Undoes foreign commits on top of the newest base, so that a prepared base can be committed."""
        with self._lock:
            newest = self._bases[-1]
            repaired = replace(newest, version=self.store.repair(newest.version))
            self._bases = (*self._bases[:-1], repaired)
            for pin in self._pins:
                pin.base = repaired if pin.base is newest else pin.base
            return repaired.version

    def widen(self, spec: TableSpec) -> None:
        """Goes on with a spec that has more columns, which hold NULL in all rows so far."""
        with self._lock:
            newest = self._bases[-1]
            widened = replace(newest, version=self.store.widen(spec))
            self._bases = (*self._bases[:-1], widened)
            for pin in self._pins:
                pin.base = widened if pin.base is newest else pin.base
            self.spec = spec
            self._overlay = self._overlay.widened(spec)
            self._frames = self._frames.widened(spec)
            self._rows = SnapshotRows(spec, self.store.folder, self.limits)
            self._forget_range_views()

    def vacuum(self, verify: Verify = unverified) -> int:
        """Deletes files that no reader needs; returns how many."""
        # Readers need the lock: listing and deleting many files must not hold it, nor reading the log of kept versions.
        listing = self.store.listed()
        with self._lock:
            unneeded = self.store.unneeded(listing, {base.version: base.index for base in self._bases})
        verify()
        return self.store.delete(unneeded)

    # inside

    def _state(self, job: JobId) -> tuple[Base, Overlay]:
        with self._lock:
            bases, overlay = self._bases, self._overlay
            pinned = [pin.base for pin in self._pins if pin.job == job]
        if job > overlay.upto:
            raise self._gone(f"job {job}")
        if pinned:
            # Whoever pinned it goes on with the base it began with: a newer one is not kept for it.
            return pinned[0], overlay
        if job >= self._retain_from:
            return next(base for base in reversed(bases) if base.through <= job), overlay
        raise self._gone(f"job {job}")

    def _gone(self, what: str) -> SnapshotGone:
        return SnapshotGone(
            f"table {self.spec.name} does not hold {what}",
            hint=f"it holds jobs {self._retain_from} to {self.through}; refresh it, or read a job it holds",
        )

    def _trim(self) -> None:
        """Drops bases, overlay rows, frames and staged files that nobody can ask for."""
        retained = next(base for base in reversed(self._bases) if base.through <= self._retain_from)
        needed = {self._bases[-1], retained, *(pin.base for pin in self._pins)}
        needed |= {base for base in self._bases if base.took_files and base.through > self._retain_from}
        self._bases = tuple(base for base in self._bases if base in needed)
        before = self._overlay.files()
        self._overlay = self._overlay.trim(self._bases[0].through)
        stale = self._trim_frames(needed)
        for part in self._range_views.values():
            stale |= part._trim_frames(needed)
        self._staging.delete((before - self._overlay.files()) | stale, self._overlay.files())

    def _trim_frames(self, bases: set[Base]) -> set[str]:
        """Forgets frames that nobody can ask for; gives the staged files that may go."""
        self._rows.trim(bases)
        return self._frames.trim(bases, self._retain_from, {pin.job for pin in self._pins}, self._overlay.files())

    def _forget_range_views(self) -> None:
        """Forgets the parts that were read, once the ranges are others; their staged files go unless one is still read."""
        parts, self._range_views = self._range_views, {}
        if not self._pins:
            stale = {file for part in parts.values() for file in part._frames.trim((), self.through, (), ())}
            self._staging.delete(stale, self._overlay.files())
