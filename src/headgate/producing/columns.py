"""Python values to Arrow columns at bulk speed, as exactly as `capture.values` takes them one by one.

A whole column is accepted when all its values are of the type's own Python class; anything else is left to the conversion of
single rows, which knows more and names the bad one.
"""

from __future__ import annotations

import datetime as dt
from array import array
from collections.abc import Callable, Sequence
from decimal import Decimal
from itertools import chain
from types import NoneType
from typing import cast

import numpy as np
import pyarrow as pa

from headgate.capture.columns import ColumnDoesNotFit, cast_column

_CLASSES: tuple[tuple[Callable[[pa.DataType], bool], type], ...] = (
    (pa.types.is_floating, float),
    (pa.types.is_string, str),
    (pa.types.is_boolean, bool),
    (pa.types.is_date, dt.date),
    (pa.types.is_timestamp, dt.datetime),
    (pa.types.is_binary, bytes),
    (pa.types.is_decimal, Decimal),
)


def arrow_column(values: list[object], field: pa.Field) -> pa.Array:
    """The values as a column; raises `ColumnDoesNotFit` when one of them has to be looked at on its own."""
    try:
        column = _integers(values, field.type) if pa.types.is_integer(field.type) else _others(values, field.type)
    except (pa.ArrowException, OverflowError, UnicodeError, ValueError, TypeError):
        raise ColumnDoesNotFit from None
    if column.null_count and not field.nullable:
        raise ColumnDoesNotFit
    return column


def integer_columns(rows: Sequence[Sequence[object]], fields: Sequence[pa.Field]) -> list[pa.Array]:
    """Rows of whole numbers as columns, by way of one array: several times as fast as column by column.

    Raises `ColumnDoesNotFit` when some value is something else, or too large.
    """
    flat = list(chain.from_iterable(rows))
    try:
        numbers = np.frombuffer(array("q", cast("list[int]", flat)), np.int64)
    except (TypeError, OverflowError):
        raise ColumnDoesNotFit from None
    # True and False are whole numbers to Python, but not to a table.
    if any(type(flat[place]) is bool for place in np.flatnonzero(numbers >> 1 == 0)):
        raise ColumnDoesNotFit
    columns = []
    for field, column in zip(fields, numbers.reshape(-1, len(fields)).T, strict=True):
        wanted = field.type.to_pandas_dtype()
        bounds = np.iinfo(wanted)
        if len(column) and (column.min() < bounds.min or column.max() > bounds.max):
            raise ColumnDoesNotFit
        columns.append(pa.array(column.astype(wanted), field.type))
    return columns


def joined(parts: Sequence[Sequence[pa.Array]]) -> list[pa.Array]:
    """The columns of several runs of rows, as one run."""
    return [pa.concat_arrays(column) for column in zip(*parts, strict=True)] if len(parts) > 1 else list(parts[0])


def exact_rows(fields: Sequence[pa.Field]) -> Callable[..., bool]:
    """A function of a row's values that is true when they all are what their columns hold, with nothing to convert.

    It is one generated expression: single INSERTs spend most of their time here.
    """
    names = [f"v{place}" for place in range(len(fields))]
    tests = [_exact(name, field) for name, field in zip(names, fields, strict=True)]
    scope = {"date": dt.date, "datetime": dt.datetime, "UTC": dt.UTC}
    check: Callable[..., bool] = eval(f"lambda {', '.join(names)}: {' and '.join(tests)}", scope)
    return check


def stored(value: object, kind: pa.DataType) -> object:
    """A converted value as it will be read again: FLOAT rounds."""
    return np.float32(value).item() if isinstance(value, float) and pa.types.is_float32(kind) else value


def _integers(values: list[object], wanted: pa.DataType) -> pa.Array:
    # Without a given type Arrow says what it found; told to make integers it would take 1.0 for one.
    found = pa.array(values)
    if not pa.types.is_integer(found.type) and found.null_count < len(found):
        raise ColumnDoesNotFit
    return cast_column(found, wanted)


def _others(values: list[object], wanted: pa.DataType) -> pa.Array:
    classes = set(map(type, values)) - {NoneType}
    own = next((python for test, python in _CLASSES if test(wanted)), None)
    if own is None:
        raise ColumnDoesNotFit
    if not classes:
        return pa.nulls(len(values), wanted)
    if classes == {int} and own in (float, Decimal):
        return _integers(values, wanted)
    if classes != {own}:
        raise ColumnDoesNotFit
    if own is float:
        return cast_column(pa.array(values, pa.float64()), wanted)
    if own is dt.datetime and wanted.tz is None and any(getattr(value, "tzinfo", None) for value in values):
        raise ColumnDoesNotFit
    return pa.array(values, wanted)


def _exact(name: str, field: pa.Field) -> str:
    kind = field.type
    if pa.types.is_integer(kind):
        bound = 1 << (kind.bit_width - 1)
        test = f"type({name}) is int and {-bound} <= {name} < {bound}"
    elif pa.types.is_float64(kind):
        test = f"type({name}) is float"
    elif pa.types.is_string(kind):
        test = f"type({name}) is str and {name}.isascii()"
    elif pa.types.is_boolean(kind):
        test = f"type({name}) is bool"
    elif pa.types.is_date(kind):
        test = f"type({name}) is date"
    elif pa.types.is_timestamp(kind):
        test = f"type({name}) is datetime and {name}.tzinfo is {'None' if kind.tz is None else 'UTC'}"
    elif pa.types.is_binary(kind):
        test = f"type({name}) is bytes"
    else:
        test = "False"
    return f"({name} is None or {test})" if field.nullable else test
