"""The rows of an open transaction: in memory while they are few, in scratch files once they are many.

A transaction's position and time are known only when it commits, so its rows wait here and then go to the log batch by
batch. Memory stays below the limit plus one batch.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow as pa

from headgate.capture.durable import full_disk_is_named


class _ScratchFile:
    """One table's batches as an Arrow IPC stream; `close` may be called again."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self.path = path
        self._file = pa.OSFile(str(path), "wb")
        self._writer: pa.RecordBatchWriter | None = pa.ipc.new_stream(self._file, schema)

    def write(self, batch: pa.RecordBatch) -> None:
        if self._writer is None:
            raise ValueError("the spool is being drained")
        self._writer.write_batch(batch)

    def close(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            try:
                writer.close()
            finally:
                self._file.close()


class Spool:
    """Batches of rows by table, in the order they came in."""

    def __init__(self, folder: Path, limit: int) -> None:
        self._folder = folder
        self._limit = limit
        self._held: list[tuple[str, pa.RecordBatch]] = []
        self._held_bytes = 0
        self._files: dict[str, _ScratchFile] = {}
        self.rows = 0

    def add(self, table: str, batch: pa.RecordBatch) -> None:
        """Keeps a batch; all batches of a table have the same columns."""
        self.rows += batch.num_rows
        self._held.append((table, batch))
        self._held_bytes += batch.nbytes
        if self._held_bytes > self._limit:
            with full_disk_is_named(self._folder):
                self._write_out()

    def drain(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Every batch with its table; a table's batches in order."""
        for table, file in self._files.items():
            with full_disk_is_named(self._folder):
                file.close()
            # Read, not mapped: mapped pages would count as this process's memory.
            with pa.OSFile(str(file.path), "rb") as source, pa.ipc.open_stream(source) as reader:
                for batch in reader:
                    yield table, batch
        yield from self._held

    def close(self) -> None:
        """Drops everything."""
        self._held.clear()
        for file in self._files.values():
            with suppress(OSError):
                file.close()
            file.path.unlink(missing_ok=True)
        self._files.clear()

    def _write_out(self) -> None:
        for table, batch in self._held:
            if table not in self._files:
                self._files[table] = _ScratchFile(self._folder / f"{secrets.token_hex(8)}.arrow", batch.schema)
            self._files[table].write(batch)
        self._held.clear()
        self._held_bytes = 0
