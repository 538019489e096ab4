"""What the log method must remember across a crash beside the stream log itself, in one small file.

`told` is written before the server hears it: a slot that stands further was moved by someone else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from headgate.capture.postgres.catalog import PostgresTable
from headgate.capture.source import TableProblem

EVER = 1 << 62
"""A position that is never reached."""


@dataclass(frozen=True, slots=True)
class LoggedColumn:
    """What tells one column from another in the log."""

    name: str
    type_oid: int
    typmod: int


@dataclass(frozen=True, slots=True)
class LoggedTable:
    """A captured table as its rows in the stream log are."""

    oid: int
    entry: int
    """The publication's entry for it."""
    columns: tuple[LoggedColumn, ...]
    load: int
    """The load's position in the stream log; it is not complete when the log ends before."""
    again: bool
    """The stream log had rows of it before that load."""
    problem: TableProblem | None = None
    read_at: int | None = None
    """The position whose state the table's first rows are; of a table that is read range by range, the earliest such position ..."""
    entered_at: int | None = None
    """... and the one at which they are in the stream log, in front of which nothing of the table counts."""

    @property
    def is_waiting(self) -> bool:
        """Whether the log takes the table's changes, but its first rows are still to be read."""
        return self.load == EVER and not self.again

    @property
    def is_read_by_range(self) -> bool:
        """Whether some of the first rows may have been read, range by range, and others are still to be read."""
        return self.is_waiting and self.read_at is not None


@dataclass(frozen=True, slots=True)
class LogState:
    """How far capture has got; positions in the WAL, except `offset`, which makes them the stream log's."""

    system: str
    """The server's own number, and its timeline: another server has another history."""
    timeline: int
    offset: int
    told: int
    """The server has heard of positions up to this one at most."""
    tables: Mapping[str, LoggedTable]


def given_up(known: LoggedTable) -> LoggedTable:
    """A table that is to be loaded once more."""
    if known.entered_at is None and known.load < EVER:
        # Loaded before this was noted.
        known = replace(known, read_at=known.load, entered_at=known.load)
    return replace(known, load=EVER, again=True)


def known_table(
    table: PostgresTable,
    entry: int,
    *,
    load: int,
    again: bool,
    problem: TableProblem | None = None,
    first: tuple[int | None, int | None] = (None, None),
) -> LoggedTable:
    """`first` is where the table's first rows were read, and where they are in the stream log."""
    columns = tuple(LoggedColumn(column.name, column.type_oid, column.typmod) for column in table.columns)
    return LoggedTable(table.oid, entry, columns, load, again, problem, *first)
