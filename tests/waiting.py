"""Waiting in tests for what happens elsewhere: on a server, in another thread."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE = 60.0
"""Seconds: more than what is quick takes on any machine, less than what a test must not wait for."""


def eventually(holds: Callable[[], bool], seconds: float = PATIENCE) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"it did not happen within {seconds} seconds"
        time.sleep(0.01)
