"""Capture by log: PostgreSQL's logical replication with pgoutput, into a stream log.

    plan      where the server stands now
    publish   read the stream up to there ──► stream log, synced ──► tell the server, so that it can let go of its WAL

A position is where a transaction's commit record begins in the WAL. The server hears of a position only when everything
before it is on the disk here: through the stream log when there were changes, and through a keepalive when the captured
tables are quiet, so WAL never piles up because nobody queries. After a failure reading begins again from what was told,
and what the stream log has already is left out.

Between periods the stream stays open and unread, or is closed when that is cheaper for the server (`worth_closing`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import timedelta
from typing import Unpack

from headgate.capture.gears.method import Task
from headgate.capture.postgres.connection import ClockReading
from headgate.capture.postgres.first_loads import FirstLoads
from headgate.capture.postgres.log_history import LogHistory
from headgate.capture.postgres.log_reader import LogReader
from headgate.capture.postgres.log_server import Standing
from headgate.capture.postgres.log_tables import TableDefinition
from headgate.capture.postgres.method import CapturedTables
from headgate.capture.postgres.opening import Opening, Options
from headgate.capture.postgres.retained import RetainedWal
from headgate.capture.source import Capabilities, Sample
from headgate.errors import TransientError

GROUP_BYTES = 8 << 20
"""Messages held before they are decoded."""
_INSPECT_SECONDS = 1.0
_LONG_PERIOD = 1.0
_REREAD_RATIO = 4


class LogMethod(CapturedTables[LogHistory]):
    """Captures one source by its log; implements `Method` with positions in the WAL as ranges."""

    capabilities = Capabilities(
        deletes=True, transaction_boundaries=True, intermediate_versions=True, commit_times=True
    )

    def __init__(
        self,
        dsn: str,
        name: str,
        definitions: Sequence[TableDefinition],
        *,
        retained_limit: int | None = None,
        group_bytes: int = GROUP_BYTES,
        **options: Unpack[Options],
    ) -> None:
        """Opens the source; the first rows of tables are read by `load`. `name` is that of the slot and the publication."""
        self._opening = Opening(dsn, name, **options)
        self.retained = RetainedWal(name, retained_limit)
        self._group_bytes = group_bytes
        self._lock = threading.RLock()
        self._closing = threading.Event()
        self._planned = self._restart = 0
        self._inspected = float("-inf")
        self._published = time.monotonic()
        self._verified = False
        self._history = LogHistory(self._opening, definitions)
        self._reader = self._new_reader()
        try:
            if self._history.lost_upto is not None:
                self._reader.drain(self._history.lost_upto + 1)
                options["log"].settle_loss(found_again=True)
            missing = self._history.missing
            self._history.await_rows([name for name in missing if not self._history.has_rows(name)])
            self.loads = FirstLoads(self._opening, self._history, self._lock, lambda: self._reader)
            self._load(self._history.missing)
            self._read_unread()
        except BaseException:
            self.close()
            raise

    @property
    def captured(self) -> int:
        return self._reader.durable + self._history.offset

    def sample(self) -> Sample:
        standing = self._standing()
        return Sample(standing.at, standing.lsn + self._history.offset, standing.clock.offset, standing.clock.error)

    def plan(self, number: int) -> Task[int] | None:
        standing = self._standing()
        self._reader.clock_offset = _correction(standing.clock)
        if standing.lsn <= self._planned:
            return None
        self._planned = standing.lsn
        return Task(number, standing.lsn + self._history.offset, standing.lsn)

    def read(self, task: Task[int]) -> int:
        """Nothing yet: the stream is read while it is published, so that memory stays bounded."""
        return task.range

    def publish(self, batch: int) -> None:
        with self._lock:
            now, before = time.monotonic(), self._reader.durable
            # The stream may have run ahead of what was planned.
            if batch > before:
                self._inspect()
                self._reader.drain(batch, rest=self.throttle.rest)
                if worth_closing(now - self._published, batch - before, self._reader.durable - self._restart):
                    self._reader.disconnect()
            self._read_unread()
            self._published = now

    def load(self, tables: Collection[str], is_stopped: Callable[[], bool] = lambda: False) -> None:
        """Reads the first rows of those of the tables that have none, while capture goes on."""
        self.loads.read(tables, lambda: is_stopped() or self._closing.is_set())

    def resnapshot(self, tables: Iterable[str] | None = None) -> None:
        """Reads tables whole again, by default all of them from a new slot; history that was captured is kept."""
        if tables is not None:
            tables = tuple(tables)
            # One that is read range by range is read whole behind what was read of it.
            first = [name for name in tables if self._history.is_waiting(name) and not self._history.has_rows(name)]
            self.load(first)
            tables = [name for name in tables if name not in first]
        with self._lock:
            self._reader.disconnect()
            if tables is None:
                self._history.begin_anew()
                self.retained.begun_anew()
                self._reader = self._new_reader()
                tables = self._history.missing
            self._load(tables)
            self.loads.look()

    def remove(self) -> None:
        """Drops the slot and the publication at the source; capture ends."""
        with self._lock:
            self._reader.disconnect()
            self._history.remove()

    def close(self) -> None:
        self._closing.set()
        super().close()
        with self._lock:
            self._reader.disconnect()

    def _standing(self) -> Standing:
        try:
            standing = self._history.server.standing()
        except TransientError:
            # A server that shuts down waits until its stream is read to the end or closed.
            if self._lock.acquire(blocking=False):
                try:
                    self._reader.disconnect()
                finally:
                    self._lock.release()
            raise
        if standing.lsn < self._reader.durable or not self._verified:
            with self._lock:
                # Asked again: the tables may have been read afresh since.
                standing = self._history.server.standing()
                self._history.verify(standing.lsn)
                self._verified = True
        return standing

    def _new_reader(self) -> LogReader:
        self._inspected = float("-inf")
        self._planned = self._history.told
        return LogReader(
            self._opening,
            self._history,
            group_bytes=self._group_bytes,
            closing=self._closing,
            settled=self._inspect,
        )

    def _load(self, tables: Iterable[str]) -> None:
        if names := tuple(tables):
            self._history.load(names, lambda consistent: self._reader.drain(consistent, before=consistent))

    def _read_whole(self, name: str) -> None:
        self._reader.disconnect()
        self._load([name])

    def _inspect(self) -> None:
        """Looks at the slot from time to time, also while a long stream is read."""
        if time.monotonic() - self._inspected < _INSPECT_SECONDS:
            return
        status = self._history.inspect(self._planned)
        self._inspected = time.monotonic()
        self._restart = status.restart
        self.retained.measured(status.retained)
        if self.retained.beyond_limit:
            self._reader.disconnect()
            self._history.drop()
            raise self.retained.given_up()


def worth_closing(seconds: float, brought: int, reread: int) -> bool:
    """Whether to close the stream until the next period, given the last one's length and the WAL that it brought.

    Opening it again makes the server read `reread` bytes of WAL once more. Measured: at periods of 0.3 s that costs what it
    saves; at 1.3 s, with three times the WAL to reread, the walsender needs half the time of one that is always on.
    """
    return seconds >= _LONG_PERIOD and reread <= _REREAD_RATIO * brought


def _correction(clock: ClockReading) -> int:
    """What to take off the source's times; nothing while the clocks may well be the same."""
    return 0 if abs(clock.offset) <= clock.error else clock.offset // timedelta(microseconds=1)
