"""An overlay whose key ranges stand at different jobs.

    range 0   (40, 70]                 the level: the job that all ranges have
    range 1   (40, 70] (70, 95]        a range's lead lies behind it
    range 2   (40, 70] (70, 80]

Each range has an overlay of its own. A key belongs to one range, so the changes of a key are in order whichever ranges are
read together. Changes in files may hold several ranges: each takes the files, and reading them leaves out other keys. Files of
a run hold rows of the ranges of that run only.

A range that is *left out* takes no part in the level: its rows stay as they were, whatever job the others have, until it
`stands` again at a job from which changes bring it to a later one.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headgate.delta.changes import JobId
from headgate.ranges.key_set import Value
from headgate.ranges.range_map import RangeMap, Ranges
from headgate.warehouse.changes import ChangeSet, Within, in_job_order, job_array
from headgate.warehouse.overlay import Overlay, Segment
from headgate.warehouse.spec import TableSpec
from headgate.warehouse.storage import Folder


@dataclass(frozen=True)
class Division:
    """How a table is cut: by which of its columns, and where, which all tables of a family have in common."""

    family: str
    column: str
    map: RangeMap

    def ids(self, rows: pa.Table) -> npt.NDArray[np.int64]:
        """The range of each row."""
        column = rows.column(self.column)
        found = np.zeros(rows.num_rows, dtype=np.int64)
        for bound in self.map.bounds:
            behind = pc.greater_equal(column, _scalar(bound, column.type))
            found += np.asarray(pc.fill_null(behind, False), dtype=np.int64)
        return found

    def within(self, ranges: Collection[int]) -> Within | None:
        """What leaves rows of the ranges alone; None for all ranges."""
        return None if len(ranges) == self.map.count else Within(self.column, self.map.keys_of(ranges))


def _scalar(value: Value, kind: pa.DataType) -> pa.Scalar:
    """A bound in the column's type; one beyond its values stays wider, which Arrow compares as well."""
    if pa.types.is_integer(kind):
        return pa.scalar(value, pa.int64())
    return pa.scalar(value, kind)


@dataclass(frozen=True)
class JoinedOverlay(Overlay):
    """Changes of some ranges, whose segments may hold the same jobs."""

    within: Within | None = None
    """Which rows of changes in files count."""

    def slice(self, after: JobId, upto: JobId) -> ChangeSet | None:
        found = super().slice(after, upto)
        if found is None:
            return None
        table = found.table if found.table is None else in_job_order(found.table)
        return replace(found, table=table, within=self.within)

    def code(self, columns: tuple[str, ...], after: JobId, upto: JobId) -> pa.Array:
        codes = super().code(columns, after, upto)
        found = super().slice(after, upto)
        jobs = job_array(found.table) if found is not None and found.table is not None else np.zeros(0)
        # The order in which `slice` has the rows.
        return codes.take(pa.array(np.argsort(jobs, kind="stable"))) if len(jobs) else codes


