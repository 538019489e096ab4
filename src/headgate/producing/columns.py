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


class IntegerRows:
    """Rows of whole numbers, gathered in one array until they are taken as columns: several times as fast as column by column."""

    def __init__(self, fields: Sequence[pa.Field]) -> None:
        self._fields = fields
        self._types = [field.type.to_pandas_dtype() for field in fields]
        self._least = np.array([np.iinfo(kind).min for kind in self._types])
        self._most = np.array([np.iinfo(kind).max for kind in self._types])
        self._numbers = array("q")

    def __len__(self) -> int:
        return len(self._numbers) // len(self._fields)

    def add(self, rows: Sequence[Sequence[object]]) -> bool:
        """Takes rows of the right width; none of them when some value is not a whole number that its column can hold."""
        flat = cast("list[int]", list(chain.from_iterable(rows)))
        before = len(self._numbers)
        try:
            self._numbers.fromlist(flat)
        except (TypeError, OverflowError):
            return False
        added = np.frombuffer(self._numbers, np.int64)[before:]
        table = added.reshape(-1, len(self._fields))
        # True and False are whole numbers to Python, but not to a table.
        fits = not any(type(flat[place]) is bool for place in np.flatnonzero(added >> 1 == 0))
        fits = fits and not (table.min(axis=0) < self._least).any() and not (table.max(axis=0) > self._most).any()
        del added, table
        if not fits:
            del self._numbers[before:]
        return fits

    def take(self) -> list[pa.Array]:
        """All rows as columns, and starts again."""
        table = np.frombuffer(self._numbers, np.int64).reshape(-1, len(self._fields))
        columns = [
            pa.array(column.astype(kind), field.type)
            for column, kind, field in zip(table.T, self._types, self._fields, strict=True)
        ]
        self._numbers = array("q")
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
