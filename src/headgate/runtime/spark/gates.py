"""Gates: how many tasks of a part run at the same time. Spark's pools have weights, but no upper bound.

    execution of Spark ──► takes permits, one for each task that it may run ──► runs ──► gives them back

An execution takes its permits where it runs, with no other permits, and nothing that it does meanwhile waits for another
execution: so they are always given back. Who comes first is let in first. Without a size, a gate lets everybody through.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Literal

Gated = Literal["transform", "load", "query"]
"""Parts whose tasks Spark runs for executions of SQL."""


class GateClosed(Exception):
    """Whoever waited for permits no longer wants them."""


class TaskGate:
    """May be used by many threads."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: deque[object] = deque()
        self._used = 0
        self.size: int | None = None

    def resize(self, size: int) -> None:
        """From now on so many permits; what was taken stays taken."""
        with self._changed:
            self.size = size
            self._changed.notify_all()

    @contextmanager
    def taken(
        self, permits: int | None = None, cancelled: Future[None] | None = None, until: float | None = None
    ) -> Iterator[int | None]:
        """Has the permits inside the block, at most all of them; None is all. Gives how many these are, None without a size.

        Raises `GateClosed` once `cancelled` is done, or at an instant of the monotonic clock.
        """
        if self.size is None:
            yield None
            return
        if cancelled is not None:
            cancelled.add_done_callback(lambda _: self._notify())
        mine = self._take(permits, cancelled, until)
        try:
            yield mine
        finally:
            with self._changed:
                self._used -= mine
                self._changed.notify_all()

    def _notify(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _take(self, permits: int | None, cancelled: Future[None] | None, until: float | None) -> int:
        ticket = object()
        with self._changed:
            self._waiting.append(ticket)
            try:
                while True:
                    assert self.size is not None
                    mine = self.size if permits is None else min(permits, self.size)
                    # What was taken before the gate became smaller may be more than there is now.
                    if self._waiting[0] is ticket and (self._used == 0 or self._used + mine <= self.size):
                        self._used += mine
                        return mine
                    left = None if until is None else until - time.monotonic()
                    if (cancelled is not None and cancelled.done()) or (left is not None and left <= 0):
                        raise GateClosed
                    self._changed.wait(left)
            finally:
                self._waiting.remove(ticket)
                self._changed.notify_all()
