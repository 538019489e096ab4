"""Named sessions: what a client says by `SET` holds for its next queries, and its answers never go back in time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from headgate.scheduling.session import Session
from headgate.service.limits import ServiceLimits


@dataclass
class NamedSession:
    """A session that is kept between requests."""

    session: Session
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held by the query that runs: to call it off is to cancel all that its session waits for."""
    used_at: float = 0.0


class NamedSessions:
    """The sessions by name, the one that was used longest ago first; used by the service's own thread alone."""

    def __init__(self, limits: ServiceLimits, now: Callable[[], float] = time.monotonic) -> None:
        self._idle_seconds = limits.session_idle.total_seconds()
        self._most = limits.sessions
        self._now = now
        self._sessions: dict[str, NamedSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, name: str, make: Callable[[], Session]) -> NamedSession:
        """The session of that name; a new one if there is none, or it was left alone for too long."""
        now = self._now()
        found = self._sessions.pop(name, None)
        self._make_room(now)
        if found is None or self._is_left(found, now):
            found = NamedSession(make())
        found.used_at = now
        self._sessions[name] = found
        return found

    def _make_room(self, now: float) -> None:
        for name, found in list(self._sessions.items()):
            is_full = len(self._sessions) >= self._most and not found.turn.locked()
            if is_full or self._is_left(found, now):
                del self._sessions[name]

    def _is_left(self, found: NamedSession, now: float) -> bool:
        return now - found.used_at > self._idle_seconds and not found.turn.locked()
