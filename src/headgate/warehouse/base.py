"""What a versioned table stands on: the Delta versions that hold its jobs, and the sizes that decide how it is stored and read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil

from headgate.delta.changes import JobId
from headgate.warehouse.index import FileIndex
from headgate.warehouse.statistics import ROWS_PER_GROUP

MEBIBYTE = 2**20
MOST_FILES = 20_000
"""About as many files has the largest table."""


@dataclass(frozen=True)
class FileLimits:
    """Sizes that decide how a table is stored and read.

    A whole read costs time per file, a lookup per row of the row groups that it opens: hence large files of small groups.
    """

    rows_per_file: int = 64_000
    rows_per_group: int = ROWS_PER_GROUP
    driver_rows: int = 250_000
    """The driver never reads more changes or rows than this at once; what has more is left to executors."""
    lookup_bytes: int = 64 * MEBIBYTE
    """Picked files above this are looked up by Spark."""
    overlay_bytes: int = 256 * MEBIBYTE
    """An overlay in memory above this, or with more rows than the driver holds, is spilled to segment files."""
    fold_bytes: int = 512 * MEBIBYTE
    """Base files above this are rewritten by Spark."""
    local_rows: int = 5_000
    """Overlay frames above this go through a staged file, which Spark reads faster than rows from the driver."""

    def for_rows(self, rows: int) -> FileLimits:
        """The limits for a table of so many rows: its files grow with it."""
        return replace(self, rows_per_file=max(self.rows_per_file, ceil(rows / MOST_FILES)))


@dataclass(frozen=True, eq=False)
class Base:
    """A Delta version that holds the snapshot of job `through`."""

    version: int
    through: JobId
    index: FileIndex
    took_files: bool = False
    """Whether it has rows that neither the base before it nor changes have: jobs behind it cannot be told from an earlier one."""
