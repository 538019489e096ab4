"""Answers of a platform: the job that its tables are at and the rows, read in one transaction and one round trip.

    rows in any order     one prepared statement, which joins the state with the query
    else                  the state, then the query, sent together; rows come in the query's order

Both are a REPEATABLE READ transaction of their own. Anything that the platform refuses is left to Spark, which knows what to say
about the query.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import psycopg
import pyarrow as pa
from psycopg import pq

from headgate.capture.postgres.connection import connect
from headgate.delta.changes import JobId
from headgate.errors import HeadgateError
from headgate.serving.columns import read_rows
from headgate.serving.expressions import identifier, quoted_text
from headgate.serving.layout import COLUMNS_OF, STATE, TABLES
from headgate.serving.shapes import QueryShape, ServedQuery

MOST_ROWS = 10_000
"""Of an answer; more are read by Spark, which needs not hold them all."""
MOST_CONNECTIONS = 8
_MOST_PREPARED = 200
_DOWN_SECONDS = 1.0
"""How long a server that did not answer is not asked again."""
_HEAD = 4
"""Columns before those of the answer: job, epoch, tables that are sound, and whether there is a row."""
_SESSION = "SET default_transaction_isolation = 'repeatable read'; SET default_transaction_read_only = on"


class NotServed(Exception):
    """The platform did not answer; the message says why."""


class _ServerRefused(Exception):
    """The server said no."""


OnCancel = Callable[[Callable[[], None]], Callable[[], None]]
"""Has a call made when the query is called off, until what it gives is called."""


@dataclass(frozen=True, slots=True)
class ServedRows:
    job: JobId
    rows: pa.Table


@dataclass(eq=False)
class _ServerSession:
    connection: psycopg.Connection
    prepared: dict[str, bytes] = field(default_factory=dict)
    timeout: int = 0


class PlatformReader:
    """Connections for queries; may be used by many threads.

    `psycopg_pool` is not used: a reader that finds no free connection, or a platform that is down, leaves the query to Spark at once
    instead of waiting, and each connection keeps the statements that it has prepared.
    """

    def __init__(self, name: str, dsn: str, schema: str, epoch: int) -> None:
        self.name = name
        self._dsn = dsn
        self._schema = identifier(schema)
        self._epoch = epoch
        self._idle: queue.LifoQueue[_ServerSession] = queue.LifoQueue()
        self._slots = threading.BoundedSemaphore(MOST_CONNECTIONS)
        self._down_until = 0.0
        self._why_down = ""

    def read(
        self, query: ServedQuery, accepts: Callable[[JobId], bool], until: float | None, on_cancel: OnCancel
    ) -> ServedRows:
        """The rows, if the job that they are of is accepted."""
        shape = query.shape
        with self._session() as session:
            forget = on_cancel(lambda: _cancel(session.connection))
            try:
                self._limit_time(session, until)
                if shape.translated.is_ordered:
                    head, body = self._sent_together(session, query)
                    found, first = head, 0
                else:
                    found = body = self._joined(session, query)
                    first = _HEAD
            except _ServerRefused as error:
                if session.connection.pgconn.status == pq.ConnStatus.BAD:
                    self._note_down(str(error))
                raise NotServed(f"{self.name} refused it: {error}") from None
            finally:
                forget()
        if not found.ntuples:
            raise NotServed(f"nothing was shipped to {self.name}")
        job, epoch, sound = (int(found.get_value(0, number) or b"0") for number in range(3))
        if epoch != self._epoch or sound != len(shape.tables):
            raise NotServed(f"tables at {self.name} are not as they were shipped")
        if not accepts(JobId(job)):
            raise NotServed(f"{self.name} is at job {job}, which is not fresh enough")
        count = body.ntuples if first == 0 or body.get_value(0, _HEAD - 1) is not None else 0
        if count > MOST_ROWS and not shape.translated.is_limited:
            raise NotServed(f"the answer has more than {MOST_ROWS:,} rows")
        columns = [[body.get_value(row, column) for row in range(count)] for column in range(first, body.nfields)]
        try:
            return ServedRows(JobId(job), read_rows(shape.translated.schema, shape.arrow, columns))
        except (ValueError, pa.ArrowException) as error:
            raise NotServed(f"a value of {self.name} cannot be read: {error}") from error

    def _joined(self, session: _ServerSession, query: ServedQuery) -> pq.abc.PGresult:
        shape, server = query.shape, session.connection.pgconn
        limit = "" if shape.translated.is_limited else f" LIMIT {MOST_ROWS + 1}"
        # The text names the tables' definitions: those of a flow that was redefined are other statements.
        text = (
            f"SELECT s.job, s.epoch, {self._sound(shape)}, q.* FROM {self._schema}.{STATE} s"
            f" LEFT JOIN LATERAL (SELECT true, r.* FROM ({shape.prepared}{limit}) r) q ON true"
        )
        name = session.prepared.get(text)
        if name is None:
            name = f"q{len(session.prepared)}".encode()
            _require(server.prepare(name, text.encode()))
            session.prepared[text] = name
        return _require(server.exec_prepared(name, query.parameters))

    def _sent_together(self, session: _ServerSession, query: ServedQuery) -> tuple[pq.abc.PGresult, pq.abc.PGresult]:
        limit = "" if query.shape.translated.is_limited else f" LIMIT {MOST_ROWS + 1}"
        text = f"BEGIN;SELECT s.job, s.epoch, {self._sound(query.shape)} FROM {self._schema}.{STATE} s;{query.sql}{limit};COMMIT"
        try:
            with session.connection.cursor() as cursor:
                cursor.execute(text.encode())
                found = []
                while True:
                    if cursor.pgresult is not None and cursor.pgresult.status == pq.ExecStatus.TUPLES_OK:
                        found.append(cursor.pgresult)
                    if not cursor.nextset():
                        head, body = found
                        return head, body
        except psycopg.Error as error:
            with suppress(psycopg.Error):
                session.connection.rollback()
            raise _ServerRefused(error.diag.message_primary or str(error)) from None

    def _sound(self, shape: QueryShape) -> str:
        """How many of the query's tables are those that were shipped: no trigger tells of one that was replaced or altered."""
        wanted = ", ".join(
            f"({quoted_text(table.name)}, '{table.definition}',"
            f" to_regclass({quoted_text(self._schema + '.' + identifier(table.name))})::oid)"
            for table in shape.tables
        )
        return (
            f"(SELECT count(*) FROM {self._schema}.{TABLES} WHERE changed_at IS NULL AND (name, definition, relation)"
            f" IN ({wanted}) AND columns = ({COLUMNS_OF} relation))"
        )

    def _limit_time(self, session: _ServerSession, until: float | None) -> None:
        most = 0 if until is None else max(1, int((until - time.monotonic()) * 1000))
        if most != session.timeout:
            _require(session.connection.pgconn.exec_(f"SET statement_timeout = {most}".encode()))
            session.timeout = most

    @contextmanager
    def _session(self) -> Iterator[_ServerSession]:
        if time.monotonic() < self._down_until:
            raise NotServed(f"{self.name} does not answer: {self._why_down}")
        with self._slots:
            try:
                session = self._idle.get_nowait()
            except queue.Empty:
                session = self._opened()
            try:
                yield session
            finally:
                server = session.connection.pgconn
                good = server.status == pq.ConnStatus.OK and server.transaction_status == pq.TransactionStatus.IDLE
                if good and len(session.prepared) < _MOST_PREPARED:
                    self._idle.put(session)
                else:
                    _leave(session.connection)

    def _opened(self) -> _ServerSession:
        try:
            connection = connect(self._dsn, application="headgate-queries")
            connection.execute(_SESSION)
        except HeadgateError as error:
            self._note_down(error.what)
            raise NotServed(f"{self.name} does not answer: {error.what}") from error
        except psycopg.Error as error:
            self._note_down(str(error))
            raise NotServed(f"{self.name} does not answer: {error}") from error
        return _ServerSession(connection)

    def _note_down(self, why: str) -> None:
        self._why_down = why.splitlines()[0] if why else ""
        self._down_until = time.monotonic() + _DOWN_SECONDS

    def close(self) -> None:
        with suppress(queue.Empty):
            while True:
                _leave(self._idle.get_nowait().connection)


def _require(result: pq.abc.PGresult) -> pq.abc.PGresult:
    if result.status not in (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK):
        raise _ServerRefused(result.get_error_message())
    return result


def _cancel(connection: psycopg.Connection) -> None:
    with suppress(psycopg.Error):
        connection.cancel_safe(timeout=5)


def _leave(connection: psycopg.Connection) -> None:
    with suppress(psycopg.Error):
        connection.close()
