"""The objects that capture by trigger has at the source, all in the schema `headgate`, and the statements over them.

    headgate.captures          one row per capture: its token, and the batch that it has acknowledged
    headgate.<name>_changes    the audit table: what happened to captured rows, in which transaction
    headgate.<name>_note_<n>() called by the triggers `<name>_rows` and `<name>_truncate` on the table with this oid

The functions know no columns: they note whole rows as PostgreSQL writes them, so that a change of a table's definition
never breaks the application's writes. Writers need no rights on the schema, since they run as their owner. Each table
has its own, because dropping a function drops its triggers, while only a table's owner may drop them directly.

Not seen, because PostgreSQL fires no trigger for it: changes with session_replication_role = replica, and dropping,
detaching or truncating a single partition.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import LiteralString

import psycopg
from psycopg import sql

from headgate.capture.postgres.catalog import PostgresTable
from headgate.capture.postgres.connection import TEXT_SETTINGS
from headgate.capture.postgres.problems import SourceSetup

SCHEMA = "headgate"
CAPTURES = sql.Identifier(SCHEMA, "captures")
LONGEST_NAME = 47
"""What PostgreSQL's 63 letters leave beside our endings."""
_LOCK_WAIT = "2s"
"""While we wait for a table's lock its writers queue behind us; so we give up soon and try again."""

COLUMNS = ("id", "xid", "captured", "relation", "op", "old", "new", "commit_at")
"""What `changes_between` gives."""


def shortened(name: str) -> str:
    """The name, or its beginning with a mark of the rest."""
    if len(name) <= LONGEST_NAME:
        return name
    return f"{name[: LONGEST_NAME - 9]}_{hashlib.sha256(name.encode()).hexdigest()[:8]}"


@dataclass(frozen=True, slots=True)
class Objects:
    """The names of one capture's objects; a name is at most `LONGEST_NAME` long."""

    name: str

    @property
    def audit(self) -> sql.Identifier:
        return sql.Identifier(SCHEMA, f"{self.name}_changes")

    def function(self, table: int) -> sql.Identifier:
        return sql.Identifier(SCHEMA, f"{self.name}_note_{table}")

    @property
    def row_trigger(self) -> str:
        return f"{self.name}_rows"

    @property
    def truncate_trigger(self) -> str:
        return f"{self.name}_truncate"


def install(connection: psycopg.Connection, objects: Objects, token: str) -> None:
    """Creates the audit table anew, with no table captured yet."""
    require_schema(connection)
    _drop(connection, objects)
    with connection.transaction():
        # IF NOT EXISTS would ask for a privilege that is not needed when the schema is there.
        if connection.execute("SELECT to_regnamespace('headgate') IS NULL").fetchone() == (True,):
            connection.execute("CREATE SCHEMA headgate")
        for statement in _CREATE:
            connection.execute(sql.SQL(statement).format(audit=objects.audit))
        connection.execute(
            sql.SQL("INSERT INTO {} (name, token, acknowledged) VALUES (%s, %s, 0)").format(CAPTURES),
            [objects.name, token],
        )


def create_triggers(connection: psycopg.Connection, objects: Objects, tables: Iterable[PostgresTable]) -> None:
    """Has writes to these tables noted from now on; one short transaction per table."""
    for table in tables:
        require_trigger_privilege(connection, table)
        with connection.transaction():
            _wait_briefly(connection)
            _run(connection, _CREATE_TRIGGERS, objects, table)


def drop_triggers(connection: psycopg.Connection, objects: Objects, tables: Iterable[int] | None = None) -> None:
    """Ends the noting of writes to some tables, or to all."""
    if tables is None:
        names = connection.execute("SELECT proname FROM pg_proc WHERE pronamespace = to_regnamespace('headgate')::oid")
        found = (re.fullmatch(f"{re.escape(objects.name)}_note_([0-9]+)", name) for (name,) in names.fetchall())
        tables = [int(match[1]) for match in found if match]
    for table in tables:
        with connection.transaction():
            _wait_briefly(connection)
            connection.execute(sql.SQL("DROP FUNCTION IF EXISTS {} CASCADE").format(objects.function(table)))


def noted_tables(connection: psycopg.Connection, objects: Objects, relations: Sequence[int]) -> set[int]:
    """Those of the tables whose writes are noted."""
    found = connection.execute(
        "SELECT tgrelid::int8 FROM pg_trigger WHERE tgrelid = ANY(%s::oid[]) AND tgname IN (%s, %s)"
        " AND tgenabled IN ('O', 'A') GROUP BY tgrelid HAVING count(*) = 2",
        [relations, objects.row_trigger, objects.truncate_trigger],
    )
    return {row[0] for row in found}


