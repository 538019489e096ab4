"""One poll: all tables in one snapshot, from the time on from which rows may be new, into one transaction of the log.

The tables are locked against changes of their definition before the snapshot is taken, so that they are as it shows them.
Versions of rows that the poll before has seen already are left out, as far as they are remembered.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from psycopg import sql

from headgate.capture.postgres.copied import copied
from headgate.capture.postgres.known_tables import KnownTables
from headgate.capture.postgres.sessions import Sessions
from headgate.capture.postgres.timestamp_activity import OpenTransactions, earliest_change, read_activity, with_prepared
from headgate.capture.postgres.timestamp_tables import VERSION, TimestampTable
from headgate.capture.postgres.trigger_sql import oldest_unseen
from headgate.capture.streamlog import StreamLog
from headgate.capture.writing import TransactionWriter
from headgate.errors import DefiniteError

REMEMBERED = 200_000
"""Versions of rows; a poll that reads more is not remembered, and what it read may be read once more."""
_LOCK_WAIT = sql.SQL("SET LOCAL lock_timeout = '2s'")


@dataclass(frozen=True, slots=True)
class Poll:
    """What one poll saw."""

    snapshot: str
    activity: OpenTransactions


class Poller:
    """Polls the tables of one source, one poll at a time."""

    def __init__(
        self,
        sessions: Sessions,
        wanted: Mapping[str, TimestampTable],
        tables: KnownTables,
        log: StreamLog,
        margin: timedelta,
    ) -> None:
        self._sessions = sessions
        self._wanted = wanted
        self._tables = tables
        self._log = log
        self._margin = margin
        self._seen: dict[str, pa.Array] = {}

    def poll(self, before: Poll, position: int, at: datetime) -> Poll:
        """Appends what is new since the poll before, if anything is; durable on return."""
        with self._sessions.borrow("polling the tables") as connection:
            activity = with_prepared(read_activity(connection), before.activity)
            with connection.transaction():
                connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
                self._lock(connection)
                row = connection.execute("SELECT pg_current_snapshot()::text").fetchone()
                assert row is not None
                still = read_activity(connection).running.keys()
                low = earliest_change(before.activity, still, self._margin)
                self._read(connection, before, low, position, at)
        return Poll(row[0], activity)

    def _lock(self, connection: psycopg.Connection) -> None:
        tables = [table for name, table in self._tables.tables.items() if name not in self._tables.problems]
        if not tables:
            return
        names = sql.SQL(", ").join(table.identifier for table in tables)
        connection.execute(_LOCK_WAIT)
        try:
            with connection.transaction():
                connection.execute(sql.SQL("LOCK TABLE {} IN ACCESS SHARE MODE").format(names))
        except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
            # Looking at the tables stops those that are gone.
            return

    def _read(
        self, connection: psycopg.Connection, before: Poll, low: datetime | None, position: int, at: datetime
    ) -> None:
        self._tables.look(connection, {table.oid: name for name, table in self._tables.tables.items()}, position)
        at = at if self._log.end_commit_at is None else max(at, self._log.end_commit_at)
        seen: dict[str, pa.Array] = {}
        with self._log.begin(position, at) as writer:
            count = 0
            for name in self._tables.tables:
                if name not in self._tables.problems:
                    written, seen[name] = self._read_table(connection, name, before, low, writer, count)
                    count += written
            if count:
                writer.commit()
                self._log.sync()
        self._seen = seen

    def _read_table(
        self,
        connection: psycopg.Connection,
        name: str,
        before: Poll,
        low: datetime | None,
        writer: TransactionWriter,
        first: int,
    ) -> tuple[int, pa.Array]:
        """Writes what is new of a table; gives its number and all versions that were read."""
        wanted, table, build = self._wanted[name], self._tables.tables[name], self._tables.rows[name]
        query = wanted.changes_since(table, low, oldest_unseen(before.snapshot))
        versions: list[pa.Array] = []
        count = 0
        for rows in copied(connection, query, wanted.query_columns(table)):
            read = rows.column(VERSION).combine_chunks()
            versions.append(read)
            if name in self._seen:
                rows = rows.filter(pc.invert(pc.is_in(read, self._seen[name])))
            if rows.num_rows and name not in self._tables.problems:
                try:
                    writer.write(name, wanted.events(rows, build, first + count))
                    count += rows.num_rows
                except DefiniteError as error:
                    self._tables.stop(name, writer.position, error.what, error.advice)
        total = sum(len(part) for part in versions)
        none = pa.array([], pa.string())
        return count, pa.concat_arrays([none, *versions]) if total <= REMEMBERED else none
