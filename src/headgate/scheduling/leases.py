"""Leases: an answer that nobody closes lets its snapshot go when its time is over."""

from __future__ import annotations

import threading
import time
import weakref

from headgate.config.live import LiveProject
from headgate.runtime.reading.answer import SnapshotAnswer


class Leases:
    """The answers that are open and how long they may be."""

    def __init__(self, settings: LiveProject) -> None:
        """How long that is may change, for answers that are open, too."""
        self._settings = settings
        self._lock = threading.Lock()
        self._given: weakref.WeakKeyDictionary[SnapshotAnswer, float] = weakref.WeakKeyDictionary()

    def __len__(self) -> int:
        """Answers whose snapshots are held."""
        with self._lock:
            return sum(answer.is_open for answer in list(self._given))

    def add(self, answer: SnapshotAnswer) -> None:
        with self._lock:
            self._given[answer] = time.monotonic()

    def end_expired(self) -> int:
        """Closes the answers whose lease has ended; gives how many."""
        before = time.monotonic() - self._settings.current.retention.lease.total_seconds()
        with self._lock:
            expired = [answer for answer, given in self._given.items() if given <= before]
            for answer in expired:
                del self._given[answer]
        for answer in expired:
            answer.close()
        return len(expired)
