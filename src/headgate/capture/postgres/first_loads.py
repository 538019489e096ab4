"""First loads: the rows of tables are read beside the stream, which goes on.

    stream     ── changes ────────── p ── changes, the tables' own included ──── e ── changes ──►
    snapshot                         └─ rows as they were at p, into files ──────┘ enter the log as one transaction

The log takes the tables' changes from before p on, so none is missing behind the rows. Changes up to p are in the rows already, and
whoever reads the log leaves them out (`FirstLoad`). A load that is cut short leaves nothing in the log and starts over with another p.
The slot that exports the snapshot is a temporary one: the server holds WAL and dead rows for it only while rows are read.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType

from headgate.capture.events import to_micros
from headgate.capture.postgres.catalog import PostgresTable
from headgate.capture.postgres.cursor import CursorFile
from headgate.capture.postgres.load import copy_into
from headgate.capture.postgres.log_history import LogHistory
from headgate.capture.postgres.log_reader import LogReader
from headgate.capture.postgres.log_state import EVER, LogState
from headgate.capture.postgres.new_slot import new_slot
from headgate.capture.postgres.opening import Opening
from headgate.capture.postgres.problems import SourceHistoryLost, SourceUnreachable
from headgate.capture.source import FirstLoad, Progress
from headgate.capture.streamlog import StreamLog
from headgate.capture.writing import TransactionWriter
from headgate.errors import DefiniteError


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
        with new_slot(opening.dsn, f"{history.name[:57]}_first", temporary=True) as slot:
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
