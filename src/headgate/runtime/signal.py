"""The one place where threads of a warehouse wait for each other.

Whatever another thread may wait for (a table has moved, a cut is made, a read has ended, a query was cancelled) is
followed by `notify`, and whoever waits looks again. The lock inside guards nothing else and is held for a moment only, so
`notify` may be called with any other lock held.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class Signal:
    """Counts changes; the count that was read before looking tells whether something has changed since."""

    def __init__(self) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._count = 0

    @property
    def count(self) -> int:
        return self._count

    def notify(self) -> None:
        """Has everyone who waits look again."""
        with self._changed:
            self._count += 1
            self._changed.notify_all()

    def wait_past(self, count: int, until: float | None = None) -> bool:
        """Waits for a change after `count` was read; False when the monotonic time `until` comes first."""
        with self._changed:
            left = None if until is None else max(0.0, until - time.monotonic())
            return self._changed.wait_for(lambda: self._count != count, left)

    def wait_until(self, holds: Callable[[], bool], until: float | None = None) -> bool:
        """Waits until `holds()`; False when the monotonic time `until` comes first. What `holds` raises ends the waiting."""
        while True:
            count = self._count
            if holds():
                return True
            if not self.wait_past(count, until):
                return False
