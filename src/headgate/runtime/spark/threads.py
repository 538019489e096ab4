"""Threads that a stuck call may keep: they are no obstacle to the end of the process, and others take their place."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

_IDLE_SECONDS = 60.0

Found = TypeVar("Found")


class DaemonThreads:
    """As many threads as work needs at the same time; each is used again until it has been idle for a minute."""

    def __init__(self, name: str, prepare: Callable[[], None] | None = None) -> None:
        """`prepare` is called first in every new thread."""
        self._name = name
        self._prepare = prepare
        self._lock = threading.Lock()
        self._idle = 0
        self._work: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = queue.SimpleQueue()

    def submit(self, work: Callable[[], Found]) -> Future[Found]:
        future: Future[Found] = Future()
        # Work begins at once and cannot be cancelled: who no longer waits for it just does not hear how it ended.
        future.set_running_or_notify_cancel()
        with self._lock:
            if self._idle:
                self._idle -= 1
            else:
                threading.Thread(target=self._loop, name=self._name, daemon=True).start()
            self._work.put((future, work))
        return future

    def _loop(self) -> None:
        is_prepared = self._prepare is None
        while True:
            try:
                future, work = self._work.get(timeout=_IDLE_SECONDS)
            except queue.Empty:
                with self._lock:
                    if self._idle:
                        self._idle -= 1
                        return
                # Work was put for this thread while it gave up.
                continue
            try:
                if not is_prepared and self._prepare is not None:
                    self._prepare()
                    is_prepared = True
                result = work()
            except BaseException as error:
                self._settle()
                future.set_exception(error)
            else:
                self._settle()
                future.set_result(result)
                del result
            # Nothing of the work may live on in an idle thread.
            del future, work

    def _settle(self) -> None:
        """Counts as idle before the result is seen, so that whoever has it can have the thread as well."""
        with self._lock:
            self._idle += 1
