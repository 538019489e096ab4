"""Where the events of a table lie in a stream log, and how Spark's Python workers read them there.

    driver     places (metadata) ──► task: reads its frames, tests their checksums, writes their events into a file
    driver     ◄── the file's name

Only the workers touch rows. What a worker runs is pickled whole: executors need PySpark and the same storage, not this package.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark import TaskContext

from headgate.capture.events import COMMIT_TIME, TRANSACTION_FIELDS, EventFile
from headgate.capture.frames import BadFrame, Inline, Numbers, check_rows, decode_rows
from headgate.delta.events import SEQUENCE

_SHARE_BYTES = 8 << 20
"""What one task reads."""
_GROUP_BYTES = 16 << 20
"""What a worker holds until it writes a row group."""


class Stamps(NamedTuple):
    """What transactions give to their rows of a table."""

    positions: Numbers
    commit_at: Numbers
    """Microseconds since 1970."""
    counts: Numbers
    """Rows per transaction."""


class RowsPlace(NamedTuple):
    """Rows of one table in a frame or block: those of transactions that follow one another."""

    segment: str
    offset: int
    inline: Inline
    first: int
    """How many of the frame's rows come before."""
    stamps: Stamps
    base: int = 0
    """What is added to the rows' sequence numbers."""
    partition: int = 0
    """Which of the queue's partitions has them: one task reads rows of one."""


@dataclass(frozen=True, slots=True)
class Places:
    """The events of one table in a range of positions by reference, all of them on the disk."""

    frames: tuple[RowsPlace, ...]
    files: tuple[EventFile, ...]

    def shares(self, least: int) -> list[list[RowsPlace]]:
        """The frames for so many tasks, or for more if they are large; of each partition for at least one."""
        total = sum(place.inline.length for place in self.frames)
        most = max(1, min(_SHARE_BYTES, total // max(1, least)))
        shares: list[list[RowsPlace]] = []
        open_shares: dict[int, tuple[list[RowsPlace], int]] = {}
        for place in self.frames:
            share, size = open_shares.get(place.partition, (None, 0))
            if share is None or size >= most:
                share, size = [], 0
                shares.append(share)
            share.append(place)
            open_shares[place.partition] = share, size + place.inline.length
        return shares


def conform_events(events: pa.Table, schema: pa.Schema) -> pa.Table:
    """Events of the schema: those from before a column was added have NULL in it, those from before it was widened get its type."""
    columns = []
    for field in schema:
        place = events.schema.get_field_index(field.name)
        values = pa.nulls(events.num_rows, field.type) if place < 0 else events.column(place)
        columns.append(values if values.type == field.type else values.cast(field.type))
    return pa.Table.from_arrays(columns, schema=schema)


def read_rows(place: RowsPlace, descriptor: int) -> pa.Table:
    """The rows of a place in its segment. Raises `BadFrame` if their bytes are damaged."""
    content = os.pread(descriptor, place.inline.length, place.offset)
    check_rows(place.inline, content)
    rows = decode_rows(content).slice(place.first, int(place.stamps.counts.sum()))
    if place.base:
        column = rows.schema.get_field_index(SEQUENCE)
        rows = rows.set_column(column, rows.schema.field(column), pc.add(rows.column(column), place.base))
    return rows


def stamped(rows: pa.Table, stamps: Stamps) -> pa.Table:
    """Events from rows in the order of their transactions."""
    positions = pa.array(np.repeat(stamps.positions, stamps.counts))
    times = pa.array(np.repeat(stamps.commit_at, stamps.counts)).view(COMMIT_TIME)
    for field, values in zip(TRANSACTION_FIELDS, (positions, times), strict=True):
        rows = rows.append_column(field, values)
    return rows


def spool(folder: str, schema: pa.Schema, share: tuple[int, Sequence[RowsPlace]]) -> tuple[str, str | None]:
    """What a task does: writes the events of its numbered share into a file, in order; gives its name, and what is damaged."""
    number, places = share
    context = TaskContext.get()
    # An attempt that Spark gives up leaves a file that nobody is told of.
    file = f"{folder}/{number}-{0 if context is None else context.taskAttemptId()}.parquet"
    held: list[pa.Table] = []
    size = 0
    sink = os.fdopen(os.open(file, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "wb")
    with sink, pq.ParquetWriter(sink, schema, store_schema=False, write_page_checksum=True) as writer:
        for count, place in enumerate(places, 1):
            try:
                with Path(place.segment).open("rb") as segment:
                    rows = stamped(read_rows(place, segment.fileno()), place.stamps)
            except (BadFrame, OSError) as error:
                return file, f"{place.segment} at byte {place.offset}: {error}"
            held.append(conform_events(rows, schema))
            size += rows.nbytes
            if size >= _GROUP_BYTES or count == len(places):
                group = pa.concat_tables(held)
                writer.write_table(group, row_group_size=group.num_rows)
                held.clear()
                size = 0
    return file, None
