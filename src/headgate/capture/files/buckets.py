"""Buckets: rows of files, unsorted, apart by the key range that they are in.

    rows of a part ──► taken in the order of their buckets ──► an Arrow file: a record batch per bucket that has rows

The schema's metadata say which bucket each batch is of. Within a bucket rows stay in the order in which the file has them.
What is here runs in Spark's Python workers too: it is pickled whole.
"""

from __future__ import annotations

import json
import os
import secrets
from bisect import bisect_right
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa

from headgate.capture.events_file import EventsFile

NUMBERS = b"buckets"
_HELD_BYTES = 64 << 20
"""Of rows, held until they are written."""


@dataclass(frozen=True, slots=True)
class Buckets:
    """How rows are distributed: a value equal to a bound is in the bucket that the bound begins."""

    column: str
    bounds: tuple[int | date | datetime | str, ...]

    def of(self, values: pa.Array) -> np.ndarray:
        """The bucket of each value; none is NULL."""
        kind = values.type
        if pa.types.is_string(kind):
            # Code points are ordered as the bytes of UTF-8 are.
            return np.fromiter((bisect_right(self.bounds, each) for each in values.to_pylist()), np.int64, len(values))
        whole = pa.int32() if pa.types.is_date32(kind) else pa.int64()
        bounds = pa.array(self.bounds, kind).cast(whole).to_numpy(zero_copy_only=False)
        found: np.ndarray = np.searchsorted(bounds, values.cast(whole).to_numpy(zero_copy_only=False), side="right")
        return found


class BucketWriter:
    """Writes the rows of a part into files of a folder; without buckets as they come."""

    def __init__(self, table: str, folder: str, buckets: Buckets | None) -> None:
        self.table = table
        self.rows = 0
        self._folder = folder
        self._buckets = buckets
        self._parts: list[pa.Table] = []
        self._bytes = 0
        self._files: list[EventsFile] = []

    def add(self, columns: list[pa.Array], schema: pa.Schema, sequences: np.ndarray, op: int) -> None:
        """Rows; numbers and kind do not matter here."""
        del sequences, op
        rows = pa.Table.from_arrays(columns, schema=pa.schema([field.with_nullable(True) for field in schema]))
        self.rows += rows.num_rows
        self._parts.append(rows)
        self._bytes += rows.nbytes
        if self._bytes >= _HELD_BYTES:
            self._write()

    def held(self) -> None:
        """Nothing is left in memory."""

    def finish(self) -> list[EventsFile]:
        """The files, on the disk, in the order of the rows."""
        self._write()
        return self._files

    def drop(self) -> None:
        self._parts.clear()
        for file in self._files:
            with suppress(FileNotFoundError):
                (Path(self._folder) / file.name).unlink()
        self._files.clear()

    def _write(self) -> None:
        if not self._bytes and not self._parts:
            return
        rows = pa.concat_tables(self._parts).combine_chunks()
        self._parts, self._bytes = [], 0
        numbers = np.zeros(1, np.int64)
        ends = np.array([rows.num_rows])
        if self._buckets is not None and self._buckets.bounds:
            buckets = self._buckets.of(rows.column(self._buckets.column).chunk(0))
            numbers, counts = np.unique(buckets, return_counts=True)
            ends = np.cumsum(counts)
            if len(numbers) > 1:
                rows = rows.take(pa.array(np.argsort(buckets, kind="stable"))).combine_chunks()
        name = f"{secrets.token_hex(8)}.arrow"
        size = _write_batches(Path(self._folder) / name, rows, numbers.tolist(), ends.tolist())
        self._files.append(EventsFile(name, rows.num_rows, size))


def _write_batches(path: Path, rows: pa.Table, numbers: Sequence[int], ends: Sequence[int]) -> int:
    """Writes rows up to each of the ends as a batch; returns once they are on the disk, with their bytes."""
    schema = rows.schema.with_metadata({NUMBERS: json.dumps(numbers).encode()})
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    # Nobody else may read them: the rows of a warehouse are its owner's.
    with os.fdopen(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600), "wb") as file:
        with pa.ipc.new_file(file, schema, options=options) as writer:
            for first, end in zip([0, *ends], ends, strict=False):
                for batch in rows.slice(first, end - first).to_batches():
                    writer.write_batch(batch.replace_schema_metadata(schema.metadata))
        file.flush()
        os.fsync(file.fileno())
        return os.fstat(file.fileno()).st_size
