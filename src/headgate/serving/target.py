"""A platform's database: what was shipped there, and shipping what comes next.

    fill     beside the table that counts: create, COPY, index; then it is swapped in by the shipment that needs it
    ship     one transaction: the state goes from (epoch, job before) to the job, dead rows are deleted, new ones copied, filled
             tables take their places

Nothing of a shipment is seen before all of it. A shipment whose commit was not acknowledged is known by the state that the next
connection reads. The state names the warehouse and its owner's epoch, so a former owner ships nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime

import psycopg
import pyarrow as pa
from psycopg import sql

from headgate.capture.postgres.connection import connect, target_of
from headgate.capture.postgres.problems import SourceUnreachable, statement_failed
from headgate.delta.changes import JobId
from headgate.errors import DefiniteError, Fenced
from headgate.serving.columns import COPY_OPTIONS, copied
from headgate.serving.layout import COLUMNS_OF, DEAD, NEXT, PARTS, SHIPPING, STAGED, STATE, TABLES, Layout
from headgate.serving.placed import PlacedTable
from headgate.warehouse.store import Step

_LOCK_SECONDS = 5
"""How long a shipment waits for readers that hold a table which is to be swapped."""


class ForeignChange(DefiniteError):
    """A table at the platform does not hold what was shipped."""

    table = ""


def foreign_change(table: str, platform: str, how: str) -> ForeignChange:
    error = ForeignChange(
        f"{table} at {platform} {how}", hint=f"`headgate serving repair {table}` copies it again from the warehouse"
    )
    error.table = table
    return error


@dataclass(frozen=True)
class ShippedTable:
    """What the platform says about a placed table."""

    definition: str
    indexes: tuple[tuple[str, ...], ...]
    problem: str | None
    """How others have changed it, if so."""


@dataclass(frozen=True)
class TargetState:
    job: JobId
    closed_at: datetime | None
    """The instant of the job's cut: another job of the same number, from before a restore, has another one."""
    tables: dict[str, ShippedTable]


@dataclass(frozen=True)
class Delta:
    """A table's rows that went and that came between two jobs; without rows here, executors have staged them."""

    table: PlacedTable
    dead: pa.Table | None
    rows: pa.Table | None
    dead_count: int


@dataclass(frozen=True)
class Shipment:
    before: JobId
    job: JobId
    closed_at: datetime
    data_timestamp: datetime | None
    deltas: Sequence[Delta]
    fills: Sequence[PlacedTable]
    gone: Sequence[str]
    """Tables that are no longer placed."""
    aside: Sequence[str] = ()
    """Tables that others have changed: they do not go along, and nobody is answered from them."""


