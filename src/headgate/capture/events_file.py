"""A file of events in the making: of one table and one transaction, written by whoever reads the rows, on any machine.

What is here runs in Spark's Python workers too: it is pickled whole.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from headgate.capture.events import TRANSACTION_FIELDS

_GROUP_BYTES = 16 << 20
"""What is held until a row group is written."""


@dataclass(frozen=True, slots=True)
class EventsFile:
    """A finished file, on the disk."""

    name: str
    rows: int
    bytes: int


class EventsFileWriter:
    """Stamps events with their transaction's position and commit time (microseconds since 1970), and writes them."""

    def __init__(self, path: str, position: int, commit_at: int) -> None:
        self.rows = 0
        self._path = path
        self._stamp = (position, commit_at)
        self._writer: pq.ParquetWriter | None = None
        self._parts: list[pa.Table] = []
        self._bytes = 0

    def add(self, rows: pa.Table) -> None:
        """Rows with `ROW_FIELDS`; every call has the same columns."""
        self.rows += rows.num_rows
        self._parts.append(rows)
        self._bytes += rows.nbytes
        if self._bytes >= _GROUP_BYTES:
            self._write()

    def finish(self) -> EventsFile | None:
        """The file, on the disk; None where there are no rows."""
        if not self.rows:
            return None
        self._write()
        assert self._writer is not None
        self._writer.close()
        descriptor = os.open(self._path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            return EventsFile(Path(self._path).name, self.rows, os.fstat(descriptor).st_size)
        finally:
            os.close(descriptor)

    def drop(self) -> None:
        self._parts.clear()
        if self._writer is not None:
            self._writer.close()
            Path(self._path).unlink(missing_ok=True)

    def _write(self) -> None:
        if not self._parts:
            return
        rows = pa.concat_tables(self._parts)
        for field, value in zip(TRANSACTION_FIELDS, self._stamp, strict=True):
            rows = rows.append_column(field, pa.repeat(pa.scalar(value, field.type), rows.num_rows))
        if self._writer is None:
            # Nobody else may read them: the rows of a warehouse are its owner's.
            os.close(os.open(self._path, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600))
            self._writer = pq.ParquetWriter(
                self._path, rows.schema, compression="snappy", coerce_timestamps="us", write_page_checksum=True
            )
        self._writer.write_table(rows, row_group_size=rows.num_rows)
        self._parts, self._bytes = [], 0
