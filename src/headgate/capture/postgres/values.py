"""PostgreSQL's values as Spark's: from the text that the server writes, exactly, a whole column at a time.

    smallint, integer, bigint, oid    SMALLINT, INT, BIGINT, BIGINT
    real, double precision            FLOAT, DOUBLE; NaN and infinities included
    numeric(p,s), p <= 38             DECIMAL(p,s); NaN is refused
    numeric                           STRING, since no DECIMAL holds them all; or the DECIMAL that the project declares
    boolean, bytea                    BOOLEAN, BINARY
    date, timestamp, timestamptz      DATE, TIMESTAMP_NTZ, TIMESTAMP; years 1 to 9999, so infinities are refused
    one-dimensional arrays            ARRAY of the element's type; a value with more dimensions or other bounds is refused
    domains                           what their base type is
    all others                        STRING: the server's text (char(n) with its padding, json as it was written)

What a type cannot hold is refused with a `ValueDoesNotFit`, never bent; declaring the column as `string` in the project
takes any value. Texts are those of a session made by `connection.connect`.
"""

from __future__ import annotations

import re
from binascii import unhexlify
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types
from pyspark.sql.pandas.types import to_arrow_type

from headgate.capture.postgres.problems import SourceSetup, ValueDoesNotFit

Texts: TypeAlias = Sequence[bytes | None] | pa.Array
"""A column's values as the server wrote them: bytes, or an Arrow array of strings."""
Decoder = Callable[[Texts], pa.Array]


@dataclass(frozen=True, slots=True)
class PostgresType:
    """A type that is no domain; `element` is there when values become arrays."""

    oid: int
    typmod: int
    element: PostgresType | None = None
    as_text: bool = False
    """The project wants the server's text as it is."""


class TypedColumn(Protocol):
    """What a decoder needs to know of a column."""

    @property
    def name(self) -> str: ...

    @property
    def type(self) -> PostgresType: ...


_BOOL, _BYTEA, _NUMERIC, _BOX = 16, 17, 1700, 603
_PLAIN: dict[int, types.DataType] = {
    _BOOL: types.BooleanType(),
    _BYTEA: types.BinaryType(),
    20: types.LongType(),
    21: types.ShortType(),
    23: types.IntegerType(),
    26: types.LongType(),
    700: types.FloatType(),
    701: types.DoubleType(),
    1082: types.DateType(),
    1114: types.TimestampNTZType(),
    1184: types.TimestampType(),
}

_DECIMAL = re.compile(r"(?:decimal|numeric)\s*\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)", re.IGNORECASE)


def spark_type(given: PostgresType) -> types.DataType:
    """The Spark type whose values are exactly this type's."""
    if given.as_text:
        return types.StringType()
    # A box has commas inside, so its arrays are written with semicolons.
    if given.element is not None and given.element.oid != _BOX:
        return types.ArrayType(spark_type(given.element))
    if given.oid == _NUMERIC and given.typmod >= 0:
        precision, scale = _precision_and_scale(given.typmod)
        if precision <= 38:
            return types.DecimalType(precision, scale)
    return _PLAIN.get(given.oid, types.StringType())


def declared_type(given: PostgresType, declared: str, column: str, type_name: str) -> PostgresType:
    """The type of a column for which the project declares a Spark type."""
    if declared.strip().lower() == "string":
        return replace(given, as_text=True)
    decimal = _DECIMAL.fullmatch(declared.strip())
    if decimal and given.oid == _NUMERIC and 1 <= int(decimal[1]) <= 38 and int(decimal[2] or 0) <= int(decimal[1]):
        return replace(given, typmod=(int(decimal[1]) << 16 | int(decimal[2] or 0)) + 4)
    raise SourceSetup(
        f"{column} is {type_name} at the source and cannot be {declared}",
        hint="declare string for any column, decimal(p,s) for numeric ones, or nothing",
    )


