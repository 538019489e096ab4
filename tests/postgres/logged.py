"""A source captured by its log, for tests: steps of capture, and the tables that its events add up to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pyarrow.parquet as pq
from psycopg import sql

from headgate.capture.gears.method import Task
from headgate.capture.locallog import LocalLog
from headgate.capture.postgres.log import LogMethod
from headgate.capture.postgres.log_tables import TableDefinition
from headgate.clock import SystemClock
from headgate.delta.events import DELETE, OP, SEQUENCE, TRUNCATE, UNCHANGED
from headgate.runtime.stages.load_place import LoadPlace

EVERYTHING = 1 << 62
Row = dict[str, Any]


class Logged:
    """One opened method with its stream log."""

    def __init__(self, method: LogMethod, log: LocalLog) -> None:
        self.method = method
        self.log = log
        self._number = 0
        self._task: Task[int] | None = None

    def catch_up(self) -> int:
        """Captures everything that the source has acknowledged; returns the position that was asked for."""
        needed = self.method.sample().position
        while self.method.captured < needed:
            self._number += 1
            # As the agent does: what could not be published is published again.
            self._task = self.method.plan(self._number) or self._task
            if self._task is not None:
                self.method.publish(self.method.read(self._task))
                self._task = None
        return needed

    def events(self, table: str, after: int = 0) -> list[Row]:
        """The table's events in order, those of large transactions included: its first rows, and what came behind them."""
        found = self.log.read(table, after, EVERYTHING)
        rows: list[Row] = [] if found.table is None else found.table.to_pylist()
        for file in found.files:
            rows += pq.read_table(file.path).to_pylist()
        load = LoadPlace.of(self.method.loads.found.get(table))
        rows = [row for row in rows if row["__position"] >= load.read_at]
        for row in rows:
            if row["__position"] == load.entered_at:
                row["__position"] = load.read_at
        return sorted(rows, key=lambda row: (row["__position"], row[SEQUENCE]))

    def replica(self, table: str, key: Sequence[str] = ("id",)) -> list[Row]:
        """What the events add up to, in the order of the key."""
        rows: dict[tuple[Any, ...], Row] = {}
        for event in self.events(table):
            image = {name: value for name, value in event.items() if not name.startswith("__")}
            place = tuple(image[column] for column in key)
            if event[OP] == TRUNCATE:
                rows.clear()
            elif event[OP] == DELETE:
                del rows[place]
            else:
                for column in event[UNCHANGED]:
                    image[column] = rows[place][column]
                rows[place] = image
        return [rows[place] for place in sorted(rows)]

    def close(self) -> None:
        self.method.close()
        self.log.close()


@contextmanager
def logged(
    dsn: str,
    folder: Path,
    *tables: str | TableDefinition,
    name: str = "headgate_test_source",
    load: bool = True,
    **options: Any,
) -> Iterator[Logged]:
    """Opens a source and has its tables loaded; the slot stays behind."""
    log = LocalLog(folder, transaction_bytes=options.pop("transaction_bytes", 16 << 20))
    definitions = [TableDefinition(table, table) if isinstance(table, str) else table for table in tables]
    try:
        method = LogMethod(dsn, name, definitions, log=log, clock=SystemClock(), **options)
    except BaseException:
        log.close()
        raise
    opened = Logged(method, log)
    try:
        if load:
            method.load([definition.called for definition in definitions])
        yield opened
    finally:
        opened.close()


def source_rows(connection: psycopg.Connection, table: str, key: Sequence[str] = ("id",)) -> list[Row]:
    """The table as the source has it now, in the order of the key."""
    with connection.cursor(row_factory=psycopg.rows.dict_row) as cursor:
        rows = cursor.execute(sql.SQL("SELECT * FROM {}").format(sql.Identifier(table))).fetchall()
    return sorted(rows, key=lambda row: tuple(row[column] for column in key))
