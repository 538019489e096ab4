"""Some ranges of a table, read and written as a table of their own.

Base, pins and retention are the whole table's; changes are those of the ranges, whose job may be another than that of other
ranges. Rows of other ranges, which the base may hold as of another job, are never given.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from headgate.delta.changes import JobId
from headgate.ranges.range_map import Ranges
from headgate.warehouse.changes import ChangeSet, Within
from headgate.warehouse.divided import DividedOverlay
from headgate.warehouse.overlay import Overlay
from headgate.warehouse.snapshot_rows import SnapshotRows
from headgate.warehouse.snapshots import SnapshotFrames
from headgate.warehouse.versioned import VersionedTable


def within(table: VersionedTable, ranges: Ranges) -> VersionedTable:
    """The ranges of the table; the table itself when those are all."""
    overlay = table._overlay
    if not isinstance(overlay, DividedOverlay) or ranges == overlay.division.map.all:
        return table
    with table._lock:
        if ranges not in table._range_views:
            table._range_views[ranges] = TableRanges(table, overlay, ranges)
        return table._range_views[ranges]


class TableRanges(VersionedTable):
    """What is not its own is the whole table's."""

    def __init__(self, whole: VersionedTable, overlay: DividedOverlay, ranges: Ranges) -> None:
        found = overlay.division.within(ranges)
        assert found is not None
        self._whole = whole
        self._within: Within = found
        self._frames = SnapshotFrames(whole.spec, whole.store.folder, whole._staging, whole.limits.local_rows)
        self._rows = SnapshotRows(whole.spec, whole.store.folder, whole.limits)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_whole"], name)

    @property
    def _overlay(self) -> Overlay:  # type: ignore[override]
        overlay = self._whole._overlay
        return overlay.only(self._ranges_of(overlay))

    def _ranges_of(self, overlay: Overlay) -> Ranges:
        """The ranges that hold the keys now: they may have been split or merged since."""
        return overlay.division.map.holding(self._within.keys) if isinstance(overlay, DividedOverlay) else frozenset()

    def apply(self, changes: ChangeSet | None, through: JobId, ranges: Ranges | None = None) -> None:
        self._whole.apply(changes, through, self._ranges_of(self._whole._overlay))

    def collected(self, job: JobId, most_rows: int | None = None) -> pa.Table:
        return self._within.rows(super().collected(job, most_rows))

    def lookup(
        self,
        columns: tuple[str, ...],
        keys: pa.Table,
        job: JobId,
        select: tuple[str, ...],
        session: SparkSession | None = None,
    ) -> pa.Table:
        wanted = tuple(dict.fromkeys((*select, self._within.column)))
        return self._within.rows(super().lookup(columns, keys, job, wanted, session)).select(list(select))

    def picked(self, values: pa.Array, job: JobId, select: tuple[str, ...], most_bytes: int) -> pa.Table | None:
        wanted = tuple(dict.fromkeys((*select, self._within.column)))
        found = super().picked(values, job, wanted, most_bytes)
        return None if found is None else self._within.rows(found).select(list(select))

    def frame(self, session: SparkSession, job: JobId) -> DataFrame:
        return super().frame(session, job).where(self._within.sql)

    def _trim(self) -> None:
        self._whole._trim()
