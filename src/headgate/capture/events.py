"""Captured events: what a stream log holds and a replica reads.

An event is a row of a source table with five more columns:

    <the table's columns> | __op | __unchanged | __sequence | __position | __commit_at

An upsert carries the new image, except the columns that `__unchanged` names: the replica completes those from the row
it has. An observed row is an upsert too, except that nothing has happened if the replica has the same row. A delete
carries the key columns, a truncation none; the rest is NULL. `__unchanged` is never NULL.
`__sequence` orders the events of one transaction over all its tables, `__position` orders transactions.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pyarrow as pa

from headgate.delta.changes import COMMIT_AT, POSITION
from headgate.delta.events import OP, SEQUENCE, UNCHANGED

COMMIT_TIME = pa.timestamp("us", tz="UTC")

ROW_FIELDS = (
    pa.field(OP, pa.int8(), nullable=False),
    pa.field(UNCHANGED, pa.list_(pa.field("element", pa.string(), nullable=False)), nullable=False),
    pa.field(SEQUENCE, pa.int64(), nullable=False),
)
"""What a transaction adds to each row ..."""
TRANSACTION_FIELDS = (
    pa.field(POSITION, pa.int64(), nullable=False),
    pa.field(COMMIT_AT, COMMIT_TIME, nullable=False),
)
"""... and what is the same for all its rows."""

INCREASING = "headgate.increasing"
"""In the footer of a file of events: the columns, as JSON, in which every row has more than the row before."""

DISTINCT = "headgate.distinct"
"""In the footers of a transaction's files: the columns, as JSON, that no two events of its table share."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class EventFile:
    """A Parquet file with events of one table and one transaction, all event columns included."""

    path: str
    position: int
    commit_at: datetime
    """The commit time on its rows."""
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Events:
    """The events of one table in a range of positions: the small transactions' in order, and the large ones' files."""

    table: pa.Table | None
    files: tuple[EventFile, ...]
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Size:
    """How many events of one table a range of positions has."""

    inline: int
    in_files: int

    @property
    def rows(self) -> int:
        return self.inline + self.in_files


@dataclass(frozen=True, slots=True)
class Committed:
    """A transaction in the log."""

    position: int
    commit_at: datetime
    """When it committed, also for an initial load (whose rows are stamped with the beginning of time)."""
    initial: bool
    rows: dict[str, int]
    """Events per table."""


def row_schema(columns: pa.Schema) -> pa.Schema:
    """The columns of a transaction's rows of one table; a delete leaves any of the table's own NULL."""
    return pa.schema([*(field.with_nullable(True) for field in columns), *ROW_FIELDS])


def event_schema(rows: pa.Schema) -> pa.Schema:
    """All columns of the events whose row schema is given."""
    return pa.schema([*rows, *TRANSACTION_FIELDS])


def to_micros(at: datetime) -> int:
    """Microseconds since 1970 in UTC, exact."""
    return (at - _EPOCH) // timedelta(microseconds=1)


def from_micros(micros: int) -> datetime:
    """The inverse of `to_micros`."""
    return _EPOCH + timedelta(microseconds=micros)
