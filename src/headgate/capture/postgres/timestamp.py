"""Capture by timestamp: polls for rows whose time is recent, for a source that lets us do nothing but read.

    plan      whether anything was committed since the last plan
    publish   one poll of all tables in one snapshot ──► one transaction of the stream log, of rows that were observed

What a poll cannot see it does not promise: rows that were deleted (unless a column marks them), versions of a row between two
polls, the transactions and their times. It relies on every insert and update setting the column to the source's time.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Unpack

from headgate.capture.gears.method import Task
from headgate.capture.postgres.connection import clock_reading
from headgate.capture.postgres.method import CapturedTables
from headgate.capture.postgres.opening import Opening, Options
from headgate.capture.postgres.timestamp_activity import MARGIN
from headgate.capture.postgres.timestamp_history import TimestampHistory
from headgate.capture.postgres.timestamp_tables import TimestampTable
from headgate.capture.source import Capabilities, Sample


class TimestampMethod(CapturedTables[TimestampHistory]):
    """Captures one source by timestamp columns; implements `Method`. Ranges and positions are the numbers of polls."""

    def __init__(
        self,
        dsn: str,
        name: str,
        definitions: Sequence[TimestampTable],
        *,
        margin: timedelta = MARGIN,
        **options: Unpack[Options],
    ) -> None:
        """Goes on where capture ended; at first contact, or afresh, reads all tables."""
        self._clock = options["clock"]
        deletes = all(table.deleted is not None for table in definitions)
        self.capabilities = Capabilities(
            deletes=deletes, transaction_boundaries=False, intermediate_versions=False, commit_times=False
        )
        self._history = TimestampHistory(Opening(dsn, name, **options), definitions, margin=margin)
        self._lock, self._polling = threading.Lock(), threading.Lock()
        self._planned = self._begun = self._polled = options["log"].end
        self._planned_at = ""
        self._read_unread()

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the source's owner could do better."""
        return self._history.warnings

    @property
    def captured(self) -> int:
        return self._polled

    def sample(self) -> Sample:
        at = self._clock.now()
        with self._lock:
            begun, polled, last = self._begun, self._polled, self._history.last
        with self._history.sessions.borrow("looking for changes") as connection:
            before = self._clock.now()
            row = connection.execute("SELECT pg_current_snapshot()::text, clock_timestamp()").fetchone()
            after = self._clock.now()
        assert row is not None
        snapshot, source_at = row
        reading = clock_reading(before, source_at, after)
        # The same snapshot: nothing was committed since. Otherwise the poll that begins next surely sees it.
        position = polled if snapshot == last.snapshot else begun + 1
        return Sample(at, position, reading.offset, reading.error)

    def plan(self, number: int) -> Task[int] | None:
        with self._history.sessions.borrow("looking for changes") as connection:
            row = connection.execute("SELECT pg_current_snapshot()::text").fetchone()
        assert row is not None
        if row[0] == self._planned_at:
            return None
        self._planned_at = row[0]
        self._planned += 1
        return Task(number, self._planned, self._planned)

    def read(self, task: Task[int]) -> int:
        """Nothing yet: a poll must see all that the one before saw, so they run one after the other."""
        return task.range

    def publish(self, batch: int) -> None:
        with self._polling:
            # What was cut short before: nothing may be polled that would make it look as if it were done.
            self._read_unread()
            with self._lock:
                self._begun = batch
            self._history.poll(batch)
            self._read_unread()
            with self._lock:
                self._polled = batch

    def resnapshot(self, tables: Collection[str] | None = None) -> None:
        """Reads tables whole again, by default all; history that was captured is kept."""
        with self._polling:
            self._history.resnapshot(tables)

    def _read_whole(self, name: str) -> None:
        self._history.resnapshot([name])
