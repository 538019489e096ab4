"""A table's snapshots as DataFrames, made once per session and kept while they can be asked for.

Rows of the overlay enter the plan when they are few, and lie in staged files, which executors read, when they are many.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection
from threading import Lock

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from headgate.delta.changes import JobId
from headgate.warehouse.base import Base
from headgate.warehouse.bits import bits_of, is_dead
from headgate.warehouse.changes import ChangeSet, spark_path
from headgate.warehouse.frames import NEW, column, names_a_long, stored_frame, without, without_marked
from headgate.warehouse.images import Images, image_frames
from headgate.warehouse.local import local_frame
from headgate.warehouse.problems import storage_problems
from headgate.warehouse.spec import TableSpec
from headgate.warehouse.storage import Folder

_STAGED_GROUP_ROWS = 1 << 17


class SnapshotFrames:
    """The frames of one table, whose data files lie in `folder`; `staging` is where it may put rows for executors."""

    def __init__(self, spec: TableSpec, folder: Folder, staging: Folder, local_rows: int) -> None:
        self._spec = spec
        self._folder = folder
        self._staging = staging
        self._local_rows = local_rows
        self._lock = Lock()
        self._frames: dict[tuple[SparkSession, Base, JobId | None], DataFrame] = {}
        self._staged: list[tuple[JobId, str]] = []

    def find(self, session: SparkSession, base: Base, job: JobId) -> DataFrame | None:
        """The snapshot at the job, if it was made before."""
        return self._frames.get((session, base, job))

    def of_base(self, session: SparkSession, base: Base) -> DataFrame:
        """The base alone."""
        found = self._frames.get((session, base, None))
        if found is None:
            found = stored_frame(session, self._folder, base.index.files, self._spec)
            self._keep((session, base, None), found)
        return found

    def of_images(self, session: SparkSession, base: Base, images: Images, job: JobId) -> DataFrame:
        """The base with rows that went and rows that came, which the driver holds."""
        rows = images.rows
        if images.dead.num_rows and rows.num_rows > self._local_rows:
            new = self._stage(rows.append_column(NEW, pa.repeat(pa.scalar(True), rows.num_rows)), job)
            both = stored_frame(session, self._folder, base.index.files, self._spec, new)
            found = self._without(session, both, images.dead, job)
        else:
            found = self.of_base(session, base)
            if images.dead.num_rows:
                found = self._without(session, found, images.dead, job)
            if rows.num_rows:
                added = self._of_rows(session, rows, self._spec.schema, job)
                found = found.union(added) if base.index.files else added
        return self._keep((session, base, job), found)

    def of_files(self, session: SparkSession, base: Base, changes: ChangeSet, job: JobId) -> DataFrame:
        """The base with changes that are too many for the driver."""
        stored, frame = self.of_base(session, base), changes.frame(session)
        if changes.inserts_only():
            rows = frame.select(*stored.columns)
        else:
            dead, rows = image_frames(frame, self._spec)
            if base.index.files:
                stored = without(stored, dead, self._spec, small=False, null_is_dead=True)
        return self._keep((session, base, job), stored.union(rows) if base.index.files else rows)

    def widened(self, spec: TableSpec) -> SnapshotFrames:
        """None of them, for a spec with more columns; staged files are still let go in time."""
        fresh = SnapshotFrames(spec, self._folder, self._staging, self._local_rows)
        fresh._staged = self._staged
        return fresh

    def trim(self, bases: Collection[Base], oldest: JobId, pinned: Collection[JobId]) -> set[str]:
        """Forgets what needs other bases or an older job that is not pinned; gives the staged files that may go."""
        with self._lock:
            self._frames = {
                key: frame
                for key, frame in self._frames.items()
                if key[1] in bases and (key[2] is None or key[2] >= oldest or key[2] in pinned)
            }
            stale = {path for job, path in self._staged if job < oldest and job not in pinned}
            self._staged = [(job, path) for job, path in self._staged if path not in stale]
        return stale

    def _keep(self, key: tuple[SparkSession, Base, JobId | None], frame: DataFrame) -> DataFrame:
        with self._lock:
            self._frames[key] = frame
        return frame

    def _without(self, session: SparkSession, stored: DataFrame, dead: pa.Table, job: JobId) -> DataFrame:
        """The stored rows whose keys are not among those of the dead."""
        keys = dead.select(list(self._spec.key))
        null = any(values.null_count for values in keys.columns)
        found = bits_of(keys.column(0)) if names_a_long(self._spec) else None
        if found is not None:
            return without_marked(stored, is_dead(session, column(self._spec.key[0]), *found, null_is_dead=null))
        schema = StructType([self._spec.schema[name] for name in self._spec.key])
        return without(stored, self._of_rows(session, keys, schema, job), self._spec, small=True, null_is_dead=null)

    def _of_rows(self, session: SparkSession, rows: pa.Table, schema: StructType, job: JobId) -> DataFrame:
        """Rows of the driver as a frame: within the plan when few, else through a staged file."""
        if rows.num_rows <= self._local_rows:
            return local_frame(session, rows, schema)
        address = spark_path(self._stage(rows, job))
        return session.read.schema(schema).option("__globPaths__", "false").parquet(address)

    def _stage(self, rows: pa.Table, job: JobId) -> str:
        """Rows of the driver in a file that executors can read while the job can be asked for."""
        name = f"{uuid.uuid4().hex}.parquet"
        with storage_problems(self._staging, rows.nbytes):
            # Written to be read soon and once or twice: plain, in pieces that tasks can share.
            pq.write_table(
                rows,
                self._staging.file(name),
                filesystem=self._staging.filesystem,
                store_schema=False,
                compression="none",
                use_dictionary=False,
                write_statistics=False,
                row_group_size=_STAGED_GROUP_ROWS,
            )
        address = self._staging.child(name).address
        with self._lock:
            self._staged.append((job, address))
        return address
