"""What headgate has of a source that is captured by timestamp: its tables, and what the last poll saw."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

import psycopg
import pyarrow as pa

from headgate.capture.postgres.catalog import PostgresTable
from headgate.capture.postgres.connection import connect, timeline_of
from headgate.capture.postgres.history import SnapshotHistory
from headgate.capture.postgres.known_tables import KnownTable, KnownTables
from headgate.capture.postgres.load import held_snapshot, load_tables
from headgate.capture.postgres.opening import Opening
from headgate.capture.postgres.problems import SourceSetup, source_errors
from headgate.capture.postgres.timestamp_activity import read_activity
from headgate.capture.postgres.timestamp_polling import Poll, Poller
from headgate.capture.postgres.timestamp_state import TimestampState
from headgate.capture.postgres.timestamp_tables import TimestampTable

REMEMBER_EVERY = timedelta(seconds=10)
"""How old what is on disk may get while polls find nothing."""

_LOGGER = logging.getLogger(__name__)


class TimestampHistory(SnapshotHistory[TimestampTable, TimestampState]):
    """One source's tables and its last poll."""

    def __init__(self, opening: Opening, definitions: Sequence[TimestampTable], *, margin: timedelta) -> None:
        """At first contact, or afresh, reads all tables."""
        self._margin = margin
        super().__init__(opening, definitions, TimestampState)

    def _open(self, before: TimestampState | None, present: Mapping[str, PostgresTable]) -> None:
        self.warnings = self._warnings(present)
        """What the source's owner could do better."""
        state = None if self._opening.afresh else before
        if state is None or not self._has_loaded(state, state.tables):
            self._begin(present, {} if before is None else before.tables)
        else:
            self._resume(state, present)

    @property
    def last(self) -> Poll:
        """What the last poll saw that is known to be on disk, or a later one that saw nothing new."""
        state = self.state
        return Poll(state.snapshot, state.activity)

    def poll(self, position: int) -> None:
        """Appends what is new, as one transaction at this position, or behind the log's end; durable on return."""
        end, before = self.log.end, self.state
        found = self._poller.poll(self.last, max(position, end + 1), self._opening.clock.now())
        after = replace(before, snapshot=found.snapshot, activity=found.activity, tables=self.tables.known())
        if self.log.end > end or found.activity.at - self._written_at > REMEMBER_EVERY:
            self._save(after)
        self._state = after

    def resnapshot(self, tables: Collection[str] | None) -> None:
        """Reads captured tables whole, or begins anew with all; no poll may run meanwhile."""
        present = self._present(self.state.tables)
        if tables is None:
            self._begin(present, self.state.tables)
        else:
            self._load(present, self._chosen(present, tables))

    def _has_loaded(self, state: TimestampState, names: Collection[str]) -> bool:
        """Whether none of the tables was cut short while it was read whole."""
        return self.log.end >= state.load_position or not set(names) & set(state.loading)

    def _begin(self, present: Mapping[str, PostgresTable], before: Mapping[str, KnownTable]) -> None:
        self._state = None
        self.tables = self._polled(self._known({}, {name: before[name] for name in self._absent}))
        self._load(present, tuple(present))

    def _resume(self, state: TimestampState, present: Mapping[str, PostgresTable]) -> None:
        kept = {
            name: table
            for name, table in present.items()
            if name in state.tables and state.tables[name].oid == table.oid and self._has_loaded(state, [name])
        }
        self._state, self._written_at = state, state.activity.at
        self.tables = self._polled(self._known(kept, {name: state.tables[name] for name in (*kept, *self._absent)}))
        added = tuple(name for name in present if name not in kept)
        if added:
            self._load(present, added)
        # A connection, and with it a look at the server's history, before anything is promised.
        with self.sessions.borrow("opening the source"):
            pass

    def _load(self, present: Mapping[str, PostgresTable], names: tuple[str, ...]) -> None:
        """Reads tables whole, as one transaction of the log. Others go on from their last poll."""
        at, position = self._opening.clock.now(), self.log.end + 1
        replacing, before = self._is_replacing(names), self.tables
        others, known = self._others(names)
        with self.sessions.borrow("looking at running transactions") as connection:
            activity, timeline = read_activity(connection), timeline_of(connection)
        with held_snapshot(self._opening) as (snapshot, exported):
            if self._state is None:
                self._state = TimestampState(timeline, snapshot, activity, (), 0, {})
            tables = {**others, **{name: present[name] for name in names}}
            whole = self._polled(self._known(tables, known))
            # Nobody may see them as whole before they are.
            self.tables = whole.being_read(names, before, position)
            self._save(replace(self.state, loading=names, load_position=position, tables=whole.known()))
            load_tables(
                self._opening,
                exported,
                [present[name] for name in names],
                position=position,
                at=at,
                replacing=replacing,
                keep=_Living({name: (self._definitions[name], present[name]) for name in names}),
            )
            self.tables = whole

    def _polled(self, tables: KnownTables) -> KnownTables:
        """The tables, which polls follow from now on."""
        self._poller = Poller(self.sessions, self._definitions, tables, self.log, self._margin)
        return tables

    def _check(self, connection: psycopg.Connection) -> None:
        """Refuses a role that does not see when transactions of others began."""
        allowed = connection.execute("SELECT pg_has_role('pg_read_all_stats', 'USAGE')").fetchone()
        if allowed == (False,):
            user = connection.info.user
            raise SourceSetup(
                f"the role {user} does not see when transactions of others began, so their rows could be missed",
                hint=f"GRANT pg_read_all_stats TO {user}",
            )

    def _warnings(self, present: Mapping[str, PostgresTable]) -> tuple[str, ...]:
        with (
            connect(self._opening.dsn, application=f"headgate {self._opening.name}") as connection,
            source_errors("opening the source"),
        ):
            found = [
                each for name, table in present.items() for each in self._definitions[name].warnings(connection, table)
            ]
        for each in found:
            _LOGGER.warning("capture by timestamp: source=%s %s", self._opening.name, each)
        return tuple(found)

    def _save(self, state: TimestampState) -> None:
        super()._save(state)
        self._written_at = state.activity.at

    def _verify(self, connection: psycopg.Connection) -> None:
        if self._state is not None:
            self._require_same(connection, self._state.timeline, self._state.snapshot)


@dataclass(frozen=True, slots=True)
class _Living:
    """Chooses the rows that no column says are deleted."""

    tables: Mapping[str, tuple[TimestampTable, PostgresTable]]

    def __call__(self, name: str, rows: pa.RecordBatch) -> pa.RecordBatch:
        definition, table = self.tables[name]
        return definition.living(table, rows)
