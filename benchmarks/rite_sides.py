"""What is compared: sides that hold a table, programs that load it, and the clock that stops when a reader sees the rows."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from types import TracebackType
from typing import Any, Protocol

from benchmarks.report import say
from benchmarks.rite_rows import Data, Sums, parts, rows

COMMIT_EVERY = 10_000
PATIENCE = 600.0
"""Seconds that a reader may take to see rows that were committed."""

INSERT = "INSERT INTO {table} VALUES (%s, %s, %s, %s, %s, %s)"


class Side(Protocol):
    """Somewhere that rows are loaded to."""

    def begin(self) -> None:
        """An empty table, with nothing left to do for earlier ones; not timed."""
        ...

    def read(self) -> Sums:
        """What a reader sees now."""
        ...


@dataclass(frozen=True)
class Variant:
    """One way to load rows."""

    side: Side
    load: Callable[[Data], object]
    data: Data
    with_reader: bool = False
    """Whether a reader sums the table during the load."""

    def seconds(self) -> float:
        """From the first row until a reader has seen them all."""
        self.side.begin()
        self.side.read().require(Sums(0, 0))
        took, found = (self._watched if self.with_reader else self._alone)()
        found.require(self.data.sums)
        return took

    def _alone(self) -> tuple[float, Sums]:
        start = time.perf_counter()
        self.load(self.data)
        found = self.side.read()
        return time.perf_counter() - start, found

    def _watched(self) -> tuple[float, Sums]:
        with Reader(self.side.read) as reader:
            start = time.perf_counter()
            self.load(self.data)
            found = reader.wait_for(self.data.count)
            took = time.perf_counter() - start
        say(f"  {reader.reads} reads meanwhile")
        return took, found


# The programs are the same for every database: they know a connection as PEP 249 has it.


def insert_each(connection: Any, table: str, count: int, *, every: int) -> None:
    """One INSERT for each row; commits after so many of them."""
    cursor, statement, remaining = connection.cursor(), INSERT.format(table=table), rows(count)
    for _ in range(0, count, every):
        for row in islice(remaining, every):
            cursor.execute(statement, row)
        connection.commit()


def insert_batches(connection: Any, table: str, count: int, *, short: bool = False) -> None:
    """`executemany` of 10,000 rows at a time; commits after each of them, or once."""
    cursor, statement = connection.cursor(), INSERT.format(table=table)
    for part in parts(count, COMMIT_EVERY):
        cursor.executemany(statement, part)
        if short:
            connection.commit()
    connection.commit()


def insert_all(connection: Any, table: str, count: int, **commit: bool) -> None:
    """One `executemany` of an iterator."""
    connection.cursor().executemany(INSERT.format(table=table), rows(count))
    connection.commit(**commit)


class Reader:
    """Sums a table again and again in a thread of its own, from entering to leaving."""

    def __init__(self, read: Callable[[], Sums]) -> None:
        self._read = read
        self._ended = threading.Event()
        self._looked = threading.Condition()
        self._newest: Sums | None = None
        self._pool = ThreadPoolExecutor(1)
        self.reads = 0

    def __enter__(self) -> Reader:
        self._reading = self._pool.submit(self._run)
        self._reading.add_done_callback(lambda _: self._notify())
        self.wait_for(0)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._pool.shutdown()

    def wait_for(self, count: int) -> Sums:
        """What it sees once it sees so many rows."""
        with self._looked:
            seen = self._looked.wait_for(lambda: self._reading.done() or self._sees(count), PATIENCE)
            if self._reading.done():
                self._reading.result()
            if not seen or self._newest is None:
                raise SystemExit(f"a reader saw {self._newest} after {PATIENCE:g} s, not {count} rows")
            return self._newest

    def _sees(self, count: int) -> bool:
        return self._newest is not None and self._newest.rows >= count

    def _run(self) -> None:
        while not self._ended.is_set():
            found = self._read()
            with self._looked:
                self._newest = found
                self.reads += 1
                self._looked.notify_all()

    def _notify(self) -> None:
        with self._looked:
            self._looked.notify_all()
