"""Buffer: the streams between extract and transform.

to disk   from its share of memory on, until nothing is left in memory
out       memory is full although it is written out, or the disk passes its share
in        on request, if what one buffer holds fits into another
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import combinations

from headgate.config.scaling import ScalingSettings
from headgate.scaling.sizing import Decision, Sizing, grow, stay


@dataclass(frozen=True, slots=True)
class BufferFill:
    """One buffer: shares of the memory and of the disk that it may use."""

    memory: float
    disk: float
    is_spilling: bool = False


@dataclass(frozen=True, slots=True)
class BufferObservation:
    sizing: Sizing
    buffers: Sequence[BufferFill]
    shrink_requested: bool = False
    """A user asked for fewer."""


def spills(settings: ScalingSettings, fill: BufferFill) -> bool:
    """Whether what a buffer has in memory goes to the disk now."""
    return fill.memory > 0 if fill.is_spilling else fill.memory >= settings.buffer.memory


def buffer(settings: ScalingSettings, observation: BufferObservation, now: datetime) -> Decision:
    fills = observation.buffers
    load = max((max(fill.memory, fill.disk / settings.buffer.disk) for fill in fills), default=None)
    return _decided(settings, observation, now).at(load)


def _decided(settings: ScalingSettings, observation: BufferObservation, now: datetime) -> Decision:
    sizing, limits = observation.sizing, settings.buffer
    memory = max((fill.memory for fill in observation.buffers), default=0.0)
    disk = max((fill.disk for fill in observation.buffers), default=0.0)
    if memory >= 1:
        return grow(sizing, settings.hold, now, 1.0, "memory is full although it is written to the disk")
    if disk > limits.disk:
        return grow(sizing, settings.hold, now, 1.0, f"the disk is {disk:.0%} full, its limit is {limits.disk:.0%}")
    if observation.shrink_requested:
        if sizing.size > sizing.least and _one_fits_elsewhere(observation.buffers, limits.disk):
            return Decision(-1, "a user asked for fewer, and what one holds fits into another")
        return stay("a user asked for fewer, but no buffer has room for another's content")
    return stay(f"memory {memory:.0%}, disk {disk:.0%}")


def _one_fits_elsewhere(buffers: Sequence[BufferFill], limit: float) -> bool:
    return any(
        one.memory + other.memory < 1 and one.disk + other.disk <= limit for one, other in combinations(buffers, 2)
    )
