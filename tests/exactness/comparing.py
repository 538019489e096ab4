"""Equality of two results as bags of rows: exact, except that floating point compares at 1e-9 relative.

NaN equals NaN and infinities equal themselves only. Column names and types must agree as well.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

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
        return Rows(_described(frame), values)

    def dicts(self) -> list[dict[str, Any]]:
        names = [name for name, _ in self.columns]
        return [dict(zip(names, row, strict=True)) for row in self.values]

    def without(self, name: str) -> Rows:
        """All columns but one."""
        place = [found for found, _ in self.columns].index(name)
        rest = self.columns[:place] + self.columns[place + 1 :]
        return Rows(rest, [row[:place] + row[place + 1 :] for row in self.values])


def rows_of_each(session: SparkSession, frames: Mapping[str, DataFrame]) -> dict[str, Rows]:
    """The rows of several frames, read by one query: each row is a struct in the column of its frame.

    The struct is in an array, which can be missing; a struct of fields that are never NULL cannot, for Arrow.
    """
    if any(not frame.columns for frame in frames.values()):
        return {name: Rows.of(frame) for name, frame in frames.items()}
    parts = []
    for number in range(len(frames)):
        columns = ("array(struct(*))" if other == number else "NULL" for other in range(len(frames)))
        parts.append(
            f"SELECT {', '.join(f'{column} AS c{other}' for other, column in enumerate(columns))} FROM {{f{number}}}"
        )
    named = {f"f{number}": frame for number, frame in enumerate(frames.values())}
    table: pa.Table = session.sql(" UNION ALL ".join(parts), **named).toArrow()
    return {
        name: Rows(_described(frame), [tuple(row[0].values()) for row in part.to_pylist() if row is not None])
        for (name, frame), part in zip(frames.items(), table.columns, strict=True)
    }


def _described(frame: DataFrame) -> tuple[tuple[str, str], ...]:
    return tuple((field.name, field.dataType.simpleString()) for field in frame.schema.fields)


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
