"""Leases: an answer that nobody closes lets its snapshot go when its time is over."""

from __future__ import annotations

import threading
import time
import weakref
from typing import Protocol

from headgate.config.live import LiveProject
from headgate.runtime.reading.answer import SnapshotAnswer


class Leased(Protocol):
    """What holds a snapshot."""

    @property
    def is_open(self) -> bool: ...

    def close(self) -> None: ...


class Leases:
    """Answers that are open, and what subscriptions hold, and how long they may."""

    def __init__(self, settings: LiveProject) -> None:
        """How long that is may change, for answers that are open, too."""
        self._settings = settings
        self._lock = threading.Lock()
        self._given: weakref.WeakKeyDictionary[Leased, float] = weakref.WeakKeyDictionary()

    def __len__(self) -> int:
        """Answers whose snapshots are held."""
        with self._lock:
            return sum(isinstance(each, SnapshotAnswer) and each.is_open for each in list(self._given))

    def add(self, leased: Leased) -> None:
        """Begins a lease, or renews it."""
        with self._lock:
            self._given[leased] = time.monotonic()

    def end_expired(self) -> int:
        """Closes that whose lease has ended; gives how many."""
        before = time.monotonic() - self._settings.current.retention.lease.total_seconds()
        with self._lock:
            expired = [leased for leased, given in self._given.items() if given <= before]
            for leased in expired:
                del self._given[leased]
        for leased in expired:
            leased.close()
        return len(expired)
