"""The replication slot and the publication that belong to one source of one project, and what they need of the server.

The publication lists the captured tables; the slot holds the WAL from what was confirmed last. Both are made, kept and
dropped by headgate. A slot that is gone, or that stands where we never told it to be, has lost changes for us.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass

import psycopg
from psycopg import sql

from headgate.capture.postgres.catalog import PostgresTable
from headgate.capture.postgres.pgoutput import read_lsn
from headgate.capture.postgres.problems import (
    RESNAPSHOT,
    RETRIED,
    SourceHistoryLost,
    SourceSetup,
    SourceUnreachable,
    said,
)

_LONGEST_NAME = 63
BUSY_SECONDS = 5.0
"""How long a slot may still belong to a connection that is gone."""
_OPTIONS = sql.SQL("publish = 'insert, update, delete, truncate', publish_via_partition_root = true")


def slot_name(project: str, source: str) -> str:
    """The name of the slot and of the publication: headgate_<project>_<source>, as far as PostgreSQL takes it."""
    wanted = f"headgate_{project}_{source}"
    plain = re.sub(r"[^a-z0-9_]", "_", wanted.lower())
    if plain == wanted and len(plain) <= _LONGEST_NAME:
        return plain
    # Names that became equal are told apart by what they were.
    mark = hashlib.sha256(f"{project}\0{source}".encode()).hexdigest()[:8]
    return f"{plain[: _LONGEST_NAME - 9]}_{mark}"


@dataclass(frozen=True, slots=True)
class SlotStatus:
    """A slot as the server shows it; positions in the WAL."""

    restart: int
    """Where reading begins after a connection: WAL from here on is held."""
    confirmed: int
    retained: int
    """Bytes of WAL from `restart` to where the server stands."""


def require_server(connection: psycopg.Connection, name: str) -> None:
    """Refuses a server that cannot decode its log, or that has no room for our slot."""
    row = connection.execute(
        "SELECT current_setting('wal_level'), pg_is_in_recovery(), current_setting('max_replication_slots')::int,"
        " current_setting('max_wal_senders')::int, current_setting('server_encoding'),"
        " (SELECT count(*) FROM pg_replication_slots WHERE slot_name <> %s)",
        [name],
    ).fetchone()
    assert row is not None
    wal_level, standby, slots, senders, encoding, used = row
    if standby:
        raise SourceSetup("the server is a standby", hint="name the primary server in the dsn")
    if wal_level != "logical":
        raise SourceSetup(
            f"wal_level is {wal_level} at the server",
            hint="ALTER SYSTEM SET wal_level = logical, then restart the server; or use capture: trigger",
        )
    # One more is used for a while when tables are loaded.
    if used + 2 > slots:
        raise SourceSetup(
            f"of the server's {slots} replication slots {used} are taken, and headgate needs two",
            hint=f"ALTER SYSTEM SET max_replication_slots = {slots + 4}, then restart; or drop a slot that nobody uses",
        )
    if senders == 0:
        raise SourceSetup(
            "max_wal_senders is 0 at the server", hint="ALTER SYSTEM SET max_wal_senders = 10, then restart the server"
        )
    if encoding == "SQL_ASCII":
        raise SourceSetup(
            "the database has the encoding SQL_ASCII, so its texts may be of any", hint="use a database in UTF8"
        )


def require_logged(tables: Iterable[PostgresTable]) -> None:
    """Refuses tables whose changes the log does not tell by key."""
    for table in tables:
        if not table.logged:
            raise SourceSetup(
                f"{table.qualified} is unlogged, so its changes are not in the log",
                hint=f"ALTER TABLE {table.qualified} SET LOGGED, or use capture: trigger",
            )
        require_key(table, table.identity_columns)


def require_key(table: PostgresTable, identity: Iterable[str]) -> None:
    """Refuses a replica identity without the key: removed rows could not be told apart."""
    if not set(table.key) <= set(identity):
        raise SourceSetup(
            f"the log of {table.qualified} does not tell the key ({', '.join(table.key)}) of removed rows",
            hint=f"ALTER TABLE {table.qualified} REPLICA IDENTITY FULL",
        )


def publish_tables(connection: psycopg.Connection, name: str, tables: Iterable[PostgresTable]) -> None:
    """Makes the publication list these tables, but for dropped ones; a change holds for transactions that commit later."""
    wanted = {table.oid: table.scanned for table in tables}
    there = connection.execute("SELECT oid::int8 FROM pg_class WHERE oid = ANY(%s::oid[])", [list(wanted)]).fetchall()
    wanted = {oid: wanted[oid] for (oid,) in there}
    if not wanted:
        return
    listed = sql.SQL(", ").join(wanted.values())
    publication = sql.Identifier(name)
    create = sql.SQL("CREATE PUBLICATION {} FOR TABLE {} WITH ({})").format(publication, listed, _OPTIONS)
    row = connection.execute(
        "SELECT pubinsert AND pubupdate AND pubdelete AND pubtruncate AND pubviaroot, puballtables"
        " FROM pg_publication WHERE pubname = %s",
        [name],
    ).fetchone()
    try:
        if row is None:
            connection.execute(create)
            return
        complete, all_tables = row
        if all_tables:
            raise SourceSetup(f"the publication {name} is for all tables", hint=f"DROP PUBLICATION {name}")
        if not complete:
            connection.execute(sql.SQL("ALTER PUBLICATION {} SET ({})").format(publication, _OPTIONS))
        if set(memberships(connection, name)) != set(wanted):
            connection.execute(sql.SQL("ALTER PUBLICATION {} SET TABLE {}").format(publication, listed))
    except psycopg.errors.InsufficientPrivilege as error:
        raise SourceSetup(
            f"the role {connection.info.user} may not publish the tables: {said(error)}",
            hint=f"let their owner do it: {create.as_string(connection)}",
        ) from None


def memberships(connection: psycopg.Connection, name: str) -> dict[int, int]:
    """The publication's tables, each with the number of its entry: another one when it was taken out and put back."""
    rows = connection.execute(
        "SELECT r.prrelid::int8, r.oid::int8 FROM pg_publication p JOIN pg_publication_rel r ON r.prpubid = p.oid"
        " WHERE p.pubname = %s",
        [name],
    ).fetchall()
    return dict(rows)


