"""How much a stream log holds, and what happens when that is too much.

    up to the limit        nothing
    beyond it              whoever consumes the log is told, so that it goes forward and the log can be trimmed
    beyond 1.25 of it      an append waits for a trim, for a second at most: capture slows down and never stops

The wait is bounded because the consumer may itself wait for something that is about to be appended.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

HARD_MARGIN = 1.25
LONGEST_WAIT = 1.0
"""Seconds that one append is held back."""


def nobody() -> None:
    """The default for `on_full`: nobody consumes the log."""


class Room:
    """The bytes of one log against its limit; safe to use from several threads."""

    def __init__(self, held: int, limit: int | None) -> None:
        self.limit = limit
        self.on_full: Callable[[], None] = nobody
        self._held = held
        self._told = False
        self._released = False
        self._changed = threading.Condition()

    @property
    def held(self) -> int:
        return self._held

    @property
    def over_limit(self) -> bool:
        return self.limit is not None and self._held > self.limit

    def change(self, limit: int | None) -> None:
        """Goes on with another limit: the consumer hears of it if that is passed, and appends that fit it go on."""
        with self._changed:
            self.limit = limit
            self._told = tell = self.over_limit
            self._changed.notify_all()
        if tell:
            self.on_full()

    def take(self, size: int) -> None:
        """Something was appended; the consumer hears of it when the log has passed its limit."""
        with self._changed:
            self._held += size
            tell, self._told = self.over_limit and not self._told, self._told or self.over_limit
        if tell:
            self.on_full()

    def give_back(self, size: int) -> None:
        """Something was trimmed; a consumer that has not gone far enough will be told again."""
        with self._changed:
            self._held -= size
            self._told = False
            self._changed.notify_all()

    def wait(self) -> None:
        """Holds an append back while the log is far beyond its limit and the consumer has been told."""
        if self._has_room():
            return
        self.on_full()
        with self._changed:
            self._changed.wait_for(self._has_room, LONGEST_WAIT)

    def release_writers(self) -> None:
        """From now on nothing waits: the log is about to be closed."""
        with self._changed:
            self._released = True
            self._changed.notify_all()

    def _has_room(self) -> bool:
        return self.limit is None or self._released or self._held <= HARD_MARGIN * self.limit
