"""The tables of a PostgreSQL database that could be a source: their definitions, sizes and foreign keys."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass

from headgate.capture.postgres.catalog import PostgresTable, read_table
from headgate.capture.postgres.connection import connect, target_of
from headgate.capture.postgres.problems import SourceSetup, source_errors

_TABLES = """
SELECT n.nspname, c.relname, pg_table_is_visible(c.oid), greatest(c.reltuples, 0)::int8,
       coalesce((SELECT sum(pg_relation_size(relid)) FROM pg_partition_tree(c.oid)), pg_relation_size(c.oid))::int8
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relpersistence <> 't'
  AND n.nspname !~ '^pg_' AND n.nspname NOT IN ('information_schema', 'headgate')
ORDER BY n.nspname, c.relname
"""

_FOREIGN_KEYS = """
SELECT f.conrelid::int8, f.confrelid::int8,
       ARRAY(SELECT a.attname::text FROM unnest(f.conkey) WITH ORDINALITY k(number, place)
             JOIN pg_attribute a ON a.attrelid = f.conrelid AND a.attnum = k.number ORDER BY k.place),
       ARRAY(SELECT a.attname::text FROM unnest(f.confkey) WITH ORDINALITY k(number, place)
             JOIN pg_attribute a ON a.attrelid = f.confrelid AND a.attnum = k.number ORDER BY k.place)
FROM pg_constraint f WHERE f.contype = 'f' AND f.conparentid = 0 ORDER BY f.conname
"""

_KEPT_PARAMETERS = (
    *("host", "hostaddr", "port", "dbname", "user", "service", "passfile", "target_session_attrs"),
    *("sslmode", "sslrootcert", "sslcert", "sslkey", "sslcrl", "sslnegotiation", "channel_binding", "gssencmode"),
)


@dataclass(frozen=True, slots=True)
class FoundTable:
    """A table that can be captured; `called` is the name that the project gives it."""

    called: str
    definition: PostgresTable
    rows: int
    """As the server estimates."""
    bytes: int


@dataclass(frozen=True, slots=True)
class ForeignKey:
    """Columns of a table that name a row of another; tables by their numbers in the catalog."""

    table: int
    other: int
    columns: tuple[str, ...]
    other_columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Findings:
    """What a database has to offer."""

    database: str
    tables: tuple[FoundTable, ...]
    foreign_keys: tuple[ForeignKey, ...]
    left_out: tuple[SourceSetup, ...]
    """Tables that cannot be captured, and why."""
    wal_level: str
    standby: bool
    may_replicate: bool
    parameters: tuple[tuple[str, str], ...]
    """The connection without its password ..."""
    has_password: bool
    """... and whether the DSN had one."""


class Database:
    """A connection for looking around."""

    def __init__(self, dsn: str) -> None:
        self._target = target_of(dsn)
        self._connection = connect(dsn, application="headgate init")

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def findings(self) -> Findings:
        with source_errors("reading the catalog"):
            listed = self._connection.execute(_TABLES).fetchall()
            keys = self._connection.execute(_FOREIGN_KEYS).fetchall()
            server = self._connection.execute(
                "SELECT current_setting('wal_level'), pg_is_in_recovery(),"
                " (SELECT rolreplication OR rolsuper FROM pg_roles WHERE rolname = current_user)"
            ).fetchone()
        assert server is not None
        names, tables, left_out = set[str](), list[FoundTable](), list[SourceSetup]()
        for schema, name, visible, rows, size in listed:
            called = _called(schema, name, visible, names)
            try:
                definition = read_table(self._connection, f"{schema}.{name}", None, called=called)
            except SourceSetup as error:
                left_out.append(error)
                continue
            tables.append(FoundTable(called, definition, rows, size))
            names.add(called.lower())
        given = self._connection.info.get_parameters()
        if "host" in given:
            # Its address of today, which the driver has looked up.
            given.pop("hostaddr", None)
        return Findings(
            database=self._target.database,
            tables=tuple(tables),
            foreign_keys=tuple(ForeignKey(table, other, tuple(a), tuple(b)) for table, other, a, b in keys),
            left_out=tuple(left_out),
            wal_level=server[0],
            standby=server[1],
            may_replicate=bool(server[2]),
            parameters=tuple((name, given[name]) for name in _KEPT_PARAMETERS if given.get(name)),
            has_password=bool(self._target.secrets),
        )


def _called(schema: str, name: str, visible: bool, taken: set[str]) -> str:
    """The table's name where that is one for a project and not taken, else one made of it."""
    wanted = itertools.chain(
        [name] if visible else [], [f"{schema}_{name}"], (f"{schema}_{name}_{number}" for number in itertools.count(2))
    )
    return next(plain for plain in map(plain_name, wanted) if plain.lower() not in taken)


def plain_name(text: str) -> str:
    """A name that a project file takes, made of any text."""
    name = re.sub(r"[^A-Za-z0-9_]", "_", text).lstrip("_") or "table"
    return name if name[0].isalpha() else f"t_{name}"