def read_slot(connection: psycopg.Connection, name: str) -> SlotStatus:
    """The slot, which must be there and whole."""
    row = connection.execute(
        "SELECT restart_lsn::text, confirmed_flush_lsn::text, wal_status,"
        " (pg_current_wal_insert_lsn() - restart_lsn)::int8 FROM pg_replication_slots"
        " WHERE slot_name = %s AND database = current_database() AND plugin = 'pgoutput'",
        [name],
    ).fetchone()
    if row is None:
        raise slot_gone(name)
    restart, confirmed, state, retained = row
    if state == "lost" or restart is None or confirmed is None:
        raise SourceHistoryLost(
            f"the replication slot {name} has lost WAL that was not read yet",
            hint=f"raise max_slot_wal_keep_size at the server, then {RESNAPSHOT}",
        )
    return SlotStatus(read_lsn(restart), read_lsn(confirmed), retained)


def drop_slot(connection: psycopg.Connection, name: str) -> None:
    """Removes the slot, if there is one; waits a little for a connection that is about to end."""
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            connection.execute(
                "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %s", [name]
            )
            return
        except psycopg.errors.ObjectInUse as error:
            if time.monotonic() > deadline:
                raise slot_in_use(name, error) from None
            time.sleep(0.05)


def slot_gone(name: str) -> SourceHistoryLost:
    return SourceHistoryLost(f"the replication slot {name} is gone from the server")


def slot_in_use(name: str, error: psycopg.Error) -> SourceUnreachable:
    return SourceUnreachable(
        f"the replication slot {name} is in use: {said(error)}",
        hint=f"stop the other headgate that has the same project and source name; {RETRIED}",
    )


def drop_publication(connection: psycopg.Connection, name: str) -> None:
    connection.execute(sql.SQL("DROP PUBLICATION IF EXISTS {}").format(sql.Identifier(name)))
