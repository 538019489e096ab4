"""Waits for something that another thread does."""

from __future__ import annotations

import time
from collections.abc import Callable


def until(true: Callable[[], bool], seconds: float = 60.0) -> None:
    """Returns once it is true; fails when that takes too long."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.02)
