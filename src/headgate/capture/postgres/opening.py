"""What all methods of capture have in common: what they are opened with, and what they tell of their tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Generic, Protocol, Required, TypedDict, TypeVar

from headgate.capture.gears.throttle import Throttle
from headgate.capture.postgres.catalog import PostgresTable
from headgate.capture.postgres.connection import committed_transactions
from headgate.capture.postgres.sessions import Sessions
from headgate.capture.ranges import LargeLoads
from headgate.capture.source import Progress, TableProblem
from headgate.capture.streamlog import StreamLog
from headgate.clock import Clock


class Options(TypedDict, total=False):
    """How a method is opened, beside where: see `Opening`."""

    log: Required[StreamLog]
    clock: Required[Clock]
    progress: Callable[[Progress], None] | None
    large: LargeLoads | None
    afresh: bool


@dataclass(frozen=True, slots=True)
class Opening:
    """Where a source is and how it is captured; `name` is what the objects at the source are named after."""

    dsn: str = field(repr=False)
    name: str
    log: StreamLog
    clock: Clock
    progress: Callable[[Progress], None] | None = None
    """Hears how far tables are read whole."""
    large: LargeLoads | None = None
    """What reads tables whole that are large."""
    afresh: bool = False
    """The remedy when the source no longer has what comes next: forgets what was left there and reads all tables."""

    def sessions(self, opened: Callable[..., None] = lambda connection: None) -> Sessions:
        return Sessions(self.dsn, application=f"headgate {self.name}", opened=opened)


class HistoryTables(Protocol):
    """Captured tables by headgate's names, and why some cannot be followed any more."""

    @property
    def tables(self) -> Mapping[str, PostgresTable]: ...

    @property
    def problems(self) -> Mapping[str, TableProblem]: ...


class ChangeHistory(Protocol):
    """What a method has of its source."""

    @property
    def tables(self) -> HistoryTables: ...

    @property
    def sessions(self) -> Sessions: ...


Known = TypeVar("Known", bound=ChangeHistory)


def unread(tables: HistoryTables) -> tuple[str, ...]:
    """The tables that capture is to read whole by itself."""
    return tuple(name for name, problem in tables.problems.items() if problem.reread)


class CapturedTables(Generic[Known]):
    """What a method tells about its source, whatever the method."""

    _history: Known

    @cached_property
    def throttle(self) -> Throttle:
        """The rests that publishing may take."""
        return Throttle()

    @property
    def tables(self) -> Mapping[str, PostgresTable]:
        """The captured tables as their rows in the stream log are, by headgate's names."""
        return MappingProxyType(dict(self._history.tables.tables))

    @property
    def problems(self) -> Mapping[str, TableProblem]:
        """Tables whose changes cannot be followed any more, and why."""
        found = dict(self._history.tables.problems)
        return MappingProxyType({name: problem for name, problem in found.items() if not problem.reread})

    @property
    def rereading(self) -> tuple[str, ...]:
        """Tables that are read whole again by themselves, in words."""
        found = dict(self._history.tables.problems)
        return tuple(f"{name} is read whole again: {each.what}" for name, each in found.items() if each.reread)

    def whole_upto(self, captured: Callable[[], int]) -> int:
        """The last captured position at which every table that can be followed is as it was at the source."""
        # The tables are another object once all of them are whole, so what is asked later is still true of this one.
        tables, position = self._history.tables, captured()
        return min([position, *(each.position - 1 for each in list(tables.problems.values()) if each.reread)])

    def throughput(self) -> int:
        """Transactions that the database has committed so far, about ours excluded."""
        sessions = self._history.sessions
        with sessions.borrow("reading the server's statistics") as connection:
            return committed_transactions(connection) - sessions.borrowed
