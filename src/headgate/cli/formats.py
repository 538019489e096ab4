"""An answer's rows in the formats that can be asked for; written as they come, so that none holds a long answer in memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import IO

import pyarrow as pa

from headgate.cli.table import table_lines
from headgate.tabular import arrow_pieces, csv_pieces, parquet_pieces, plain

Writer = Callable[[pa.Schema, Iterable[pa.RecordBatch], IO[bytes]], None]


def write_table(
    schema: pa.Schema, batches: Iterable[pa.RecordBatch], stream: IO[bytes], width: int | None = None
) -> None:
    """A table of text, at most as wide as the terminal."""
    numbers = [
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind) for kind in schema.types
    ]
    for line in table_lines(schema.names, _rows(batches), right=numbers, width=width):
        stream.write(f"{line}\n".encode())


def write_csv(schema: pa.Schema, batches: Iterable[pa.RecordBatch], stream: IO[bytes]) -> None:
    """Comma-separated with a heading; NULL is nothing, an empty text is "", nested values are JSON, bytes hex."""
    stream.writelines(csv_pieces(schema, batches))


def write_json(schema: pa.Schema, batches: Iterable[pa.RecordBatch], stream: IO[bytes]) -> None:
    """One array of objects, one row per line."""
    before = b"["
    for row in _rows(batches):
        values = {name: plain(value) for name, value in zip(schema.names, row, strict=True)}
        stream.write(before + b"\n" + json.dumps(values, ensure_ascii=False).encode())
        before = b","
    stream.write(b"[]\n" if before == b"[" else b"\n]\n")


def write_arrow(schema: pa.Schema, batches: Iterable[pa.RecordBatch], stream: IO[bytes]) -> None:
    """An Arrow IPC stream."""
    stream.writelines(arrow_pieces(schema, batches))


def write_parquet(schema: pa.Schema, batches: Iterable[pa.RecordBatch], stream: IO[bytes]) -> None:
    """A Parquet file."""
    stream.writelines(parquet_pieces(schema, batches))


WRITERS: Mapping[str, Writer] = MappingProxyType(
    {"table": write_table, "csv": write_csv, "json": write_json, "arrow": write_arrow, "parquet": write_parquet}
)


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[object, ...]]:
    for batch in batches:
        if batch.num_columns:
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)
        else:
            yield from ((),) * batch.num_rows
