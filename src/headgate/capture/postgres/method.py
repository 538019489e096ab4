"""What all methods of capture do alike: what they tell of their tables, and reading those whole that changed unseen."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from headgate.capture.gears.throttle import Throttle
from headgate.capture.postgres.catalog import PostgresTable
from headgate.capture.postgres.connection import committed_transactions
from headgate.capture.postgres.history import CaptureHistory
from headgate.capture.source import TableProblem
from headgate.errors import DefiniteError

Known = TypeVar("Known", bound=CaptureHistory[Any, Any])


class CapturedTables(ABC, Generic[Known]):
    """The tables of a source, whatever the method."""

    _history: Known

    @abstractmethod
    def _read_whole(self, name: str) -> None:
        """Reads a captured table whole again."""

    def _read_unread(self) -> None:
        """Reads the tables whole whose rows have changed unseen; one that cannot be read is stopped."""
        unread = [name for name, problem in self._history.tables.problems.items() if problem.reread]
        for name in unread:
            try:
                self._read_whole(name)
            except DefiniteError as error:
                self._history.tables.give_up(name, error)
        if unread:
            self._history.tell_whole()

    def close(self) -> None:
        self._history.sessions.close()

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
