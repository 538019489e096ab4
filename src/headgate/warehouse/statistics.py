"""Ranges of columns in data files: from Parquet footers into the Delta log and back.

A range's bounds are ordering values: integers for integral columns, for dates (days) and for timestamps
(microseconds), else `float`, `Decimal` or `str`. A missing bound means "may match". Long strings are cut, their upper
bound rounded up, so that the log stays small and no reader skips a file wrongly.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq

Bound = int | float | Decimal | str

ROWS_PER_GROUP = 8_000
"""Rows of a row group; a lookup reads the groups of a file that may hold what it asks for."""
STRING_LENGTH = 32
INDEXED_COLUMNS = 32
LAST_CHARACTER = "\U0010ffff"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
EPOCH_DAY = date(1970, 1, 1)


@dataclass(frozen=True, slots=True)
class Range:
    """Bounds of a column's values in a file (None = unknown) and how many are NULL (None = unknown)."""

    low: Bound | None
    high: Bound | None
    nulls: int | None


UNKNOWN = Range(None, None, None)


@dataclass(frozen=True, slots=True)
class DataFile:
    """A data file of a table: its path relative to the table's folder, size, and ranges by column."""

    path: str
    rows: int
    bytes: int
    modified_ms: int
    ranges: Mapping[str, Range]

    def range(self, column: str) -> Range:
        return self.ranges.get(column, UNKNOWN)


def has_range(kind: pa.DataType) -> bool:
    """Types whose bounds the Delta log can hold."""
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_date32(kind)
        or pa.types.is_timestamp(kind)
        or pa.types.is_decimal(kind)
        or pa.types.is_string(kind)
    )


def indexed_columns(schema: pa.Schema, first: Sequence[str]) -> tuple[str, ...]:
    """Columns with ranges: those of the sort order and the key, then the others up to a limit."""
    usable = {field.name for field in schema if not pa.types.is_nested(field.type) and "." not in field.name}
    ordered = dict.fromkeys(name for name in (*first, *schema.names) if name in usable)
    return tuple(ordered)[:INDEXED_COLUMNS]


def ranges_of(metadata: pq.FileMetaData, schema: pa.Schema, columns: Sequence[str]) -> dict[str, Range]:
    """Ranges from a Parquet footer."""
    places = {metadata.schema.column(number).path: number for number in range(metadata.num_columns)}
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    found: dict[str, Range] = {}
    for name in columns:
        if name not in places:
            continue
        parts = [
            (_group_range(group.column(places[name]), schema.field(name).type), group.num_rows) for group in groups
        ]
        found[name] = _cut(_merge(parts))
    return found


def to_json(file: DataFile, schema: pa.Schema) -> str:
    """The statistics of an `add` action, in the Delta format."""
    lows, highs, nulls = [], [], []
    for name, found in file.ranges.items():
        kind = schema.field(name).type
        if found.low is not None:
            lows.append(f"{json.dumps(name)}: {_literal(found.low, kind, upper=False)}")
        if found.high is not None:
            highs.append(f"{json.dumps(name)}: {_literal(found.high, kind, upper=True)}")
        if found.nulls is not None:
            nulls.append(f"{json.dumps(name)}: {found.nulls}")
    return (
        f'{{"numRecords": {file.rows}, "minValues": {{{", ".join(lows)}}}, '
        f'"maxValues": {{{", ".join(highs)}}}, "nullCount": {{{", ".join(nulls)}}}}}'
    )


def ordering_type(kind: pa.DataType) -> pa.DataType:
    """The type of a column's ordering values."""
    if pa.types.is_floating(kind):
        return pa.float64()
    return kind if pa.types.is_decimal(kind) or pa.types.is_string(kind) else pa.int64()


def ordering_column(column: pa.ChunkedArray | pa.Array, kind: pa.DataType) -> pa.ChunkedArray | pa.Array:
    """A column of the given kind as ordering values."""
    if pa.types.is_timestamp(kind):
        column = column.cast(pa.timestamp("us", column.type.tz))
    elif pa.types.is_date32(kind):
        column = column.cast(pa.int32())
    return column.cast(ordering_type(kind))


def _group_range(column: pq.ColumnChunkMetaData, kind: pa.DataType) -> Range:
    found = column.statistics
    if found is None:
        return UNKNOWN
    nulls = found.null_count if found.has_null_count else None
    if not found.has_min_max or not has_range(kind) or found.physical_type == "INT96":
        return Range(None, None, nulls)
    if pa.types.is_date32(kind) or pa.types.is_timestamp(kind):
        return Range(found.min_raw, found.max_raw, nulls)
    low, high = found.min, found.max
    if isinstance(low, float) and not (math.isfinite(low) and math.isfinite(high)):
        return Range(None, None, nulls)
    return Range(low, high, nulls)


def _merge(parts: Sequence[tuple[Range, int]]) -> Range:
    """The range of all row groups, given with their rows; one without bounds makes them unknown, unless it holds NULLs only."""
    nulls = None if any(part.nulls is None for part, _ in parts) else sum(part.nulls or 0 for part, _ in parts)
    valued = [part for part, rows in parts if part.nulls != rows]
    if not valued or any(part.low is None or part.high is None for part in valued):
        return Range(None, None, nulls)
    return Range(min(part.low for part in valued), max(part.high for part in valued), nulls)  # type: ignore[type-var]


def _cut(found: Range) -> Range:
    low, high = found.low, found.high
    if isinstance(low, str):
        low = low[:STRING_LENGTH]
    if isinstance(high, str) and len(high) > STRING_LENGTH:
        rest = high[STRING_LENGTH]
        high = None if rest == LAST_CHARACTER else high[:STRING_LENGTH] + LAST_CHARACTER
    return Range(low, high, found.nulls)


def _literal(bound: Bound, kind: pa.DataType, *, upper: bool) -> str:
    """A bound as JSON."""
    if pa.types.is_date32(kind):
        return json.dumps((EPOCH_DAY + timedelta(days=int(bound))).isoformat())
    if pa.types.is_timestamp(kind):
        moment = EPOCH + timedelta(microseconds=int(bound))
        return json.dumps(f"{moment.strftime('%Y').zfill(4)}-{moment:%m-%dT%H:%M:%S.%f}{'Z' if kind.tz else ''}")
    if isinstance(bound, Decimal):
        return f"{bound:f}"
    if pa.types.is_float32(kind):
        toward = math.inf if upper else -math.inf
        return repr(math.nextafter(float(bound), toward))
    return json.dumps(bound, ensure_ascii=False)
