"""The changes of the jobs after a table's oldest kept base: few segments, oldest first.

    files  (0, 40]      memory (40, 900]        memory (900, 950]    memory (950, 951]
    a bulk load         merged, 64,000 rows     3,000 rows           48 rows

An overlay is immutable; `append`, `trim` and `spill` give a new one, so readers never see it change. Small segments
merge into their predecessor when they have grown to half its size, so a thousand jobs are about ten segments and each
row is copied a logarithmic number of times. Each segment keeps the codes of the column sets it was asked for.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from headgate.delta.changes import JobId
from headgate.ranges.range_map import Ranges
from headgate.warehouse.changes import ChangeSet, job_array, slice_jobs, tallies_of
from headgate.warehouse.codes import code
from headgate.warehouse.problems import storage_problems
from headgate.warehouse.spec import TableSpec
from headgate.warehouse.storage import Folder

COPY_BELOW = 0.5
"""A trimmed segment that keeps less than this part of its rows is copied, so that the rest is freed."""


@dataclass(frozen=True)
class Segment:
    """Changes of some jobs, and their codes by columns."""

    changes: ChangeSet
    codes: dict[tuple[str, ...], pa.Array] = field(default_factory=dict, compare=False)

    @property
    def in_memory(self) -> bool:
        return self.changes.in_memory

    @property
    def rows_in_memory(self) -> pa.Table:
        assert self.changes.table is not None
        return self.changes.table

    def code(self, columns: tuple[str, ...]) -> pa.Array:
        found = self.codes.get(columns)
        if found is None:
            found = code(self.rows_in_memory, columns)
            self.codes[columns] = found
        return found


@dataclass(frozen=True)
class Overlay:
    """Changes of the jobs in (after, upto]."""

    spec: TableSpec
    after: JobId
    upto: JobId
    segments: tuple[Segment, ...] = ()

    @property
    def rows(self) -> int:
        return sum(segment.changes.rows for segment in self.segments)

    @property
    def memory_bytes(self) -> int:
        return sum(segment.changes.bytes for segment in self.segments if segment.in_memory)

    @property
    def memory_rows(self) -> int:
        return sum(segment.changes.rows for segment in self.segments if segment.in_memory)

    @property
    def bytes(self) -> int:
        return sum(segment.changes.bytes for segment in self.segments)

    @property
    def throughs(self) -> tuple[JobId, ...]:
        """The job of each range: there is one."""
        return (self.upto,)

    @property
    def lead_bytes(self) -> int:
        """Changes of jobs that not all ranges have."""
        return sum(segment.changes.bytes for segment in self.segments if segment.changes.upto > self.upto)

    def only(self, ranges: Ranges) -> Overlay:
        """The changes of some ranges."""
        return self

    def append(self, changes: ChangeSet | None, upto: JobId, ranges: Ranges | None = None) -> Self:
        """With the changes of the next jobs, up to `upto`, of some ranges or of all."""
        added: list[ChangeSet] = []
        if changes is not None and changes.files:
            added.append(_files_of(changes))
        if changes is not None and changes.table is not None and changes.table.num_rows:
            added.append(_memory_of(changes))
        segments = list(self.segments)
        for part in added:
            segments.append(Segment(part))
            while len(segments) > 1 and _mergeable(segments[-2], segments[-1]):
                last = segments.pop()
                segments.append(_merge(self.spec, segments.pop(), last))
        return replace(self, upto=upto, segments=tuple(segments))

    def slice(self, after: JobId, upto: JobId) -> ChangeSet | None:
        """The changes of the jobs in (after, upto]; None when there are none."""
        parts = [part for part in self.parts(after, upto) if part.rows]
        if not parts:
            return None
        tables = [part.table for part in parts if part.table is not None]
        files = tuple(file for part in parts for file in part.files)
        table = pa.concat_tables(tables) if tables else None
        return ChangeSet(
            self.spec.change_schema,
            after,
            upto,
            table,
            files,
            sum(part.rows for part in parts),
            sum(part.bytes for part in parts),
            sliced=any(part.sliced for part in parts),
            tallies=tuple(tally for part in parts for tally in part.tallies),
        )

    def code(self, columns: tuple[str, ...], after: JobId, upto: JobId) -> pa.Array:
        """The codes of what `slice` gives, which is in memory; each segment's are made once."""
        parts = []
        for segment in self.segments:
            # A segment in files has no row of these jobs, or what `slice` gives would not be in memory.
            if segment.in_memory and segment.changes.upto > after and segment.changes.after < upto:
                start, end = np.searchsorted(job_array(segment.rows_in_memory), [after, upto], side="right")
                parts.append(segment.code(columns).slice(int(start), int(end - start)))
        return pa.concat_arrays(parts)

    def parts(self, after: JobId, upto: JobId) -> list[ChangeSet]:
        """The segments' changes of the jobs in (after, upto], oldest first."""
        return [
            segment.changes.slice(after, upto)
            for segment in self.segments
            if segment.changes.upto > after and segment.changes.after < upto
        ]

    def trim(self, after: JobId) -> Self:
        """Without the jobs up to `after`."""
        if after <= self.after:
            return self
        kept = []
        for segment in self.segments:
            if segment.changes.upto <= after:
                continue
            kept.append(segment if segment.changes.after >= after else _trim(segment, after))
        kept = [segment for segment in kept if not segment.in_memory or segment.rows_in_memory.num_rows]
        return replace(self, after=after, segments=tuple(kept))

    def widened(self, spec: TableSpec) -> Self:
        """With columns that the spec has more; they hold NULL."""
        return replace(self, spec=spec, segments=tuple(_widened(spec, segment) for segment in self.segments))

    def spill(self, folder: Folder) -> Self:
        """With everything that is in memory written to segment files in `folder`."""
        spilled = (_spill(self.spec, segment, folder) if segment.in_memory else segment for segment in self.segments)
        return replace(self, segments=tuple(spilled))

    def files(self) -> set[str]:
        return {file for segment in self.segments for file in segment.changes.files}