def decoder(column: TypedColumn, table: str = "") -> Decoder:
    """The function that turns a column's texts into an Arrow array of its Spark type."""
    name = f"{table}.{column.name}" if table else column.name
    decode = _decoder(column.type)

    def checked(texts: Texts) -> pa.Array:
        try:
            return decode(texts)
        except (pa.ArrowException, ValueError):
            raise _misfit(name, column.type, decode, texts) from None

    return checked


def _decoder(given: PostgresType) -> Decoder:
    wanted = to_arrow_type(spark_type(given), timezone="UTC")
    if pa.types.is_string(wanted):
        return _strings
    if pa.types.is_binary(wanted):
        return _binary
    if pa.types.is_boolean(wanted):
        return lambda texts: pc.equal(_strings(texts), "t")
    if given.element is not None:
        return _array(_decoder(given.element), wanted)
    return lambda texts: _strings(texts).cast(wanted)


def _strings(texts: Texts) -> pa.Array:
    return texts if isinstance(texts, pa.Array) else pa.array(texts, pa.string())


def _listed(texts: Texts) -> Sequence[bytes | None]:
    if not isinstance(texts, pa.Array):
        return texts
    listed: list[bytes | None] = texts.cast(pa.binary()).to_pylist()
    return listed


def _binary(texts: Texts) -> pa.Array:
    return pa.array([None if text is None else unhexlify(text[2:]) for text in _listed(texts)], pa.binary())


def _array(decode: Decoder, wanted: pa.DataType) -> Decoder:
    def decode_arrays(texts: Texts) -> pa.Array:
        arrays = _listed(texts)
        elements: list[bytes | None] = []
        ends = np.zeros(len(arrays) + 1, dtype=np.int32)
        for row, text in enumerate(arrays):
            if text is not None:
                elements += _elements(text)
            ends[row + 1] = len(elements)
        absent = pa.array([text is None for text in arrays], pa.bool_())
        return pa.ListArray.from_arrays(pa.array(ends), decode(elements), type=wanted, mask=absent)

    return decode_arrays


_ELEMENT = re.compile(rb'"((?:[^"\\]|\\.)*)"|([^",]+)', re.DOTALL)
_ESCAPE = re.compile(rb"\\(.)", re.DOTALL)


def _elements(text: bytes) -> list[bytes | None]:
    """The elements of an array's text; those with a comma, brace, quote or blank, and empty ones, stand in quotes."""
    if text[:1] != b"{" or text[1:2] == b"{":
        raise ValueError("it has bounds of its own, or more than one dimension")
    inner = text[1:-1]
    if b'"' not in inner:
        return [None if part == b"NULL" else part for part in inner.split(b",")] if inner else []
    return [
        (None if plain == b"NULL" else plain) if plain else _ESCAPE.sub(rb"\1", quoted)
        for quoted, plain in _ELEMENT.findall(inner)
    ]


def _misfit(name: str, given: PostgresType, decode: Decoder, texts: Texts) -> ValueDoesNotFit:
    """Names the first value that cannot be decoded."""
    shown = next((value for value in _listed(texts) if value is not None and not _fits(decode, value)), b"?").decode(
        errors="replace"
    )
    shown = shown if len(shown) <= 80 else f"{shown[:77]}..."
    column = name.rpartition(".")[2]
    return ValueDoesNotFit(
        f"{name} has the value {shown}, which {spark_type(given).simpleString()} cannot hold",
        hint=f"change it at the source, or declare the column as string in the project: types: {{{column}: string}}",
    )


def _fits(decode: Decoder, value: bytes) -> bool:
    try:
        decode([value])
    except (pa.ArrowException, ValueError):
        return False
    return True


def _precision_and_scale(typmod: int) -> tuple[int, int]:
    """Of numeric(p,s); a scale below zero or above the precision becomes one that DECIMAL has, and holds as much."""
    precision = (typmod - 4) >> 16 & 0xFFFF
    scale = ((typmod - 4 & 0x7FF) ^ 1024) - 1024
    if scale < 0:
        return precision - scale, 0
    return max(precision, scale), scale
