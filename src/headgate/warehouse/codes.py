"""Null-safe identity of rows: one Arrow column whose values are equal exactly when the rows' columns are.

A single integral, date, timestamp or string column is its own code. Several columns become one binary value: each
part is its length and its text, or a mark for NULL, so no two different rows share a code. As in Spark, NULL equals
NULL, NaN equals NaN and -0.0 equals 0.0.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Mask = npt.NDArray[np.bool_]


def code(table: pa.Table, columns: Sequence[str]) -> pa.Array:
    """The code of every row, as one contiguous array."""
    parts = [_contiguous(table.column(name)) for name in columns]
    if len(parts) == 1:
        return _single(parts[0])
    return pc.binary_join_element_wise(*(_prefixed(part) for part in parts), pa.scalar(b"", pa.binary()))


def member(codes: pa.Array, wanted: pa.Array) -> Mask:
    """For every code whether it is among the wanted; NULL is a value like any other."""
    return np.asarray(pc.is_in(codes, value_set=wanted, skip_nulls=False))


def ranks(codes: pa.Array) -> tuple[npt.NDArray[np.int64], int]:
    """A dense number per distinct code, and how many there are."""
    encoded = codes.dictionary_encode(null_encoding="encode")
    return np.asarray(encoded.indices, dtype=np.int64), len(encoded.dictionary)


def _contiguous(column: pa.ChunkedArray) -> pa.Array:
    combined = column.combine_chunks()
    return pa.concat_arrays(combined.chunks) if isinstance(combined, pa.ChunkedArray) else combined


def _single(array: pa.Array) -> pa.Array:
    kind = array.type
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return array.cast(pa.int64())
    if pa.types.is_date32(kind):
        return array.cast(pa.int32()).cast(pa.int64())
    if pa.types.is_timestamp(kind):
        return array.cast(pa.int64())
    return _text(array)


def _prefixed(array: pa.Array) -> pa.Array:
    """`length:text` for a value, `~` for NULL."""
    text = _text(array)
    length = pc.binary_length(text).cast(pa.string()).cast(pa.binary())
    joined = pc.binary_join_element_wise(length, text, pa.scalar(b":", pa.binary()))
    return pc.fill_null(joined, pa.scalar(b"~", pa.binary()))


def _text(array: pa.Array) -> pa.Array:
    """A binary value per value, NULL for NULL."""
    kind = array.type
    if pa.types.is_binary(kind):
        return array
    if pa.types.is_string(kind):
        return array.cast(pa.binary())
    if pa.types.is_floating(kind):
        return _bits(array).cast(pa.string()).cast(pa.binary())
    if pa.types.is_decimal(kind):
        return array.cast(pa.string()).cast(pa.binary())
    if pa.types.is_nested(kind):
        return pa.array(
            [None if value is None else repr(_canonical(value)).encode() for value in array.to_pylist()], pa.binary()
        )
    return _single(array).cast(pa.string()).cast(pa.binary())


def _bits(array: pa.Array) -> pa.Array:
    """Floats as integers: one NaN, one zero."""
    values = np.array(array.cast(pa.float64()).fill_null(0.0), dtype=np.float64)
    values[values == 0.0] = 0.0
    values[np.isnan(values)] = np.nan
    return pa.array(values.view(np.int64), mask=np.asarray(array.is_null()))


def _canonical(value: object) -> object:
    if isinstance(value, float):
        return "NaN" if value != value else value + 0.0
    if isinstance(value, dict):
        return tuple((name, _canonical(part)) for name, part in value.items())
    if isinstance(value, list | tuple):
        return tuple(_canonical(part) for part in value)
    return value
