"""What the source's catalog says about a table: its columns, its key, and whether we may read it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import psycopg
from psycopg import sql
from pyspark.sql.types import ArrayType, StructField, StructType

from headgate.capture.postgres.problems import SourceSetup, source_errors
from headgate.capture.postgres.values import PostgresType, declared_type, spark_type
from headgate.capture.shape import did_you_mean
from headgate.capture.source import SourceTable
from headgate.errors import DefiniteError


@dataclass(frozen=True, slots=True)
class CatalogColumn:
    """A column at the source. `type` is what decides about values: domains are resolved to what they are made of."""

    name: str
    number: int
    """Its number in the catalog: stays when the column is renamed."""
    type_oid: int
    typmod: int
    type_name: str
    """As PostgreSQL writes it, such as numeric(10,2)."""
    type: PostgresType
    nullable: bool
    has_default: bool
    generated: bool


@dataclass(frozen=True, slots=True)
class PostgresTable:
    """A table at the source and as headgate sees it."""

    schema: str
    name: str
    oid: int
    columns: tuple[CatalogColumn, ...]
    primary_key: tuple[str, ...]
    replica_identity: str
    """d (the primary key), i (an index), f (the whole row) or n (nothing)."""
    identity_columns: tuple[str, ...]
    """What the log tells of the old row: the columns of the replica identity, none when there is none."""
    partitioned: bool
    logged: bool
    source_table: SourceTable
    declared_types: tuple[tuple[str, str], ...] = ()
    """Spark types that the project declares, by column."""
    with_generated: bool = True
    """Whether `columns` has those that the source computes from others."""

    @property
    def qualified(self) -> str:
        return f"{self.schema}.{self.name}"

    @property
    def identifier(self) -> sql.Identifier:
        """The table's name for statements."""
        return sql.Identifier(self.schema, self.name)

    @property
    def scanned(self) -> sql.Composed:
        """For FROM: without tables that inherit from it, with its partitions."""
        only = sql.SQL("" if self.partitioned else "ONLY ")
        return sql.SQL("{}{}").format(only, self.identifier)

    @property
    def key(self) -> tuple[str, ...]:
        return self.source_table.key


_RELATION = """
SELECT c.oid::int8, n.nspname, c.relname, c.relkind::text, c.relpersistence::text, c.relreplident::text
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relname = %(table)s
  AND CASE WHEN %(schema)s::text IS NULL THEN pg_table_is_visible(c.oid) ELSE n.nspname = %(schema)s END
  AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
"""

_COLUMNS = """
SELECT a.attname, a.attnum::int4, a.atttypid::int8, a.atttypmod, format_type(a.atttypid, a.atttypmod), a.attndims::int4,
       NOT a.attnotnull, a.atthasdef, a.attgenerated::text <> '', has_column_privilege(a.attrelid, a.attnum, 'SELECT')
FROM pg_attribute a WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""

_TYPES = """
WITH RECURSIVE used(oid) AS (
  SELECT atttypid FROM pg_attribute WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped
  UNION
  SELECT next FROM used JOIN pg_type t USING (oid), unnest(ARRAY[t.typbasetype, t.typelem]) AS next WHERE next <> 0
)
SELECT t.oid::int8, t.typtype::text, t.typbasetype::int8, t.typtypmod,
       coalesce((SELECT e.oid FROM pg_type e WHERE e.oid = t.typelem AND e.typarray = t.oid), 0)::int8
FROM used JOIN pg_type t USING (oid)
"""

_KEYS = """
SELECT i.indisprimary, i.indisreplident,
       ARRAY(SELECT a.attname::text FROM unnest(i.indkey::int2[]) WITH ORDINALITY AS k(attnum, place)
             JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
             WHERE k.place <= i.indnkeyatts ORDER BY k.place)
FROM pg_index i
WHERE i.indrelid = %s AND i.indisunique AND i.indisvalid AND i.indpred IS NULL AND i.indexprs IS NULL
  AND (i.indisprimary OR i.indisreplident)
