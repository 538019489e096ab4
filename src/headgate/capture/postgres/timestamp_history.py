"""What headgate has of a source that is captured by timestamp: its tables, and what the last poll saw."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial

import psycopg
import pyarrow as pa

from headgate.capture.postgres.catalog import PostgresTable, read_tables
from headgate.capture.postgres.connection import connect, timeline_of
from headgate.capture.postgres.cursor import CursorFile
from headgate.capture.postgres.known_tables import KnownTable, KnownTables
from headgate.capture.postgres.load import held_snapshot, load_tables
from headgate.capture.postgres.opening import Opening
from headgate.capture.postgres.problems import SourceHistoryLost, SourceSetup, source_errors
from headgate.capture.postgres.slot import RESNAPSHOT
from headgate.capture.postgres.timestamp_activity import read_activity
from headgate.capture.postgres.timestamp_polling import Poll, Poller
from headgate.capture.postgres.timestamp_state import TimestampState
from headgate.capture.postgres.timestamp_tables import TimestampTable
from headgate.capture.postgres.trigger_sql import next_transaction
from headgate.errors import DefiniteError

REMEMBER_EVERY = timedelta(seconds=10)
"""How old what is on disk may get while polls find nothing."""

_LOGGER = logging.getLogger(__name__)


class TimestampHistory:
    """One source's tables and its last poll."""

    def __init__(
        self,
        opening: Opening,
        definitions: Sequence[TimestampTable],
        *,
        margin: timedelta,
    ) -> None:
        """Opens what was left behind; at first contact, or afresh, reads all tables."""
        self.log = opening.log
        self._opening = opening
        self._wanted = {each.definition.called: each for each in definitions}
        self._margin = margin
        self._file = CursorFile(opening.log.folder, TimestampState)
        self._state: TimestampState | None = None
        self._absent: dict[str, DefiniteError] = {}
        """Tables that were captured before and cannot be read now, and why."""
        self.tables = KnownTables({}, {}, 0)
        self.sessions = opening.sessions(self._verify)
        try:
            before = self._file.read_begun(opening.log, afresh=opening.afresh)
            present = self._present({} if before is None else before.tables)
            self.warnings = self._warnings(present)
            """What the source's owner could do better."""
            state = None if opening.afresh else before
            if state is None or not self._has_loaded(state, state.tables):
                self._begin(present, {} if before is None else before.tables)
            else:
                self._resume(state, present)
        except BaseException:
            self.sessions.close()
            raise

    @property
    def last(self) -> Poll:
        """What the last poll saw that is known to be on disk, or a later one that saw nothing new."""
        state = self.state
        return Poll(state.snapshot, state.activity)

    @property
    def state(self) -> TimestampState:
        assert self._state is not None
        return self._state

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
            return
        for name in tables:
            if name in self._absent:
                raise self._absent[name]
        self._load(present, tuple(name for name in present if name in tables))

    def _has_loaded(self, state: TimestampState, names: Collection[str]) -> bool:
        """Whether none of the tables was cut short while it was read whole."""
        return self.log.end >= state.load_position or not set(names) & set(state.loading)

    def _begin(self, present: Mapping[str, PostgresTable], before: Mapping[str, KnownTable]) -> None:
        self._state = None
        self._know({}, {name: before[name] for name in self._absent})
        self._load(present, tuple(present))

    def _resume(self, state: TimestampState, present: Mapping[str, PostgresTable]) -> None:
        kept = {
            name: table
            for name, table in present.items()
            if name in state.tables and state.tables[name].oid == table.oid and self._has_loaded(state, [name])
        }
        self._state, self._written_at = state, state.activity.at
        self._know(kept, {name: state.tables[name] for name in (*kept, *self._absent)})
        added = tuple(name for name in present if name not in kept)
        if added:
            self._load(present, added)
        # A connection, and with it a look at the server's history, before anything is promised.
        with self.sessions.borrow("opening the source"):
            pass

    def _load(self, present: Mapping[str, PostgresTable], names: tuple[str, ...]) -> None:
        """Reads tables whole, as one transaction of the log. Others go on from their last poll."""
        at, position = self._opening.clock.now(), self.log.end + 1
        others = {name: table for name, table in self.tables.tables.items() if name not in names}
        known = {name: table for name, table in self.tables.known().items() if name not in names}
        replacing = self.log.end > 0 and (self._state is None or bool(set(names) & set(self._state.tables)))
        problems = self.tables.problems
        unread = {name: problem for name, problem in problems.items() if name in names and problem.reread}
        with self.sessions.borrow("looking at running transactions") as connection:
            activity, timeline = read_activity(connection), timeline_of(connection)
        with held_snapshot(self._opening) as (snapshot, exported):
            if self._state is None:
                self._state = TimestampState(timeline, snapshot, activity, (), 0, {})
            tables = {**others, **{name: present[name] for name in names}}
            self._know(tables, known)
            whole = self.tables
            self.tables = whole.being_read(names, unread, position)
            self._save(replace(self.state, loading=names, load_position=position, tables=whole.known()))
            load_tables(
                self._opening,
                exported,
                [present[name] for name in names],
                position=position,
                at=at,
                replacing=replacing,
                keep=lambda name, rows: self._living(present[name], name, rows),
            )
            self.tables = whole

    def _living(self, table: PostgresTable, name: str, rows: pa.RecordBatch) -> pa.RecordBatch:
        return self._wanted[name].living(table, rows)

    def _know(self, tables: Mapping[str, PostgresTable], known: Mapping[str, KnownTable]) -> None:
        self.tables = KnownTables(tables, known, self.log.end + 1, self._absent)
        self._poller = Poller(self.sessions, self._wanted, self.tables, self.log, self._margin)

    def _present(self, captured: Collection[str]) -> dict[str, PostgresTable]:
        """The tables that the source has; of those that were captured before, some may be absent."""
        with (
            connect(self._opening.dsn, application=f"headgate {self._opening.name}") as connection,
            source_errors("opening the source"),
        ):
            _require_privileges(connection)
            wanted = {name: partial(each.read, connection) for name, each in self._wanted.items()}
            present, self._absent = read_tables(wanted, captured)
        return present

    def _warnings(self, present: Mapping[str, PostgresTable]) -> tuple[str, ...]:
        with (
            connect(self._opening.dsn, application=f"headgate {self._opening.name}") as connection,
            source_errors("opening the source"),
        ):
            found = [each for name, table in present.items() for each in self._wanted[name].warnings(connection, table)]
        for each in found:
            _LOGGER.warning("capture by timestamp: source=%s %s", self._opening.name, each)
        return tuple(found)

    def _save(self, state: TimestampState) -> None:
        self._file.write(state)
        self._state, self._written_at = state, state.activity.at

    def _verify(self, connection: psycopg.Connection) -> None:
        """Refuses a source that is not the one that was polled."""
        state = self._state
        if state is None:
            return
        timeline, row = timeline_of(connection), connection.execute("SELECT pg_current_snapshot()::text").fetchone()
        assert row is not None
        if timeline != state.timeline:
            raise _lost(f"it is on timeline {timeline}, a restored or promoted copy")
        if next_transaction(state.snapshot) > next_transaction(row[0]):
            raise _lost("its transactions lie before those that were captured, so it was restored")


def _require_privileges(connection: psycopg.Connection) -> None:
    allowed = connection.execute("SELECT pg_has_role('pg_read_all_stats', 'USAGE')").fetchone()
    if allowed == (False,):
        user = connection.info.user
        raise SourceSetup(
            f"the role {user} does not see when transactions of others began, so their rows could be missed",
            hint=f"GRANT pg_read_all_stats TO {user}",
        )


def _lost(what: str) -> SourceHistoryLost:
    return SourceHistoryLost(f"the source is not as capture left it: {what}", hint=RESNAPSHOT)
