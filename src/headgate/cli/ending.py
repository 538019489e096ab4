"""The end of the service's process: in order when possible, within ten seconds of a signal in any case.

What is committed is durable at any moment, so a process that cannot be ended in order is ended all the same. Signals are heard by a
thread of their own: the main thread may be inside a call that does not return.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn

from headgate.cli.exits import FAILED, INTERRUPTED, RESTART

STOP_SECONDS = 9.5
"""From the signal to the end of the process."""
_ANSWER_SECONDS = 1.0
"""For clients to hear why, before the process ends since Spark is lost."""

_LOGGER = logging.getLogger("headgate.service")
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Ending:
    """Watches over the end of this process, from the main thread."""

    def __init__(self) -> None:
        self._is_ending = threading.Event()

    @contextmanager
    def watched(self) -> Iterator[None]:
        """From now on a signal ends the process in time, whatever handles it; the second one at once."""
        heard, told = socket.socketpair()
        told.setblocking(False)
        before = signal.set_wakeup_fd(told.fileno(), warn_on_full_buffer=False)
        threading.Thread(target=self._listen, args=[heard], name="signals", daemon=True).start()
        try:
            yield
        finally:
            # The thread stays: closing what stands on the warehouse may take long, too.
            signal.set_wakeup_fd(before)

    def restart(self, why: str) -> None:
        """Ends the process with a code that asks for another one: Spark is lost."""
        if self._is_ending.is_set():
            return
        _LOGGER.error("event=restart code=%d Spark has to be started again: %s", RESTART, why)
        self._after(_ANSWER_SECONDS, RESTART)

    def _listen(self, heard: socket.socket) -> None:
        while received := heard.recv(16):
            for number in received:
                if number not in _SIGNALS:
                    continue
                if self._is_ending.is_set():
                    _LOGGER.warning("a second signal: the process ends at once")
                    _exit(INTERRUPTED)
                self._is_ending.set()
                self._after(STOP_SECONDS, FAILED)

    def _after(self, seconds: float, code: int) -> None:
        def end() -> None:
            if code == FAILED:
                _LOGGER.error(
                    "not closed in order within %.0f s: the process ends; what is committed is durable", seconds
                )
            _exit(code)

        timer = threading.Timer(seconds, end)
        timer.daemon = True
        timer.start()


def _exit(code: int) -> NoReturn:
    """Ends this process and Spark's."""
    if "pyspark" in sys.modules:
        from pyspark import SparkContext

        process = getattr(SparkContext._gateway, "proc", None)
        if process is not None:
            process.kill()
    for stream in (sys.stdout, sys.stderr):
        # Nobody may read any more.
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)
