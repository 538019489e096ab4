"""Putting rows into segments of one's own: what every writer of a stream log does, in whatever process it runs.

    rows ──► memory ──► block (one table's rows, Arrow IPC, crc32) ──► the writer's segment
                             └─► a reference, which the log's owner commits

A writer is alone in its segment, so it waits for nobody. Nothing of what it writes counts before the owner has committed
references to it: bytes of a transaction that was dropped are cut off, and what a dead writer leaves is deleted with its segment.
"""

from __future__ import annotations

import os
import secrets
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from headgate.capture.durable import full_disk_is_named, sync_folder, write_all
from headgate.capture.frames import Block, encode_rows
from headgate.delta.events import SEQUENCE

BLOCK_MAGIC = b"HGBLOCK1\n"
SALTS = 1 << 32
"""Salts are less than this."""
BLOCK_BYTES = 4 << 20
"""Larger puts are cut, so that several partitions share them."""
DEFAULT_MEMORY_BYTES = 1 << 20
DEFAULT_SEGMENT_BYTES = 64 << 20
_GOLDEN = 0x9E3779B1

Put = tuple[str, Block]
"""A table's name and where some of its rows are."""


@dataclass(frozen=True, slots=True)
class OpenSegment:
    """A new, empty file for one writer: its name and a descriptor, which the writer closes."""

    name: str
    descriptor: int


def create_segment(folder: Path, name: str) -> OpenSegment:
    """Makes a writer's file; its name is on the disk before anything in it counts."""
    descriptor = os.open(folder / name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
    sync_folder(folder)
    return OpenSegment(name, descriptor)


class Salts:
    """The salts of one writer: a random start, then steps of the golden ratio.

    Salts that follow one another lie far apart, so that few blocks already fill ranges of equal size about equally; independent
    random numbers need many.
    """

    def __init__(self) -> None:
        self._last = secrets.randbelow(SALTS)

    def next(self) -> int:
        self._last = (self._last + _GOLDEN) % SALTS
        return self._last


class BlockWriter:
    """One writer, for one thread; `open_segment` gives it a file whenever it needs a new one."""

    def __init__(
        self,
        open_segment: Callable[[], OpenSegment],
        *,
        segment_bytes: int = DEFAULT_SEGMENT_BYTES,
        memory_bytes: int = DEFAULT_MEMORY_BYTES,
        where: Path | None = None,
    ) -> None:
        """`where` is named when the disk is full."""
        self.open_segment = open_segment
        self._segment_bytes = segment_bytes
        self._memory_bytes = memory_bytes
        self._where = where or Path("the segment of a writer")
        self._salts = Salts()
        self._segment: OpenSegment | None = None
        self._size = 0
        self._begun = 0
        """Where the transaction begins in the segment."""
        self._unsynced: list[OpenSegment] = []
        self._held: dict[str, list[pa.RecordBatch]] = {}
        self._held_bytes = 0
        self._written: list[Put] = []

    @property
    def segment(self) -> str | None:
        """The name of the file that is written; None before the first."""
        return None if self._segment is None else self._segment.name

    def put(self, table: str, rows: pa.Table | pa.RecordBatch) -> None:
        """Adds rows of a table to the transaction."""
        batches = rows.to_batches() if isinstance(rows, pa.Table) else [rows]
        for batch in batches:
            if batch.num_rows:
                self._held.setdefault(table, []).append(batch)
                self._held_bytes += batch.nbytes
        if self._held_bytes > self._memory_bytes:
            self._write_out()

    def put_encoded(self, content: bytes, rows: int) -> Block:
        """Writes so many encoded rows as one block, which stays whatever becomes of the transaction."""
        block = self._write(content, rows, 0)
        self._begun = self._size
        return block

    def finish(self, *, durable: bool) -> list[Put]:
        """Ends the transaction: all its rows are written, and on the disk if they have to be; gives where they are."""
        self._write_out()
        if durable:
            self.sync()
        written, self._written = self._written, []
        self._begun = self._size
        return written

    def drop(self) -> None:
        """Ends the transaction without a trace."""
        self._held.clear()
        self._held_bytes = 0
        self._written = []
        if self._segment is not None and self._size > self._begun:
            os.ftruncate(self._segment.descriptor, self._begun)
            self._size = self._begun

    def sync(self) -> None:
        """Returns once everything that was written is on the disk."""
        with full_disk_is_named(self._where):
            for segment in self._unsynced:
                os.fsync(segment.descriptor)
        for segment in self._unsynced:
            if segment is not self._segment:
                os.close(segment.descriptor)
        self._unsynced.clear()

    def close(self) -> None:
        """Closes the files; nothing is synced."""
        for segment in {*self._unsynced, *([self._segment] if self._segment else [])}:
            os.close(segment.descriptor)
        self._unsynced.clear()
        self._segment = None

    def _write_out(self) -> None:
        for table, batches in self._held.items():
            rows = pa.Table.from_batches(batches).combine_chunks()
            for piece in _pieces(rows):
                span = int(pc.max(piece.column(SEQUENCE)).as_py()) + 1
                block = self._write(encode_rows(piece), piece.num_rows, span)
                self._written.append((table, block))
        self._held.clear()
        self._held_bytes = 0

    def _write(self, content: bytes, rows: int, span: int) -> Block:
        segment = self._writable()
        offset = self._size
        try:
            with full_disk_is_named(self._where):
                write_all(segment.descriptor, [content])
        except BaseException:
            os.ftruncate(segment.descriptor, offset)
            raise
        self._size = offset + len(content)
        if segment not in self._unsynced:
            self._unsynced.append(segment)
        return Block(segment.name, offset, len(content), zlib.crc32(content), rows, span, self._salts.next())

    def _writable(self) -> OpenSegment:
        """The segment that the next block goes to."""
        if self._segment is None or self._size >= self._segment_bytes:
            former, fresh = self._segment, self.open_segment()
            with full_disk_is_named(self._where):
                write_all(fresh.descriptor, [BLOCK_MAGIC])
            if former is not None and former not in self._unsynced:
                os.close(former.descriptor)
            self._segment, self._size, self._begun = fresh, len(BLOCK_MAGIC), len(BLOCK_MAGIC)
        return self._segment


def _pieces(rows: pa.Table) -> Iterator[pa.Table]:
    count = max(1, rows.num_rows * BLOCK_BYTES // max(rows.nbytes, BLOCK_BYTES))
    for first in range(0, rows.num_rows, count):
        yield rows.slice(first, count)
