"""Spark's types as PostgreSQL's, and values on their way there (COPY) and back (texts of a result).

    boolean, smallint, int, bigint          boolean, smallint, integer, bigint
    tinyint                                 smallint
    float, double, decimal(p,s)             real, double precision, numeric(p,s)
    string, binary                          text COLLATE "C", bytea
    date, timestamp, timestamp_ntz          date, timestamptz, timestamp

Texts compare by their bytes, as Spark's do. Every value has an exact counterpart but a text with a NUL character, which COPY
refuses. Other types have none: a table with such a column cannot be placed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

_TYPES: Mapping[type[DataType], str] = {
    BooleanType: "boolean",
    ByteType: "smallint",
    ShortType: "smallint",
    IntegerType: "integer",
    LongType: "bigint",
    FloatType: "real",
    DoubleType: "double precision",
    BinaryType: "bytea",
    DateType: "date",
    TimestampType: "timestamp with time zone",
    TimestampNTZType: "timestamp without time zone",
}
COPY_OPTIONS = "(FORMAT csv, NULL '', ENCODING 'UTF8')"


def postgres_type(kind: DataType) -> str | None:
    """The column's type there; None where there is none."""
    if isinstance(kind, DecimalType):
        return f"numeric({kind.precision},{kind.scale})"
    if isinstance(kind, StringType):
        # Other collations, and char and varchar, compare in ways of their own.
        return 'text COLLATE "C"' if kind == StringType() else None
    return _TYPES.get(type(kind))


def copied(rows: pa.Table) -> bytes:
    """Rows as COPY takes them with `COPY_OPTIONS`: texts are quoted, NULL is nothing."""
    # Arrow 26 writes garbage before a table whose first chunk has no rows.
    rows = rows.combine_chunks()
    columns = [_writable(rows.column(number)) for number in range(rows.num_columns)]
    sink = pa.BufferOutputStream()
    options = pa_csv.WriteOptions(include_header=False, quoting_style="needed")
    pa_csv.write_csv(pa.table(columns, names=[str(number) for number in range(len(columns))]), sink, options)
    return bytes(sink.getvalue())


def _writable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if not (pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type)):
        return column
    texts = [None if value is None else f"\\x{value.hex()}" for value in column.to_pylist()]
    return pa.chunked_array([pa.array(texts, pa.string())])


_READ: Mapping[type[DataType], Callable[[str], Any]] = {
    BooleanType: "t".__eq__,
    ByteType: int,
    ShortType: int,
    IntegerType: int,
    LongType: int,
    FloatType: float,
    DoubleType: float,
    DecimalType: Decimal,
    StringType: str,
    BinaryType: lambda text: bytes.fromhex(text[2:]),
    DateType: date.fromisoformat,
    TimestampType: datetime.fromisoformat,
    TimestampNTZType: datetime.fromisoformat,
}


def read_rows(types: StructType, arrow: pa.Schema, columns: Sequence[Sequence[bytes | None]]) -> pa.Table:
    """A result's columns, as the server writes their texts; a ValueError for an instant that Python has no date for."""
    arrays = []
    for field, kind, values in zip(types.fields, arrow, columns, strict=True):
        read = _READ[type(field.dataType)]
        arrays.append(pa.array([None if value is None else read(value.decode()) for value in values], kind.type))
    return pa.Table.from_arrays(arrays, schema=arrow)
