"""A table that is captured by timestamp: the column that every write sets to the time, and what is read by it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import numpy as np
import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from psycopg import sql

from headgate.capture.postgres.catalog import CatalogColumn, PostgresTable
from headgate.capture.postgres.log_tables import TableDefinition
from headgate.capture.postgres.problems import SourceSetup
from headgate.capture.postgres.rows import EventRows
from headgate.capture.shape import did_you_mean
from headgate.delta.events import DELETE, OBSERVED

_TIMESTAMP, _TIMESTAMP_WITH_ZONE, _BOOLEAN = 1114, 1184, 16
_XIDS = 1 << 32

VERSION = "__version"


@dataclass(frozen=True, slots=True)
class TimestampTable:
    """A table as the project names it, with its timestamp column and, if it has one, the column that marks deleted rows."""

    definition: TableDefinition
    updated: str
    deleted: str | None = None

    @property
    def called(self) -> str:
        return self.definition.called

    def read(self, connection: psycopg.Connection) -> PostgresTable:
        """What the source's catalog says; refuses a table that lacks the columns."""
        table = self.definition.read(connection)
        updated = _column(table, self.updated)
        if updated.type.oid not in (_TIMESTAMP, _TIMESTAMP_WITH_ZONE):
            raise SourceSetup(
                f"the column {self.updated} of {table.qualified} is {updated.type_name}, not a time",
                hint=f"ALTER TABLE {table.qualified} ADD COLUMN updated_at timestamptz NOT NULL DEFAULT now(), set it in"
                " every update, and name it: updated: updated_at",
            )
        if self.deleted is not None:
            _column(table, self.deleted)
        return table

    def warnings(self, connection: psycopg.Connection, table: PostgresTable) -> list[str]:
        """What works, but not well."""
        found = []
        if self.deleted is None:
            found.append(
                f"deletes in {table.qualified} are not seen; name a column that marks deleted rows: deleted: …"
            )
        if connection.execute(_INDEXED, [table.oid, self.updated]).fetchone() == (False,):
            column = sql.Identifier(self.updated)
            index = sql.SQL("CREATE INDEX CONCURRENTLY ON {} ({})").format(table.identifier, column)
            found.append(f"every poll reads all of {table.qualified}; {index.as_string(connection)}")
        if _column(table, self.updated).type.oid == _TIMESTAMP:
            found.append(
                f"{table.qualified}.{self.updated} has no time zone, its times are taken as UTC; make it timestamptz"
            )
        return found

    def changes_since(self, table: PostgresTable, low: datetime | None, oldest: int) -> sql.Composed:
        """The rows with times from `low` on that a transaction from `oldest` on wrote; others were seen before.

        The first column tells versions of rows apart.
        """
        # Compared on the circle of 32 bits; a row's transaction may be a part of one that is older.
        recent = sql.SQL("(xmin::text::int8 - {} + {}) % {} < {}").format(oldest % _XIDS, _XIDS, _XIDS, _XIDS // 2)
        condition = recent if low is None else sql.SQL("{} AND {}").format(self._since(table, low), recent)
        columns = sql.SQL(", ").join(sql.Identifier(column.name) for column in table.columns)
        version = sql.SQL("format('%s %s %s', tableoid::oid, ctid, xmin)")
        return sql.SQL("SELECT {}, {} FROM {} WHERE {}").format(version, columns, table.scanned, condition)

    def events(self, rows: pa.Table, build: EventRows, first: int) -> pa.RecordBatch:
        """Observed rows, and deletes of those that are marked as deleted; sequences count from `first`."""
        texts = {name: rows.column(name).combine_chunks() for name in rows.column_names if name != VERSION}
        ops = np.full(rows.num_rows, OBSERVED, dtype=np.int8)
        if self.deleted is not None:
            marks = texts[self.deleted]
            gone = pc.equal(marks, "t") if self._is_flag(build.table) else pc.is_valid(marks)
            gone = pc.fill_null(gone, False)
            ops[gone.to_numpy(zero_copy_only=False)] = DELETE
            key = build.table.key
            texts = {name: values if name in key else pc.if_else(gone, None, values) for name, values in texts.items()}
        return build.build(texts, ops, np.arange(first, first + rows.num_rows, dtype=np.int64))

    def query_columns(self, table: PostgresTable) -> list[str]:
        """The columns of `changes_since`."""
        return [VERSION, *(column.name for column in table.columns)]

    def living(self, table: PostgresTable, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of a load that are not marked as deleted."""
        if self.deleted is None:
            return rows
        marks = rows.column(self.deleted)
        return rows.filter(pc.invert(pc.fill_null(marks, False)) if self._is_flag(table) else pc.is_null(marks))

    def _is_flag(self, table: PostgresTable) -> bool:
        kind = _column(table, self.deleted or "").type
        return kind.oid == _BOOLEAN and not kind.as_text

    def _since(self, table: PostgresTable, low: datetime) -> sql.Composed:
        column = _column(table, self.updated)
        zoned = column.type.oid == _TIMESTAMP_WITH_ZONE
        # The session's time zone is UTC, so that the text means the same with and without one.
        kind = sql.SQL("timestamptz" if zoned else "timestamp")
        bound = sql.SQL("{}::{}").format(sql.Literal(low.replace(tzinfo=None).isoformat(" ")), kind)
        since = sql.SQL("{} >= {}").format(sql.Identifier(column.name), bound)
        return sql.SQL("({} OR {} IS NULL)").format(since, sql.Identifier(column.name)) if column.nullable else since


_INDEXED = """
SELECT EXISTS (SELECT FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
               WHERE i.indrelid = %s AND a.attname = %s AND i.indisvalid AND i.indpred IS NULL)
"""


def _column(table: PostgresTable, name: str) -> CatalogColumn:
    for column in table.columns:
        if column.name == name:
            return column
    names = [column.name for column in table.columns]
    raise SourceSetup(f"{table.qualified} has no column {name}", hint=did_you_mean(name, names, "columns"))
