"""The streaming replication protocol: a running START_REPLICATION, read without blocking.

    server ── WAL data, keepalives ──► receive()
    server ◄── standby status ──────── confirm(lsn): everything before it may be forgotten

A stream ends with its connection: PostgreSQL ends a second START_REPLICATION on the same one at once.
"""

from __future__ import annotations

import select
import struct
import time
from collections.abc import Callable

import psycopg
from psycopg import errors, pq

from headgate.capture.events import to_micros
from headgate.capture.postgres.connection import connect
from headgate.capture.postgres.opening import Opening
from headgate.capture.postgres.pgoutput import show_lsn
from headgate.capture.postgres.problems import (
    RETRIED,
    SourceHistoryLost,
    SourceUnreachable,
    said,
    source_errors,
    statement_failed,
)
from headgate.capture.postgres.slot import BUSY_SECONDS, slot_gone, slot_in_use
from headgate.errors import HeadgateError

_STATUS = struct.Struct(">cQQQqB")
_EPOCH = 946_684_800_000_000
_STREAMING = "streaming changes"


class ReplicationStream:
    """Changes of a slot from a position on; used by one thread."""

    def __init__(self, opening: Opening, *, after: int, check: Callable[[psycopg.Connection], None]) -> None:
        """`check` looks at the connection before the stream begins. The slot and the publication have the same name."""
        self._clock = opening.clock
        self._connection = connect(opening.dsn, application=f"headgate {opening.name}", replication=True)
        try:
            check(self._connection)
            self._start(opening.name, after)
            self._poll = select.poll()
            self._poll.register(self._connection.pgconn.socket, select.POLLIN)
        except BaseException:
            self._connection.close()
            raise

    def receive(self, timeout: float) -> list[memoryview]:
        """The messages that have arrived; waits for some, and gives none when the time is up."""
        with source_errors(_STREAMING):
            return self._receive(timeout)

    def confirm(self, lsn: int, *, reply: bool = False) -> None:
        """Tells the server that everything before this position is safe here; it may answer with a keepalive."""
        now = to_micros(self._clock.now()) - _EPOCH
        status = _STATUS.pack(b"r", lsn, lsn, lsn, now, reply)
        with source_errors(_STREAMING):
            self._connection.pgconn.put_copy_data(status)
            self._connection.pgconn.flush()

    def stop(self, *, timeout: float = 5.0) -> None:
        """Ends the stream in order, so that the slot is free, and closes the connection."""
        try:
            self._connection.pgconn.put_copy_end()
            self._connection.pgconn.flush()
            deadline = time.monotonic() + timeout
            while time.monotonic() < deadline:
                self._receive(max(0.0, deadline - time.monotonic()))
        except (psycopg.Error, HeadgateError):
            pass
        finally:
            self._connection.close()

    def close(self) -> None:
        """Closes the connection at once."""
        self._connection.close()

    def _start(self, slot: str, after: int) -> None:
        command = (
            f"START_REPLICATION SLOT {slot} LOGICAL {show_lsn(after)} (proto_version '1', publication_names '{slot}')"
        )
        deadline = time.monotonic() + BUSY_SECONDS
        while True:
            result = self._connection.pgconn.exec_(command.encode())
            if result.status == pq.ExecStatus.COPY_BOTH:
                return
            error = errors.error_from_result(result)
            if isinstance(error, errors.UndefinedObject):
                # It was dropped since the check.
                raise slot_gone(slot)
            if not isinstance(error, errors.ObjectInUse):
                raise statement_failed(error, f"streaming from the slot {slot}")
            if time.monotonic() > deadline:
                raise slot_in_use(slot, error)
            time.sleep(0.05)

    def _receive(self, timeout: float) -> list[memoryview]:
        connection = self._connection.pgconn
        take = connection.get_copy_data
        messages: list[memoryview] = []
        for wait in (False, True, None):
            size, message = take(1)
            while size > 0:
                messages.append(message)
                size, message = take(1)
            if size < 0:
                raise self._ended()
            if messages or wait is None:
                break
            if wait and not self._poll.poll(timeout * 1000):
                break
            connection.consume_input()
        return messages

    def _ended(self) -> HeadgateError:
        """The server ended the stream: what it said."""
        while result := self._connection.pgconn.get_result():
            if result.status == pq.ExecStatus.FATAL_ERROR:
                return _failure(errors.error_from_result(result))
            if result.status == pq.ExecStatus.COPY_IN:
                break
        return SourceUnreachable("the server ended the stream of changes", hint=RETRIED)


def _failure(error: psycopg.Error) -> HeadgateError:
    if isinstance(error, errors.UndefinedObject):
        # The log is decoded with the catalog as it was then: making the publication again does not help.
        return SourceHistoryLost(f"the source's changes cannot be decoded: {said(error)} at that time")
    return statement_failed(error, _STREAMING)
