"""How long the latest runs of something took."""

from __future__ import annotations

from collections import deque
from datetime import timedelta
from threading import Lock

_REMEMBERED = 100


class RecentTimes:
    """Numbered from 1, so that whoever looks now and then sees each once; may be used by many threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._count = 0
        self._times: deque[timedelta] = deque(maxlen=_REMEMBERED)

    @property
    def count(self) -> int:
        """How many there were."""
        return self._count

    def add(self, seconds: float) -> None:
        with self._lock:
            self._count += 1
            self._times.append(timedelta(seconds=seconds))

    def after(self, number: int) -> tuple[int, list[timedelta]]:
        """The latest number, and those after the given one, as far as they are remembered."""
        with self._lock:
            new = min(self._count - number, len(self._times))
            return self._count, list(self._times)[len(self._times) - new :]
