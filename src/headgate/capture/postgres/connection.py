"""Connections to a PostgreSQL source, with session settings that make every value's text exact and canonical."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import LiteralString, NamedTuple
from urllib.parse import quote

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from headgate.capture.postgres.problems import (
    ConnectionTarget,
    SourceRefused,
    SourceSetup,
    connecting_failed,
)

OLDEST_VERSION = 14

TEXT_SETTINGS: Mapping[LiteralString, LiteralString] = {
    "DateStyle": "ISO,YMD",
    "IntervalStyle": "postgres",
    "TimeZone": "UTC",
    "bytea_output": "hex",
    "extra_float_digits": "3",
    "lc_monetary": "C",
}
"""What a value's text depends on."""
_SESSION = {
    **TEXT_SETTINGS,
    # A row policy raises an error rather than hiding rows from us.
    "row_security": "off",
    # As pg_dump does: a limit meant for the application must not end an initial load.
    "statement_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
}
_DEFAULTS = {
    "connect_timeout": "10",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
}


class ClockReading(NamedTuple):
    """How a source's clock differs from headgate's."""

    offset: timedelta
    """The source's clock minus headgate's ..."""
    error: timedelta
    """... which may be off by this much, either way."""


def connect(
    dsn: str, *, application: str = "headgate", replication: bool = False, autocommit: bool = True
) -> psycopg.Connection:
    """A connection that reads exact texts; with `replication`, one that also takes replication commands."""
    given = _parameters(dsn)
    target = target_of(dsn)
    session = " ".join(f"-c {name}={value}" for name, value in _SESSION.items())
    options = f"{given.get('options', '')} {session}".strip()
    wanted = {**_DEFAULTS, **given, "options": options, "application_name": application, "client_encoding": "UTF8"}
    if replication:
        wanted["replication"] = "database"
    try:
        # Prepared statements break when a table changes, and behind some poolers.
        connection = psycopg.connect(make_conninfo("", **wanted), autocommit=autocommit, prepare_threshold=None)
    except psycopg.Error as error:
        raise connecting_failed(error, target) from None
    try:
        require_version(connection.info.server_version, target)
    except BaseException:
        connection.close()
        raise
    return connection


def require_version(version: int, target: ConnectionTarget) -> None:
    """Refuses servers that are too old; `version` is as in `server_version_num`."""
    if version // 10000 < OLDEST_VERSION:
        raise SourceRefused(
            f"PostgreSQL at {target} is version {version // 10000}",
            hint=f"headgate needs {OLDEST_VERSION} or newer; upgrade the server",
        )


def target_of(dsn: str) -> ConnectionTarget:
    """Where a DSN leads, for messages: without the password."""
    given = _parameters(dsn)
    defaults = {option.keyword.decode(): option.val for option in psycopg.pq.Conninfo.get_defaults()}

    def value(name: str) -> str:
        default = defaults.get(name)
        return given.get(name) or (default.decode() if default else "")

    user = value("user")
    # In both spellings, since a message may quote the DSN as it was written.
    secrets = tuple(
        spelling
        for secret in (given.get("password"), given.get("sslpassword"))
        if secret
        for spelling in {secret, quote(secret, safe="")}
    )
    return ConnectionTarget(
        host=given.get("host") or given.get("hostaddr") or value("host") or "localhost",
        port=value("port"),
        database=value("dbname") or user,
        user=user,
        secrets=secrets,
    )


def clock_reading(before: datetime, source_at: datetime, after: datetime) -> ClockReading:
    """What the source's time, read between two of ours, says about its clock."""
    half = (after - before) / 2
    return ClockReading(source_at - (before + half), abs(half))


def committed_transactions(connection: psycopg.Connection) -> int:
    """Transactions that the database has committed so far, ours included."""
    row = connection.execute("SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()").fetchone()
    return 0 if row is None else int(row[0])


def timeline_of(connection: psycopg.Connection) -> int:
    """The timeline of the server's log, which a restored or promoted copy leaves; refuses a standby."""
    row = connection.execute(
        "SELECT CASE WHEN NOT pg_is_in_recovery() THEN pg_walfile_name(pg_current_wal_insert_lsn()) END"
    ).fetchone()
    if row is None or row[0] is None:
        raise SourceSetup("the server is a standby", hint="name the primary server in the dsn")
    return int(row[0][:8], 16)


def _parameters(dsn: str) -> dict[str, str]:
    try:
        given = {name: str(value) for name, value in conninfo_to_dict(dsn).items() if value is not None}
    except psycopg.Error:
        # The driver's message quotes the part that it does not understand, which may be the password.
        given = {"host": "@"}
    if "@" in given.get("host", "") or "@" in given.get("dbname", ""):
        raise SourceRefused(
            "the dsn of the source is not one that PostgreSQL understands",
            hint="write postgresql://user:password@host:5432/database, with special characters of the password"
            " percent-encoded, or host=… port=… dbname=… user=… password=…",
        ) from None
    return given
