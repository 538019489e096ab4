"""Switch: cutting jobs, which deals what was captured out to those that load it.

out   more rows a second than its cutters are to take
in    one less could take them with the margin Z to spare, for the holding time
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from headgate.config.scaling import ScalingSettings
from headgate.scaling.sizing import Decision, Sizing, grow, shrink, stay

_LEAST = timedelta(seconds=1)
"""Jobs closer to each other than that say nothing about a rate."""


@dataclass(frozen=True, slots=True)
class RecentJobs:
    """The rows of the latest jobs, and the time that these cover."""

    rows: int
    since: datetime
    """When the job before them was closed."""
    upto: datetime
    """When the last of them was."""

    def rate(self, now: datetime) -> float:
        """Rows a second; less and less when no job follows for longer than these took."""
        return self.rows / max(self.upto - self.since, now - self.upto, _LEAST).total_seconds()


@dataclass(frozen=True, slots=True)
class SwitchObservation:
    sizing: Sizing
    rate: float
    """Rows a second that went into jobs."""


def switch(settings: ScalingSettings, observation: SwitchObservation, now: datetime) -> Decision:
    load = observation.rate / (settings.switch.rate * observation.sizing.size)
    return _decided(settings, observation, now).at(load)


def _decided(settings: ScalingSettings, observation: SwitchObservation, now: datetime) -> Decision:
    sizing, rate, each = observation.sizing, observation.rate, settings.switch.rate
    most = each * sizing.size
    if rate > most:
        why = f"{rate:,.0f} rows a second are cut, its limit is {most:,}"
        return grow(sizing, settings.hold, now, rate / most, why)
    if rate < each * max(1, sizing.size - 1) * (1 - settings.switch.margin):
        return shrink(sizing, settings.hold, now, f"{rate:,.0f} rows a second are cut")
    return stay(f"{rate:,.0f} rows a second are cut, {most:,} may be")
