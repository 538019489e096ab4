"""Reading a table by ranges of a key column: where to cut it, and what reads a range through the column's index.

Only columns count whose order the server shares with Spark and Arrow: whole numbers, dates, instants, and text that the server
orders by its bytes (collation C). Without an index that begins with the column every range would be a scan of the whole table.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

import numpy as np
import psycopg
import pyarrow as pa
from psycopg import sql

from headgate.capture.postgres.catalog import PostgresTable
from headgate.capture.postgres.copied import copied
from headgate.capture.postgres.problems import source_errors
from headgate.capture.postgres.rows import EventRows
from headgate.capture.postgres.snapshot import in_snapshot
from headgate.delta.events import UPSERT
from headgate.ranges.key_set import KeySet, Value
from headgate.ranges.range_map import Kind, even_bounds, kind_of

_SAMPLED_ROWS = 20_000
_KINDS: Mapping[int, Kind] = {
    20: "integer",
    21: "integer",
    23: "integer",
    1082: "date",
    1184: "timestamp",
    25: "text",
    1043: "text",
}
"""By the type's number at the server: bigint, smallint, integer, date, timestamptz, text, varchar."""

_INDEXED = """
SELECT EXISTS (
  SELECT FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am m ON m.oid = c.relam
  JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
  LEFT JOIN pg_collation l ON l.oid = a.attcollation
  JOIN pg_database d ON d.datname = current_database()
  WHERE i.indrelid = %(table)s AND a.attname = %(column)s AND i.indisvalid AND i.indpred IS NULL AND m.amname = 'btree'
    AND (NOT %(is_text)s OR i.indcollation[0] = a.attcollation AND CASE WHEN l.collname = 'default'
         THEN d.datcollate IN ('C', 'POSIX') AND coalesce(to_jsonb(d) ->> 'datlocprovider', 'c') = 'c'
         ELSE l.collcollate IN ('C', 'POSIX') AND l.collprovider = 'c' END))
"""


def bounds_of(
    connection: psycopg.Connection, table: PostgresTable, column: str, count: int
) -> tuple[Value, ...] | None:
    """Values between which the table has about equally many rows; None where its ranges cannot be read by themselves."""
    found = next((each for each in table.columns if each.name == column), None)
    kind = None if found is None else _KINDS.get(found.type_oid)
    # A declared key may not tell rows apart: then the last of several counts, which only the order of the log decides.
    if kind is None or not table.primary_key or not set(table.primary_key) <= set(table.key):
        return None
    if kind_of(table.source_table.schema[column].dataType.simpleString()) != kind:
        return None
    with source_errors(f"looking for the ranges of {table.qualified}"):
        given = {"table": table.oid, "column": column, "is_text": kind == "text"}
        row = connection.execute(_INDEXED, given).fetchone()
        if row is None or not row[0]:
            return None
        if count < 2:
            return ()
        values = connection.execute(_sample(connection, table, column, kind)).fetchall()
    return even_bounds(sorted(_value(value) for (value,) in values), count) if values else ()


def _sample(connection: psycopg.Connection, table: PostgresTable, column: str, kind: Kind) -> sql.Composed:
    """Values of the column from blocks that are drawn by lot."""
    row = connection.execute(
        "SELECT sum(greatest(c.reltuples, pg_relation_size(c.oid) / 100)) FROM pg_class c"
        " WHERE c.oid = %(table)s OR c.oid IN (SELECT relid FROM pg_partition_tree(%(table)s))",
        {"table": table.oid},
    ).fetchone()
    rows = max(1.0, float(row[0] or 0)) if row is not None else 1.0
    share = min(100.0, 100.0 * _SAMPLED_ROWS / rows)
    name = sql.Identifier(column)
    finite = sql.SQL(" WHERE isfinite({})").format(name) if kind in ("date", "timestamp") else sql.SQL("")
    return sql.SQL("SELECT {} FROM {} TABLESAMPLE SYSTEM ({}){}").format(
        name, table.scanned, sql.Literal(max(share, 0.001)), finite
    )


def _value(value: Value) -> Value:
    return value.astimezone(UTC) if isinstance(value, datetime) else value


@dataclass(frozen=True, slots=True)
class KeyRangeReader:
    """Reads the rows of a table that have some keys, as they are in a snapshot; can be sent to another process."""

    dsn: str = field(repr=False)
    snapshot: str
    table: PostgresTable
    column: str

    def __call__(self, keys: KeySet) -> Generator[pa.RecordBatch, None, None]:
        table, build = self.table, EventRows(self.table)
        names = [column.name for column in table.columns]
        with (
            in_snapshot(self.dsn, self.snapshot) as connection,
            source_errors(f"reading {table.qualified}"),
        ):
            for texts in copied(connection, self.query(keys), names):
                count = texts.num_rows
                columns = {name: texts.column(name).chunk(0) for name in names}
                rows = build.build(columns, np.full(count, UPSERT, dtype=np.int8), np.zeros(count, dtype=np.int64))
                yield rows.select(names)

    def query(self, keys: KeySet) -> sql.Composed:
        columns = sql.SQL(", ").join(sql.Identifier(column.name) for column in self.table.columns)
        return sql.SQL("SELECT {} FROM {} WHERE {}").format(
            columns, self.table.scanned, sql_of(sql.Identifier(self.column), keys)
        )


def sql_of(column: sql.Identifier, keys: KeySet) -> sql.Composable:
    """Whether a column, which is never NULL, has one of the keys."""
    parts: list[sql.Composable] = []
    for interval in keys.intervals:
        ends = [
            sql.SQL("{} {} {}").format(column, sql.SQL(word), sql.Literal(end.value))
            for end, word in (
                (interval.low, ">" if interval.low is not None and interval.low.above else ">="),
                (interval.high, "<=" if interval.high is not None and interval.high.above else "<"),
            )
            if end is not None
        ]
        parts.append(sql.SQL("({})").format(sql.SQL(" AND ").join(ends)) if ends else sql.SQL("true"))
    return sql.SQL(" OR ").join(parts) if parts else sql.SQL("false")
