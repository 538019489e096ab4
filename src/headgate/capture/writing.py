"""Writes one transaction into a stream log: small ones into the frame, large ones into Parquet files.

Rows are held as Arrow until they pass the limit; then the table that holds most is written out as a row group of its
Parquet file, and goes on there. The files are complete and synced before the frame that refers to them is written.
"""

from __future__ import annotations

import json
import secrets
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from headgate.capture.durable import full_disk_is_named, sync_file, sync_folder
from headgate.capture.events import INCREASING, ROW_FIELDS, TRANSACTION_FIELDS, Committed, event_schema
from headgate.capture.frames import Group, Header, Inline, SideFile, encode_rows
from headgate.capture.reading import stamp_micros


@dataclass(slots=True)
class _Pending:
    """Rows of one table that are still in memory."""

    parts: list[pa.Table] = field(default_factory=list)
    bytes: int = 0


class TransactionWriter:
    """Collects a transaction's rows; `commit` puts them into the log, leaving the `with` block first drops them."""

    def __init__(
        self,
        *,
        position: int,
        commit_at: int,
        initial: bool,
        folder: Path,
        limit: int,
        append: Callable[[Callable[[int], Header], list[bytes]], Committed],
    ) -> None:
        self.position = position
        self.commit_at = commit_at
        self._initial = initial
        self._folder = folder
        self._limit = limit
        self._append = append
        self._token = secrets.token_hex(4)
        self._pending: dict[str, _Pending] = {}
        self._files: dict[str, _ParquetFile] = {}
        self._finished: dict[str, list[SideFile]] = {}
        self._inline: dict[str, Inline] = {}
        self._bodies: list[bytes] = []
        self._committed = False

    def __enter__(self) -> TransactionWriter:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._committed:
            self.abort()

    def write(self, table: str, rows: pa.Table | pa.RecordBatch) -> None:
        """Adds rows of a table: its own columns and `ROW_FIELDS`. Every call for a table has the same columns."""
        if isinstance(rows, pa.RecordBatch):
            rows = pa.Table.from_batches([rows])
        if rows.num_rows == 0:
            return
        pending = self._pending.setdefault(table, _Pending())
        pending.parts.append(rows)
        pending.bytes += rows.nbytes
        while sum(each.bytes for each in self._pending.values()) > self._limit:
            self._spill(max(self._pending, key=lambda name: self._pending[name].bytes))

    def add_file(self, table: str, file: SideFile) -> None:
        """Adds events of a table that are in a file of the log's folder already, on the disk."""
        self._finished.setdefault(table, []).append(file)

    def has_rows(self, table: str) -> bool:
        """Whether the transaction has rows of a table by now."""
        return table in self._pending or table in self._files or table in self._finished

    def commit_behind(self, position: int, commit_at: int) -> Committed:
        """Puts the transaction into the log at a later place than it was begun for: others have been appended meanwhile."""
        self.position, self.commit_at = position, commit_at
        return self.commit()

    def commit(self) -> Committed:
        """Puts the transaction into the log, readable at once, durable after the log's next `sync`."""
        for table in [table for table in self._pending if table in self._files]:
            self._spill(table)
        for file in self._files.values():
            file.finish()
        if self._files or self._finished:
            with full_disk_is_named(self._folder):
                sync_folder(self._folder)
        tables = {table: pa.concat_tables(pending.parts) for table, pending in self._pending.items()}
        self._inline, self._bodies = encode_tables(tables)
        committed = self._append(self.header, self._bodies)
        self._committed = True
        return committed

    def abort(self) -> None:
        """Drops everything, the files included."""
        self._pending.clear()
        for file in self._files.values():
            file.remove()
        for finished in self._finished.values():
            for each in finished:
                (self._folder / each.name).unlink(missing_ok=True)
        self._files.clear()
        self._finished.clear()

    def header(self, durable: int) -> Header:
        """The frame's header; complete once `commit` has prepared the rows."""
        files = {table: tuple(finished) for table, finished in self._finished.items()}
        files |= {table: (*files.get(table, ()), file.reference()) for table, file in self._files.items()}
        counts = {table: part.rows for table, part in self._inline.items()}
        group = Group.of_one(self.position, self.commit_at, counts)
        return Header(group, self._initial, durable, self._inline, files)

    def _spill(self, table: str) -> None:
        pending = self._pending.pop(table)
        rows = pa.concat_tables(pending.parts)
        file = self._files.get(table)
        if file is None:
            path = self._folder / f"{self.position:020d}-{self._token}-{len(self._files)}.parquet"
            file = self._files[table] = _ParquetFile(path, event_schema(rows.schema))
        shared = (self.position, stamp_micros(self.commit_at, self._initial))
        for column, value in zip(TRANSACTION_FIELDS, shared, strict=True):
            rows = rows.append_column(column, pa.repeat(pa.scalar(value, column.type), rows.num_rows))
        file.write(rows)


def encode_tables(tables: Mapping[str, pa.Table]) -> tuple[dict[str, Inline], list[bytes]]:
    """Tables as the body of a frame, and where they lie in it."""
    inline: dict[str, Inline] = {}
    bodies: list[bytes] = []
    offset = 0
    for table, rows in tables.items():
        content = encode_rows(rows.combine_chunks())
        inline[table] = Inline(rows.num_rows, offset, len(content), zlib.crc32(content))
        bodies.append(content)
        offset += len(content)
    return inline, bodies


class _ParquetFile:
    """One Parquet file in the making; each write is a row group, so that Spark tasks can share it.

    Its footer names the table's columns of whole numbers in which every row has more than the row before.
    """

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._path = path
        self._rows = 0
        whole_numbers = [field.name for field in schema if pa.types.is_integer(field.type)]
        own = {field.name for field in (*ROW_FIELDS, *TRANSACTION_FIELDS)}
        self._increasing: dict[str, int | None] = dict.fromkeys(name for name in whole_numbers if name not in own)
        """The last value of each such column."""
        with full_disk_is_named(path):
            self._writer = pq.ParquetWriter(
                path, schema, compression="snappy", coerce_timestamps="us", write_page_checksum=True
            )

    def write(self, rows: pa.Table) -> None:
        with full_disk_is_named(self._path):
            self._writer.write_table(rows, row_group_size=max(rows.num_rows, 1))
        self._rows += rows.num_rows
        ends = {name: _last_of_increasing(rows.column(name), last) for name, last in self._increasing.items()}
        self._increasing = {name: last for name, last in ends.items() if last is not None}

    def finish(self) -> None:
        with full_disk_is_named(self._path):
            self._writer.add_key_value_metadata({INCREASING: json.dumps([*self._increasing])})
            self._writer.close()
            sync_file(self._path)

    def remove(self) -> None:
        with suppress(OSError):
            self._writer.close()
        self._path.unlink(missing_ok=True)

    def reference(self) -> SideFile:
        return SideFile(self._path.name, self._rows, self._path.stat().st_size)


def _last_of_increasing(values: pa.ChunkedArray, before: int | None) -> int | None:
    """The last value, if none is NULL and each is more than the one before it."""
    if values.null_count or not len(values):
        return None
    numbers = values.to_numpy()
    if (before is not None and numbers[0] <= before) or (numbers[1:] <= numbers[:-1]).any():
        return None
    return int(numbers[-1])
