"""What headgate has of a source's audit table, and what it told the source: so that nothing is lost or taken twice.

The audit table with its triggers and the file beside the stream log are one thing here. Each new session is compared with
it: a source that was restored, or whose audit table someone replaced, no longer has the changes that come next.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

import psycopg

from headgate.capture.postgres import trigger_sql
from headgate.capture.postgres.catalog import PostgresTable
from headgate.capture.postgres.connection import timeline_of
from headgate.capture.postgres.history import SnapshotHistory
from headgate.capture.postgres.known_tables import KnownTable
from headgate.capture.postgres.load import held_snapshot, load_tables
from headgate.capture.postgres.log_tables import TableDefinition
from headgate.capture.postgres.opening import Opening
from headgate.capture.postgres.trigger_batch import AuditBatch, SnapshotRange
from headgate.capture.postgres.trigger_reading import AuditReader
from headgate.capture.postgres.trigger_sql import Objects, shortened
from headgate.capture.postgres.trigger_state import (
    TriggerState,
    batch_at,
    first_position,
)

_NOTHING = "1:1:"
"""A snapshot that sees no transaction."""


class TriggerHistory(SnapshotHistory[TableDefinition, TriggerState]):
    """One capture's audit table and what is known of its tables; made when capture begins."""

    def __init__(self, opening: Opening, definitions: Sequence[TableDefinition]) -> None:
        """At first contact, installs the triggers and reads all tables."""
        self.objects = Objects(shortened(opening.name))
        self._lock = threading.Lock()
        self._durable = (0, _NOTHING)
        self.timed = False
        super().__init__(opening, definitions, TriggerState)

    def look(self, since: str) -> tuple[str, datetime, bool]:
        """The source's snapshot and time, and whether changes are visible that were not in the snapshot `since`."""
        query = trigger_sql.look(self.objects, self.state.token, since)
        with self.sessions.borrow("looking for changes") as connection:
            try:
                row = connection.execute(query).fetchone()
            except psycopg.errors.UndefinedTable:
                raise self._lost("its audit table is gone") from None
        assert row is not None
        snapshot, source_at, news, ours = row
        if not ours:
            raise self._lost("its audit table was replaced")
        return snapshot, source_at, news

    def read(self, wanted: SnapshotRange) -> AuditBatch:
        """The changes of a range."""
        memory = self.log.transaction_bytes
        reader = AuditReader(self.sessions, self.objects, self.tables, self.log.spool_folder, memory)
        return reader.read(wanted, timed=self.timed)

    def publish(self, batch: AuditBatch) -> None:
        """Appends what the log does not have of a batch; durable on return."""
        wanted = batch.range
        with self._lock:
            self._save(
                replace(
                    self.state,
                    batch=wanted.batch,
                    after=wanted.after,
                    upto=wanted.upto,
                    loading=(),
                    tables=self.tables.known(),
                    begun=self.log.end,
                )
            )
        batch.append_to(self.log)
        self.log.sync()
        self._durable = (wanted.batch, wanted.upto)
        batch.forget()

    def nothing(self, wanted: SnapshotRange) -> AuditBatch:
        """A batch without changes."""
        return AuditBatch(wanted, self.log.spool_folder, self.log.transaction_bytes)

    def skip(self, wanted: SnapshotRange) -> None:
        """Takes note of a range without changes of ours, all before it being durable."""
        self._durable = (self._durable[0], wanted.upto)

    def acknowledge(self) -> None:
        """Has the source let go of the changes that are durable here."""
        batch, upto = self._durable
        self.log.flush_mark()
        with self.sessions.borrow("trimming the audit table") as connection:
            done = connection.execute(trigger_sql.acknowledge(self.objects, self.state.token, batch, upto))
            if done.rowcount != 1:
                raise self._lost("its audit table was replaced")
        with self._lock:
            self._state = replace(self.state, acknowledged=batch)

    def require_triggers(self) -> None:
        """Stops the tables whose triggers someone dropped or disabled: changes may have gone unnoticed."""
        tables = {table.oid: name for name, table in self.tables.tables.items() if name not in self.tables.problems}
        with self.sessions.borrow("looking at the triggers") as connection:
            noted = trigger_sql.noted_tables(connection, self.objects, list(tables))
            self.tables.look(connection, {oid: tables[oid] for oid in noted}, self.log.end + 1)
        for oid in tables.keys() - noted:
            what = f"the triggers of {self.tables.tables[tables[oid]].qualified} were dropped or disabled"
            self.tables.stop(tables[oid], self.log.end + 1, what)

    def resnapshot(self, tables: Collection[str] | None, batch: int) -> None:
        """Reads captured tables whole, or begins anew with all, as this batch or later ones."""
        present = self._present(self.state.tables)
        if tables is None:
            self._begin(present, self.state.tables, batch)
        else:
            self._load_into(present, self._chosen(present, tables), batch)

    def remove(self) -> None:
        """Drops the triggers and the audit table at the source, and forgets about them here."""
        with self.sessions.borrow("removing the triggers") as connection:
            trigger_sql.remove(connection, self.objects)
        self._file.path.unlink(missing_ok=True)

    # The beginning, and going on

    def _open(self, before: TriggerState | None, present: Mapping[str, PostgresTable]) -> None:
        if self._opening.afresh or before is None or not self._has_loaded(before):
            self._begin(present, {} if before is None else before.tables, self._next_batch)
        else:
            self._resume(before, present)

    def _has_loaded(self, state: TriggerState) -> bool:
        """Whether there was a first load; a later one that was interrupted is repeated when capture goes on."""
        return set(state.loading) != set(state.tables) or self.log.end >= first_position(state.batch)

    def _begin(self, present: Mapping[str, PostgresTable], before: Mapping[str, KnownTable], batch: int) -> None:
        self._state = None
        token = secrets.token_hex(8)
        self.tables = self._known({}, {name: before[name] for name in self._absent})
        with self.sessions.borrow("installing the triggers") as connection:
            trigger_sql.install(connection, self.objects, token)
            timeline = timeline_of(connection)
        # Before any table is in it, so that an interrupted load starts over.
        self._state = TriggerState(token, timeline, batch, _NOTHING, _NOTHING, 0, (), {})
        self._load_into(present, tuple(present), batch)

    def _resume(self, state: TriggerState, present: Mapping[str, PostgresTable]) -> None:
        self._state = state
        loaded = self.log.end >= first_position(state.batch) or not state.loading
        known = {name: table for name, table in state.tables.items() if loaded or name not in state.loading}
        kept = {name: table for name, table in present.items() if name in known and known[name].oid == table.oid}
        self.tables = self._known(kept, {name: state.tables[name] for name in (*kept, *self._absent)})
        if loaded and not state.loading:
            lost_in_it = self._has_lost_only_of(state)
            if lost_in_it:
                self.log.forget_after_loss()
            # A crash may have cut it short; what the log has is left out.
            self.publish(self.read(self._range(state.batch, state.after, state.upto)))
            if lost_in_it:
                self.log.settle_loss(found_again=True)
        added = tuple(name for name in present if name not in kept)
        if added:
            self._load_into(present, added, self._next_batch)
        gone = [name for name in state.tables if name not in self._definitions]
        if gone:
            with self.sessions.borrow("removing triggers") as connection:
                trigger_sql.drop_triggers(connection, self.objects, [state.tables[name].oid for name in gone])

    def _has_lost_only_of(self, state: TriggerState) -> bool:
        """Whether the log lost changes of the last batch alone, which the source still has."""
        loss = self.log.loss
        if loss is None or state.begun is None or loss.after < state.begun:
            return False
        with self.sessions.borrow("looking at the audit table") as connection:
            found = trigger_sql.read_capture(connection, self.objects)
        return found is not None and found[1] < state.batch

    def _load_into(self, present: Mapping[str, PostgresTable], names: tuple[str, ...], batch: int) -> None:
        """Puts tables into the log as they are at a point up to which all others were captured before."""
        state = self.state
        with self.sessions.borrow("installing the triggers") as connection:
            trigger_sql.create_triggers(connection, self.objects, [present[name] for name in names])
        replacing, before = self._is_replacing(names), self.tables
        at, since = self._opening.clock.now(), self.log.end + 1
        with held_snapshot(self._opening) as (snapshot, exported):
            others, known = self._others(names)
            self.tables = self._known(others, known).being_read(names, before, since)
            if others:
                self.publish(self.read(self._range(batch, state.upto, snapshot)))
                batch += 1
            tables = {**others, **{name: present[name] for name in names}}
            whole = self._known(tables, known)
            self.tables = whole.being_read(names, before, since)
            self._save(
                replace(
                    self.state,
                    batch=batch,
                    after=snapshot,
                    upto=snapshot,
                    loading=names,
                    tables=whole.known(),
                )
            )
            load_tables(
                self._opening,
                exported,
                [present[name] for name in names],
                position=first_position(batch),
                at=at,
                replacing=replacing,
            )
            self.tables = whole
            self._durable = (batch, snapshot)

    @property
    def _next_batch(self) -> int:
        return batch_at(self.log.end) + 1 if self.log.end else 0

    def _range(self, batch: int, after: str, upto: str) -> SnapshotRange:
        return SnapshotRange(batch, 0, after, upto, self._opening.clock.now(), timedelta(0))

    def _verify(self, connection: psycopg.Connection) -> None:
        timed = connection.execute("SELECT current_setting('track_commit_timestamp')::bool").fetchone()
        self.timed = timed == (True,)
        state = self._state
        if state is None:
            return
        self._require_same(connection, state.timeline, state.upto)
        found = trigger_sql.read_capture(connection, self.objects)
        if found is None or found[0] != state.token:
            raise self._lost("its audit table is gone" if found is None else "its audit table was replaced")
        if found[1] < state.acknowledged:
            raise self._lost("it does not know what it was told last, so it was restored")
        # Others may publish and acknowledge meanwhile: the source is never told of a batch before it is here.
        if found[1] > (self._state or state).batch:
            raise self._lost(
                "it let go of changes that are not here, so this warehouse was restored, or there is another"
            )