"""

_KINDS = {"v": "a view", "m": "a materialized view", "f": "a foreign table"}


def read_table(
    connection: psycopg.Connection,
    name: str,
    declared_key: tuple[str, ...] | None,
    *,
    called: str | None = None,
    types: Mapping[str, str] | None = None,
    generated: bool = True,
) -> PostgresTable:
    """Reads a table's definition; `name` is `table` or `schema.table`, letter by letter as the catalog has it.

    `called` is headgate's name for it, `types` are Spark types that the project declares for some columns; without
    `generated`, columns that the source computes from others are left out.
    """
    with source_errors(f"reading the definition of {name}"):
        schema, table, oid, kind, persistence, identity = _relation(connection, name)
        if kind in _KINDS:
            raise SourceSetup(f"{schema}.{table} is {_KINDS[kind]}", hint="capture the tables that it is made of")
        if persistence == "t":
            raise SourceSetup(f"{schema}.{table} is a temporary table", hint="capture a permanent table")
        columns = _columns(connection, oid, f"{schema}.{table}", types or {})
        keys = connection.execute(_KEYS, [oid]).fetchall()
    if not generated:
        columns = tuple(column for column in columns if not column.generated)
    primary = next((tuple(names) for is_primary, _, names in keys if is_primary), ())
    index = next((tuple(names) for _, is_identity, names in keys if is_identity), ())
    full = tuple(column.name for column in columns)
    identities = {"d": primary, "i": index, "f": full}
    key = _key(f"{schema}.{table}", columns, declared_key or primary or index)
    fields = [StructField(column.name, spark_type(column.type), nullable=column.name not in key) for column in columns]
    _require_plain(f"{schema}.{table}", fields, key)
    return PostgresTable(
        schema=schema,
        name=table,
        oid=oid,
        columns=columns,
        primary_key=primary,
        replica_identity=identity,
        identity_columns=identities.get(identity, ()),
        partitioned=kind == "p",
        logged=persistence == "p",
        with_generated=generated,
        source_table=SourceTable(called or table, StructType(fields), key),
        declared_types=tuple((types or {}).items()),
    )


def read_tables(
    read: Mapping[str, Callable[[], PostgresTable]], captured: Collection[str]
) -> tuple[dict[str, PostgresTable], dict[str, DefiniteError]]:
    """The definitions of tables, and why some cannot be read: those that were captured before keep nobody from the others."""
    present: dict[str, PostgresTable] = {}
    absent: dict[str, DefiniteError] = {}
    for name, one in read.items():
        try:
            present[name] = one()
        except DefiniteError as error:
            if name not in captured:
                raise
            absent[name] = error
    return present, absent


def column_names(connection: psycopg.Connection, tables: Collection[int]) -> dict[int, frozenset[str]]:
    """The columns that tables have now, without those that the source computes from others."""
    found = connection.execute(
        "SELECT attrelid::int8, array_agg(attname::text) FROM pg_attribute WHERE attrelid = ANY(%s::oid[])"
        " AND attnum > 0 AND NOT attisdropped AND attgenerated = '' GROUP BY attrelid",
        [list(tables)],
    ).fetchall()
    return {oid: frozenset(names) for oid, names in found}


def read_again(connection: psycopg.Connection, table: PostgresTable) -> PostgresTable:
    """The table's definition as it is now."""
    return read_table(
        connection,
        table.qualified,
        table.key,
        called=table.source_table.name,
        types=dict(table.declared_types),
        generated=table.with_generated,
    )


def _relation(connection: psycopg.Connection, name: str) -> tuple[str, str, int, str, str, str]:
    schema, dot, table = name.partition(".")
    wanted = {"schema": schema, "table": table} if dot else {"schema": None, "table": name}
    row = connection.execute(_RELATION, wanted).fetchone()
    if row is None:
        known = connection.execute(
            "SELECT CASE WHEN pg_table_is_visible(c.oid) AND %(schema)s::text IS NULL THEN c.relname"
            " ELSE n.nspname || '.' || c.relname END FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
            " WHERE c.relkind IN ('r', 'p') AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast')",
            wanted,
        ).fetchall()
        hint = did_you_mean(name, sorted(str(each[0]) for each in known), "tables") if known else "it has no tables"
        raise SourceSetup(f"the database {connection.info.dbname} has no table {name}", hint=hint)
    oid, schema, table, kind, persistence, identity = row
    usage = connection.execute("SELECT has_schema_privilege(%s, 'USAGE')", [schema]).fetchone()
    if usage is not None and not usage[0]:
        raise SourceSetup(
            f"the role {connection.info.user} may not use the schema {schema}",
            hint=_statement(connection, "GRANT USAGE ON SCHEMA {} TO {}", schema, connection.info.user),
        )
    return schema, table, oid, kind, persistence, identity


