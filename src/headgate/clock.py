"""The clock that a part of headgate reads: instants are aware, in UTC, in whole microseconds."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from threading import Lock
from typing import Protocol


class Clock(Protocol):
    """Tells the time; safe to call from any thread."""

    def now(self) -> datetime:
        """The current instant in UTC."""
        ...


class SystemClock:
    """The machine's own clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)


class ManualClock:
    """A clock that stands still until it is moved; never moves backwards."""

    def __init__(self, at: datetime = datetime(2024, 1, 1, tzinfo=UTC)) -> None:
        self._lock = Lock()
        self._now = _in_utc(at)

    def now(self) -> datetime:
        with self._lock:
            return self._now

    def advance(self, by: timedelta) -> datetime:
        """Moves the clock forward and returns the new instant."""
        if by < timedelta(0):
            raise ValueError(f"a clock does not go back: {by}")
        with self._lock:
            self._now += by
            return self._now

    def set(self, at: datetime) -> None:
        """Moves the clock to an instant that is not before the present one."""
        at = _in_utc(at)
        with self._lock:
            if at < self._now:
                raise ValueError(f"a clock does not go back: {self._now} to {at}")
            self._now = at


def _in_utc(at: datetime) -> datetime:
    if at.tzinfo is None:
        raise ValueError(f"an instant needs a time zone: {at}")
    return at.astimezone(UTC)
