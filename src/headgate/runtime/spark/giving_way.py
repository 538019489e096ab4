"""Work that nobody waits for lets queries go first.

    between two steps       it rests while a query waits or is read
    within a step of Spark  the step's jobs are called off when a query comes; the step is done again from its beginning

Neither goes on for ever: all rests together have an end, and a step that was called off twice is left alone the third time. So the
work is done in the end, however many queries come.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from typing import TypeVar

from pyspark import SparkContext

from headgate.runtime.signal import Signal
from headgate.runtime.spark.threads import DaemonThreads

MOST_REST_SECONDS = 10.0
"""How long one piece of work rests in all."""
_MOST_INTERRUPTIONS = 2
_WATCHING = DaemonThreads("give-way")

Found = TypeVar("Found")


class GiveWay:
    """One piece of work. `is_busy` tells whether queries are there; the signal is notified when that changes."""

    def __init__(
        self,
        is_busy: Callable[[], bool],
        signal: Signal,
        context: SparkContext,
        rest_seconds: float = MOST_REST_SECONDS,
    ) -> None:
        self._is_busy = is_busy
        self._signal = signal
        self._context = context
        self._left = rest_seconds
        self._lock = threading.Lock()
        self.rests = 0
        """How often it has rested."""
        self.interruptions = 0
        """How often a step was called off."""

    def rest(self) -> None:
        """Waits while queries are there; several threads may do so at a time."""
        # One after the other, so that what several wait for counts once.
        with self._lock:
            if self._left <= 0 or not self._is_busy():
                return
            began = time.monotonic()
            self._signal.wait_until(lambda: not self._is_busy(), began + self._left)
            self.rests += 1
            self._left -= time.monotonic() - began

    def run(self, step: Callable[[], Found]) -> Found:
        """Does a step that can be done again; it has left nothing behind when its Spark jobs were called off."""
        for _ in range(_MOST_INTERRUPTIONS):
            self.rest()
            if self._left <= 0:
                break
            called_off, over = threading.Event(), threading.Event()
            tag = f"headgate-step-{uuid.uuid4().hex}"
            watching = _WATCHING.submit(lambda tag=tag, over=over, off=called_off: self._watch(tag, over, off))  # type: ignore[misc]
            self._context.addJobTag(tag)
            try:
                return step()
            except Exception:
                # In whatever words the end of its jobs was told.
                if not called_off.is_set():
                    raise
                self.interruptions += 1
            finally:
                self._context.removeJobTag(tag)
                over.set()
                self._signal.notify()
                watching.result()
        return step()

    def _watch(self, tag: str, over: threading.Event, called_off: threading.Event) -> None:
        self._signal.wait_until(lambda: over.is_set() or self._is_busy())
        if not over.is_set():
            called_off.set()
            self._context.cancelJobsWithTag(tag)
