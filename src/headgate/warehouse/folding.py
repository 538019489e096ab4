"""Folding changes into new data files: the next base.

    files that hold dead rows, groups to merge    rows - dead + images in their range    -> new files for old
    images in no such file's range                sorted                                 -> new files

Of few changes the driver knows the keys, hence which files hold dead rows, and rewrites these itself (`rewriting`), unless they
are large. Then, and for many changes, executors do (`bulk`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from pyspark.sql import SparkSession

from headgate.delta.changes import JobId
from headgate.warehouse.base import Base, FileLimits
from headgate.warehouse.bulk import bulk_fold
from headgate.warehouse.changes import ChangeSet
from headgate.warehouse.files import FileReader, FileWriter, Folded
from headgate.warehouse.images import Images
from headgate.warehouse.index import Wanted
from headgate.warehouse.rewriting import Rest, no_rest, rewrite_files
from headgate.warehouse.spec import TableSpec
from headgate.warehouse.storage import Folder


@dataclass(frozen=True)
class Prepared(Folded):
    """Data files that are written but not committed: the next base, through job `upto`."""

    attempt: str
    upto: JobId


@dataclass(frozen=True)
class Fold:
    """Folds changes into the base of a table whose files lie in `folder`."""

    folder: Folder
    spec: TableSpec
    limits: FileLimits
    reader: FileReader

    def write(
        self,
        session: SparkSession | None,
        base: Base,
        changes: ChangeSet | None,
        images: Callable[[], Images],
        attempt: str,
        rest: Rest = no_rest,
    ) -> Folded:
        """Writes the files of the next base; `images` are those of the changes, asked for if these are few."""
        index, spec = base.index, self.spec
        if changes is None:
            return Folded((), index.take(np.array([], np.int64)), 0)
        limits = self.limits.for_rows(index.rows + changes.rows)
        touched = None
        if changes.in_memory or changes.rows <= limits.driver_rows:
            found = images()
            touched = index.places(Wanted.of(found.dead.column(spec.lead)))
            dying = index.take(touched)
            rows = 0 if changes.in_memory else dying.rows
            if session is None or (dying.bytes <= limits.fold_bytes and rows <= limits.driver_rows):
                writer = FileWriter(self.folder, attempt, spec, limits.rows_per_file, limits.rows_per_group)
                return rewrite_files(index, found, spec, self.reader, writer, limits.rows_per_file, rest)
        if session is None:
            raise ValueError(f"the overlay of table {spec.name} is in files: folding it needs a Spark session")
        return bulk_fold(session, self.folder, attempt, index, changes, spec, limits, touched)
