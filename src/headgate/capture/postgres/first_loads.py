"""First loads: the rows of tables are read beside the stream, which goes on.

    stream     ── changes ────────── p ── changes, the tables' own included ──── e ── changes ──►
    snapshot                         └─ rows as they were at p, into files ──────┘ enter the log as one transaction

The log takes the tables' changes from before p on, so none is missing behind the rows. Changes up to p are in the rows already, and
whoever reads the log leaves them out (`FirstLoad`). A load that is cut short leaves nothing in the log and starts over with another p.
The slot that exports the snapshot is a temporary one: the server holds WAL and dead rows for it only while rows are read, and drops
it with the connection, so that a crash leaves none.

A table may be read range by range instead: `read_ranges` gives a snapshot at a p of its own for a group of ranges, whose rows go
where the caller has them. No row of it is in the log; `mark` lets a job hold p, and the log is needed behind the smallest p.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from types import MappingProxyType

from headgate.capture.events import to_micros
from headgate.capture.postgres.catalog import PostgresTable
from headgate.capture.postgres.cursor import CursorFile
from headgate.capture.postgres.key_ranges import KeyRangeReader, bounds_of
from headgate.capture.postgres.load import copy_into
from headgate.capture.postgres.log_history import LogHistory
from headgate.capture.postgres.log_reader import LogReader
from headgate.capture.postgres.log_state import EVER, LogState
from headgate.capture.postgres.new_slot import NewSlot, new_slot
from headgate.capture.postgres.opening import Opening
from headgate.capture.postgres.problems import (
    SourceBusy,
    SourceHistoryLost,
    SourceRefused,
    SourceSetup,
    SourceUnreachable,
    ValueDoesNotFit,
)
from headgate.capture.source import FirstLoad, Progress, RangeRead
from headgate.capture.streamlog import StreamLog
from headgate.capture.writing import TransactionWriter
from headgate.errors import DefiniteError
from headgate.ranges.key_set import Value


class FirstLoads:
    """What one source has of its tables' first rows; `read` runs in one thread at a time, beside the one that captures."""

    def __init__(
        self, opening: Opening, history: LogHistory, lock: threading.RLock, reader: Callable[[], LogReader]
    ) -> None:
        """`lock` is held while the history changes, and while the stream is read, whose present reader `reader` gives."""
        self.progress: Progress | None = None
        """How far the rows are that are being read."""
        self._opening = opening
        self._history = history
        self._lock = lock
        self._reader = reader
        self._reading = threading.Lock()
        self._is_stopped: Callable[[], bool] = lambda: False
        self._begun: dict[str, int] = {}
        self._found: Mapping[str, FirstLoad] = {}
        self.look()

    @property
    def found(self) -> Mapping[str, FirstLoad]:
        return self._found

    def look(self) -> None:
        """Takes note of what the history has by now."""
        # One that cannot be read is stopped, which is told otherwise.
        self._found = MappingProxyType(
            {
                name: FirstLoad(self._begun.get(name), None, self._history.sizes.get(name, 0))
                if each.entered_at is None
                else each
                for name, each in _places(self._history.state).items()
                if each.entered_at is not None or self._history.state.tables[name].problem is None
            }
        )

    def read(self, names: Collection[str], is_stopped: Callable[[], bool]) -> None:
        """Reads the first rows of those of the tables that have none, all at one moment; where one of them cannot be read,
        each by itself, and it is stopped. Raises why, and a transient error when it is stopped from outside."""
        with self._reading:
            self._is_stopped = is_stopped
            try:
                self._read(names)
            except DefiniteError:
                for name in names:
                    self._read_or_stop(name)
                raise
            finally:
                self._begun, self.progress = {}, None
                self.look()

    def bounds(self, name: str, column: str, count: int) -> tuple[Value, ...] | None:
        """See `RangedSource`."""
        with self._lock:
            table = self._history.tables.tables[name] if self._history.is_waiting(name) else None
        if table is None:
            return None
        with self._history.sessions.borrow("looking for ranges") as connection:
            return bounds_of(connection, table, column, count)

    @contextmanager
    def read_ranges(self, name: str, column: str) -> Iterator[RangeRead]:
        """A table as it is now; one whose rows cannot be read is stopped, and the block raises why."""
        with self._reading:
            try:
                yield from self._snapshot(name, column)
            except (SourceRefused, SourceSetup, ValueDoesNotFit) as error:
                with self._lock:
                    if self._history.is_waiting(name) and name not in self._history.tables.problems:
                        self._history.tables.stop(name, self._opening.log.end + 1, error)
                raise
            finally:
                self._begun = {}
                self.look()

    def _snapshot(self, name: str, column: str) -> Iterator[RangeRead]:
        opening, history = self._opening, self._history
        with self._lock:
            self._require_waiting(name)
            # A new stream tells the shapes of tables again.
            self._reader().disconnect()
            table = history.begin_ranges(name)
            self._begun = {name: opening.log.end + 1}
            self.look()
        with self._slot() as slot:
            position = slot.load_at + history.offset
            with self._lock:
                self._begun = {name: position}
                self.look()

            def verify() -> None:
                with self._lock:
                    self._reader().drain(slot.consistent)
                    self._require_waiting(name)
                    if not history.is_as(name, table):
                        raise SourceBusy(
                            f"{table.qualified} changed its shape while it was read", hint="it is read again"
                        )

            yield RangeRead(position, KeyRangeReader(opening.dsn, slot.snapshot, table, column), verify)

    def _slot(self) -> AbstractContextManager[NewSlot]:
        """A temporary slot. The server may not have noticed yet that the one before is gone: each has a name of its own."""
        return new_slot(self._opening.dsn, f"{self._history.name[:48]}_{secrets.token_hex(4)}_first", temporary=True)

    def _require_waiting(self, name: str) -> None:
        if not self._history.is_waiting(name):
            raise SourceBusy(f"{name} was read whole meanwhile", hint="what is left of it follows from that")

    def mark(self, position: int) -> None:
        """Appends a transaction without rows, at a position that no commit record has: right before one that all was read up to."""
        log, history = self._opening.log, self._history
        with self._lock:
            reader = self._reader()
            while (at := reader.durable - 1 + history.offset) < position or at <= log.end:
                history.server.nudge()
                reader.drain(history.server.standing().lsn)
            # Of transactions that are on their way, times could lie before the mark's.
            reader.disconnect()
            now = self._opening.clock.now()
            with log.begin(at, now if log.end_commit_at is None else max(now, log.end_commit_at)) as writer:
                writer.commit()
            log.sync()

    def loaded(self, name: str) -> None:
        """All ranges of a table are durable."""
        with self._lock:
            if self._history.is_waiting(name):
                self._history.ranges_read(name)
            self.look()

    def _read(self, names: Collection[str]) -> None:
        while waiting := [name for name in names if self._history.is_waiting(name)]:
            self._attempt(waiting)

    def _read_or_stop(self, name: str) -> None:
        try:
            self._read([name])
        except DefiniteError as error:
            with self._lock:
                if self._history.is_waiting(name):
                    self._history.tables.stop(name, 0, error)

    def _attempt(self, names: Collection[str]) -> None:
        """Reads the tables; nothing is in the log where one has changed its shape meanwhile."""
        opening, history, log = self._opening, self._history, self._opening.log
        with self._lock:
            # A new stream tells the shapes of tables again.
            self._reader().disconnect()
            tables = history.await_rows(names)
            # Not exact yet, but no later: from here on the log is needed.
            self._begun = dict.fromkeys(names, log.end + 1)
            self.look()
        with self._slot() as slot:
            with self._lock:
                position = slot.load_at + history.offset
                self._begun = dict.fromkeys(names, position)
                self.look()
            with log.begin(position, opening.clock.now(), initial=True) as writer:
                copy_into(opening, writer, slot.snapshot, list(tables.values()), initial=True, progress=self._heard)
                with self._lock:
                    self._reader().drain(slot.consistent)
                    # Of transactions that are on their way, times could lie before the load's.
                    self._reader().disconnect()
                    if all(history.is_waiting(name) and history.is_as(name, table) for name, table in tables.items()):
                        self._enter(writer, tables, position)

    def _enter(self, writer: TransactionWriter, tables: Mapping[str, PostgresTable], position: int) -> None:
        """Puts the rows into the log, at a position that no commit record has."""
        log = self._opening.log
        now = self._opening.clock.now()
        at = now if log.end_commit_at is None else max(now, log.end_commit_at)
        entered = max(position, log.end + 1)
        writer.commit_behind(entered, to_micros(at))
        log.sync()
        # After a crash before this, the rows that are in the log lie before those of the next attempt: they are left out.
        self._history.entered(tables, position, entered)
        self.look()

    def _heard(self, progress: Progress) -> None:
        if self._is_stopped():
            raise SourceUnreachable("the load was stopped", hint="it begins again when the warehouse is opened")
        self.progress = progress
        if self._opening.progress is not None:
            self._opening.progress(progress)


def left_loads(log: StreamLog) -> Mapping[str, FirstLoad]:
    """What the last process left, of a source that cannot be opened."""
    try:
        state = CursorFile(log.folder, LogState).read()
    except SourceHistoryLost:
        return {}
    return {} if state is None else _places(state)


def _places(state: LogState) -> dict[str, FirstLoad]:
    """Where the first rows of tables are, as far as that is noted."""
    return {
        name: FirstLoad(known.read_at, known.entered_at)
        for name, known in state.tables.items()
        if known.entered_at is not None or known.load == EVER
    }
