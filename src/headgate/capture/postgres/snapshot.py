"""Reads whole tables as they were in one exported snapshot, in parallel ranges, while writers go on.

    ranges of blocks ──► sessions that share the snapshot, each copies one range ──► write(table, event rows)

Ranges are cut by physical blocks, so that a table can be cut without a look at its keys; a partitioned table is cut
into its partitions first.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import numpy as np
import psycopg
import pyarrow as pa
from psycopg import sql

from headgate.capture.events import DISTINCT
from headgate.capture.events_file import EventsFile
from headgate.capture.postgres.catalog import PostgresTable
from headgate.capture.postgres.connection import connect
from headgate.capture.postgres.copied import copied
from headgate.capture.postgres.problems import RETRIED, SourceUnreachable, said, source_errors
from headgate.capture.postgres.rows import EventRows
from headgate.capture.ranges import LargeLoads, Stamp, in_threads
from headgate.capture.source import Progress
from headgate.delta.events import SEQUENCE, UPSERT

RANGE_BLOCKS = 16_384
"""128 MB: what one session reads at a time."""

Write = Callable[[str, pa.RecordBatch], None]
"""Takes event rows of a table, by headgate's name for it."""
Keep = Callable[[str, pa.RecordBatch], pa.RecordBatch]
"""Chooses among event rows of a table; it can be pickled."""


@dataclass(frozen=True, slots=True)
class TableRange:
    """Some blocks of a table, or of one of its partitions; the last range of each is open, since tables grow."""

    table: PostgresTable
    relation: sql.Composed
    first: int
    end: int | None
    rows: int
    """As the planner's statistics have it."""
    bytes: int

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
            for schema, name, cut, size, rows, held in connection.execute(_RELATIONS, {"table": table.oid}).fetchall():
                relation = sql.Composed([sql.Identifier(schema, name)])
                firsts = range(0, max(size, 1), blocks) if cut else range(1)
                for first in firsts:
                    end = None if first == firsts[-1] else first + blocks
                    parts = len(firsts)
                    ranges.append(TableRange(table, relation, first, end, rows // parts, held // parts))
    return sorted(ranges, key=lambda each: -each.rows)


_RELATIONS = """
SELECT n.nspname, c.relname, c.relkind = 'r', (pg_relation_size(c.oid) / current_setting('block_size')::int)::int8,
       CASE WHEN c.reltuples < 0 THEN pg_relation_size(c.oid) / 100 ELSE c.reltuples END::int8,
       pg_table_size(c.oid)
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
    large: LargeFiles | None = None,
    blocks: int = RANGE_BLOCKS,
    op: int = UPSERT,
    first: int = 0,
    keep: Keep | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> int:
    """Copies all rows as they were in the snapshot, as events of one kind with sequences from `first` on; their number.

    `keep` chooses among the rows of a table. Of tables that are `large` together no row comes here, but files of events.
    """
    with in_snapshot(dsn, snapshot) as connection:
        ranges = cut_ranges(connection, tables, blocks=blocks)
    report = _LoadReport(sum(each.rows for each in ranges), progress)
    read = SnapshotReader(dsn, snapshot, op, keep)
    # Closed here rather than when it is collected: sessions may still read.
    if large is not None and sum(each.bytes for each in ranges) > large.loads.beyond:
        with closing(large.loads.run(ranges, read, large.stamp, large.spool, large.files)) as files:
            for taken, file in files:
                large.add(taken.table.source_table.name, file)
                report.took(file.rows, taken.table.source_table.name)
    else:
        with closing(in_threads(ranges, read)) as batches:
            for taken, rows in batches:
                write(taken.table.source_table.name, _numbered(rows, first + report.rows))
                report.took(rows.num_rows, taken.table.source_table.name)
    report.done()
    return report.rows


@dataclass(frozen=True, slots=True)
class LargeFiles:
    """How tables are read that are too large for this process, and where their events go."""

    loads: LargeLoads
    stamp: Stamp
    spool: Path
    files: Path
    add: Callable[[str, EventsFile], None]


@dataclass(frozen=True, slots=True)
class SnapshotReader:
    """Reads a range as events, in a session of its own; can be sent to another process."""

    dsn: str = field(repr=False)
    snapshot: str
    op: int
    keep: Keep | None = None

    def __call__(self, taken: TableRange) -> Generator[pa.RecordBatch, None, None]:
        table = taken.table
        build = EventRows(table)
        # Another key that was declared may not tell the rows apart.
        unique = table.primary_key if set(table.primary_key) <= set(table.key) else ()
        known = {DISTINCT: json.dumps(unique)} if unique else None
        names = [column.name for column in table.columns]
        with (
            in_snapshot(self.dsn, self.snapshot) as connection,
            source_errors(f"reading {table.qualified}"),
        ):
            for texts in copied(connection, taken.query, names):
                ops = np.full(texts.num_rows, self.op, dtype=np.int8)
                columns = {name: texts.column(name).chunk(0) for name in texts.column_names}
                rows = build.build(columns, ops, np.arange(texts.num_rows, dtype=np.int64))
                rows = rows if self.keep is None else self.keep(table.source_table.name, rows)
                yield rows.replace_schema_metadata(known)


class _LoadReport:
    """How far a load is, for whoever wants to know."""

    def __init__(self, estimated: int, progress: Callable[[Progress], None] | None) -> None:
        self.rows = 0
        self._estimated = estimated
        self._progress = progress
        self._began = time.monotonic()

    def took(self, rows: int, table: str) -> None:
        self.rows += rows
        if self._progress is not None:
            estimated = max(self._estimated, self.rows)
            seconds = (time.monotonic() - self._began) * (estimated - self.rows) / max(self.rows, 1)
            remaining = timedelta(seconds=seconds) if self.rows else None
            self._progress(Progress(self.rows, estimated, remaining, table=table, rate=self._rate))

    def done(self) -> None:
        if self._progress is not None:
            self._progress(Progress(self.rows, self.rows, timedelta(0), is_done=True, rate=self._rate))

    @property
    def _rate(self) -> float:
        return self.rows / max(time.monotonic() - self._began, 0.001)


def _numbered(rows: pa.RecordBatch, first: int) -> pa.RecordBatch:
    place = rows.schema.get_field_index(SEQUENCE)
    numbers = pa.array(np.arange(first, first + rows.num_rows, dtype=np.int64))
    return rows.set_column(place, rows.schema.field(place), numbers)


@contextmanager
def in_snapshot(dsn: str, snapshot: str) -> Iterator[psycopg.Connection]:
    """A session that sees what an exported snapshot has."""
    with connect(dsn, application="headgate snapshot") as connection, source_errors("reading a snapshot"):
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        try:
            connection.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(snapshot)))
        except (psycopg.errors.UndefinedObject, psycopg.errors.InvalidParameterValue) as error:
            # The session that exported it is gone: the server was restarted, or ended it.
            raise SourceUnreachable(f"the snapshot to be read is gone: {said(error)}", hint=RETRIED) from error
        yield connection
