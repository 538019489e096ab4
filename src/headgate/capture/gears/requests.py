"""Requests for captured changes, and how well they were served.

A request needs the source's history up to some point and waits for it no longer than its window. With tfs the
freshness it needs, tfd what is captured, ta its arrival, d = ta + window its deadline:

    served in time, at t ≤ d:   staleness 0             latency t − ta
    expired:                    staleness tfs − tfd(d)  latency d − ta

Freshness is a position and its label in time: everything that the source acknowledged before that instant of
headgate's clock lies at or below the position. So an idle source is never stale.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from headgate.capture.source import Sample, SourceFreshness

NONE = timedelta(0)
_LATEST = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Request:
    """What a reader needs of a source and how long it can wait."""

    arrived_at: datetime
    window: timedelta
    needed_at: datetime
    needed_position: int | None
    """None when any position serves that holds everything acknowledged before `needed_at`."""

    @staticmethod
    def of(need: Sample | datetime, window: timedelta, arrived_at: datetime) -> Request:
        """A request for a position that the source gave, or for everything acknowledged before an instant."""
        if isinstance(need, Sample):
            return Request(arrived_at, window, need.at, need.position)
        return Request(arrived_at, window, min(need, arrived_at), None)

    @property
    def deadline(self) -> datetime:
        return self.arrived_at + min(self.window, _LATEST - self.arrived_at)

    def met_by(self, freshness: SourceFreshness) -> bool:
        if self.needed_position is None:
            return freshness.at >= self.needed_at
        return freshness.position >= self.needed_position

    def served(self, captured: SourceFreshness, now: datetime) -> RequestOutcome:
        """The outcome when what was needed came in time."""
        return RequestOutcome(True, captured, NONE, now - self.arrived_at)

    def expired(self, captured: SourceFreshness) -> RequestOutcome:
        """The outcome when this is all that there is at the deadline."""
        return RequestOutcome(False, captured, max(NONE, self.needed_at - captured.at), self.window)

    def outcome(self, captured: SourceFreshness, now: datetime) -> RequestOutcome | None:
        """The outcome once there is one; a clock that went back before the arrival ends the wait as well."""
        if self.met_by(captured) and now <= self.deadline:
            return self.served(captured, max(now, self.arrived_at))
        return None if self.arrived_at <= now <= self.deadline else self.expired(captured)


@dataclass(frozen=True, slots=True)
class RequestOutcome:
    """How a request ended."""

    met: bool
    """False when it expired: the reader gets what there is."""
    captured: SourceFreshness
    staleness: timedelta
    latency: timedelta


@dataclass(frozen=True, slots=True)
class Measures:
    """How well some requests were served."""

    requests: int
    staleness: timedelta
    """The mean."""
    latency: timedelta
    """The mean."""
    expired: float
    """The share of them."""


def measure(outcomes: Collection[RequestOutcome]) -> Measures:
    count = len(outcomes)
    if count == 0:
        return Measures(0, NONE, NONE, 0.0)
    return Measures(
        count,
        sum((outcome.staleness for outcome in outcomes), NONE) / count,
        sum((outcome.latency for outcome in outcomes), NONE) / count,
        sum(not outcome.met for outcome in outcomes) / count,
    )
