"""Load and query: work that should not take longer than a limit, on average over the latest.

out   the average is longer than the limit
in    it is less than half of the limit, less the margin

A load has at most 100 MB: a fold of more counts as several, so that its size alone makes nothing grow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import ceil

from headgate.config.scaling import ScalingSettings, TimeScaling
from headgate.scaling.sizing import ZERO, Decision, Sizing, grow, seconds, shrink, stay

LOAD_BYTES = 100_000_000
"""The most that one load has."""


@dataclass(frozen=True, slots=True)
class TimedObservation:
    sizing: Sizing
    took: Sequence[timedelta]
    """The latest that ended since the part's last change."""


def loads(took: timedelta, size: int) -> list[timedelta]:
    """What a fold of so many bytes took, as loads that shared its time."""
    count = max(1, ceil(size / LOAD_BYTES))
    return [took / count] * count


def load(settings: ScalingSettings, observation: TimedObservation, now: datetime) -> Decision:
    """Loads, of at most 100 MB each."""
    return _timed("loads", settings, settings.load, observation, now).at(_load(settings.load, observation))


def query(settings: ScalingSettings, observation: TimedObservation, now: datetime) -> Decision:
    """Queries, from their arrival until their answer is read."""
    return _timed("queries", settings, settings.query, observation, now).at(_load(settings.query, observation))


def _load(limits: TimeScaling, observation: TimedObservation) -> float | None:
    took = observation.took
    return sum(took, ZERO) / len(took) / limits.limit if took else None


def _timed(
    what: str, settings: ScalingSettings, limits: TimeScaling, observation: TimedObservation, now: datetime
) -> Decision:
    sizing, took = observation.sizing, observation.took
    if not took:
        return shrink(sizing, settings.hold, now, f"there were no {what}")
    average = sum(took, ZERO) / len(took)
    if average > limits.limit:
        why = f"the last {len(took)} {what} took {seconds(average)} on average, their limit is {seconds(limits.limit)}"
        return grow(sizing, settings.hold, now, average / limits.limit, why, shortens=True)
    if average < limits.limit * (0.5 - limits.margin):
        return shrink(sizing, settings.hold, now, f"the last {len(took)} {what} took {seconds(average)} on average")
    return stay(f"the last {len(took)} {what} took {seconds(average)} on average")
