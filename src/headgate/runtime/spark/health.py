"""Whether Spark can still be used: its Java process may die, and a task or a plan may run on though it was called off.

Nothing brings such a Spark back but a new process. This module only notices and tells; what follows is up to whoever opened the
warehouse: `headgate run` replaces the service's process, a program gets `SparkLost` from its calls.
"""

from __future__ import annotations

import logging
import subprocess
import threading
from collections.abc import Callable

from py4j.protocol import Py4JNetworkError

from headgate.errors import SparkLost
from headgate.text import ending_text

_LOGGER = logging.getLogger(__name__)
_LOOK_SECONDS = 0.5
_DEATH_SECONDS = 2.0


class SparkHealth:
    """May be used by many threads."""

    def __init__(self, process: subprocess.Popen[bytes] | None) -> None:
        """`process` is Spark's Java process, if it is a child of this one."""
        self.lost: str | None = None
        """Why Spark cannot be used any more."""
        self._process = process
        self._lock = threading.Lock()
        self._listeners: list[Callable[[str], None]] = []
        self._closed = threading.Event()
        if process is not None:
            threading.Thread(target=self._watch, name="spark-health", daemon=True).start()

    def on_lost(self, call: Callable[[str], None]) -> None:
        """Has the reason told once Spark is lost; at once if it is already."""
        with self._lock:
            self._listeners.append(call)
            why = self.lost
        if why is not None:
            call(why)

    def lose(self, why: str) -> None:
        """Spark is lost; the first reason counts."""
        with self._lock:
            if self.lost is not None or self._closed.is_set():
                return
            self.lost = why
            listeners = list(self._listeners)
        _LOGGER.error("event=spark_lost %s", why)
        for call in listeners:
            call(why)

    def require(self, patience: float = 0.0) -> None:
        """Raises when Spark is lost. A process that was just killed is given some seconds to be seen as ended."""
        code = None
        if self._process is not None:
            try:
                code = self._process.wait(patience)
            except subprocess.TimeoutExpired:
                code = None
        if code is not None:
            self.lose(f"its Java process {ending_text(code)}")
        if self.lost is not None:
            raise SparkLost(
                f"Spark cannot be used any more: {self.lost}",
                hint="ask again when the service has started again; a program closes the warehouse and starts again",
            )

    def require_after(self, error: Exception) -> None:
        """Raises when Spark is lost, which may be why a call failed."""
        # The connection ends a moment before the process is seen to have ended.
        self.require(_DEATH_SECONDS if isinstance(error, (Py4JNetworkError, OSError)) else 0.0)

    def close(self) -> None:
        """What happens to Spark from now on is expected."""
        self._closed.set()

    def _watch(self) -> None:
        assert self._process is not None
        while not self._closed.wait(_LOOK_SECONDS):
            code = self._process.poll()
            if code is not None:
                self.lose(f"its Java process {ending_text(code)}")
                return