def _columns(
    connection: psycopg.Connection, oid: int, name: str, declared: Mapping[str, str]
) -> tuple[CatalogColumn, ...]:
    rows = connection.execute(_COLUMNS, [oid]).fetchall()
    kinds = {row[0]: row[1:] for row in connection.execute(_TYPES, [oid]).fetchall()}
    names = [row[0] for row in rows]
    for column in declared:
        if column not in names:
            raise SourceSetup(f"{name} has no column {column}", hint=did_you_mean(column, names, "columns"))
    hidden = [row[0] for row in rows if not row[9]]
    if hidden:
        schema, _, table = name.partition(".")
        statement = _statement(connection, "GRANT SELECT ON {}.{} TO {}", schema, table, connection.info.user)
        raise SourceSetup(f"the role {connection.info.user} may not read {name} ({', '.join(hidden)})", hint=statement)
    columns = []
    for column, number, type_oid, typmod, type_name, dimensions, nullable, has_default, computed, _ in rows:
        resolved = _resolve(kinds, type_oid, typmod, dimensions)
        if column in declared:
            resolved = declared_type(resolved, declared[column], f"{name}.{column}", type_name)
        columns.append(
            CatalogColumn(column, number, type_oid, typmod, type_name, resolved, nullable, has_default, computed)
        )
    return tuple(columns)


def _resolve(kinds: Mapping[int, tuple[str, int, int, int]], oid: int, typmod: int, dimensions: int) -> PostgresType:
    """Follows domains to their base type, and an array to its elements'."""
    while kinds[oid][0] == "d":
        _, oid, typmod, _ = kinds[oid]
    element = kinds[oid][3]
    if not element:
        return PostgresType(oid, typmod)
    if dimensions > 1:
        return PostgresType(oid, -1)
    # An array has its elements' modifier.
    return PostgresType(oid, -1, element=_resolve(kinds, element, typmod, 0))


def _key(name: str, columns: tuple[CatalogColumn, ...], key: tuple[str, ...]) -> tuple[str, ...]:
    if not key:
        raise SourceSetup(
            f"{name} has no primary key, and the project declares no key for it",
            hint=f"name the columns that tell its rows apart (key: […]), or: ALTER TABLE {name} ADD PRIMARY KEY (…)",
        )
    known = {column.name: column for column in columns}
    for part in key:
        if part not in known:
            raise SourceSetup(
                f"{name} has no column {part}, which its key names", hint=did_you_mean(part, known, "columns")
            )
        if known[part].nullable:
            raise SourceSetup(
                f"the key column {part} of {name} may be NULL",
                hint=f"ALTER TABLE {name} ALTER COLUMN {part} SET NOT NULL, or choose another key",
            )
    return key


def _require_plain(name: str, fields: list[StructField], key: tuple[str, ...]) -> None:
    """Refuses names that Spark or headgate cannot take, and nested key columns."""
    seen: dict[str, str] = {}
    for field in fields:
        other = seen.setdefault(field.name.lower(), field.name)
        if other != field.name:
            raise SourceSetup(f"the columns {other} and {field.name} of {name} differ only in case", hint="rename one")
        if field.name.startswith("__"):
            raise SourceSetup(
                f"the column {field.name} of {name} begins with two underscores",
                hint="such names belong to headgate; rename it",
            )
        if field.name in key and isinstance(field.dataType, ArrayType):
            raise SourceSetup(f"the key column {field.name} of {name} is an array", hint="use plain columns")


def _statement(connection: psycopg.Connection, template: str, *names: str) -> str:
    """A statement for a hint, its names quoted where they must be."""
    quoted = [connection.execute("SELECT quote_ident(%s)", [name]).fetchone() for name in names]
    return template.format(*(row[0] for row in quoted if row is not None))
