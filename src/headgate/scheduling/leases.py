"""Leases: an answer that nobody closes lets its snapshot go when its time is over."""

from __future__ import annotations

import threading
import time
import weakref
from datetime import timedelta

from headgate.runtime.answer import Answer


class Leases:
    """The answers that are open and how long they may be."""

    def __init__(self, lease: timedelta) -> None:
        self._seconds = lease.total_seconds()
        self._lock = threading.Lock()
        self._ends: weakref.WeakKeyDictionary[Answer, float] = weakref.WeakKeyDictionary()

    def __len__(self) -> int:
        """Answers whose snapshots are held."""
        with self._lock:
            return sum(answer.is_open for answer in list(self._ends))

    def add(self, answer: Answer) -> None:
        with self._lock:
            self._ends[answer] = time.monotonic() + self._seconds

    def end_expired(self) -> int:
        """Closes the answers whose lease has ended; gives how many."""
        now = time.monotonic()
        with self._lock:
            expired = [answer for answer, end in self._ends.items() if end <= now]
            for answer in expired:
                del self._ends[answer]
        for answer in expired:
            answer.close()
        return len(expired)
