"""Threads that work on one thing and stop together.

A step that fails with a `TransientError` is repeated with growing pauses; any other error stops the whole crew. All
state is behind the lock that the crew is given, which is never held while a step runs.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import TypeVar

from headgate.clock import Clock
from headgate.errors import TransientError

FIRST_RETRY = timedelta(milliseconds=50)
LONGEST_RETRY = timedelta(seconds=5)

_Argument = TypeVar("_Argument")
_Result = TypeVar("_Result")


class Stopped(Exception):
    """Ends a thread of a stopped crew."""


class Crew:
    """Some threads; `on_stop` is called once, without the lock, by whoever stops them."""

    def __init__(self, clock: Clock, lock: threading.RLock, on_stop: Callable[[BaseException], None]) -> None:
        self.stopped_by: BaseException | None = None
        self.problem: TransientError | None = None
        """What the crew is trying to get over."""
        self._clock = clock
        self._retry = threading.Condition(lock)
        self._on_stop = on_stop
        self._threads: list[threading.Thread] = []

    def start(self, name: str, body: Callable[[], None]) -> None:
        """Runs the body in a thread until it returns or raises."""
        thread = threading.Thread(target=self._run, args=(body,), name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def persist(self, step: Callable[[_Argument], _Result], argument: _Argument) -> _Result:
        """The step's result, however often it takes."""
        delay = FIRST_RETRY
        while True:
            try:
                return step(argument)
            except TransientError as error:
                self._pause(delay, error)
            delay = min(2 * delay, LONGEST_RETRY)

    def require_running(self) -> None:
        """Ends the calling thread when the crew has stopped; the caller holds the lock."""
        if self.stopped_by is not None:
            raise Stopped

    def wake(self) -> None:
        """Makes pausing threads look at the clock again; the caller holds the lock."""
        self._retry.notify_all()

    def stop(self, error: BaseException) -> None:
        """Makes all threads end as soon as their steps return."""
        with self._retry:
            if self.stopped_by is not None:
                return
            self.stopped_by = error
            self.wake()
        self._on_stop(error)

    def join(self, seconds: float) -> list[str]:
        """Waits for the threads to end; returns the names of those that have not."""
        until = time.monotonic() + seconds
        others = [thread for thread in self._threads if thread is not threading.current_thread()]
        for thread in others:
            thread.join(max(0.0, until - time.monotonic()))
        return [thread.name for thread in others if thread.is_alive()]

    def _run(self, body: Callable[[], None]) -> None:
        try:
            body()
        except Stopped:
            pass
        except BaseException as error:
            self.stop(error)

    def _pause(self, delay: timedelta, error: TransientError) -> None:
        with self._retry:
            self.require_running()
            self.problem = error
            until = self._clock.now() + delay
            # More than the delay ahead: the clock went back.
            while timedelta(0) < (rest := until - self._clock.now()) <= delay:
                self._retry.wait(rest.total_seconds())
                self.require_running()
