"""What the service takes upon itself for its clients, with the defaults that the documentation names."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from headgate.config.service import ServiceSettings

_SETTINGS = ServiceSettings()


@dataclass(frozen=True, slots=True)
class ServiceLimits:
    request_bytes: int = 1 << 20
    """The largest body of a request."""
    rows: int = _SETTINGS.answer_rows
    bytes: int = _SETTINGS.answer_bytes
    time: timedelta = timedelta(minutes=5)
    """How long a query may take, from its arrival to the last byte of its answer."""
    queries: int = 256
    """Queries at the same time; each has a thread. More are refused, to be asked again."""
    subscriptions: int = 64
    """Subscriptions at the same time; each has a thread. More are refused, to be asked again."""
    client: timedelta = timedelta(seconds=30)
    """How long a client may leave a part of its request or of its answer waiting."""
    connections: int = 512
    """Connections at the same time; beyond them the one that has waited longest for a request is closed."""
    session_idle: timedelta = timedelta(minutes=10)
    """How long a named session without a query is kept ..."""
    sessions: int = 1000
    """... and how many are; beyond that the one that was used longest ago is forgotten."""
    stop: timedelta = timedelta(seconds=4)
    """How long running queries have when the service stops."""

    @classmethod
    def of(cls, settings: ServiceSettings) -> ServiceLimits:
        """Those of a project."""
        return cls(rows=settings.answer_rows, bytes=settings.answer_bytes)
