"""What can go wrong with a PostgreSQL source, told in one line each: what, and the setting or SQL that helps.

No text here ever holds a password: messages of the driver pass through `said`, which takes the known one out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import psycopg

from headgate.errors import DefiniteError, HeadgateError, HistoryLost, Location, TransientError


class SourceUnreachable(TransientError):
    """The server does not answer, is starting or stopping, or has no connection left."""


class SourceBusy(TransientError):
    """The source's tables are being read whole; until that is done it answers nothing new."""


class SourceRefused(DefiniteError):
    """The server answered and said no: password, TLS, database, access rules, version."""


class SourceSetup(DefiniteError):
    """The source lacks what capture needs: a table, a column, a key, a privilege, a setting."""


RESNAPSHOT = "`headgate refresh --full` reads its tables whole again; the history that headgate has is kept"


class SourceHistoryLost(HistoryLost):
    """The source no longer has the changes that come next; its tables must be read afresh."""

    def __init__(self, what: str, *, where: Location | None = None, hint: str | None = RESNAPSHOT) -> None:
        super().__init__(what, where=where, hint=hint)


class ValueDoesNotFit(DefiniteError):
    """A value of the source has no exact counterpart in the column's Spark type."""


@dataclass(frozen=True, slots=True)
class ConnectionTarget:
    """Where a connection goes, for messages."""

    host: str
    port: str
    database: str
    user: str
    secrets: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.host}:{self.port}/{self.database} as {self.user}"

    def __repr__(self) -> str:
        return f"ConnectionTarget({self})"


RETRIED = "it is tried again"


def at_first_contact(error: TransientError) -> TransientError:
    """The same error where nobody tries again: nothing of the source is here yet."""
    if error.advice is None or RETRIED not in error.advice:
        return error
    hint = error.advice.replace(
        RETRIED, "nothing of it was captured before, so open the warehouse again once it answers"
    )
    return type(error)(error.what, where=error.where, hint=hint)


_PREFIX = re.compile(r"(connection (failed|is bad): )?(connection to server (at|on) .*? failed: )?(FATAL: +)?")


def said(error: BaseException, secrets: tuple[str, ...] = ()) -> str:
    """The server's or the driver's own words, in one line, without the secrets."""
    diagnosis = error.diag.message_primary if isinstance(error, psycopg.Error) else None
    text = diagnosis or str(error)
    text = text.split("Multiple connection attempts failed")[0]
    text = _PREFIX.sub("", " ".join(text.split()), count=1)
    for secret in secrets:
        text = text.replace(secret, "***")
    return text


@dataclass(frozen=True, slots=True)
class _KnownMessage:
    """A message that we know: what it means for us, and what helps ({user}, {database}, … are filled in)."""

    pattern: str
    kind: type[HeadgateError]
    hint: str


_KNOWN = (
    _KnownMessage(
        "password authentication failed",
        SourceRefused,
        "correct the password in the dsn (percent-encode special characters of a URL), or: ALTER ROLE {user} PASSWORD …",
    ),
    _KnownMessage(
        "no password supplied", SourceRefused, "add the password to the dsn, or set PGPASSWORD or PGPASSFILE"
    ),
    _KnownMessage(
        "no pg_hba.conf entry",
        SourceRefused,
        "add to the server's pg_hba.conf: host {database} {user} <our address>/32 scram-sha-256, then SELECT"
        " pg_reload_conf(); if the entry asks for TLS, add sslmode=require to the dsn",
    ),
    _KnownMessage("pg_hba.conf rejects", SourceRefused, "a reject line of the server's pg_hba.conf matches; change it"),
    _KnownMessage(r'database ".*" does not exist', SourceRefused, "correct the database name of the dsn"),
    _KnownMessage(
        r'role ".*" does not exist', SourceRefused, "correct the user of the dsn, or: CREATE ROLE {user} LOGIN"
    ),
    _KnownMessage("is not permitted to log in", SourceRefused, "ALTER ROLE {user} LOGIN"),
    _KnownMessage("permission denied for database", SourceRefused, "GRANT CONNECT ON DATABASE {database} TO {user}"),
    _KnownMessage(
        "not currently accepting connections", SourceRefused, "ALTER DATABASE {database} ALLOW_CONNECTIONS true"
    ),
    _KnownMessage(
        "must be superuser or replication role|permission denied to start WAL sender",
        SourceRefused,
        "ALTER ROLE {user} REPLICATION",
    ),
    _KnownMessage(
        "server does not support SSL",
        SourceRefused,
        "set ssl = on at the server, or a weaker sslmode (prefer) in the dsn",
    ),
    _KnownMessage(
        "certificate|SSL error|sslmode|private key file",
        SourceRefused,
        "check sslmode, sslrootcert, sslcert and sslkey of the dsn against the server's certificate",
    ),
    _KnownMessage(
        "requested standby connections exceeds|max_wal_senders",
        SourceUnreachable,
        "raise max_wal_senders at the server, or end other replication connections",
    ),
    _KnownMessage(
        "too many connections|too many clients|remaining connection slots",
        SourceUnreachable,
        "raise max_connections at the server, or close other connections",
    ),
    _KnownMessage("starting up|shutting down|in recovery|not yet accepting", SourceUnreachable, RETRIED),
    _KnownMessage(
        "host name|resolve host|Connection refused|No route|timeout|timed out|Network is unreachable",
        SourceUnreachable,
        f"check host and port of the dsn, the server's listen_addresses and any firewall; {RETRIED}",
    ),
)


def connecting_failed(error: psycopg.Error, target: ConnectionTarget) -> HeadgateError:
    """What a failed attempt to connect means."""
    text = said(error, target.secrets)
    for known in _KNOWN:
        if re.search(known.pattern, text, re.IGNORECASE):
            hint = known.hint.format(user=target.user, database=target.database)
            return known.kind(f"PostgreSQL at {target}: {text}", hint=hint)
    return SourceUnreachable(f"PostgreSQL at {target} cannot be reached: {text}", hint=RETRIED)


_TRANSIENT = ("08", "53", "57P", "57014", "40", "55P03")


def statement_failed(error: psycopg.Error, doing: str) -> HeadgateError:
    """What a failure on an open connection means; `doing` is what was asked for, as in "reading the catalog"."""
    text = said(error)
    state = error.sqlstate
    if state is None or state.startswith(_TRANSIENT):
        return SourceUnreachable(f"{doing} was interrupted: {text}", hint=RETRIED)
    if state == "42501":
        return SourceSetup(
            f"{doing} is not allowed: {text}", hint="grant the privilege to headgate's role at the source"
        )
    return SourceRefused(f"{doing} failed: {text}", hint=f"PostgreSQL's error code is {state}")


@contextmanager
def source_errors(doing: str) -> Iterator[None]:
    """Turns the driver's errors into ours."""
    try:
        yield
    except psycopg.Error as error:
        raise statement_failed(error, doing) from error
