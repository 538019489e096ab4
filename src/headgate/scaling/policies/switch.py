"""Switch: cutting jobs, which deals what was captured out to those that load it.

out   more rows a second than its cutters are to take
in    one less could take them with the margin Z to spare, for the holding time
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from headgate.config.scaling import ScalingSettings
from headgate.scaling.sizing import Decision, Sizing, grow, shrink, stay


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
