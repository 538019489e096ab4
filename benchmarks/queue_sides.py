"""The two queues that are compared: an elastic one, and a Delta table that is used as one."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from headgate.capture.block_writer import BlockWriter
from headgate.capture.elastic.log import ElasticLog
from headgate.capture.events import row_schema
from headgate.capture.places import read_rows, stamped
from headgate.clock import SystemClock

ROW_BYTES = 1024
COLUMNS = pa.schema([("id", pa.int64()), ("payload", pa.binary())])
COMPACT_EVERY = 50
"""Appends of the Delta table until small files are compacted, what was replaced is vacuumed, and the log gets a checkpoint."""
VACUUM_EVERY = 5
"""Deletes, likewise, until replaced files are vacuumed."""
_POOL = np.random.default_rng(1).integers(0, 256, 64 << 20, dtype=np.uint8).tobytes()


def rows_of(ids: np.ndarray) -> pa.Table:
    """Rows of about 1 KB that cannot be compressed, as a transaction has them."""
    count, size = len(ids), ROW_BYTES - 40
    first = int(ids[0]) * 7919 % (len(_POOL) - count * size)
    offsets = pa.py_buffer(np.arange(count + 1, dtype=np.int32) * size)
    payload = pa.BinaryArray.from_buffers(
        pa.binary(), count, [None, offsets, pa.py_buffer(_POOL[first : first + count * size])]
    )
    none = pa.array([[]] * count, pa.list_(pa.field("element", pa.string(), nullable=False)))
    columns = [pa.array(ids), payload, pa.array(np.ones(count, dtype=np.int8)), none, pa.array(np.arange(count))]
    return pa.table(columns, schema=row_schema(COLUMNS))


def written() -> int:
    """Bytes that this process has handed to the system to be written."""
    fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(fields["wchar"])


def stored(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


class Elastic:
    """One writer in this process; every batch is durable before the next."""

    def __init__(self, folder: Path, segment_bytes: int = 8 << 20) -> None:
        self.folder = folder
        self.log = ElasticLog(folder, segment_bytes=segment_bytes)
        self._clock = SystemClock()
        self._segments: list[str] = []
        self._writer = BlockWriter(self._open, segment_bytes=segment_bytes)

    def enqueue(self, rows: pa.Table) -> None:
        self._writer.put("t", rows)
        puts = self._writer.finish(durable=True)
        position = self.log.end + 1
        self.log.append_blocks(position, self._clock.now(), [puts], synced=True)
        self.log.sync(position)
        if len(self._segments) > 1:
            *former, last = self._segments
            self.log.seal_segments(former)
            self._segments = [last]

    def read(self, after: int, upto: int) -> int:
        """What the tasks of a batch do, one after the other; gives how many rows there were."""
        count = 0
        for place in self.log.next_batch("t", after, upto).frames:
            with Path(place.segment).open("rb") as segment:
                count += stamped(read_rows(place, segment.fileno()), place.stamps).num_rows
        return count

    def dequeue(self, after: int, upto: int) -> int:
        count = self.read(after, upto)
        self.log.trim(upto)
        return count

    def tidy(self) -> None:
        """Nothing: consumed segments are deleted as they are consumed."""

    def close(self) -> None:
        self._writer.close()
        self.log.close()

    def _open(self) -> object:
        segment = self.log.open_segment()
        self._segments.append(segment.name)
        return segment


class DeltaQueue:
    """Append, read by batch, delete; compaction, vacuum and checkpoints as users run them. It syncs nothing to the disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._table: DeltaTable | None = None
        self._position = 0
        self._deleted = 0

    def enqueue(self, rows: pa.Table) -> None:
        self._position += 1
        position = pa.array(np.full(rows.num_rows, self._position))
        write_deltalake(self._table or str(self.folder), rows.append_column("__position", position), mode="append")
        if self._table is None:
            self._table = DeltaTable(str(self.folder))
        if self._position % COMPACT_EVERY == 0:
            self._keep()

    def read(self, after: int, upto: int) -> int:
        table = DeltaTable(str(self.folder))
        filters = [("__position", ">", after), ("__position", "<=", upto)]
        return table.to_pyarrow_table(filters=filters).num_rows

    def dequeue(self, after: int, upto: int) -> int:
        count = self.read(after, upto)
        assert self._table is not None
        self._table.delete(f"__position <= {upto}")
        self._deleted += 1
        if self._deleted % VACUUM_EVERY == 0:
            self._clean()
        return count

    def tidy(self) -> None:
        """Vacuums what was replaced since the last time."""
        self._clean()

    def close(self) -> None:
        pass

    def _keep(self) -> None:
        assert self._table is not None
        self._table.optimize.compact()
        self._clean()

    def _clean(self) -> None:
        assert self._table is not None
        self._table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
        self._table.create_checkpoint()
        self._table.cleanup_metadata()


os.environ.setdefault("RUST_LOG", "error")
