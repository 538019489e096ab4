"""Rows of a table's snapshots in the driver: looked up by key, or all of a small table; never more than it may hold.

A snapshot is a base and the changes of an overlay since. Changes that lie in files are read from there, as far as they match.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from threading import Lock

import pyarrow as pa
from pyspark.sql import SparkSession

from headgate.delta.changes import JobId
from headgate.warehouse.base import Base, FileLimits
from headgate.warehouse.changes import TooManyRows
from headgate.warehouse.codes import code
from headgate.warehouse.files import FileReader
from headgate.warehouse.images import Images, images_of, with_images
from headgate.warehouse.lookup import Lookup, overlay_rows, stored_rows
from headgate.warehouse.overlay import Overlay
from headgate.warehouse.spec import TableSpec
from headgate.warehouse.storage import Folder


class SnapshotRows:
    """Of one table, whose data files lie in `folder`. A base and its overlay must stay while their rows are read."""

    def __init__(self, spec: TableSpec, folder: Folder, limits: FileLimits) -> None:
        self._spec = spec
        self._folder = folder
        self._limits = limits
        self.reader = FileReader(folder, spec)
        self._images: tuple[Base, JobId, Images] | None = None
        self._lock = Lock()

    def count(self, base: Base, overlay: Overlay, job: JobId) -> int:
        """How many rows the snapshot has (of some ranges, for changes in files: at most)."""
        changes = overlay.slice(base.through, job)
        return base.index.rows + (0 if changes is None else changes.growth)

    def images(self, base: Base, overlay: Overlay, job: JobId) -> Images:
        """What the changes since the base took and made; the last ones asked for are kept."""
        kept = self._images
        if kept is not None and kept[:2] == (base, job):
            return kept[2]
        changes = overlay.slice(base.through, job)
        assert changes is not None
        rows = changes.read(self._limits.driver_rows)
        made = partial(overlay.code, self._spec.key, base.through, job)
        found = images_of(rows, made if changes.in_memory else partial(code, rows, self._spec.key))
        with self._lock:
            self._images = (base, job, found)
        return found

    def trim(self, needed: Collection[Base]) -> None:
        """Forgets what needs other bases."""
        with self._lock:
            if self._images is not None and self._images[0] not in needed:
                self._images = None

    def all(self, base: Base, overlay: Overlay, job: JobId, most_rows: int | None = None) -> pa.Table:
        """The whole snapshot, if it has no more rows than the driver may hold, or `most_rows`."""
        most = self._limits.driver_rows if most_rows is None else most_rows
        if base.index.rows > most:
            raise TooManyRows(base.index.rows)
        changes = overlay.slice(base.through, job)
        stored = self.reader.rows(base.index.paths, most_rows=most)
        return stored if changes is None else with_images(stored, changes.read(most), self._spec, self._spec.columns)

    def lookup(
        self,
        lookup: Lookup,
        base: Base,
        overlay: Overlay,
        job: JobId,
        select: tuple[str, ...],
        session: SparkSession | None,
    ) -> pa.Table:
        """The asked rows of base and changes together."""
        most = self._limits.driver_rows
        changes = overlay_rows(lookup, overlay, base.through, job, most)
        needed = tuple(dict.fromkeys((*select, *lookup.columns, *self._spec.key)))
        if session is None or base.index.bytes_to_read(lookup.wanted) <= self._limits.lookup_bytes:
            paths = base.index.pick(lookup.wanted).paths
            stored = self.reader.rows(paths, needed, lookup.where, most, lookup.matching)
        else:
            stored = stored_rows(lookup, base.index.pick(lookup.wanted), needed, self._folder, session, most)
        if stored.num_rows > most:
            raise TooManyRows(stored.num_rows)
        return with_images(stored, changes, self._spec, select)
