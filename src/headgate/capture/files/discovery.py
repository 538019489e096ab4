"""Which files are new: each gets the next position once, in the order in which they are found.

A path that was taken with the same size and time is known; so is a file that was only renamed. A file that changed is taken again
where there is a key, and else stops its table, because nobody can tell which of its rows are new. While a table is stopped
because of a file, none of its files is taken; it goes on by itself once that file is another one or gone.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import timedelta

from headgate.capture.files.listing import FoundFile
from headgate.capture.files.tables import FilesTable
from headgate.capture.files.taken import TakenFile, TakenFiles
from headgate.capture.source import TableProblem
from headgate.capture.writing import TransactionWriter

_LOGGER = logging.getLogger(__name__)
_ROWS_BITS = 32
"""A position leaves room for this many rows, in bits; a larger file takes the room of several."""


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """A file that is to be taken at a position; without one, the whole table is to be read again, or something is to be written."""

    table: str
    file: FoundFile | None
    position: int
    initial: bool = False
    problem: str | None = None
    """Known already: why it cannot be taken."""
    write: Callable[[TransactionWriter], None] | None = None
    """Without a file: what the transaction at the position has, in place of a whole table."""
    done: Future[None] = field(default_factory=Future)

    @property
    def end(self) -> int:
        """The last position that it takes the room of."""
        return self.position + (0 if self.file is None else self.file.size >> _ROWS_BITS)


class Discovery:
    """The files of some tables; its caller sees to it that one thread at a time uses it."""

    def __init__(
        self, tables: Mapping[str, FilesTable], taken: TakenFiles, end: int, settle: timedelta, remember: timedelta
    ) -> None:
        self.assigned = end
        """The last position that was given away."""
        self.held: dict[str, tuple[FoundFile, TableProblem]] = {}
        """Tables that a file stops."""
        self._tables = tables
        self._taken = taken
        self._settle = settle.total_seconds()
        self._remember = remember.total_seconds()
        self._underway: dict[tuple[str, str], FoundFile] = {}
        self._waiting: list[Entry] = []
        self._first_seen: dict[FoundFile, float] = {}

    def look(self) -> int:
        """Looks for new files; gives the position of the last one that is known of."""
        for name, table in self._tables.items():
            found = table.find()
            if name in self.held and not self._is_released(name, found):
                continue
            self._taken.note_gone(name, found, time.time(), self._remember)
            self._rename(name, found)
            fresh = [each for each in found.values() if self._is_new(name, each)]
            for each in table.in_order(fresh):
                self._enter(name, each)
        return self.assigned

    def take_waiting(self) -> list[Entry]:
        """All that wait to be taken, in order."""
        waiting, self._waiting = self._waiting, []
        return waiting

    def enter_whole(self, table: str) -> Entry:
        """A whole table, to be read again."""
        self.held.pop(table, None)
        return self._append(Entry(table, None, self.assigned + 1))

    def enter_writing(self, table: str, write: Callable[[TransactionWriter], None]) -> Entry:
        """A transaction that somebody writes."""
        return self._append(Entry(table, None, self.assigned + 1, write=write))

    def hold(self, entry: Entry, what: str, hint: str) -> None:
        """Stops a table because of a file."""
        assert entry.file is not None
        self.held[entry.table] = entry.file, TableProblem(entry.position, what, hint)

    def done(self, entry: Entry) -> None:
        """The entry was taken, or is not to be; what was not taken is new when it is seen again."""
        if entry.file is not None:
            self._underway.pop((entry.table, entry.file.path), None)
            self._first_seen.pop(entry.file, None)
        if not entry.done.done():
            entry.done.set_result(None)

    def _is_released(self, table: str, found: Mapping[str, FoundFile]) -> bool:
        held, _ = self.held[table]
        now = found.get(held.path)
        if now is not None and (now.size, now.modified) == (held.size, held.modified):
            return False
        del self.held[table]
        _LOGGER.info("table goes on: table=%s file=%s", table, held.path)
        return True

    def _rename(self, table: str, found: Mapping[str, FoundFile]) -> None:
        """Follows taken files to their new names."""
        taken = self._taken.tables[table].taken
        moved = {
            each.file.identity: path
            for path, each in taken.items()
            if path not in found or found[path].identity != each.file.identity
        }
        for path, file in found.items():
            before = moved.get(file.identity)
            if before is not None and not _is_same(taken.get(path), file):
                known = taken.pop(before)
                taken[path] = TakenFile(file, known.position)
                del moved[file.identity]

    def _is_new(self, table: str, file: FoundFile) -> bool:
        if (table, file.path) in self._underway or _is_same(self._taken.tables[table].taken.get(file.path), file):
            return False
        now = time.time()
        seen_for = now - self._first_seen.setdefault(file, now)
        # A time of modification in the future is no reason to wait for it.
        return max(seen_for, now - file.modified / 1e9) >= self._settle

    def _enter(self, name: str, file: FoundFile) -> None:
        table, state = self._tables[name], self._taken.tables[name]
        problem = None
        if file.path in state.taken and not table.table.key:
            problem = "it changed after its rows were taken, and without a key nobody can tell which of them are new"
        initial = not state.loaded and file.modified / 1e9 <= state.opened_at
        self._underway[(name, file.path)] = file
        self._append(Entry(name, file, self.assigned + 1, initial, problem))

    def _append(self, entry: Entry) -> Entry:
        self._waiting.append(entry)
        self.assigned = entry.end
        return entry


def _is_same(known: TakenFile | None, file: FoundFile) -> bool:
    return known is not None and (known.file.size, known.file.modified) == (file.size, file.modified)
