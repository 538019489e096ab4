"""How far tables are that are loaded range by range, in numbers for people and for metrics."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from headgate.capture.source import Progress


@dataclass(frozen=True, slots=True)
class RangesLoaded:
    """How far a table is that is loaded range by range."""

    count: int
    read: int
    waiting: tuple[str, ...]
    """Unread ranges that queries wait for."""
    rows: int = 0
    """Rows that were read so far."""
    rate: float | None = None
    """Rows a second, in this process; None before it has read some."""
    remaining: timedelta | None = None

    def __str__(self) -> str:
        return f"{self.read} of {self.count} ranges are loaded"

    def progress(self, table: str) -> Progress:
        """The same in rows: of ranges that are still to be read as many are expected as the others have."""
        estimated = self.rows * self.count // max(self.read, 1)
        is_done = self.read == self.count
        return Progress(self.rows, estimated, self.remaining, is_done=is_done, table=table, rate=self.rate)


class RangePace:
    """How quickly this process reads the ranges of one table; used by one thread."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._began = now()
        self._rows = self._ranges = 0

    def took(self, rows: int, ranges: int) -> None:
        self._rows += rows
        self._ranges += ranges

    @property
    def rate(self) -> float | None:
        return self._rows / max(self._now() - self._began, 0.001) if self._ranges else None

    def remaining(self, unread: int) -> timedelta | None:
        """How long as many ranges take, at this pace."""
        return timedelta(seconds=(self._now() - self._began) / self._ranges * unread) if self._ranges else None
