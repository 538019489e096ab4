"""When lazily committed rows become visible without anyone demanding them.

A policy is any object with `should_flush()` and `flushed(reason)`. While there are archives, the connection asks the first
every now and then, from a thread of its own, and calls the second after every flush: by the "policy", on a reader's "demand",
before it will "materialize", or to "close".
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Protocol

from headgate.config.durations import DURATION_HINT, parse_duration
from headgate.errors import ConfigError


class Policy(Protocol):
    """Decides when archives are flushed. `AtOnce` alone has `lazy = False`: its commits make no archives."""

    def should_flush(self) -> bool: ...

    def flushed(self, reason: str) -> None: ...


class AtOnce:
    """Every commit is visible when it returns."""

    lazy = False

    def should_flush(self) -> bool:
        return True

    def flushed(self, reason: str) -> None:
        """Nothing to remember."""


class OnDemand:
    """Rows become visible when a reader's bound demands them, or when the connection closes."""

    def should_flush(self) -> bool:
        return False

    def flushed(self, reason: str) -> None:
        """Nothing to remember."""


class Every:
    """Rows become visible at this interval."""

    def __init__(self, interval: str | timedelta, *, seconds: Callable[[], float] = time.monotonic) -> None:
        self._interval = _seconds(interval)
        self._clock = seconds
        self._last = seconds()

    def should_flush(self) -> bool:
        return self._clock() - self._last >= self._interval

    def flushed(self, reason: str) -> None:
        self._last = self._clock()


class LoadAware:
    """Rows become visible while the machine has room (its load average of the last minute, per core, is below this), and
    `within` this time in any case."""

    def __init__(
        self,
        below: float = 0.8,
        within: str | timedelta = "10m",
        *,
        load: Callable[[], float] | None = None,
        seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        if not below > 0:
            raise ConfigError(f"LoadAware would never flush: no load is below {below}", hint="0.8 is usual")
        self._below = below
        self._longest = Every(within, seconds=seconds)
        self._load = load or _load_per_core

    def should_flush(self) -> bool:
        return self._load() < self._below or self._longest.should_flush()

    def flushed(self, reason: str) -> None:
        self._longest.flushed(reason)


def _load_per_core() -> float:
    return os.getloadavg()[0] / (os.cpu_count() or 1)


def _seconds(duration: str | timedelta) -> float:
    try:
        return parse_duration(duration).total_seconds()
    except ValueError as error:
        raise ConfigError(str(error), hint=DURATION_HINT) from None
