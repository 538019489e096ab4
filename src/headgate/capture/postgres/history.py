"""What all methods of capture remember of their source: its tables, and how far capture has got.

How far is in a small file beside the stream log. A table that was captured before and cannot be read now is absent: it is
stopped, and keeps nobody from the others.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping
from functools import partial
from typing import Generic, TypeVar

import psycopg

from headgate.capture.postgres.catalog import PostgresTable, read_tables
from headgate.capture.postgres.connection import connect, timeline_of
from headgate.capture.postgres.cursor import CursorFile
from headgate.capture.postgres.known_tables import KnownTable, KnownTables
from headgate.capture.postgres.log_state import LogState
from headgate.capture.postgres.log_tables import LogTables, TableDefinition
from headgate.capture.postgres.opening import Opening
from headgate.capture.postgres.problems import SourceHistoryLost, source_errors
from headgate.capture.postgres.timestamp_state import TimestampState
from headgate.capture.postgres.timestamp_tables import TimestampTable
from headgate.capture.postgres.trigger_sql import next_transaction
from headgate.capture.postgres.trigger_state import TriggerState
from headgate.errors import DefiniteError

Wanted = TypeVar("Wanted", TableDefinition, TimestampTable)
State = TypeVar("State", LogState, TriggerState, TimestampState)


class CaptureHistory(ABC, Generic[Wanted, State]):
    """One source's tables and its state, which is None until capture has begun."""

    tables: KnownTables | LogTables

    def __init__(self, opening: Opening, definitions: Iterable[Wanted], state: type[State]) -> None:
        """Opens what was left behind; at first contact, or afresh, begins anew."""
        self.log = opening.log
        self._opening = opening
        self._definitions: dict[str, Wanted] = {each.called: each for each in definitions}
        self._file: CursorFile[State] = CursorFile(opening.log.folder, state)
        self._state: State | None = None
        self._absent: dict[str, DefiniteError] = {}
        """Tables that were captured before and cannot be read now, and why."""
        self.sessions = opening.sessions(self._verify)
        try:
            before = self._file.read_begun(opening.log, afresh=opening.afresh)
            self._open(before, self._present({} if before is None else before.tables))
        except BaseException:
            self.sessions.close()
            raise

    def tell_whole(self) -> None:
        """No table is left that has to be read whole again."""
        self._opening.on_whole()

    @property
    def state(self) -> State:
        assert self._state is not None
        return self._state

    @abstractmethod
    def _open(self, before: State | None, present: Mapping[str, PostgresTable]) -> None:
        """Goes on from the state before, or begins anew, with the tables that the source has."""

    def _check(self, connection: psycopg.Connection) -> None:
        """Refuses a server that lacks what the method needs."""

    def _verify(self, connection: psycopg.Connection) -> None:
        """Refuses, in each new session, a source that is not the one whose changes we have."""

    def _read(self, wanted: Wanted, connection: psycopg.Connection) -> PostgresTable:
        return wanted.read(connection)

    def _present(self, captured: Collection[str]) -> dict[str, PostgresTable]:
        """The tables that the source has; of those that were captured before, some may be absent."""
        with (
            connect(self._opening.dsn, application=f"headgate {self._opening.name}") as connection,
            source_errors("opening the source"),
        ):
            self._check(connection)
            wanted = {name: partial(self._read, each, connection) for name, each in self._definitions.items()}
            present, self._absent = read_tables(wanted, captured)
        return present

    def _save(self, state: State) -> None:
        self._file.write(state)
        self._state = state


class SnapshotHistory(CaptureHistory[Wanted, State]):
    """What capture by trigger and by timestamp have in common: they go from snapshot to snapshot of the source."""

    tables: KnownTables

    def _known(self, tables: Mapping[str, PostgresTable], known: Mapping[str, KnownTable]) -> KnownTables:
        """The tables, compared with how they were known before."""
        return KnownTables(tables, known, self.log.end + 1, self._absent)

    def _chosen(self, present: Iterable[str], names: Collection[str]) -> tuple[str, ...]:
        """Captured tables that are to be read whole; raises why one of them cannot be read."""
        for name in names:
            if name in self._absent:
                raise self._absent[name]
        return tuple(name for name in present if name in names)

    def _others(self, names: Collection[str]) -> tuple[dict[str, PostgresTable], dict[str, KnownTable]]:
        """The captured tables that are not among those that are read whole, and how they were known."""
        tables = {name: table for name, table in self.tables.tables.items() if name not in names}
        return tables, {name: known for name, known in self.tables.known().items() if name not in names}

    def _is_replacing(self, names: Collection[str]) -> bool:
        """Whether the stream log may have rows of tables that are read whole."""
        known = {} if self._state is None else self._state.tables
        return self.log.end > 0 and (not known or bool(set(names) & set(known)))

    def _require_same(self, connection: psycopg.Connection, timeline: int, snapshot: str) -> None:
        """Refuses a source that does not go on from where this snapshot of it was taken."""
        now, row = timeline_of(connection), connection.execute("SELECT pg_current_snapshot()::text").fetchone()
        assert row is not None
        if now != timeline:
            raise self._lost(f"it is on timeline {now}, a restored or promoted copy")
        if next_transaction(snapshot) > next_transaction(row[0]):
            raise self._lost("its transactions lie before those that were captured, so it was restored")

    def _lost(self, what: str) -> SourceHistoryLost:
        return SourceHistoryLost(f"the source of {self._opening.name} is not as capture left it: {what}")