def _files_of(changes: ChangeSet) -> ChangeSet:
    inside = changes.table.num_rows if changes.table is not None else 0
    held = changes.table.nbytes if changes.table is not None else 0
    return replace(changes, table=None, rows=changes.rows - inside, bytes=changes.bytes - held)


def _memory_of(changes: ChangeSet) -> ChangeSet:
    assert changes.table is not None
    table = changes.table.combine_chunks()
    return ChangeSet(changes.schema, changes.after, changes.upto, table, (), table.num_rows, table.nbytes)


def _mergeable(before: Segment, last: Segment) -> bool:
    return before.in_memory and last.in_memory and last.changes.rows * 2 >= before.changes.rows


def _merge(spec: TableSpec, before: Segment, last: Segment) -> Segment:
    table = pa.concat_tables([before.rows_in_memory, last.rows_in_memory]).combine_chunks()
    codes = {columns: pa.concat_arrays([before.codes[columns], last.code(columns)]) for columns in before.codes}
    changes = ChangeSet(
        spec.change_schema, before.changes.after, last.changes.upto, table, (), table.num_rows, table.nbytes
    )
    return Segment(changes, codes)


def _trim(segment: Segment, after: JobId) -> Segment:
    if not segment.in_memory:
        return Segment(segment.changes.slice(after, segment.changes.upto))
    table = segment.rows_in_memory
    kept = slice_jobs(table, after, segment.changes.upto)
    offset = table.num_rows - kept.num_rows
    codes = {columns: found.slice(offset) for columns, found in segment.codes.items()}
    if kept.num_rows < COPY_BELOW * table.num_rows:
        kept = kept.take(pa.array(range(kept.num_rows), pa.int64()))
        codes = {}
    return Segment(
        ChangeSet(segment.changes.schema, after, segment.changes.upto, kept, (), kept.num_rows, kept.nbytes), codes
    )


def _widened(spec: TableSpec, segment: Segment) -> Segment:
    table = segment.changes.table
    if table is not None:
        wanted = spec.change_arrow_schema
        table = pa.concat_tables([wanted.empty_table(), table], promote_options="default").select(wanted.names)
    return Segment(replace(segment.changes, schema=spec.change_schema, table=table), segment.codes)


def _spill(spec: TableSpec, segment: Segment, folder: Folder) -> Segment:
    table = segment.rows_in_memory
    path = folder.file(f"{uuid.uuid4().hex}.parquet")
    with storage_problems(folder, table.nbytes):
        pq.write_table(table, path, filesystem=folder.filesystem, write_page_checksum=True, store_schema=False)
    changes = ChangeSet(
        spec.change_schema,
        segment.changes.after,
        segment.changes.upto,
        None,
        (folder.child(path.rsplit("/", 1)[1]).address,),
        table.num_rows,
        folder.filesystem.get_file_info(path).size,
        tallies=tuple(tallies_of(table)),
    )
    return Segment(changes)


def jobs_within(table: pa.Table, after: JobId, upto: JobId) -> bool:
    """Whether all rows belong to jobs in (after, upto]."""
    jobs = job_array(table)
    return not len(jobs) or bool(jobs.min() > after and jobs.max() <= upto)
