"""Reads whole tables as they were in one exported snapshot, in parallel ranges, while writers go on.

    ranges of blocks ──► sessions that share the snapshot, each copies one range at a time ──► write(table, event rows)

Ranges are cut by physical blocks, so that a table can be cut without a look at its keys; a partitioned table is cut
into its partitions first.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

import numpy as np
import psycopg
import pyarrow as pa
from psycopg import sql

from headgate.capture.postgres.catalog import PostgresTable
from headgate.capture.postgres.connection import connect
from headgate.capture.postgres.copied import copied
from headgate.capture.postgres.problems import source_errors
from headgate.capture.postgres.rows import EventRows
from headgate.capture.source import Progress
from headgate.delta.events import UPSERT

RANGE_BLOCKS = 16_384
"""128 MB: what one session reads at a time."""
SESSIONS = 4

Write = Callable[[str, pa.RecordBatch], None]
"""Takes event rows of a table, by headgate's name for it; called by one thread at a time."""


@dataclass(frozen=True, slots=True)
class TableRange:
    """Some blocks of a table, or of one of its partitions; the last range of each is open, since tables grow."""

    table: PostgresTable
    relation: sql.Composed
    first: int
    end: int | None
    rows: int
    """As the planner's statistics have it."""

    @property
    def query(self) -> sql.Composed:
        columns = sql.SQL(", ").join(sql.Identifier(column.name) for column in self.table.columns)
        query = sql.SQL("SELECT {} FROM ONLY {}").format(columns, self.relation)
        if self.first:
            query += sql.SQL(" WHERE ctid >= {}").format(sql.Literal(f"({self.first},0)"))
        if self.end is not None:
            word = sql.SQL(" AND " if self.first else " WHERE ")
            query += word + sql.SQL("ctid < {}").format(sql.Literal(f"({self.end},0)"))
        return query


def cut_ranges(
    connection: psycopg.Connection, tables: Iterable[PostgresTable], *, blocks: int = RANGE_BLOCKS
) -> list[TableRange]:
    """Ranges that together hold every row of the tables once, the largest first."""
    ranges = []
    with source_errors("measuring the tables"):
        for table in tables:
            for schema, name, cut, size, rows in connection.execute(_RELATIONS, {"table": table.oid}).fetchall():
                relation = sql.Composed([sql.Identifier(schema, name)])
                firsts = range(0, max(size, 1), blocks) if cut else range(1)
                for first in firsts:
                    end = None if first == firsts[-1] else first + blocks
                    ranges.append(TableRange(table, relation, first, end, rows // len(firsts)))
    return sorted(ranges, key=lambda each: -each.rows)


_RELATIONS = """
SELECT n.nspname, c.relname, c.relkind = 'r', (pg_relation_size(c.oid) / current_setting('block_size')::int)::int8,
       CASE WHEN c.reltuples < 0 THEN pg_relation_size(c.oid) / 100 ELSE c.reltuples END::int8
FROM (SELECT relid FROM pg_partition_tree(%(table)s) WHERE isleaf
      UNION SELECT oid FROM pg_class WHERE oid = %(table)s AND relkind = 'r') AS leaf(oid)
JOIN pg_class c ON c.oid = leaf.oid JOIN pg_namespace n ON n.oid = c.relnamespace
"""


def copy_tables(
    dsn: str,
    snapshot: str,
    tables: Sequence[PostgresTable],
    write: Write,
    *,
    sessions: int = SESSIONS,
    blocks: int = RANGE_BLOCKS,
    op: int = UPSERT,
    first: int = 0,
    progress: Callable[[Progress], None] | None = None,
) -> int:
    """Copies all rows as they were in the snapshot, as events of one kind with sequences from `first` on; their number."""
    with _in_snapshot(dsn, snapshot) as connection:
        ranges = cut_ranges(connection, tables, blocks=blocks)
    copying = _Copying(write, op, first, sum(each.rows for each in ranges), progress)
    with ThreadPoolExecutor(max(1, min(sessions, len(ranges))), thread_name_prefix="snapshot") as pool:
        jobs = [pool.submit(partial(copying.work, dsn, snapshot, ranges)) for _ in range(min(sessions, len(ranges)))]
    for job in jobs:
        job.result()
    if progress is not None:
        progress(Progress(copying.rows, copying.rows, timedelta(0), is_done=True))
    return copying.rows


class _Copying:
    """What the sessions of one load share."""

    def __init__(
        self, write: Write, op: int, first: int, estimated: int, progress: Callable[[Progress], None] | None
    ) -> None:
        self.rows = 0
        self._write = write
        self._op = op
        self._first = first
        self._estimated = estimated
        self._progress = progress
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self._next = 0
        self._failed = False

    def work(self, dsn: str, snapshot: str, ranges: Sequence[TableRange]) -> None:
        try:
            with _in_snapshot(dsn, snapshot) as connection:
                while (taken := self._take(ranges)) is not None:
                    self._copy(connection, taken)
        except BaseException:
            self._failed = True
            raise

    def _take(self, ranges: Sequence[TableRange]) -> TableRange | None:
        with self._lock:
            if self._failed or self._next == len(ranges):
                return None
            self._next += 1
            return ranges[self._next - 1]

    def _copy(self, connection: psycopg.Connection, taken: TableRange) -> None:
        table = taken.table
        build = EventRows(table)
        with source_errors(f"reading {table.qualified}"):
            for texts in copied(connection, taken.query, [column.name for column in table.columns]):
                if self._failed:
                    return
                with self._lock:
                    first = self._first + self.rows
                    self.rows += texts.num_rows
                ops = np.full(texts.num_rows, self._op, dtype=np.int8)
                sequences = np.arange(first, first + texts.num_rows, dtype=np.int64)
                columns = {name: texts.column(name).chunk(0) for name in texts.column_names}
                events = build.build(columns, ops, sequences)
                with self._lock:
                    self._write(table.source_table.name, events)
                    self._report()

    def _report(self) -> None:
        if self._progress is None:
            return
        estimated = max(self._estimated, self.rows)
        seconds = (time.monotonic() - self._began) * (estimated - self.rows) / max(self.rows, 1)
        self._progress(Progress(self.rows, estimated, timedelta(seconds=seconds) if self.rows else None))


@contextmanager
def _in_snapshot(dsn: str, snapshot: str) -> Iterator[psycopg.Connection]:
    with connect(dsn, application="headgate snapshot") as connection, source_errors("reading a snapshot"):
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        connection.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(snapshot)))
        yield connection