def remove(connection: psycopg.Connection, objects: Objects) -> None:
    """Drops everything of this capture, and the schema with the last one."""
    _drop(connection, objects)
    with connection.transaction():
        # Without CASCADE: what others may have put there stays, and so does the schema.
        connection.execute(
            "DO $$ BEGIN IF NOT EXISTS (SELECT FROM headgate.captures) THEN DROP TABLE headgate.captures; DROP SCHEMA headgate;"
            " END IF; EXCEPTION WHEN undefined_table OR dependent_objects_still_exist OR insufficient_privilege THEN NULL; END $$"
        )


def read_capture(connection: psycopg.Connection, objects: Objects) -> tuple[str, int] | None:
    """The token and the acknowledged batch that the source has; None when it has no audit table of this name."""
    there = connection.execute(
        "SELECT to_regclass('headgate.captures') IS NOT NULL AND to_regclass(%s) IS NOT NULL",
        [objects.audit.as_string(connection)],
    ).fetchone()
    if there != (True,):
        return None
    query = sql.SQL("SELECT token, acknowledged FROM {} WHERE name = %s").format(CAPTURES)
    return connection.execute(query, [objects.name]).fetchone()


def look(objects: Objects, token: str, since: str) -> sql.Composed:
    """The present snapshot, the source's time, whether changes are visible that were not in the snapshot `since`, and
    whether the audit table is still the one with this token."""
    return sql.SQL(
        "SELECT pg_current_snapshot()::text, clock_timestamp(), EXISTS (SELECT FROM {audit} WHERE {later}),"
        " EXISTS (SELECT FROM {captures} WHERE name = {name} AND token = {token})"
    ).format(
        audit=objects.audit,
        later=_later(since),
        captures=CAPTURES,
        name=sql.Literal(objects.name),
        token=sql.Literal(token),
    )


def changes_between(objects: Objects, after: str, upto: str, *, commit_times: bool) -> sql.Composed:
    """What became visible after one snapshot and up to another: transaction by transaction, in commit order.

    Of two transactions that wrote the same row, the later one wrote it after the other had committed, so that its last
    note has the larger id. A subtransaction's notes carry the id of the whole transaction.
    """
    stamp = (
        sql.SQL("(extract(epoch FROM pg_xact_commit_timestamp(xid::xid)) * 1000000)::bigint")
        if commit_times
        else sql.SQL("NULL")
    )
    return sql.SQL(
        "SELECT id, xid, captured, relation, op, old, new, {stamp} FROM"
        " (SELECT *, max(id) OVER (PARTITION BY xid) AS last FROM {audit}"
        " WHERE {later} AND pg_visible_in_snapshot(xid, {upto})) AS changes ORDER BY last, id"
    ).format(stamp=stamp, audit=objects.audit, later=_later(after), upto=_snapshot(upto))


def acknowledge(objects: Objects, token: str, batch: int, upto: str) -> sql.Composed:
    """Lets go of the changes that a snapshot sees and that are durable elsewhere."""
    return sql.SQL(
        "WITH gone AS (DELETE FROM {audit} WHERE pg_visible_in_snapshot(xid, {upto}))"
        " UPDATE {captures} SET acknowledged = {batch} WHERE name = {name} AND token = {token}"
    ).format(
        audit=objects.audit,
        upto=_snapshot(upto),
        captures=CAPTURES,
        batch=batch,
        name=sql.Literal(objects.name),
        token=sql.Literal(token),
    )


def oldest_unseen(snapshot: str) -> int:
    """The xmin of a snapshot: every transaction before it is seen."""
    return int(snapshot.split(":")[0])


def next_transaction(snapshot: str) -> int:
    """The xmax of a snapshot: no transaction from it on had begun."""
    return int(snapshot.split(":")[1])


def _later(snapshot: str) -> sql.Composed:
    # The first condition is implied by the second, and is the one that an index serves.
    return sql.SQL("xid >= {}::xid8 AND NOT pg_visible_in_snapshot(xid, {})").format(
        sql.Literal(str(oldest_unseen(snapshot))), _snapshot(snapshot)
    )


def _snapshot(snapshot: str) -> sql.Composed:
    return sql.SQL("{}::pg_snapshot").format(sql.Literal(snapshot))


