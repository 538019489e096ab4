"""Loads: whole tables of an exported snapshot as one transaction of the stream log."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime

import numpy as np

from headgate.capture.events_file import EventsFile
from headgate.capture.frames import SideFile
from headgate.capture.postgres.catalog import PostgresTable
from headgate.capture.postgres.connection import connect
from headgate.capture.postgres.opening import Opening
from headgate.capture.postgres.problems import source_errors
from headgate.capture.postgres.rows import EventRows
from headgate.capture.postgres.snapshot import Keep, LargeFiles, copy_tables
from headgate.capture.ranges import Stamp
from headgate.capture.reading import stamp_micros
from headgate.capture.source import Progress
from headgate.capture.writing import TransactionWriter
from headgate.delta.events import OBSERVED, TRUNCATE, UPSERT


@contextmanager
def held_snapshot(opening: Opening) -> Iterator[tuple[str, str]]:
    """A snapshot of the source, and the name under which other sessions can use it inside the `with` block."""
    with (
        connect(opening.dsn, application=f"headgate {opening.name}") as connection,
        source_errors("holding a snapshot"),
    ):
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        row = connection.execute("SELECT pg_current_snapshot()::text, pg_export_snapshot()").fetchone()
        assert row is not None
        yield row
        connection.execute("COMMIT")


def load_tables(
    opening: Opening,
    snapshot: str,
    tables: Sequence[PostgresTable],
    *,
    position: int,
    at: datetime,
    replacing: bool,
    keep: Keep | None = None,
) -> None:
    """Puts the tables as they are in the snapshot into the log, durably; `keep` chooses among the rows of a table.

    `replacing` what the log has of them, they are emptied first and their rows are observations: only real differences
    remain once they are compared with the replicas. Otherwise the rows are valid from the beginning of time.
    """
    log = opening.log
    at = at if log.end_commit_at is None else max(at, log.end_commit_at)
    op = OBSERVED if replacing else UPSERT
    with log.begin(position, at, initial=not replacing) as writer:
        if replacing:
            for number, table in enumerate(tables):
                ops, sequences = np.array([TRUNCATE], dtype=np.int8), np.array([number], dtype=np.int64)
                writer.write(table.source_table.name, EventRows(table).build({}, ops, sequences))
        copy_into(
            opening,
            writer,
            snapshot,
            tables,
            initial=not replacing,
            op=op,
            first=len(tables),
            keep=keep,
            progress=opening.progress,
        )
        writer.commit()
    log.sync()


def copy_into(
    opening: Opening,
    writer: TransactionWriter,
    snapshot: str,
    tables: Sequence[PostgresTable],
    *,
    initial: bool,
    op: int = UPSERT,
    first: int = 0,
    keep: Keep | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> None:
    """Gives a transaction all rows of the tables; large ones are read by others."""

    def add(name: str, file: EventsFile) -> None:
        writer.add_file(name, SideFile(file.name, file.rows, file.bytes))

    log, large = opening.log, None
    if opening.large is not None:
        stamp = Stamp(writer.position, stamp_micros(writer.commit_at, initial))
        large = LargeFiles(opening.large, stamp, log.spool_folder, log.files_folder, add)
    copy_tables(
        opening.dsn,
        snapshot,
        tables,
        writer.write,
        large=large,
        op=op,
        first=first,
        keep=keep,
        progress=progress,
    )
