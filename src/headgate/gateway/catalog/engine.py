"""Answers queries of the catalogs: DuckDB over the mirror, which is made anew when the warehouse's tables change."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any

import duckdb
import pyarrow as pa
from pyspark.errors import PySparkTypeError
from pyspark.sql.pandas.types import from_arrow_type
from sqlglot import exp

from headgate.gateway.answers import Fetched
from headgate.gateway.catalog.definitions import definitions
from headgate.gateway.catalog.functions import MACROS
from headgate.gateway.catalog.mirror import FRESHNESS_COLUMNS, HELPERS, Contents, Mirror
from headgate.gateway.catalog.rewriting import FRESHNESS, Asking, duckdb_text, reads_freshness
from headgate.gateway.problems import NOT_SUPPORTED, UNDEFINED_COLUMN, UNDEFINED_FUNCTION, UNDEFINED_TABLE, WireProblem
from headgate.gateway.types import ARRAYS, INT8, NUMERIC, OID, TEXT, WireColumn, column_of
from headgate.gateway.types import NAMES as TYPE_NAMES

_LOGGER = logging.getLogger("headgate.gateway")
_STATES: Sequence[tuple[type[duckdb.Error], str]] = (
    (duckdb.BinderException, UNDEFINED_COLUMN),
    (duckdb.CatalogException, UNDEFINED_FUNCTION),
)
_VECTOR = 22
"""int2vector, which is told as numbers with blanks between them."""
_DUCKDB_TYPES = {"string": "VARCHAR", "bigint": "BIGINT", "timestamp": "TIMESTAMPTZ", "double": "DOUBLE"}


class Catalog:
    """May be used by many threads; each query has a cursor of its own."""

    def __init__(self, contents: Callable[[], Contents], freshness: Callable[[], list[tuple[Any, ...]]]) -> None:
        self._contents = contents
        self._freshness = freshness
        self._lock = threading.Lock()
        self._made: tuple[Contents, duckdb.DuckDBPyConnection] | None = None

    def query(self, tree: exp.Expr, values: Sequence[object], asking: Asking) -> Fetched:
        try:
            text = duckdb_text(tree, values, asking)
        except WireProblem as problem:
            if problem.sqlstate in (NOT_SUPPORTED, UNDEFINED_FUNCTION, UNDEFINED_TABLE):
                _LOGGER.info("event=unknown_catalog_query error=%s query=%s", problem.what, tree.sql("postgres"))
            raise
        cursor = self._connection().cursor()
        try:
            if reads_freshness(tree):
                columns = ", ".join(f"{name} {_DUCKDB_TYPES[kind]}" for name, kind in FRESHNESS_COLUMNS)
                cursor.execute(f"CREATE OR REPLACE TEMP TABLE {FRESHNESS} ({columns})")
                rows = self._freshness()
                if rows:
                    cursor.executemany(
                        f"INSERT INTO {FRESHNESS} VALUES ({', '.join('?' * len(FRESHNESS_COLUMNS))})", rows
                    )
            found = cursor.sql(text).to_arrow_table()
        except duckdb.Error as error:
            _LOGGER.info("event=unknown_catalog_query error=%s query=%s", error, text)
            state = next((state for kind, state in _STATES if isinstance(error, kind)), NOT_SUPPORTED)
            raise WireProblem(
                state, f"this query of the catalog is not understood: {str(error).splitlines()[0]}"
            ) from None
        finally:
            cursor.close()
        return fetched(found)

    def _connection(self) -> duckdb.DuckDBPyConnection:
        contents = self._contents()
        with self._lock:
            if self._made is None or self._made[0] != contents:
                self._made = contents, _mirrored(contents)
            return self._made[1]


def fetched(rows: pa.Table) -> Fetched:
    columns = tuple(_column(field) for field in rows.schema)
    arrays = [
        _vector(rows.column(place)) if column.oid == _VECTOR else _plain(rows.column(place))
        for place, column in enumerate(columns)
    ]
    table = pa.table(arrays, names=[f"c{place}" for place in range(len(arrays))]) if arrays else rows
    return Fetched(columns, table.to_batches() or [], rows.num_rows)


def _vector(array: pa.ChunkedArray) -> pa.Array:
    return pa.array([None if each is None else " ".join(map(str, each)) for each in array.to_pylist()], pa.string())


def _plain(array: pa.ChunkedArray) -> pa.ChunkedArray:
    kind = array.type
    if pa.types.is_null(kind) or pa.types.is_large_string(kind) or str(kind) == "string_view":
        return array.cast(pa.string())
    if pa.types.is_timestamp(kind):
        return array.cast(pa.timestamp("us", kind.tz))
    return array


def _column(field: pa.Field) -> WireColumn:
    kind = field.type
    if pa.types.is_uint32(kind):
        return WireColumn(field.name, OID)
    if pa.types.is_list(kind) and field.name in definitions().vector_columns:
        return WireColumn(field.name, _VECTOR)
    if pa.types.is_list(kind) and pa.types.is_uint32(kind.value_type):
        return WireColumn(field.name, ARRAYS[OID])
    if pa.types.is_unsigned_integer(kind):
        return WireColumn(field.name, INT8)
    if pa.types.is_decimal(kind):
        return WireColumn(field.name, NUMERIC)
    try:
        found = column_of(field.name, from_arrow_type(kind))
    except PySparkTypeError:
        return WireColumn(field.name, TEXT)
    return found if found.oid in TYPE_NAMES or found.oid > 199 else WireColumn(field.name, TEXT)


def _mirrored(contents: Contents) -> duckdb.DuckDBPyConnection:
    """A database in memory with every relation of PostgreSQL's catalogs; most have no rows."""
    made = duckdb.connect(":memory:", config={"threads": 1})
    made.execute("SET TimeZone = 'UTC'; SET enable_external_access = false")
    mirror = Mirror(contents)
    schemas = {"pg_catalog": "mirror", "information_schema": "information_mirror"}
    statements = [f"CREATE SCHEMA {schema}" for schema in schemas.values()]
    for relation in definitions().relations.values():
        columns = ", ".join(f'"{name}" {relation.duckdb_type(name)}' for name in relation.columns)
        statements.append(f'CREATE TABLE {schemas[relation.schema]}."{relation.name}" ({columns})')
    for name, kinds in HELPERS.items():
        statements.append(f"CREATE TABLE mirror.{name} ({', '.join(f'{column} {kind}' for column, kind in kinds)})")
    made.execute(";\n".join(statements))
    for (schema, name), rows in mirror.rows.items():
        _insert(made, schemas[schema], schema, name, rows)
    made.execute(";\n".join(f"CREATE MACRO {macro}" for macro in MACROS))
    return made


