"""A table's snapshots as DataFrames, made once per session and kept while they can be asked for.

Rows of the overlay enter the plan when they are few, and lie in staged files, which executors read, when they are many.
Changes that are in files never pass through the driver: which of them count is worked out once, by executors.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial, reduce
from threading import Lock

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import StructType

from headgate.delta.changes import WEIGHT, JobId
from headgate.warehouse.base import Base, FileLimits
from headgate.warehouse.bits import bits_of, is_dead
from headgate.warehouse.changes import ChangeSet, parquet_frame, spark_path
from headgate.warehouse.codes import code
from headgate.warehouse.frames import NEW, column, names_a_long, stored_frame, without, without_marked
from headgate.warehouse.images import Images, images_frame, images_of
from headgate.warehouse.local import local_frame
from headgate.warehouse.overlay import Overlay
from headgate.warehouse.problems import storage_problems
from headgate.warehouse.spec import TableSpec
from headgate.warehouse.staging import Staging
from headgate.warehouse.storage import Folder

Use = tuple[Base, JobId]
"""The snapshot that uses a staged file."""


class SnapshotFrames:
    """The frames of one table, whose data files lie in `folder`; `staging` is where it may put rows for executors."""

    def __init__(self, spec: TableSpec, folder: Folder, staging: Staging, limits: FileLimits) -> None:
        self._spec = spec
        self._folder = folder
        self._staging = staging
        self._limits = limits
        self._lock = Lock()
        self._frames: dict[tuple[SparkSession, Base, JobId | None], DataFrame] = {}
        self._staged: list[tuple[Use, str]] = []
        self._images: dict[tuple[tuple[str, ...], JobId, JobId], ChangeSet] = {}
        self._staging_images = Lock()

    def frame(
        self, session: SparkSession, base: Base, overlay: Overlay, job: JobId, images: Callable[[], Images]
    ) -> DataFrame:
        """The snapshot at the job; `images` are those of the overlay since the base, asked for if it is in memory."""
        found = self._frames.get((session, base, job))
        if found is not None:
            return found
        changes = overlay.slice(base.through, job)
        if changes is None:
            return self._of_base(session, base)
        if changes.in_memory:
            return self._keep((session, base, job), self._of_images(session, base, images(), (base, job)))
        parts = overlay.parts(base.through, job)
        return self._keep((session, base, job), self._of_parts(session, base, parts, (base, job)))

    def _of_base(self, session: SparkSession, base: Base) -> DataFrame:
        """The base alone."""
        found = self._frames.get((session, base, None))
        if found is None:
            found = stored_frame(session, self._folder, base.index, self._spec)
            self._keep((session, base, None), found)
        return found

    def _of_images(self, session: SparkSession, base: Base, images: Images, use: Use) -> DataFrame:
        """The base with rows that went and rows that came, which the driver holds."""
        rows = images.rows
        if images.dead.num_rows and rows.num_rows > self._limits.local_rows:
            new = self._stage(rows.append_column(NEW, pa.repeat(pa.scalar(True), rows.num_rows)), use)
            both = stored_frame(session, self._folder, base.index, self._spec, new)
            return self._without(session, both, images.dead, use)
        found = self._of_base(session, base)
        if images.dead.num_rows:
            found = self._without(session, found, images.dead, use)
        if not rows.num_rows:
            return found
        added = self._of_rows(session, rows, self._spec.schema, use)
        return found.union(added) if len(base.index) else added

    def _of_parts(self, session: SparkSession, base: Base, parts: Sequence[ChangeSet], use: Use) -> DataFrame:
        """The base with changes of which some, too many for the driver, are in files; oldest first.

        A row of the base, or an image that a part left, is in the snapshot unless a later part took it: a key that changes has
        a row of weight -1 in the first part that touches it. So a part in files enters every snapshot as it is.
        """
        images: list[DataFrame] = []
        later: list[tuple[DataFrame, int]] = []
        for changes in reversed(_joined(parts)):
            rows, dead = (
                self._in_memory(session, changes, use) if changes.in_memory else self._in_files(session, changes, use)
            )
            images.append(self._without_all(rows, later))
            if dead is not None:
                later.append((dead, changes.removed))
        if len(base.index):
            images.append(self._without_all(self._of_base(session, base), later))
        return reduce(DataFrame.union, reversed(images))

    def _in_memory(self, session: SparkSession, changes: ChangeSet, use: Use) -> tuple[DataFrame, DataFrame | None]:
        """The images of a part, and the keys of which it took rows."""
        assert changes.table is not None
        images = images_of(changes.table, partial(code, changes.table, self._spec.key))
        rows = self._of_rows(session, images.rows, self._spec.schema, use)
        keys = StructType([self._spec.schema[name] for name in self._spec.key])
        dead = images.dead.select(list(self._spec.key))
        return rows, self._of_rows(session, dead, keys, use) if dead.num_rows else None

    def _in_files(self, session: SparkSession, changes: ChangeSet, use: Use) -> tuple[DataFrame, DataFrame | None]:
        """The same of a part that only executors read; if its keys change more than once, they first write what counts."""
        inserts = changes.inserts_only()
        if not inserts and not changes.is_one_job:
            changes = self._staged_images(session, changes, use)
        frame = changes.frame(session)
        rows = frame.where(sf.col(WEIGHT) > 0).select(*(column(name) for name in self._spec.columns))
        keys = [column(name) for name in self._spec.key]
        return rows, None if inserts else frame.where(sf.col(WEIGHT) < 0).select(*keys)

    def _staged_images(self, session: SparkSession, changes: ChangeSet, use: Use) -> ChangeSet:
        key = (changes.files, changes.after, changes.upto)
        with self._staging_images:
            found = self._images.get(key)
            if found is None:
                place = self._staging.new_folder()
                with storage_problems(self._staging.folder, changes.bytes):
                    images_frame(changes.frame(session), self._spec).write.parquet(place.spark_address)
                found = ChangeSet.of_files(self._spec, place.address, changes.after, changes.upto)
            with self._lock:
                self._images[key] = found
                self._staged += [(use, file) for file in found.files]
        return found

    def _without_all(self, rows: DataFrame, dead: Sequence[tuple[DataFrame, int]]) -> DataFrame:
        """The rows without those of the dead keys. As many as the driver may hold are sent to every executor; more are joined by a
        shuffle, all at once."""
        if not dead:
            return rows
        small = sum(count for _, count in dead) <= self._limits.driver_rows
        keys = reduce(DataFrame.union, (keys for keys, _ in dead))
        return without(rows, keys, self._spec, small=small, null_is_dead=None)

    def widened(self, spec: TableSpec) -> SnapshotFrames:
        """None of them, for a spec with more columns; staged files are still let go in time."""
        fresh = SnapshotFrames(spec, self._folder, self._staging, self._limits)
        fresh._staged = self._staged
        return fresh

    def trim(
        self, bases: Collection[Base], oldest: JobId, pinned: Collection[JobId], live: Collection[str]
    ) -> set[str]:
        """Forgets what needs other bases or an older job that is not pinned; gives the staged files that may go.

        Images of changes in files that are `live`, still in the overlay, stay for jobs to come.
        """

        def asked_for(base: Base, job: JobId | None) -> bool:
            return base in bases and (job is None or job >= oldest or job in pinned)

        with self._lock:
            self._frames = {key: frame for key, frame in self._frames.items() if asked_for(*key[1:])}
            self._images = {key: found for key, found in self._images.items() if not set(key[0]).isdisjoint(live)}
            kept = {file for found in self._images.values() for file in found.files}
            kept |= {path for use, path in self._staged if asked_for(*use)}
            stale = {path for _, path in self._staged if path not in kept}
            self._staged = [(use, path) for use, path in self._staged if path in kept]
        return stale

    def _keep(self, key: tuple[SparkSession, Base, JobId | None], frame: DataFrame) -> DataFrame:
        with self._lock:
            self._frames[key] = frame
        return frame

    def _without(self, session: SparkSession, stored: DataFrame, dead: pa.Table, use: Use) -> DataFrame:
        """The stored rows whose keys are not among those of the dead."""
        keys = dead.select(list(self._spec.key))
        null = any(values.null_count for values in keys.columns)
        found = bits_of(keys.column(0)) if names_a_long(self._spec) else None
        if found is not None:
            return without_marked(stored, is_dead(session, column(self._spec.key[0]), *found, null_is_dead=null))
        schema = StructType([self._spec.schema[name] for name in self._spec.key])
        return without(stored, self._of_rows(session, keys, schema, use), self._spec, small=True, null_is_dead=null)

    def _of_rows(self, session: SparkSession, rows: pa.Table, schema: StructType, use: Use) -> DataFrame:
        """Rows of the driver as a frame: within the plan when few, else through a staged file."""
        if rows.num_rows <= self._limits.local_rows:
            return local_frame(session, rows, schema)
        return parquet_frame(session, schema, [spark_path(self._stage(rows, use))])

    def _stage(self, rows: pa.Table, use: Use) -> str:
        """Rows of the driver in a file that executors can read while the job can be asked for."""
        address = self._staging.write(rows)
        with self._lock:
            self._staged.append((use, address))
        return address


def _joined(parts: Sequence[ChangeSet]) -> list[ChangeSet]:
    """The parts, neighbours in memory as one."""
    found: list[ChangeSet] = []
    for part in parts:
        if found and found[-1].table is not None and part.table is not None:
            found[-1] = found[-1].followed_by(part)
        else:
            found.append(part)
    return found
