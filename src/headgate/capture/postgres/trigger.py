"""Capture by trigger: an audit table at the source notes what happens, a batch is what became visible since the last.

    plan      a snapshot of the source, when changes are visible in it that were not in the one before
    read      the audit rows visible in this snapshot and not in the one before, decoded; several workers at once
    publish   ──► stream log, in order; later the source lets go of what is durable here

Ids and transaction ids are handed out before commit, so neither tells what is new: only a snapshot does. A transaction
that runs for long blocks nothing: its changes belong to the first batch whose snapshot sees it. Positions are made here:
those of a batch come after those of all batches before it.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Unpack

from headgate.capture.gears.method import Task
from headgate.capture.postgres.connection import ClockReading, clock_reading
from headgate.capture.postgres.log_tables import TableDefinition
from headgate.capture.postgres.method import CapturedTables
from headgate.capture.postgres.opening import Opening, Options
from headgate.capture.postgres.trigger_batch import AuditBatch, SnapshotRange
from headgate.capture.postgres.trigger_history import TriggerHistory
from headgate.capture.postgres.trigger_state import last_position
from headgate.capture.source import Capabilities, Sample
from headgate.errors import DefiniteError

TRIM_EVERY = timedelta(seconds=1)
CHECK_EVERY = timedelta(seconds=10)


@dataclass(frozen=True, slots=True)
class _SourceView:
    """What the source showed: its snapshot, whether that sees changes that are not planned yet, and its clock."""

    at: datetime
    snapshot: str
    news: bool
    clock: ClockReading


class TriggerMethod(CapturedTables[TriggerHistory]):
    """Captures one source by trigger; implements `Method`."""

    def __init__(
        self,
        dsn: str,
        name: str,
        definitions: Sequence[TableDefinition],
        *,
        trim_every: timedelta = TRIM_EVERY,
        **options: Unpack[Options],
    ) -> None:
        """Goes on where capture ended; at first contact, installs the triggers and reads all tables."""
        self._clock = options["clock"]
        self._trim_every = trim_every
        self._history = TriggerHistory(Opening(dsn, name, **options), definitions)
        # What looks at the audit table and what writes to the log; reading it anew takes both.
        self._looking, self._publishing = threading.Lock(), threading.Lock()
        self._generation = 0
        self._published = self._planned = 0
        self._snapshot = ""
        self._to_trim = False
        self._trimmed_at = self._checked_at = self._clock.now()
        self._go_on()
        self._read_unread()

    @property
    def capabilities(self) -> Capabilities:
        """Commit times are the source's if it keeps them (track_commit_timestamp), else when changes were seen."""
        return Capabilities(
            deletes=True, transaction_boundaries=True, intermediate_versions=True, commit_times=self._history.timed
        )

    @property
    def captured(self) -> int:
        return last_position(self._published)

    def sample(self) -> Sample:
        at = self._clock.now()
        with self._looking:
            found = self._look(self._snapshot)
            batch = self._planned + found.news
        return Sample(at, last_position(batch), found.clock.offset, found.clock.error)

    def plan(self, number: int) -> Task[SnapshotRange] | None:
        self._tidy_up()
        with self._looking:
            before, found = self._snapshot, self._look(self._snapshot)
            self._snapshot = found.snapshot
            if not found.news:
                return None
            self._planned += 1
            wanted = SnapshotRange(
                self._planned, self._generation, before, found.snapshot, found.at, found.clock.offset
            )
        return Task(number, last_position(wanted.batch), wanted)

    def read(self, task: Task[SnapshotRange]) -> AuditBatch:
        if task.range.generation == self._generation:
            try:
                return self._history.read(task.range)
            except DefiniteError:
                if task.range.generation == self._generation:
                    raise
        return self._history.nothing(task.range)

    def publish(self, batch: AuditBatch) -> None:
        # What was cut short before: nothing may be published that would make it look as if it were done.
        self._read_unread()
        with self._publishing:
            # What was planned before the tables were read anew is in what was read.
            if batch and batch.range.generation == self._generation:
                self._history.publish(batch)
            else:
                self._history.skip(batch.range)
            self._to_trim, self._published = True, batch.range.batch
        self._read_unread()

    def resnapshot(self, tables: Collection[str] | None = None) -> None:
        """Reads tables whole again, by default all of them with a new audit table; history that was captured is kept."""
        with self._looking, self._publishing:
            self._generation += 1
            try:
                self._history.resnapshot(tables, self._planned + 1)
            finally:
                # What was planned is looked for once more.
                self._go_on()

    def _read_whole(self, name: str) -> None:
        self.resnapshot([name])

    def remove(self) -> None:
        """Drops the triggers and the audit table at the source."""
        self._history.remove()

    def _go_on(self) -> None:
        state = self._history.state
        self._published = self._planned = state.batch
        self._snapshot = state.upto
        self._to_trim = True
        self._history.require_triggers()

    def _look(self, since: str) -> _SourceView:
        before = self._clock.now()
        snapshot, source_at, news = self._history.look(since)
        return _SourceView(before, snapshot, news, clock_reading(before, source_at, self._clock.now()))

    def _tidy_up(self) -> None:
        now = self._clock.now()
        if self._to_trim and not timedelta(0) <= now - self._trimmed_at < self._trim_every:
            self._to_trim, self._trimmed_at = False, now
            try:
                self._history.acknowledge()
            except BaseException:
                self._to_trim = True
                raise
        if not timedelta(0) <= now - self._checked_at < CHECK_EVERY:
            self._history.require_triggers()
            self._checked_at = now
            self._read_unread()
