"""Reads a source's replication stream into its stream log, up to a position; connects when it must."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import psycopg

from headgate.capture.postgres.log_append import LogAppender
from headgate.capture.postgres.log_history import LogHistory
from headgate.capture.postgres.opening import Opening
from headgate.capture.postgres.pgoutput_transactions import TransactionCollector
from headgate.capture.postgres.problems import SourceUnreachable
from headgate.capture.postgres.replication import ReplicationStream
from headgate.errors import TransientError

_SYNC_SECONDS = 2.0
"""How long a busy stream may go on before what it brought is synced and told."""
_TELL_SECONDS = 1.0
"""How often a quiet source is told of its progress: that is a write to our disk."""
_NUDGE_SECONDS = 0.01
_FIRST_PAUSE, _LONGEST_PAUSE = 0.001, 0.05


class LogReader:
    """One source's stream; used by one thread at a time."""

    def __init__(
        self,
        opening: Opening,
        history: LogHistory,
        *,
        group_bytes: int,
        closing: threading.Event,
        settled: Callable[[], None],
    ) -> None:
        """`settled` is called whenever what was read is durable; it may raise to end the stream."""
        self.durable = history.told
        """Everything that committed before this position in the WAL is on the disk."""
        self.clock_offset = 0
        """The source's clock minus headgate's, in microseconds."""
        self._opening = opening
        self._history = history
        self._log = opening.log
        self._group_bytes = group_bytes
        self._closing = closing
        self._settled = settled
        self._stream: ReplicationStream | None = None
        self._synced = self._told = time.monotonic()

    def drain(self, upto: int, *, before: int | None = None, rest: Callable[[], None] = lambda: None) -> None:
        """Captures everything that committed before `upto`, durably; calls `rest` between steps.

        With `before`, nothing that committed at or after it is captured, and the stream ends.
        """
        while self.durable < upto:
            fresh = self._stream is None
            try:
                self._read(upto, before, rest)
            except TransientError:
                self.disconnect()
                # The server may have ended a connection that was idle for long.
                if fresh or self._closing.is_set():
                    raise
            except BaseException:
                self.disconnect()
                raise
        if before is not None:
            self.disconnect()

    def disconnect(self) -> None:
        """Ends the stream; what was not whole is read again."""
        stream, self._stream = self._stream, None
        if stream is not None:
            self._appender.abandon()
            stream.stop()

    def _read(self, upto: int, before: int | None, rest: Callable[[], None]) -> None:
        stream = self._stream or self._connect()
        collector = self._collector
        began, pause, nudged = time.monotonic(), 0.0, False
        while (known := (collector.reached, collector.bytes))[0] < upto:
            if self._closing.is_set():
                raise SourceUnreachable("the connection to the source was closed")
            messages = stream.receive(pause)
            collector.feed(messages, before=before)
            rest()
            if collector.bytes > self._group_bytes:
                collector.hand_over(rest)
            now = time.monotonic()
            if now - self._synced > _SYNC_SECONDS or collector.reply_wanted:
                self._settle(stream, rest)
            if (collector.reached, collector.bytes) != known:
                began, pause = now, 0.0
                continue
            pause = min(max(2 * pause, _FIRST_PAUSE), _LONGEST_PAUSE)
            if not messages:
                self._log.flush_mark()
                # The answer tells how far the server has read.
                stream.confirm(self._history.told, reply=True)
            if now - began > _NUDGE_SECONDS and not nudged:
                self._history.server.nudge()
                nudged = True
        self._settle(stream, rest)

    def _settle(self, stream: ReplicationStream, rest: Callable[[], None]) -> None:
        """Makes what was read durable, and tells the server."""
        self._collector.hand_over(rest)
        self._log.sync()
        self._log.flush_mark()
        self.durable = max(self.durable, self._collector.reached)
        self._synced = now = time.monotonic()
        if now - self._told > _TELL_SECONDS or self._collector.reply_wanted:
            self._history.tell(self.durable)
            self._told = now
        self._collector.reply_wanted = False
        stream.confirm(min(self.durable, self._history.told))
        self._settled()

    def _connect(self) -> ReplicationStream:
        self._appender = LogAppender(self._log, offset=self._history.offset, clock_offset=lambda: self.clock_offset)
        self._collector = TransactionCollector(
            self._history.tables, self._appender, limit=2 * self._group_bytes, reached=self._history.told
        )
        self._stream = ReplicationStream(self._opening, after=self._history.told, check=self._check)
        return self._stream

    def _check(self, connection: psycopg.Connection) -> None:
        position = self._history.server.standing().lsn
        self._history.require_same(connection, position)
        self._history.inspect(position)