_SETTINGS = sql.SQL(" ").join(
    sql.SQL("SET {} = {}").format(sql.SQL(name), sql.Literal(value)) for name, value in TEXT_SETTINGS.items()
)
_CREATE: tuple[LiteralString, ...] = (
    "CREATE TABLE IF NOT EXISTS headgate.captures (name text PRIMARY KEY, token text NOT NULL, acknowledged bigint NOT NULL)",
    "CREATE TABLE {audit} (id bigint GENERATED ALWAYS AS IDENTITY, xid xid8 NOT NULL DEFAULT pg_current_xact_id(),"
    ' captured text NOT NULL, relation oid NOT NULL, op "char" NOT NULL, old text, new text)',
    "CREATE INDEX ON {audit} (xid)",
)
_CREATE_TRIGGERS: tuple[LiteralString, ...] = (
    # The settings are the writer's otherwise: texts would not be exact, and names could lead elsewhere.
    "CREATE OR REPLACE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER"
    " SET search_path = pg_catalog {settings} AS $$ BEGIN IF TG_OP = 'INSERT' THEN"
    " INSERT INTO {audit} (captured, relation, op, new) VALUES (TG_ARGV[0], TG_RELID, 'I', NEW::text);"
    " ELSIF TG_OP = 'UPDATE' THEN"
    " INSERT INTO {audit} (captured, relation, op, old, new) VALUES (TG_ARGV[0], TG_RELID, 'U', OLD::text, NEW::text);"
    " ELSIF TG_OP = 'DELETE' THEN"
    " INSERT INTO {audit} (captured, relation, op, old) VALUES (TG_ARGV[0], TG_RELID, 'D', OLD::text);"
    " ELSE INSERT INTO {audit} (captured, relation, op) VALUES (TG_ARGV[0], TG_RELID, 'T'); END IF;"
    " RETURN NULL; END $$",
    "CREATE OR REPLACE TRIGGER {row_trigger} AFTER INSERT OR UPDATE OR DELETE ON {table}"
    " FOR EACH ROW EXECUTE FUNCTION {function}({captured})",
    "CREATE OR REPLACE TRIGGER {truncate_trigger} AFTER TRUNCATE ON {table}"
    " FOR EACH STATEMENT EXECUTE FUNCTION {function}({captured})",
)


def _run(
    connection: psycopg.Connection, statements: tuple[LiteralString, ...], objects: Objects, table: PostgresTable
) -> None:
    for statement in statements:
        connection.execute(
            sql.SQL(statement).format(
                audit=objects.audit,
                function=objects.function(table.oid),
                settings=_SETTINGS,
                row_trigger=sql.Identifier(objects.row_trigger),
                truncate_trigger=sql.Identifier(objects.truncate_trigger),
                table=table.identifier,
                captured=sql.Literal(table.source_table.name),
            )
        )


def _drop(connection: psycopg.Connection, objects: Objects) -> None:
    drop_triggers(connection, objects)
    with connection.transaction():
        if connection.execute("SELECT to_regclass('headgate.captures') IS NULL").fetchone() == (False,):
            connection.execute(sql.SQL("DELETE FROM {} WHERE name = %s").format(CAPTURES), [objects.name])
            connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(objects.audit))


def _wait_briefly(connection: psycopg.Connection) -> None:
    connection.execute(sql.SQL("SET LOCAL lock_timeout = {}").format(sql.Literal(_LOCK_WAIT)))


def require_trigger_privilege(connection: psycopg.Connection, table: PostgresTable) -> None:
    allowed = connection.execute("SELECT has_table_privilege(%s::oid, 'TRIGGER')", [table.oid]).fetchone()
    if allowed == (False,):
        user = connection.info.user
        raise SourceSetup(
            f"the role {user} may not create triggers on {table.qualified}",
            hint=f"GRANT TRIGGER ON {table.qualified} TO {user}",
        )


def require_schema(connection: psycopg.Connection) -> None:
    user, database = connection.info.user, connection.info.dbname
    allowed = connection.execute(
        "SELECT CASE WHEN n.oid IS NULL THEN has_database_privilege(current_database(), 'CREATE')"
        " ELSE has_schema_privilege(n.oid, 'CREATE') AND has_schema_privilege(n.oid, 'USAGE') END, n.oid IS NULL"
        " FROM (SELECT 1) AS one LEFT JOIN pg_namespace n ON n.nspname = 'headgate'"
    ).fetchone()
    if allowed == (False, True):
        raise SourceSetup(
            f"the role {user} may not create the schema headgate for its audit table",
            hint=f"GRANT CREATE ON DATABASE {database} TO {user}, or: CREATE SCHEMA headgate AUTHORIZATION {user}",
        )
    if allowed == (False, False):
        raise SourceSetup(
            f"the role {user} may not create its audit table in the schema headgate",
            hint=f"GRANT ALL ON SCHEMA headgate TO {user}",
        )
