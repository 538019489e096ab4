"""Folding an overlay into new data files on the driver.

    files that hold dead rows, groups to merge    rows - dead + images in their range    -> new files for old
    images in no such file's range                sorted                                 -> new files

Work goes file by file, so memory does not follow the table. Every dead row must be found: if one is missing, the
changes do not belong to this base and nothing is committed.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from headgate.delta.changes import JobId
from headgate.errors import CorruptWarehouse
from headgate.warehouse.codes import code, member
from headgate.warehouse.compaction import Group, plan
from headgate.warehouse.files import FileReader, FileWriter
from headgate.warehouse.images import Images
from headgate.warehouse.index import FileIndex, Wanted, bounds_array, ordering_values
from headgate.warehouse.spec import TableSpec
from headgate.warehouse.statistics import DataFile, has_range

THREADS = 2


@dataclass(frozen=True)
class Prepared:
    """Data files that are written but not committed: the next base, through job `upto`."""

    attempt: str
    upto: JobId
    adds: tuple[DataFile, ...]
    removes: tuple[DataFile, ...]
    changed_rows: int

    @property
    def bytes_rewritten(self) -> int:
        """Bytes of the files that this replaces."""
        return sum(file.bytes for file in self.removes)

    @property
    def bytes_written(self) -> int:
        return sum(file.bytes for file in self.adds)

    @property
    def bytes_changed(self) -> int:
        """Bytes of the changed rows themselves, at the size a stored row has."""
        files = self.adds or self.removes
        rows = sum(file.rows for file in files)
        return sum(file.bytes for file in files) * self.changed_rows // rows if rows else 0


@dataclass(frozen=True)
class Folded:
    """Files written and files they replace."""

    adds: tuple[DataFile, ...]
    removes: tuple[DataFile, ...]


def touched_files(index: FileIndex, dead: pa.Table, spec: TableSpec) -> tuple[DataFile, ...]:
    """The files that may hold dead rows."""
    return index.pick(Wanted.of(dead.column(spec.lead))) if dead.num_rows else ()


def fold(
    index: FileIndex, images: Images, spec: TableSpec, reader: FileReader, writer: FileWriter, rows_per_file: int
) -> Folded:
    """Writes the files of the next base."""
    groups = plan(index.files, spec.lead, rows_per_file)
    grouped = {file.path for group in groups for file in group}
    alone = [(file,) for file in touched_files(index, images.dead, spec) if file.path not in grouped]
    tasks: list[Group] = [*groups, *alone]
    shares, rest = _shares(tasks, images.rows, spec)
    dead = code(images.dead, spec.key)

    def rewrite(number: int) -> tuple[list[DataFile], Group, int]:
        rows = reader.rows(tasks[number])
        gone = member(code(rows, spec.key), dead)
        found = int(gone.sum())
        added = shares[number]
        if not found and not added.num_rows and len(tasks[number]) == 1:
            return [], (), 0
        kept = rows.filter(pa.array(~gone)) if found else rows
        return writer.write(pa.concat_tables([kept, added])), tasks[number], found

    with ThreadPoolExecutor(THREADS) as pool:
        inserted = pool.submit(writer.write, rest)
        done = list(pool.map(rewrite, range(len(tasks))))
        adds = [*inserted.result(), *(file for files, _, _ in done for file in files)]
    missing = images.dead.num_rows - sum(found for _, _, found in done)
    if missing:
        raise CorruptWarehouse(
            f"{missing} rows that changes remove from table {spec.name} are not in it",
            hint="the changes do not belong to this version of the table; build it again",
        )
    return Folded(tuple(adds), tuple(file for _, group, _ in done for file in group))


def _shares(tasks: Sequence[Group], rows: pa.Table, spec: TableSpec) -> tuple[list[pa.Table], pa.Table]:
    """The images that fall into each task's range, and those that fall into none."""
    nothing = [rows.slice(0, 0) for _ in tasks]
    if not tasks or not rows.num_rows or not has_range(rows.schema.field(spec.lead).type):
        return nothing, rows
    hulls = [(number, *hull) for number, group in enumerate(tasks) if (hull := _hull(group, spec.lead)) is not None]
    if not hulls:
        return nothing, rows
    lows, highs = bounds_array([hull[1] for hull in hulls]), bounds_array([hull[2] for hull in hulls])
    order = np.argsort(lows, kind="stable")
    column = rows.column(spec.lead)
    known = np.flatnonzero(np.asarray(column.is_valid()))
    values = ordering_values(column.drop_null())
    at = np.searchsorted(lows[order], values, side="right") - 1
    task = order[np.maximum(at, 0)]
    inside = (at >= 0) & np.asarray(values <= highs[task], dtype=np.bool_)
    owner = np.full(rows.num_rows, -1, dtype=np.int64)
    owner[known[inside]] = np.array([hull[0] for hull in hulls])[task[inside]]
    by_owner = np.argsort(owner, kind="stable")
    cuts = np.searchsorted(owner[by_owner], np.arange(-1, len(tasks) + 1))
    arranged = rows.take(pa.array(by_owner))
    parts = [arranged.slice(int(start), int(end - start)) for start, end in pairwise(cuts)]
    return parts[1:], parts[0]


def _hull(group: Group, lead: str) -> tuple[object, object] | None:
    ranges = [file.range(lead) for file in group]
    if any(found.low is None or found.high is None for found in ranges):
        return None
    return min(found.low for found in ranges), max(found.high for found in ranges)  # type: ignore[type-var]
