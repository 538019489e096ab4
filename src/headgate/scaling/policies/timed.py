"""Load and query: work that should not take longer than a limit, on average over the latest.

out   the average is longer than the limit
in    it is less than half of the limit, less the margin
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from headgate.config.scaling import ScalingSettings, TimeScaling
from headgate.scaling.sizing import ZERO, Decision, Sizing, grow, seconds, shrink, stay


@dataclass(frozen=True, slots=True)
class TimedObservation:
    sizing: Sizing
    took: Sequence[timedelta]
    """The latest that ended since the part's last change."""


def load(settings: ScalingSettings, observation: TimedObservation, now: datetime) -> Decision:
    """Folds, of at most 100 MB each."""
    return _timed("folds", settings, settings.load, observation, now).at(_load(settings.load, observation))


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