@dataclass(frozen=True)
class DividedOverlay(JoinedOverlay):
    """All ranges of a table: `upto` is the level."""

    division: Division = None  # type: ignore[assignment]
    ranges: tuple[Overlay, ...] = ()
    left_out: Ranges = frozenset()

    @classmethod
    def of(cls, overlay: Overlay, division: Division) -> DividedOverlay:
        """The overlay cut into ranges, or into other ones; only ranges at one job can become one, or be cut."""
        old = overlay if isinstance(overlay, DividedOverlay) else None
        parts: list[Overlay] = []
        left_out: set[int] = set()
        for number in range(division.map.count):
            if old is None:
                taken: Overlay = overlay
            else:
                before = old.division.map.holding(division.map.keys_of([number]))
                if len({old.ranges[each].upto for each in before}) > 1:
                    raise ValueError(f"ranges of table {overlay.spec.name} that are joined stand at different jobs")
                taken = old.only(before)
                left_out |= {number} if before & old.left_out else set()
            parts.append(_restricted(taken, division, number))
        level = _level(parts, left_out)
        return cls(
            overlay.spec,
            overlay.after,
            level,
            _joined(parts),
            None,
            division,
            tuple(parts),
            frozenset(left_out),
        )

    @property
    def throughs(self) -> tuple[JobId, ...]:
        return tuple(part.upto for part in self.ranges)

    def only(self, ranges: Ranges) -> JoinedOverlay:
        """The changes of some ranges."""
        parts = [self.ranges[number] for number in sorted(ranges)]
        within = self.division.within(ranges)
        segments = tuple(
            segment if segment.in_memory else replace(segment, changes=replace(segment.changes, within=within))
            for segment in _joined(parts)
        )
        return JoinedOverlay(self.spec, self.after, min(part.upto for part in parts), segments, within)

    def undivided(self) -> Overlay:
        """The same as one range; all stand at one job."""
        if len(set(self.throughs)) > 1:
            raise ValueError(f"ranges of table {self.spec.name} stand at different jobs")
        return JoinedOverlay(self.spec, self.after, self.upto, self.segments)

    def append(self, changes: ChangeSet | None, upto: JobId, ranges: Ranges | None = None) -> Self:
        """With the changes of the next jobs of some ranges, by default of all."""
        chosen = self.division.map.all if ranges is None else ranges
        ids = None if changes is None or changes.table is None else self.division.ids(changes.table)
        if ids is not None and len(ids) and not set(np.unique(ids)) <= chosen:
            raise ValueError(f"changes of table {self.spec.name} lie outside the ranges that they are for")
        parts = list(self.ranges)
        for number in chosen:
            parts[number] = parts[number].append(_of_range(changes, ids, number), upto)
        return self._with(tuple(parts))

    def leave_out(self, ranges: Ranges) -> DividedOverlay:
        """With just these ranges left out of the level."""
        return replace(self, left_out=ranges)._with(self.ranges)

    def stand(self, ranges: Ranges, job: JobId) -> DividedOverlay:
        """With ranges that were left out at a job, at which they hold what they held before."""
        parts = list(self.ranges)
        for number in ranges & self.left_out:
            parts[number] = replace(parts[number], upto=max(parts[number].upto, job))
        return self._with(tuple(parts))

    def trim(self, after: JobId) -> Self:
        return self._with(tuple(part.trim(after) for part in self.ranges))

    def widened(self, spec: TableSpec) -> Self:
        return self._with(tuple(part.widened(spec) for part in self.ranges), spec)

    def spill(self, folder: Folder) -> Self:
        return self._with(tuple(part.spill(folder) for part in self.ranges))

    def _with(self, ranges: tuple[Overlay, ...], spec: TableSpec | None = None) -> Self:
        level = _level(ranges, self.left_out)
        return replace(
            self, spec=spec or self.spec, after=ranges[0].after, upto=level, segments=_joined(ranges), ranges=ranges
        )


def _level(parts: Sequence[Overlay], left_out: Collection[int]) -> JobId:
    """The job that all ranges have which are not left out, or all ranges where every one is."""
    counted = [part.upto for number, part in enumerate(parts) if number not in left_out]
    return min(counted or [part.upto for part in parts])


def _joined(parts: Collection[Overlay]) -> tuple[Segment, ...]:
    """The segments of all, oldest first; those in the same files once."""
    found: dict[object, Segment] = {}
    for part in parts:
        for segment in part.segments:
            found.setdefault(segment.changes.files or id(segment), segment)
    return tuple(sorted(found.values(), key=lambda segment: segment.changes.after))


def _of_range(changes: ChangeSet | None, ids: npt.NDArray[np.int64] | None, number: int) -> ChangeSet | None:
    if changes is None:
        return None
    if ids is None:
        return changes
    assert changes.table is not None
    table = changes.table.filter(pa.array(ids == number))
    held, rows = changes.table.num_rows, table.num_rows
    size = changes.bytes - changes.table.nbytes + table.nbytes
    return replace(changes, table=table, rows=changes.rows - held + rows, bytes=size)


def _restricted(overlay: Overlay, division: Division, number: int) -> Overlay:
    """The overlay's rows of one range; changes in files stay as they are."""
    found: Overlay = JoinedOverlay(overlay.spec, overlay.after, overlay.after)
    memory: list[pa.Table] = []
    for segment in overlay.segments:
        if segment.in_memory:
            rows = segment.rows_in_memory
            memory.append(rows.filter(pa.array(division.ids(rows) == number)))
            continue
        changes = replace(segment.changes, within=None)
        found = _with_rows(found, memory, changes.after).append(changes, changes.upto)
        memory = []
    return replace(_with_rows(found, memory, overlay.upto), upto=overlay.upto)


def _with_rows(overlay: Overlay, memory: list[pa.Table], upto: JobId) -> Overlay:
    rows = [table for table in memory if table.num_rows]
    if not rows:
        return overlay
    table = in_job_order(pa.concat_tables(rows)).combine_chunks()
    jobs = job_array(table)
    # Files of other ranges may hold later jobs than those of these rows.
    after, end = JobId(min(overlay.upto, int(jobs[0]) - 1)), JobId(max(upto, int(jobs[-1])))
    changes = ChangeSet(overlay.spec.change_schema, after, end, table, (), table.num_rows, table.nbytes)
    return overlay.append(changes, end)
