"""A table at every retained job: a base in Delta, and an overlay of the jobs since (`versioned_state`).

It is read and takes changes as its ranges do (`table_ranges`). Here it is opened, cut into ranges and folded: `Fold` writes
the next base's files, `DeltaStore` commits and vacuums them. `release(job)` tells that no consumer needs changes up to that job
or snapshots before it; `pin(job)` keeps one snapshot all the same.

One owner divides and materializes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from pyspark.sql import SparkSession

from headgate.delta.changes import NO_JOB, JobId
from headgate.errors import CorruptWarehouse
from headgate.ranges.range_map import Ranges
from headgate.warehouse.base import Base, FileLimits
from headgate.warehouse.divided import DividedOverlay, Division
from headgate.warehouse.folding import Fold, Prepared
from headgate.warehouse.rewriting import Rest, no_rest
from headgate.warehouse.spec import TableSpec
from headgate.warehouse.statistics import DataFile
from headgate.warehouse.storage import Folder
from headgate.warehouse.store import OVERLAY, DeltaStore, Step, Verify, no_step, unverified
from headgate.warehouse.table_ranges import TableRanges
from headgate.warehouse.versioned_state import VersionedState


class VersionedTable(TableRanges):
    """A table readable at every retained job, with all its ranges."""

    def __init__(self, store: DeltaStore, bases: Sequence[Base], limits: FileLimits, step: Step) -> None:
        super().__init__(VersionedState(store, bases, limits))
        self.store = store
        self._step = step
        self._parts: dict[Ranges, TableRanges] = {}
        """Some ranges, as they were last asked for."""

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
            for path in self.newest_index.paths:
                self._readings.rows.reader.rows([path])
        except CorruptWarehouse as error:
            return error
        return None

    # what there is

    @property
    def version(self) -> int:
        """The Delta version of the newest base."""
        return self._state.bases[-1].version

    @property
    def is_pinned(self) -> bool:
        return bool(self._state.pins)

    @property
    def bytes(self) -> int:
        """Bytes of the newest base and the overlay."""
        return self.newest_index.bytes + self._overlay.bytes

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

    # ranges

    def within(self, ranges: Ranges) -> TableRanges:
        """Some ranges of the table; the table itself when those are all."""
        overlay = self._overlay
        found = overlay.division.within(ranges) if isinstance(overlay, DividedOverlay) else None
        if found is None:
            return self
        with self._state.lock:
            if ranges not in self._parts:
                self._parts[ranges] = TableRanges(self._state, found)
            return self._parts[ranges]

    def divide(self, division: Division | None) -> None:
        """Cuts the table into ranges, or into other ones; nothing is written. Ranges that are concerned stand at one job."""
        with self._state.lock:
            if division is not None:
                self._state.overlay = DividedOverlay.of(self._overlay, division)
            elif isinstance(self._overlay, DividedOverlay):
                self._state.overlay = self._overlay.undivided()
            self._forget_parts()

    def leave_out(self, ranges: Ranges) -> None:
        """From now on just these ranges take no part in the table's job: their rows stay as they are. Of one range nothing is said."""
        with self._state.lock:
            if isinstance(self._overlay, DividedOverlay):
                self._state.overlay = self._overlay.leave_out(ranges)

    def stand(self, ranges: Ranges) -> None:
        """Puts ranges that are left out at the oldest job that the table holds, so that changes can follow."""
        with self._state.lock:
            if isinstance(self._overlay, DividedOverlay):
                self._state.overlay = self._overlay.stand(ranges, max(self.base_through, self.retain_from))

    def _forget_parts(self) -> None:
        """Ranges are others now."""
        self._parts = {}
        self._state.forget_all_but(self._readings)

    def release(self, job: JobId) -> None:
        """No consumer needs changes of jobs up to `job`, or a snapshot before it, any more."""
        with self._state.lock:
            self._state.retain_from = JobId(max(self.retain_from, min(job, self.through)))
            self._state.trim()

    # materialization

    def prepare(self, session: SparkSession | None, upto: JobId, rest: Rest = no_rest) -> Prepared:
        """Writes the data files of a base through job `upto`; nothing reads them before `commit`."""
        with self._state.lock:
            base, overlay = self._state.bases[-1], self._overlay
        if not base.through <= upto <= overlay.upto:
            raise ValueError(
                f"table {self.spec.name} can be materialized through jobs {base.through} to {overlay.upto}"
            )
        changes = overlay.slice(base.through, upto)
        attempt = self.store.begin()
        fold = Fold(self.store.folder, self.spec, self.limits, self._readings.rows.reader)
        try:
            images = partial(self._readings.rows.images, base, overlay, upto)
            folded = fold.write(session, base, changes, images, attempt, rest)
        except BaseException:
            self.store.end(attempt, discard=True)
            raise
        self._step("data-files")
        return Prepared(folded.adds, folded.removes, folded.changed_rows, attempt, upto)

    def commit(self, prepared: Prepared) -> int:
        """Makes a prepared base current in one Delta commit and returns its version."""
        with self._state.lock:
            version = self.store.commit(prepared.adds, prepared.removes, {"through": prepared.upto})
            self.store.end(prepared.attempt, discard=not prepared.adds)
            self._state.bases = (*self._state.bases, Base(version, prepared.upto, self.store.index))
            self._state.trim()
            return version

    def add_files(self, attempt: str, files: Sequence[DataFile]) -> int:
        """Makes data files of an attempt part of the newest base, which stays at its job, in one Delta commit; returns its version.

        They hold keys that nobody reads at a job so far: a snapshot that is pinned goes on without them.
        """
        with self._state.lock:
            version = self.store.commit(files, None, {"through": self.base_through})
            self.store.end(attempt, discard=not files)
            if files:
                self._state.bases = (
                    *self._state.bases,
                    Base(version, self.base_through, self.store.index, took_files=True),
                )
                self._state.trim()
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
        with self._state.lock:
            self._state.replace_newest(self.store.repair(self.version))
            return self.version

    def widen(self, spec: TableSpec) -> None:
        """Goes on with a spec that has more columns, which hold NULL in all rows so far."""
        with self._state.lock:
            self._state.replace_newest(self.store.widen(spec))
            self._state.widen(spec, self._readings)
            self._forget_parts()

    def vacuum(self, verify: Verify = unverified) -> int:
        """Deletes files that no reader needs; returns how many."""
        # Readers need the lock: listing and deleting many files must not hold it, nor reading the log of kept versions.
        listing = self.store.listed()
        with self._state.lock:
            unneeded = self.store.unneeded(listing, {base.version: base.index for base in self._state.bases})
        verify()
        return self.store.delete(unneeded)
