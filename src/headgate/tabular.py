"""Rows in the formats of files, made piece by piece: CSV, an Arrow IPC stream, Parquet. What is large is never held whole.

Arrow is imported when it is needed: commands that write no rows start without it.
"""

from __future__ import annotations

import base64
import io
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from datetime import date, datetime, time
from decimal import Decimal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

_GROUP_ROWS = 128 * 1024
"""Rows per row group of a Parquet file."""
_NOT_FINITE = {math.inf: "Infinity", -math.inf: "-Infinity"}
_END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"


def plain(value: object) -> object:
    """The value in JSON's types. What these cannot hold exactly is a text: decimals, times, bytes in base64, NaN."""
    match value:
        case float():
            return value if math.isfinite(value) else _NOT_FINITE.get(value, "NaN")
        case None | bool() | int() | str():
            return value
        case datetime() | date() | time():
            return value.isoformat()
        case bytes():
            return base64.b64encode(value).decode()
        case Decimal():
            return format(value, "f")
        case Mapping():
            return {str(name): plain(item) for name, item in value.items()}
        case list() | tuple():
            return [plain(item) for item in value]
        case _:
            return str(value)


def csv_pieces(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    """Comma-separated with a heading; NULL is nothing, an empty text is "", nested values are JSON, bytes hex."""
    import pyarrow as pa
    from pyarrow import csv

    flat = pa.schema([field.with_type(_csv_type(field.type)) for field in schema])
    sink = _Sink()
    with csv.CSVWriter(sink, flat) as writer:
        yield sink.taken()
        for batch in batches:
            columns = [_csv_column(column) for column in batch.columns]
            writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=flat))
            yield sink.taken()
    yield sink.taken()


def arrow_pieces(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    """An IPC stream, one message after another."""
    yield schema.serialize().to_pybytes()
    for batch in batches:
        yield batch.serialize().to_pybytes()
    yield _END_OF_STREAM


def parquet_pieces(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    """A Parquet file, row group by row group."""
    import pyarrow as pa
    from pyarrow import parquet

    sink = _Sink()
    with parquet.ParquetWriter(sink, schema) as writer:
        group: list[pa.RecordBatch] = []
        for batch in batches:
            group.append(batch)
            if sum(each.num_rows for each in group) >= _GROUP_ROWS:
                writer.write_table(pa.Table.from_batches(group, schema))
                group = []
                yield sink.taken()
        if group:
            writer.write_table(pa.Table.from_batches(group, schema))
    yield sink.taken()


class _Sink(io.RawIOBase):
    """A file of which only what was written since the last look is kept."""

    def __init__(self) -> None:
        self._held: list[bytes] = []
        self._length = 0

    def writable(self) -> bool:
        return True

    def write(self, piece: bytes) -> int:  # type: ignore[override]
        self._held.append(bytes(piece))
        self._length += len(piece)
        return len(piece)

    def tell(self) -> int:
        return self._length

    def taken(self) -> bytes:
        held, self._held = self._held, []
        return b"".join(held)

    def close(self) -> None:
        """What was written can still be taken."""


def _is_plain(kind: pa.DataType) -> bool:
    from pyarrow import types

    is_bytes = types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind)
    return not (types.is_nested(kind) or is_bytes or types.is_duration(kind) or types.is_interval(kind))


def _csv_type(kind: pa.DataType) -> pa.DataType:
    import pyarrow as pa

    return kind if _is_plain(kind) else pa.string()


def _csv_column(column: pa.Array) -> pa.Array:
    import pyarrow as pa

    if _is_plain(column.type):
        return column
    texts = (
        value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for value in map(plain, column.to_pylist())
    )
    return pa.array(texts, pa.string())
