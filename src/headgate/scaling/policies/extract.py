"""Extract: readers of sources.

    out   reading a source took longer than its limit; without a limit: longer than its period
    in    two readers, at least, took less than half of that, less the margin X

A log is read in order, by one reader: where that is what takes too long, more readers would not help.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from headgate.config.scaling import ScalingSettings
from headgate.scaling.sizing import Decision, Sizing, grow, seconds, shrink, stay


@dataclass(frozen=True, slots=True)
class SourceReading:
    """The latest reading of a source."""

    source: str
    took: timedelta
    readers: int = 1
    """How many shared it."""
    is_single: bool = False
    """It cannot be shared."""


@dataclass(frozen=True, slots=True)
class ExtractObservation:
    sizing: Sizing
    readings: Sequence[SourceReading]


def extract(settings: ScalingSettings, observation: ExtractObservation, now: datetime) -> Decision:
    load = max((reading.took / settings.extract.allowed for reading in observation.readings), default=None)
    return _decided(settings, observation, now).at(load)


def _decided(settings: ScalingSettings, observation: ExtractObservation, now: datetime) -> Decision:
    sizing, allowed = observation.sizing, settings.extract.allowed
    name = "limit" if settings.extract.limit is not None else "period"
    late = [reading for reading in observation.readings if reading.took > allowed]
    if late:
        worst = max(late, key=lambda reading: (not reading.is_single, reading.took))
        why = f"reading {worst.source} took {seconds(worst.took)}, its {name} is {seconds(allowed)}"
        if worst.is_single:
            return Decision(0, f"{why}; it is read in order, by one reader, which limits", is_limiting=True)
        return grow(sizing, settings.hold, now, worst.took / allowed, why, shortens=True)
    little = allowed * (0.5 - settings.extract.margin)
    idle = sum(max(1, reading.readers) for reading in observation.readings if reading.took < little)
    if idle >= 2:
        return shrink(sizing, settings.hold, now, f"{idle} readers took less than {seconds(little)}")
    return stay(f"readings keep within {seconds(allowed)}")
