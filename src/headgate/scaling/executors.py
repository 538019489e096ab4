"""How many executors the pools of tasks need.

    pool         parts
    extract      extract
    maintenance  transform and load
    query        query

Every task of every pool gets a slot, some executors more are kept ready, and all of it stays between min and max. Executors that
are no longer needed stay for the holding time. When a day's executor hours are used up, none is added until the next day.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from math import ceil
from types import MappingProxyType
from typing import Literal

from headgate.config.scaling import ExecutorSettings, ScalingSettings
from headgate.scaling.sizing import Decision, Part, Sizing, shrink, stay

PoolName = Literal["extract", "maintenance", "query"]
POOLS: Mapping[PoolName, tuple[Part, ...]] = MappingProxyType(
    {"extract": ("extract",), "maintenance": ("transform", "load"), "query": ("query",)}
)


@dataclass(frozen=True, slots=True)
class ExecutorsObservation:
    sizing: Sizing
    """Of the executors that are asked for; its bounds are those of the settings."""
    pools: Mapping[PoolName, int]
    """Tasks that each pool may run."""
    slots: int
    """Tasks that one executor can run at a time."""
    hours: float
    """Executor hours of today so far."""


def within_supply(settings: ScalingSettings, most: int | None) -> ScalingSettings:
    """The settings where no more executors than `most` can be had: then sizes divide the slots that there are."""
    if most is None:
        return settings
    wanted = settings.executors
    bounded = ExecutorSettings(min=min(wanted.min, most), max=min(wanted.max, most), ready=min(wanted.ready, most))
    return settings.model_copy(update={"executors": bounded})


def pool_sizes(sizes: Mapping[Part, int]) -> dict[PoolName, int]:
    return {pool: sum(sizes[part] for part in parts) for pool, parts in POOLS.items()}


def executors(settings: ScalingSettings, observation: ExecutorsObservation, now: datetime) -> Decision:
    tasks = sum(observation.pools.values())
    return _decided(settings, observation, now).at(tasks / (observation.slots * observation.sizing.size))


def _decided(settings: ScalingSettings, observation: ExecutorsObservation, now: datetime) -> Decision:
    sizing, limits = observation.sizing, settings.executors
    tasks = sum(observation.pools.values())
    needed = ceil(tasks / observation.slots)
    wanted = max(limits.min, min(needed + limits.ready, limits.max))
    why = f"{tasks} tasks may run, {observation.slots} on an executor, {limits.ready} kept ready"
    if wanted > sizing.size and observation.hours >= settings.most_executor_hours:
        used = f"{why}, but today's {settings.most_executor_hours:g} executor hours are used up"
        return Decision(max(0, limits.min - sizing.size), used, is_limiting=True)
    if wanted > sizing.size:
        return Decision(wanted - sizing.size, why)
    if wanted < sizing.size:
        return shrink(sizing, settings.hold, now, why)
    if needed > limits.max:
        return Decision(0, f"{why}, and it is at its maximum of {limits.max}", is_limiting=True)
    return stay(why)
