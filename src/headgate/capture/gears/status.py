"""What an agent says about itself."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from headgate.capture.gears.requests import Measures
from headgate.capture.gears.throughput import RateInterval
from headgate.capture.source import SourceFreshness
from headgate.config.gears import Gear


@dataclass(frozen=True, slots=True)
class Shift:
    """A change of gear."""

    at: datetime
    before: Gear
    after: Gear
    reason: str


@dataclass(frozen=True, slots=True)
class Status:
    """An agent at one moment."""

    gear: Gear
    reason: str
    """Why it is in this gear."""
    shifts: tuple[Shift, ...]
    """The latest ones, in order."""
    captured: SourceFreshness
    waiting: int
    """Requests without an outcome."""
    measures: Measures
    """Of the recent requests."""
    throughput: RateInterval | None
    """What the source committed lately, and the load of capture meanwhile; None before the first interval."""
    queued: int
    """Tasks that wait for a worker."""
    in_flight: int
    """Tasks that are planned and not published, those that wait included."""
    problem: BaseException | None
    """What capture is trying to get over, or what stopped it."""
    stopped: bool
    took: timedelta | None = None
    """How long the latest task took, from its plan until it was published, rests not counted; None before the first."""
