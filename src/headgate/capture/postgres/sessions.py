"""Connections to one source for several threads: borrowed for a statement, kept open, replaced when they break.

`psycopg_pool` is not used: it opens connections in threads of its own, while here the borrower must hear at once, in the words of
the source, why none can be opened; and closing has to cancel statements that other threads wait for.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import psycopg

from headgate.capture.postgres.connection import connect
from headgate.capture.postgres.problems import SourceUnreachable, source_errors


class Sessions:
    """A few connections with the same DSN; `opened` looks at each new one before it is used."""

    def __init__(
        self, dsn: str, *, application: str, opened: Callable[[psycopg.Connection], None] = lambda connection: None
    ) -> None:
        self._dsn = dsn
        self._application = application
        self._opened = opened
        self._lock = threading.Lock()
        self._idle: list[psycopg.Connection] = []
        self._busy: set[psycopg.Connection] = set()
        self._closed = False
        self.borrowed = 0
        """How often a connection was borrowed: about as many transactions at the source are ours."""

    @contextmanager
    def borrow(self, doing: str) -> Iterator[psycopg.Connection]:
        """A connection that commits each statement; the driver's errors become ours, named by what was done."""
        connection = self._take()
        try:
            with source_errors(doing):
                yield connection
        except BaseException:
            if connection.broken:
                self._forget_idle()
            # It may be in any state: a transaction open, a COPY not finished.
            connection.close()
            raise
        finally:
            self._give_back(connection)

    def close(self) -> None:
        """Ends all connections, also those that another thread waits on: its statement fails."""
        with self._lock:
            self._closed = True
            idle, self._idle, busy = self._idle, [], list(self._busy)
        for connection in busy:
            with suppress(psycopg.Error):
                connection.cancel_safe(timeout=2)
        for connection in idle:
            connection.close()

    def _take(self) -> psycopg.Connection:
        with self._lock:
            self._require_open()
            connection = self._idle.pop() if self._idle else None
        if connection is None:
            connection = connect(self._dsn, application=self._application)
            try:
                with source_errors("opening a session"):
                    self._opened(connection)
            except BaseException:
                connection.close()
                raise
        with self._lock:
            if self._closed:
                connection.close()
            self._require_open()
            self._busy.add(connection)
            self.borrowed += 1
        return connection

    def _give_back(self, connection: psycopg.Connection) -> None:
        with self._lock:
            self._busy.discard(connection)
            if self._closed:
                connection.close()
            elif not connection.closed:
                self._idle.append(connection)

    def _forget_idle(self) -> None:
        """What broke one connection has likely broken all."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _require_open(self) -> None:
        if self._closed:
            raise SourceUnreachable("the connection to the source was closed")
