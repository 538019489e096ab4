"""An answer's rows in the formats that can be asked for; written as they come, so that none holds a long answer in memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import IO

import pyarrow as pa

from headgate.cli.table import table_lines
from headgate.cli.texts import plain

Writer = Callable[[pa.Schema, Iterable[pa.RecordBatch], IO[bytes]], None]

_GROUP_ROWS = 128 * 1024
"""Rows per row group of a Parquet file."""


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
    from pyarrow import csv

    flat = pa.schema([field.with_type(_csv_type(field.type)) for field in schema])
    with csv.CSVWriter(stream, flat) as writer:
        for batch in batches:
            columns = [_csv_column(column) for column in batch.columns]
            writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=flat))


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
    with pa.ipc.new_stream(stream, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)


def write_parquet(schema: pa.Schema, batches: Iterable[pa.RecordBatch], stream: IO[bytes]) -> None:
    """A Parquet file."""
    from pyarrow import parquet

    with parquet.ParquetWriter(stream, schema) as writer:
        group: list[pa.RecordBatch] = []
        for batch in batches:
            group.append(batch)
            if sum(each.num_rows for each in group) >= _GROUP_ROWS:
                writer.write_table(pa.Table.from_batches(group, schema))
                group = []
        if group:
            writer.write_table(pa.Table.from_batches(group, schema))


WRITERS: Mapping[str, Writer] = MappingProxyType(
    {"table": write_table, "csv": write_csv, "json": write_json, "arrow": write_arrow, "parquet": write_parquet}
)


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[object, ...]]:
    for batch in batches:
        if batch.num_columns:
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)
        else:
            yield from ((),) * batch.num_rows


def _is_plain(kind: pa.DataType) -> bool:
    return not (pa.types.is_nested(kind) or _is_bytes(kind) or pa.types.is_duration(kind) or pa.types.is_interval(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind))


def _csv_type(kind: pa.DataType) -> pa.DataType:
    return kind if _is_plain(kind) else pa.string()


def _csv_column(column: pa.Array) -> pa.Array:
    if _is_plain(column.type):
        return column
    texts = (
        value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for value in map(plain, column.to_pylist())
    )
    return pa.array(texts, pa.string())
