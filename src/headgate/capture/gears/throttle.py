"""Rests between the steps of work that nobody waits for, so that it is easy on a machine that it shares with the source.

On two cores with pgbench at 60 % of what they can do, 15 ms of work every 120 ms lengthened the p95 of its transactions by half, even
at the lowest priority; the same work in bites of 1.5 ms with rests between them, by a tenth.
"""

from __future__ import annotations

import threading
import time
from datetime import timedelta

_SLICE_SECONDS = 0.0005
"""Processor time after which a rest is due, in seconds."""
_REST = 4
"""Times as long as the work before it."""
_LONGEST_REST = 0.02
_SHARE = 0.8
"""Of the time that the work may take, rests included."""
_QUIET = 1.0
"""Seconds after the last who waited: others may come as soon, and would find the work half done."""


class Throttle:
    """One thread's work; until it is told that nobody waits, and for a while after somebody did, there are no rests."""

    def __init__(self) -> None:
        self._hurry = threading.Event()
        self._hurry.set()
        self._wanted_at = float("-inf")
        self._rest_until = self._worked = self._rested = 0.0

    @property
    def rested(self) -> timedelta:
        """All rests since the work began."""
        return timedelta(seconds=self._rested)

    def begin(self, within: timedelta) -> None:
        """The work begins; it may take so long, and goes on without rests when that is nearly over."""
        self._rest_until = time.monotonic() + _SHARE * within.total_seconds()
        self._worked, self._rested = time.thread_time(), 0.0

    def hurry(self, wanted: bool) -> None:
        """Somebody waits, or nobody does; called now and again, by one thread at a time. A rest ends at once."""
        now = time.monotonic()
        if wanted:
            self._wanted_at = now
            self._hurry.set()
        elif now - self._wanted_at > _QUIET:
            self._hurry.clear()

    def rest(self) -> None:
        """Between two steps of the work: a rest, if one is due."""
        began = time.monotonic()
        worked = time.thread_time() - self._worked
        if worked < _SLICE_SECONDS or began >= self._rest_until or self._hurry.is_set():
            return
        self._hurry.wait(min(_REST * worked, _LONGEST_REST, self._rest_until - began))
        self._rested += time.monotonic() - began
        self._worked = time.thread_time()
