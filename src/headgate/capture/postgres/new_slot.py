"""Making a replication slot, which exports a snapshot of the moment that its changes begin at."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import psycopg
from psycopg import sql

from headgate.capture.postgres.connection import connect
from headgate.capture.postgres.pgoutput import read_lsn
from headgate.capture.postgres.problems import RETRIED, SourceUnreachable, source_errors

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
            hint=f"end it, or wait; {RETRIED}",
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
