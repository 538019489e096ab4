"""Transform: tasks that bring tables to a job.

out   what a source has waiting passes its share of limits.stream_bytes
in    two queues, or the only one, are under half of that share, and none is near it; later, if so few were too few at this rate
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from headgate.config.scaling import ScalingSettings
from headgate.scaling.sizing import Decision, Sizing, grow, shrink, stay

_NEAR = 0.9
"""Of the share: a queue that is about to pass it keeps the part from shrinking."""


@dataclass(frozen=True, slots=True)
class TransformObservation:
    sizing: Sizing
    queues: Mapping[str, float]
    """By source, or by task, the share of its queue that is filled."""
    rate: float = 0.0
    """Rows a second that go into jobs."""


def transform(settings: ScalingSettings, observation: TransformObservation, now: datetime) -> Decision:
    load = max((filled / settings.transform.queue for filled in observation.queues.values()), default=None)
    return _decided(settings, observation, now).at(load)


def _decided(settings: ScalingSettings, observation: TransformObservation, now: datetime) -> Decision:
    sizing, limit, queues = observation.sizing, settings.transform.queue, observation.queues
    if not queues:
        return stay("no source has a queue")
    name, fullest = max(queues.items(), key=lambda item: item[1])
    if fullest > limit:
        why = f"the queue of {name} is {fullest:.0%} full, its limit is {limit:.0%}"
        return grow(sizing, settings.hold, now, fullest / limit, why, rate=observation.rate)
    low = sum(filled < limit / 2 for filled in queues.values())
    if low >= min(2, len(queues)) and fullest <= _NEAR * limit:
        why = f"{low} of {len(queues)} queues are under {limit / 2:.0%}"
        return shrink(sizing, settings.hold, now, why, rate=observation.rate)
    return stay(f"the fullest queue, of {name}, is {fullest:.0%} full")