def _insert(made: duckdb.DuckDBPyConnection, place: str, schema: str, name: str, rows: list[dict[str, Any]]) -> None:
    relation = definitions().relations.get((schema, name))
    kinds = {column: relation.duckdb_type(column) for column in relation.columns} if relation else dict(HELPERS[name])
    given = [column for column in kinds if any(column in row for row in rows)]
    defaults = [
        column
        for column, kind in kinds.items()
        if column not in given and kind in ("BOOLEAN", "UINTEGER", "INTEGER", "SMALLINT")
    ]
    listed = ", ".join(f'"{column}"' for column in (*given, *defaults))
    values = ", ".join(
        [
            *(f'CAST("{column}" AS {kinds[column]})' for column in given),
            *("false" if kinds[column] == "BOOLEAN" else "0" for column in defaults),
        ]
    )
    if relation is not None and schema == "information_schema":
        listed = ", ".join(f'"{column}"' for column in given)
        values = ", ".join(f'CAST("{column}" AS {kinds[column]})' for column in given)
    data = pa.table({column: pa.array([row.get(column) for row in rows]) for column in given})
    made.register("headgate_given", data)
    made.execute(f'INSERT INTO {place}."{name}" ({listed}) SELECT {values} FROM headgate_given')
    made.unregister("headgate_given")
