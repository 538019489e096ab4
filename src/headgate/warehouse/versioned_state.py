"""What a versioned table consists of now: its bases, the overlay, who holds which snapshot, and what readers have kept of them.

    jobs   ... 40 ........... 70 ..................... 95
               base v7        base v8 (newest)         through
               |--------------- overlay ---------------|

Older bases, overlay rows and staged files go when neither retention nor a pin asks for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from threading import RLock
from typing import Protocol

from headgate.delta.changes import JobId
from headgate.warehouse.base import Base, FileLimits
from headgate.warehouse.overlay import Overlay
from headgate.warehouse.snapshot_rows import SnapshotRows
from headgate.warehouse.snapshots import SnapshotFrames
from headgate.warehouse.spec import TableSpec
from headgate.warehouse.staging import Staging
from headgate.warehouse.store import OVERLAY, DeltaStore


class Held(Protocol):
    """Whoever keeps a snapshot readable."""

    job: JobId
    base: Base


@dataclass(eq=False)
class Readings:
    """What was read of all or some ranges, and is kept while it can be asked for."""

    rows: SnapshotRows
    frames: SnapshotFrames


class VersionedState:
    """The state that all ranges of a table share; whoever changes it holds `lock`."""

    def __init__(self, store: DeltaStore, bases: Sequence[Base], limits: FileLimits) -> None:
        self.spec = store.spec
        self.store = store
        self.limits = limits
        self.staging = Staging(store.folder.child(OVERLAY))
        self.lock = RLock()
        self.bases = tuple(bases)
        through = self.bases[-1].through
        self.overlay: Overlay = Overlay(store.spec, through, through)
        self.retain_from = through
        self.pins: set[Held] = set()
        self._readings: list[Readings] = []

    def new_readings(self) -> Readings:
        folder, limits = self.store.folder, self.limits
        frames = SnapshotFrames(self.spec, folder, self.staging, limits)
        found = Readings(SnapshotRows(self.spec, folder, limits), frames)
        with self.lock:
            self._readings.append(found)
        return found

    def base_at(self, job: JobId) -> Base | None:
        """The base that the snapshot of a job stands on; None when nobody can ask for the job any more."""
        with self.lock:
            bases = self.bases
            pinned = [pin.base for pin in self.pins if pin.job == job]
        if pinned:
            # Whoever pinned it goes on with the base it began with: a newer one is not kept for it.
            return pinned[0]
        return self.newest_base(job, bases) if job >= self.retain_from else None

    def newest_base(self, job: JobId, bases: Sequence[Base] | None = None) -> Base:
        """The newest base at or before a job."""
        return next(base for base in reversed(self.bases if bases is None else bases) if base.through <= job)

    def unpin(self, pin: Held) -> None:
        with self.lock:
            self.pins.discard(pin)
            if pin.base is not self.bases[-1] or pin.job < self.retain_from:
                self.trim()

    def replace_newest(self, version: int) -> None:
        """The newest base has another Delta version, with the same rows."""
        newest = self.bases[-1]
        other = replace(newest, version=version)
        self.bases = (*self.bases[:-1], other)
        for pin in self.pins:
            pin.base = other if pin.base is newest else pin.base

    def widen(self, spec: TableSpec, readings: Readings) -> None:
        """Goes on with a spec that has more columns, and with these readings alone."""
        self.spec = spec
        self.overlay = self.overlay.widened(spec)
        readings.rows = SnapshotRows(spec, self.store.folder, self.limits)
        readings.frames = readings.frames.widened(spec)

    def trim(self) -> None:
        """Drops bases, overlay rows, frames and staged files that nobody can ask for."""
        needed = {self.bases[-1], self.newest_base(self.retain_from), *(pin.base for pin in self.pins)}
        needed |= {base for base in self.bases if base.took_files and base.through > self.retain_from}
        self.bases = tuple(base for base in self.bases if base in needed)
        before = self.overlay.files()
        self.overlay = self.overlay.trim(self.bases[0].through)
        live, pinned = self.overlay.files(), {pin.job for pin in self.pins}
        stale: set[str] = set()
        for each in self._readings:
            each.rows.trim(needed)
            stale |= each.frames.trim(needed, self.retain_from, pinned, live)
        self.staging.delete((before - live) | stale, live)

    def forget_all_but(self, readings: Readings) -> None:
        """Forgets what was read of ranges that are others now; staged files go unless a snapshot is still read."""
        forgotten = [each for each in self._readings if each is not readings]
        self._readings = [readings]
        if not self.pins:
            stale = {file for each in forgotten for file in each.frames.trim((), self.overlay.upto, (), ())}
            self.staging.delete(stale, self.overlay.files())