class Target:
    """One thread at a time uses it."""

    def __init__(self, name: str, dsn: str, schema: str, warehouse: str, epoch: int, step: Step) -> None:
        self.name = name
        self.dsn = dsn
        self.layout = Layout(schema)
        self._warehouse = warehouse
        self._epoch = epoch
        self._step = step
        self._connection: psycopg.Connection | None = None
        self._scratch: dict[str, str] = {}
        """Temporary tables of this connection by what they are for."""

    def close(self) -> None:
        if self._connection is not None:
            with suppress(psycopg.Error):
                self._connection.close()
        self._connection = None
        self._scratch.clear()

    @contextmanager
    def _connected(self, doing: str) -> Iterator[psycopg.Connection]:
        """A connection that owns the schema; what fails ends it, since nobody knows what it has done."""
        try:
            if self._connection is None:
                self._connection = connect(self.dsn, application="headgate-shipping")
                self._claim(self._connection)
            yield self._connection
        except psycopg.Error as error:
            self.close()
            problem = statement_failed(error, f"{doing} at {self.name} ({target_of(self.dsn)})")
            raise problem from error
        except BaseException:
            self.close()
            raise

    def _claim(self, connection: psycopg.Connection) -> None:
        state = self.layout.named(STATE)
        with connection.transaction():
            found = connection.execute("SELECT to_regclass(%s)", [f'"{self.layout.schema}"."{STATE}"']).fetchone()
            if found is None or found[0] is None:
                # A role that may not make schemas may have been given one.
                there = connection.execute(
                    "SELECT 1 FROM pg_namespace WHERE nspname = %s", [self.layout.schema]
                ).fetchone()
                if there is None:
                    connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(self.layout.schema)))
                connection.execute(self.layout.made())
            connection.execute(
                sql.SQL("INSERT INTO {} (warehouse, epoch, job) VALUES (%s, %s, 0) ON CONFLICT DO NOTHING").format(
                    state
                ),
                [self._warehouse, self._epoch],
            )
            row = connection.execute(sql.SQL("SELECT warehouse, epoch FROM {} FOR UPDATE").format(state)).fetchone()
            assert row is not None
            if row[0] != self._warehouse:
                raise DefiniteError(
                    f"the schema {self.layout.schema} at {self.name} belongs to another warehouse",
                    hint="name another schema in the project file, or drop that one if its warehouse is gone",
                )
            self._require_own(row[1])
            connection.execute(sql.SQL("UPDATE {} SET epoch = %s").format(state), [self._epoch])

    def _require_own(self, epoch: int) -> None:
        if epoch > self._epoch:
            raise Fenced(f"another process ships to {self.name} now", hint="close this one")

    # what is there

    def state(self) -> TargetState:
        """What the platform has, and whether its tables are as they were shipped."""
        with self._connected("reading what was shipped") as connection, connection.transaction():
            row = connection.execute(
                sql.SQL("SELECT job, closed_at, epoch FROM {}").format(self.layout.named(STATE))
            ).fetchone()
            assert row is not None
            self._require_own(row[2])
            found = connection.execute(
                sql.SQL(
                    "SELECT t.name, t.definition, t.indexes, t.columns, t.changed_at, t.changed_by, c.oid, t.relation, "
                    f"({COLUMNS_OF} c.oid) "
                    "FROM {} t LEFT JOIN pg_namespace n ON n.nspname = %s "
                    "LEFT JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = t.name"
                ).format(self.layout.named(TABLES)),
                [self.layout.schema],
            ).fetchall()
        tables = {}
        for name, definition, indexes, columns, changed_at, changed_by, oid, relation, present in found:
            problem = None
            if oid is None:
                problem = "was dropped"
            elif oid != relation:
                problem = "was replaced by another table"
            elif present != columns:
                problem = "has other columns now"
            elif changed_at is not None:
                problem = f"was changed by {changed_by} at {changed_at:%Y-%m-%d %H:%M:%S} UTC"
            known = tuple(tuple(each) for each in json.loads(indexes))
            tables[name] = ShippedTable(definition, known, problem)
        return TargetState(JobId(row[0]), row[1], tables)

    # filling beside

    def begin_fill(self, table: PlacedTable) -> None:
        """Makes an empty table beside the one that counts."""
        with self._connected(f"filling {table.name}") as connection, connection.transaction():
            self._require_free(connection, table.name)
            self._drop(connection, NEXT + table.name)
            connection.execute(self.layout.created(table, NEXT + table.name))

    def fill(self, table: PlacedTable, rows: pa.Table) -> None:
        with self._connected(f"filling {table.name}") as connection:
            self._copy(connection, self.layout.named(NEXT + table.name), rows)

    def end_fill(self, table: PlacedTable) -> None:
        with self._connected(f"filling {table.name}") as connection:
            name = NEXT + table.name
            with connection.transaction():
                for index in self.layout.indexes(table, name, connection.info.server_version):
                    connection.execute(index)
                connection.execute(self.layout.watched(name))
            connection.execute(sql.SQL("ANALYZE {}").format(self.layout.named(name)))
        self._step("ship-filled")

    def begin_staging(self, table: PlacedTable) -> tuple[str, str]:
        """Makes empty tables into which executors copy dead rows and rows."""
        names = (DEAD + table.name, STAGED + table.name)
        with self._connected(f"shipping {table.name}") as connection, connection.transaction():
            for name in names:
                self._drop(connection, name)
                connection.execute(self.layout.created(table, name))
        return names

    def _require_free(self, connection: psycopg.Connection, name: str) -> None:
        """The name may be headgate's alone: a table that it did not make is not replaced."""
        ours = connection.execute(
            sql.SQL("SELECT 1 FROM {} WHERE name = %s").format(self.layout.named(TABLES)), [name]
        ).fetchone()
        if ours is None and self._oid(connection, name) is not None:
            raise DefiniteError(
                f"there is a table {self.layout.schema}.{name} at {self.name} that headgate did not make",
                hint="rename or drop it, or name another schema in the project file",
            )

    def _oid(self, connection: psycopg.Connection, name: str) -> int | None:
        row = connection.execute(
            "SELECT c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
            " WHERE n.nspname = %s AND c.relname = %s",
            [self.layout.schema, name],
        ).fetchone()
        return None if row is None else int(row[0])

    def _drop(self, connection: psycopg.Connection, name: str) -> None:
        connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(self.layout.named(name)))

    # shipping

    def ship(self, shipment: Shipment) -> None:
        """All of the shipment or nothing. Raises `ForeignChange` for a table that does not hold what was shipped before."""
        with self._connected("shipping") as connection:
            # Made outside of the transaction: they stay while the connection does.
            for delta in shipment.deltas:
                self._make_scratch(connection, delta.table)
            self._step("before-ship")
            with connection.transaction():
                connection.execute(f"SET LOCAL {SHIPPING} = 'on'; SET LOCAL lock_timeout = '{_LOCK_SECONDS}s'")
                self._take_state(connection, shipment)
                for delta in shipment.deltas:
                    self._apply(connection, delta)
                for table in shipment.fills:
                    self._swap(connection, table)
                for name in shipment.aside:
                    self._set_aside(connection, name)
                for name in shipment.gone:
                    self._drop(connection, name)
                    connection.execute(
                        sql.SQL("DELETE FROM {} WHERE name = %s").format(self.layout.named(TABLES)), [name]
                    )
                self._step("in-ship")
            self._step("after-ship")

    def set_aside(self, table: str) -> None:
        """Notes that a table does not hold what was shipped."""
        with self._connected(f"looking at {table}") as connection:
            self._set_aside(connection, table)

    def _set_aside(self, connection: psycopg.Connection, table: str) -> None:
        connection.execute(
            sql.SQL(
                "UPDATE {} SET changed_at = clock_timestamp(), changed_by = 'someone' WHERE name = %s AND changed_at IS NULL"
            ).format(self.layout.named(TABLES)),
            [table],
        )

    def _take_state(self, connection: psycopg.Connection, shipment: Shipment) -> None:
        taken = connection.execute(
            sql.SQL(
                "UPDATE {} SET job = %s, closed_at = %s, data_timestamp = %s, shipped_at = clock_timestamp()"
                " WHERE warehouse = %s AND epoch = %s AND job = %s"
            ).format(self.layout.named(STATE)),
            [
                *(shipment.job, shipment.closed_at, shipment.data_timestamp),
                *(self._warehouse, self._epoch, shipment.before),
            ],
        )
        if taken.rowcount != 1:
            row = connection.execute(sql.SQL("SELECT epoch FROM {}").format(self.layout.named(STATE))).fetchone()
            self._require_own(0 if row is None else row[0])
            raise SourceUnreachable(
                f"{self.name} is not at job {shipment.before} any more",
                hint="its job is read again before the next shipment",
            )

    def _make_scratch(self, connection: psycopg.Connection, table: PlacedTable) -> None:
        if table.definition not in self._scratch:
            name = f"dead_{table.definition}"
            keys = sql.SQL(", ").join(
                sql.SQL("{} {}").format(sql.Identifier(column), sql.SQL(table.type_of(column))) for column in table.key
            )
            connection.execute(
                sql.SQL("CREATE TEMPORARY TABLE IF NOT EXISTS {} ({}) ON COMMIT DELETE ROWS").format(
                    sql.Identifier(name), keys
                )
            )
            self._scratch[table.definition] = name

    def _apply(self, connection: psycopg.Connection, delta: Delta) -> None:
        table = delta.table
        staged = delta.rows is None
        if delta.dead_count:
            dead: sql.Composable = self.layout.named(DEAD + table.name)
            has_nulls = True
            if not staged:
                assert delta.dead is not None
                dead = sql.Identifier("pg_temp", self._scratch[table.definition])
                keys = delta.dead.select(list(table.key))
                self._copy(connection, dead, keys)
                has_nulls = any(column.null_count for column in keys.columns)
            deleted = connection.execute(self.layout.deleted(table, dead, with_nulls=False)).rowcount
            if has_nulls:
                deleted += connection.execute(self.layout.deleted(table, dead, with_nulls=True)).rowcount
            if deleted != delta.dead_count:
                raise foreign_change(
                    table.name,
                    self.name,
                    f"lacks rows that were shipped: {delta.dead_count - deleted} of those replaced",
                )
        try:
            if staged:
                columns = sql.SQL(", ").join(map(sql.Identifier, table.columns))
                connection.execute(
                    sql.SQL("INSERT INTO {} ({}) SELECT {} FROM {}").format(
                        self.layout.named(table.name), columns, columns, self.layout.named(STAGED + table.name)
                    )
                )
                self._drop(connection, STAGED + table.name)
                self._drop(connection, DEAD + table.name)
            elif delta.rows is not None and delta.rows.num_rows:
                self._copy(connection, self.layout.named(table.name), delta.rows)
        except psycopg.errors.UniqueViolation as error:
            raise foreign_change(table.name, self.name, "has rows that were not shipped") from error

    def _copy(self, connection: psycopg.Connection, relation: sql.Composable, rows: pa.Table) -> None:
        columns = sql.SQL(", ").join(map(sql.Identifier, rows.column_names))
        statement = sql.SQL("COPY {} ({}) FROM STDIN " + COPY_OPTIONS).format(relation, columns)
        with connection.cursor() as cursor, cursor.copy(statement) as copy:
            copy.write(copied(rows))

    def _swap(self, connection: psycopg.Connection, table: PlacedTable) -> None:
        """The filled table takes the place, and the readers' privileges, of the one before."""
        named, next_name = self.layout.named(table.name), self.layout.named(NEXT + table.name)
        old = self._oid(connection, table.name)
        if old is not None:
            granted = connection.execute(
                "SELECT CASE WHEN a.grantee = 0 THEN NULL ELSE r.rolname END, a.privilege_type"
                " FROM pg_class c, aclexplode(c.relacl) a LEFT JOIN pg_roles r ON r.oid = a.grantee"
                " WHERE c.oid = %s AND a.grantee <> c.relowner AND a.privilege_type IN ('SELECT', 'REFERENCES')",
                [old],
            ).fetchall()
            try:
                connection.execute(sql.SQL("DROP TABLE {}").format(named))
            except psycopg.errors.DependentObjectsStillExist as error:
                raise DefiniteError(
                    f"{table.name} at {self.name} cannot be replaced: {error.diag.message_detail}",
                    hint="drop what depends on it there, and create it again afterwards",
                ) from None
            for role, privilege in granted:
                grantee = sql.SQL("PUBLIC") if role is None else sql.Identifier(role)
                connection.execute(sql.SQL("GRANT {} ON {} TO {}").format(sql.SQL(privilege), next_name, grantee))
        connection.execute(sql.SQL("ALTER TABLE {} RENAME TO {}").format(next_name, sql.Identifier(table.name)))
        connection.execute(
            sql.SQL(
                "INSERT INTO {tables} (name, definition, relation, columns, indexes) SELECT %(name)s::text, %(definition)s, c.oid, "
                f"({COLUMNS_OF} c.oid), %(indexes)s "
                "FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
                " WHERE n.nspname = %(schema)s AND c.relname = %(name)s::text "
                "ON CONFLICT (name) DO UPDATE SET definition = excluded.definition, relation = excluded.relation,"
                " columns = excluded.columns, indexes = excluded.indexes, changed_at = NULL, changed_by = NULL"
            ).format(tables=self.layout.named(TABLES)),
            {
                "name": table.name,
                "definition": table.definition,
                "indexes": json.dumps(table.indexes),
                "schema": self.layout.schema,
            },
        )

    def add_indexes(self, table: PlacedTable, known: Sequence[tuple[str, ...]]) -> None:
        """Makes the indexes that the flow declares by now; those it no longer declares go with the next fill."""
        fresh = [columns for columns in table.indexes if columns not in known]
        with self._connected(f"indexing {table.name}") as connection, connection.transaction():
            for columns in fresh:
                if columns != table.key[: len(columns)]:
                    connection.execute(self.layout.index(table.name, columns))
            connection.execute(
                sql.SQL("UPDATE {} SET indexes = %s WHERE name = %s").format(self.layout.named(TABLES)),
                [json.dumps(table.indexes), table.name],
            )

    def forget_parts(self, shipment: str) -> None:
        with self._connected("shipping") as connection:
            connection.execute(
                sql.SQL("DELETE FROM {} WHERE shipment = %s").format(self.layout.named(PARTS)), [shipment]
            )
