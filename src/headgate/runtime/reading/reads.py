"""Reading rows into this program: how many answers are at it, and once for all who ask the same of the same snapshot."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractContextManager, contextmanager
from weakref import WeakValueDictionary

from headgate.runtime.reading.query_work import Interruption, Turn
from headgate.runtime.signal import Signal
from headgate.runtime.spark.partitions import Batches, ReadLimit


class Reads:
    """All answers that are open."""

    def __init__(self, signal: Signal) -> None:
        self._signal = signal
        self.running = 0
        """Answers whose rows are being read just now."""
        self._lock = threading.Lock()
        self._rows: WeakValueDictionary[Hashable, AnswerRows] = WeakValueDictionary()

    def rows(self, same: Hashable = None) -> AnswerRows:
        """The rows of an answer, shared with the open ones that are the same; None is the same as no other."""
        if same is None:
            return AnswerRows(self.counted)
        with self._lock:
            found = self._rows.get(same)
            if found is None:
                self._rows[same] = found = AnswerRows(self.counted)
            return found

    @contextmanager
    def counted(self) -> Iterator[None]:
        with self._lock:
            self.running += 1
        try:
            yield
        finally:
            with self._lock:
                self.running -= 1
            self._signal.notify()


class AnswerRows:
    """The rows of one answer, or of several that are the same."""

    def __init__(self, counted: Callable[[], AbstractContextManager[None]]) -> None:
        self.counted = counted
        self._turn = Turn()
        self._read: dict[ReadLimit, Batches] = {}

    def batches(
        self, limit: ReadLimit, read: Callable[[], Batches], interruption: Interruption, until: float | None = None
    ) -> Batches:
        """What was read before, or is being read; whoever waits reads by itself when that fails or is called off.

        Raises `Cancelled`, or `DeadlineExceeded` at an instant of the monotonic clock.
        """
        with self._turn.taken(interruption, until):
            found = self._read.get(limit)
            if found is None:
                with self.counted():
                    found = self._read[limit] = read()
            return found

    def unread(self) -> AnswerRows:
        """The same, to be held in its place once nobody reads it any more."""
        return AnswerRows(self.counted)
