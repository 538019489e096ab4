"""Equality of two results as bags of rows: exact, except that floating point compares at 1e-9 relative.

NaN equals NaN and infinities equal themselves only. Column names and types must agree as well.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame

TOLERANCE = 1e-9


@dataclass(frozen=True)
class Rows:
    """A result in Python values."""

    columns: tuple[tuple[str, str], ...]
    values: list[tuple[object, ...]]

    @staticmethod
    def of(frame: DataFrame) -> Rows:
        table: pa.Table = frame.toArrow()
        values = [tuple(column) for column in zip(*(part.to_pylist() for part in table.columns), strict=True)]
        if not table.columns:
            values = [()] * table.num_rows
        return Rows(tuple((field.name, field.dataType.simpleString()) for field in frame.schema.fields), values)


def difference(actual: Rows, expected: Rows) -> str | None:
    """What differs, in words; None when the results are equal."""
    if actual.columns != expected.columns:
        return f"columns {actual.columns}, expected {expected.columns}"
    wanted, found = _buckets(expected), _buckets(actual)
    missing: list[tuple[object, ...]] = []
    surplus: list[tuple[object, ...]] = []
    for exact in wanted.keys() | found.keys():
        left, right = _unmatched(wanted.get(exact, []), found.get(exact, []))
        missing += left
        surplus += right
    if not missing and not surplus:
        return None
    return f"missing {sorted(missing, key=repr)}\n surplus {sorted(surplus, key=repr)}"


_Row = tuple[list[float], tuple[object, ...]]


def _buckets(rows: Rows) -> dict[str, list[_Row]]:
    """Rows by all that must be equal exactly; each with its finite floating point numbers."""
    buckets: dict[str, list[_Row]] = defaultdict(list)
    for row in rows.values:
        numbers: list[float] = []
        exact = repr(_exact(row, numbers))
        buckets[exact].append((numbers, row))
    return buckets


def _exact(value: object, numbers: list[float]) -> object:
    if isinstance(value, float):
        if math.isfinite(value):
            numbers.append(value)
            return "number"
        return str(value)
    if isinstance(value, tuple | list):
        return [_exact(item, numbers) for item in value]
    if isinstance(value, dict):
        return {name: _exact(item, numbers) for name, item in value.items()}
    return value


def _unmatched(wanted: list[_Row], found: list[_Row]) -> tuple[list[tuple[object, ...]], list[tuple[object, ...]]]:
    rest = sorted(found)
    missing = []
    for numbers, row in sorted(wanted):
        place = next((index for index, (others, _) in enumerate(rest) if _close(numbers, others)), None)
        if place is None:
            missing.append(row)
        else:
            rest.pop(place)
    return missing, [row for _, row in rest]


def _close(left: list[float], right: list[float]) -> bool:
    return all(math.isclose(a, b, rel_tol=TOLERANCE, abs_tol=1e-12) for a, b in zip(left, right, strict=True))
