"""Slots that export a snapshot, and loads: whole tables of such a snapshot as one transaction of the stream log."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime

import numpy as np
import psycopg
from psycopg import sql

from headgate.capture.postgres.catalog import PostgresTable
from headgate.capture.postgres.connection import connect
from headgate.capture.postgres.pgoutput import read_lsn
from headgate.capture.postgres.problems import SourceUnreachable, source_errors
from headgate.capture.postgres.rows import EventRows
from headgate.capture.postgres.snapshot import Progress, copy_tables
from headgate.capture.streamlog import StreamLog
from headgate.delta.events import OBSERVED, TRUNCATE, UPSERT

PATIENCE = 60.0
"""Seconds to wait for the transactions that were running when a slot was asked for."""


@dataclass(frozen=True, slots=True)
class NewSlot:
    """A slot just made: rows committed before `consistent` are in the snapshot, which lasts as long as the connection."""

    consistent: int
    snapshot: str
    system: str
    timeline: int

    @property
    def load_at(self) -> int:
        """The position of a load: after all that it holds, and never that of a commit record, which are aligned."""
        return self.consistent - 1


@contextmanager
def new_slot(dsn: str, name: str, *, temporary: bool = False, patience: float = PATIENCE) -> Iterator[NewSlot]:
    """Makes a slot; its snapshot can be used inside the `with` block."""
    with connect(dsn, application=f"headgate {name}", replication=True) as connection:
        system, timeline = identify(connection)
        kind = "TEMPORARY LOGICAL" if temporary else "LOGICAL"
        command = sql.SQL(f"CREATE_REPLICATION_SLOT {{}} {kind} pgoutput EXPORT_SNAPSHOT").format(sql.Identifier(name))
        row = _with_patience(connection, command, patience, dsn)
        yield NewSlot(read_lsn(row[1]), row[2], system, timeline)


def identify(connection: psycopg.Connection) -> tuple[str, int]:
    """The server's own number and its timeline; the connection is one for replication."""
    with source_errors("asking the server who it is"):
        row = connection.execute("IDENTIFY_SYSTEM").fetchone()
    assert row is not None
    return str(row[0]), int(row[1])


def load_tables(
    dsn: str,
    log: StreamLog,
    snapshot: str,
    tables: Sequence[PostgresTable],
    *,
    position: int,
    at: datetime,
    replacing: bool,
    progress: Callable[[Progress], None] | None = None,
) -> None:
    """Puts the tables as they are in the snapshot into the log, durably, as one transaction.

    `replacing` what the log has of them, they are emptied first and their rows are observations: only real differences
    remain once they are compared with the replicas. Otherwise the rows are valid from the beginning of time.
    """
    at = at if log.end_commit_at is None else max(at, log.end_commit_at)
    with log.begin(position, at, initial=not replacing) as writer:
        if replacing:
            for number, table in enumerate(tables):
                ops, sequences = np.array([TRUNCATE], dtype=np.int8), np.array([number], dtype=np.int64)
                writer.write(table.source_table.name, EventRows(table).build({}, ops, sequences))
        op = OBSERVED if replacing else UPSERT
        copy_tables(dsn, snapshot, tables, writer.write, op=op, first=len(tables), progress=progress)
        writer.commit()
    log.sync()


def _with_patience(
    connection: psycopg.Connection, command: sql.Composed, patience: float, dsn: str
) -> tuple[str, str, str]:
    """Runs the command, and gives up when transactions that began earlier do not end."""
    given_up = threading.Event()

    def give_up() -> None:
        given_up.set()
        with suppress(psycopg.Error):
            connection.cancel_safe(timeout=5)

    timer = threading.Timer(patience, give_up)
    timer.start()
    try:
        with source_errors("creating the replication slot"):
            row = connection.execute(command).fetchone()
    except SourceUnreachable:
        if not given_up.is_set():
            raise
        raise SourceUnreachable(
            f"the replication slot could not be made within {patience:g} seconds: {_oldest_transaction(dsn)} has not ended",
            hint="end it, or wait; it is tried again",
        ) from None
    finally:
        timer.cancel()
    assert row is not None
    return row


def _oldest_transaction(dsn: str) -> str:
    with connect(dsn) as connection, source_errors("looking for old transactions"):
        row = connection.execute(
            "SELECT * FROM (SELECT format('the transaction of process %s (%s)', pid, state), xact_start"
            " FROM pg_stat_activity WHERE backend_xid IS NOT NULL UNION ALL"
            " SELECT format('the prepared transaction %L', gid), prepared FROM pg_prepared_xacts) AS old ORDER BY 2 LIMIT 1"
        ).fetchone()
    return "an old transaction" if row is None else f"{row[0]}, running since {row[1]:%Y-%m-%d %H:%M:%S},"
