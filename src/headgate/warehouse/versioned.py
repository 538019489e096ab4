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

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from threading import RLock
from types import TracebackType

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from headgate.delta.changes import NO_JOB, WEIGHT, JobId
from headgate.errors import CorruptWarehouse, SnapshotGone
from headgate.warehouse.base import Base, FileLimits
from headgate.warehouse.bulk import bulk_fold
from headgate.warehouse.changes import ChangeSet
from headgate.warehouse.codes import code, member
from headgate.warehouse.files import FileReader, FileWriter
from headgate.warehouse.folding import Folded, Prepared, fold, touched_files
from headgate.warehouse.images import Images, images_of
from headgate.warehouse.lookup import Lookup, overlay_rows, snapshot_rows
from headgate.warehouse.overlay import Overlay, jobs_within
from headgate.warehouse.snapshots import SnapshotFrames
from headgate.warehouse.spec import TableSpec
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
    """A table readable at every retained job."""

    def __init__(self, store: DeltaStore, bases: Sequence[Base], limits: FileLimits, step: Step) -> None:
        self.spec = store.spec
        self.store = store
        self.limits = limits
        self._step = step
        self._folder = store.folder
        self._staging = store.folder.child(OVERLAY)
        self._reader = FileReader(store.folder, store.spec)
        self._lock = RLock()
        self._bases = tuple(bases)
        through = self._bases[-1].through
        self._overlay = Overlay(store.spec, through, through)
        self._retain_from = through
        self._pins: set[Pin] = set()
        self._images: dict[tuple[Base, JobId], Images] = {}
        self._frames = SnapshotFrames(store.spec, store.folder, self._staging, limits.local_rows)

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
            for file in self._bases[-1].index.files:
                self._reader.rows([file])
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
    def retain_from(self) -> JobId:
        return self._retain_from

    @property
    def bytes(self) -> int:
        """Bytes of the newest base and the overlay."""
        return self._bases[-1].index.bytes + self._overlay.bytes

    @property
    def overlay_bytes(self) -> int:
        return self._overlay.bytes

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

    def kept_versions(self) -> set[int]:
        """Delta versions that readers and consumers still need."""
        return {base.version for base in self._bases}

    # changes in, changes out

    def staging(self) -> str:
        """A new folder for Spark to write a large change set into; the table deletes it once nobody needs it."""
        return self._staging.child(uuid.uuid4().hex).address

    def apply(self, changes: ChangeSet | None, through: JobId) -> None:
        """Takes the changes of exactly the jobs (self.through, through]."""
        with self._lock:
            before = self._overlay.upto
            if through < before:
                raise ValueError(f"table {self.spec.name} is at job {before}, cannot apply up to {through}")
            if changes is not None and changes.table is not None and not jobs_within(changes.table, before, through):
                raise ValueError(f"changes for table {self.spec.name} must lie in jobs ({before}, {through}]")
            overlay = self._overlay.append(changes, through)
            if overlay.memory_bytes > self.limits.overlay_bytes:
                overlay = overlay.spill(self._staging)
            self._overlay = overlay

    def changes(self, after: JobId, upto: JobId) -> ChangeSet | None:
        """The changes of the jobs in (after, upto]; None when nothing changed."""
        overlay = self._overlay
        if after < overlay.after or upto > overlay.upto:
            raise self._gone(f"changes of jobs ({after}, {upto}]")
        return overlay.slice(after, upto)

    # snapshots

    def count(self, job: JobId) -> int:
        """How many rows the snapshot has (for changes in files: at most)."""
        base, overlay = self._state(job)
        changes = overlay.slice(base.through, job)
        if changes is None:
            return base.index.rows
        inside = 0 if changes.table is None else pc.sum(changes.table.column(WEIGHT)).as_py() or 0
        held = 0 if changes.table is None else changes.table.num_rows
        return base.index.rows + int(inside) + changes.rows - held

    def changed(self, after: JobId, upto: JobId) -> bool:
        """Whether the snapshots of the two jobs can differ."""
        overlay = self._overlay
        return after < overlay.after or overlay.slice(after, upto) is not None

    def collected(self, job: JobId) -> pa.Table:
        """The whole snapshot in the driver's memory; for small tables."""
        # Pinned, because the files of a base go when it is replaced meanwhile and nobody holds it.
        with self.pin(job) as pin:
            stored = self._reader.rows(pin.base.index.files)
            changes = self._overlay.slice(pin.base.through, job)
            if changes is None:
                return stored
            rows = changes.read()
        codes = code(rows, self.spec.key)
        images = images_of(rows, lambda: codes)
        if stored.num_rows:
            stored = stored.filter(pa.array(~member(code(stored, self.spec.key), codes)))
        return pa.concat_tables([stored, images.rows.select(list(self.spec.columns))], promote_options="default")

    def lookup(
        self,
        columns: tuple[str, ...],
        keys: pa.Table,
        job: JobId,
        select: tuple[str, ...],
        session: SparkSession | None = None,
    ) -> pa.Table:
        """Rows of the snapshot at `job` whose `columns`, a prefix of the sort order, equal one of the key rows."""
        lookup = Lookup(self.spec, columns, keys)
        with self.pin(job) as pin:
            base = pin.base
            changes = overlay_rows(lookup, self._overlay, base.through, job)
            return snapshot_rows(
                lookup, base.index, changes, select, self._reader, self._folder, session, self.limits.lookup_bytes
            )

    def picked(self, values: pa.Array, job: JobId, select: tuple[str, ...], most_bytes: int) -> pa.Table | None:
        """Rows of the snapshot whose leading column has one of the values; None when the driver would have to read more."""
        lead = self.spec.lead
        lookup = Lookup(self.spec, (lead,), pa.table({lead: values}))
        with self.pin(job) as pin:
            changes = self._overlay.slice(pin.base.through, job)
            if pin.base.index.bytes_to_read(lookup.wanted) > most_bytes or not (changes is None or changes.in_memory):
                return None
            return self.lookup((lead,), lookup.keys, job, select)

    def frame(self, session: SparkSession, job: JobId) -> DataFrame:
        """The whole snapshot at `job`, usable while the job is pinned, or nothing is materialized."""
        base, overlay = self._state(job)
        found = self._frames.find(session, base, job)
        if found is not None:
            return found
        changes = overlay.slice(base.through, job)
        if changes is None:
            return self._frames.of_base(session, base)
        if not changes.in_memory:
            return self._frames.of_parts(session, base, overlay.parts(base.through, job), job)
        return self._frames.of_images(session, base, self._images_at(base, overlay, changes, job), job)

    def pin(self, job: JobId) -> Pin:
        """Keeps the snapshot at `job` readable until the pin is released."""
        with self._lock:
            base, _ = self._state(job)
            pin = Pin(self, job, base)
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

    def prepare(self, session: SparkSession | None, upto: JobId) -> Prepared:
        """Writes the data files of a base through job `upto`; nothing reads them before `commit`."""
        with self._lock:
            base, overlay = self._bases[-1], self._overlay
        if not base.through <= upto <= overlay.upto:
            raise ValueError(
                f"table {self.spec.name} can be materialized through jobs {base.through} to {overlay.upto}"
            )
        changes = overlay.slice(base.through, upto)
        attempt = self.store.begin()
        try:
            folded, changed = self._fold(session, base, overlay, changes, upto, attempt)
        except BaseException:
            self.store.end(attempt, discard=True)
            raise
        self._step("data-files")
        return Prepared(attempt, upto, folded.adds, folded.removes, changed)

    def commit(self, prepared: Prepared) -> int:
        """Makes a prepared base current in one Delta commit and returns its version."""
        with self._lock:
            version = self.store.commit(prepared.adds, prepared.removes, {"through": prepared.upto})
            self.store.end(prepared.attempt, discard=not prepared.adds)
            self._bases = (*self._bases, Base(version, prepared.upto, self.store.index))
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
            self._reader = FileReader(self._folder, spec)
            self._overlay = self._overlay.widened(spec)
            self._frames = self._frames.widened(spec)
            self._images.clear()

    def vacuum(self, also_keep: Iterable[int] = (), verify: Verify = unverified) -> int:
        """Deletes files that neither a reader nor one of the given versions needs; returns how many."""
        # Readers need the lock: listing and deleting many files must not hold it.
        listing = self.store.listed()
        with self._lock:
            unneeded = self.store.unneeded(listing, {*self.kept_versions(), *also_keep})
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
        self._bases = tuple(base for base in self._bases if base in needed)
        before = self._overlay.files()
        self._overlay = self._overlay.trim(self._bases[0].through)
        self._images = {key: found for key, found in self._images.items() if key[0] in needed}
        stale = self._frames.trim(needed, self._retain_from, {pin.job for pin in self._pins}, self._overlay.files())
        self._delete_staged((before - self._overlay.files()) | stale)

    def _delete_staged(self, files: set[str]) -> None:
        live = self._overlay.files()
        start = f"{self._staging.address}/"
        for file in files:
            if not file.startswith(start):
                continue
            name = file.removeprefix(start)
            self._staging.delete(name)
            parent = name.rpartition("/")[0]
            if parent and not any(other.startswith(f"{start}{parent}/") for other in live):
                self._staging.delete_folder(parent)

    def _images_at(self, base: Base, overlay: Overlay, changes: ChangeSet, job: JobId) -> Images:
        found = self._images.get((base, job))
        if found is None:
            assert changes.table is not None
            found = images_of(changes.table, partial(overlay.code, self.spec.key, base.through, job))
            with self._lock:
                self._images = {(base, job): found}
        return found

    def _fold(
        self,
        session: SparkSession | None,
        base: Base,
        overlay: Overlay,
        changes: ChangeSet | None,
        upto: JobId,
        attempt: str,
    ) -> tuple[Folded, int]:
        """Writes the files; gives them and the number of changed rows."""
        if changes is None:
            return Folded((), ()), 0
        limits = self.limits.for_rows(base.index.rows + changes.rows)
        if changes.in_memory:
            images = self._images_at(base, overlay, changes, upto)
            touched = sum(file.bytes for file in touched_files(base.index, images.dead, self.spec))
            if session is None or touched <= self.limits.fold_bytes:
                writer = FileWriter(self._folder, attempt, self.spec, limits.rows_per_file, limits.rows_per_group)
                folded = fold(base.index, images, self.spec, self._reader, writer, limits.rows_per_file)
                return folded, images.dead.num_rows + images.rows.num_rows
        if session is None:
            raise ValueError(f"the overlay of table {self.spec.name} is in files: folding it needs a Spark session")
        folded = bulk_fold(session, self._folder, attempt, base.index, changes, self.spec, limits)
        return folded, changes.rows
