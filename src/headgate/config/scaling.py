"""Scaling: within which bounds the parts of a warehouse grow and shrink, and what makes them.

    scaling:
      executors: {min: 1, max: 8, ready: 1}
      extract: {period: 2s, limit: 1s}
      transform: {queue: 50%}          # of limits.stream_bytes
      buffer: {memory: 50%, disk: 80%}
      switch: {rate: 500000}           # rows a second
      load: {limit: 1s}
      query: {limit: 60s}
      hold: 30s
      most_executor_hours: 24          # a day

Without the section every part uses whatever slots Spark has. The triggers and their defaults are those of "Elastic Performance
for ETL+Q Processing" (Martins, Abbasi, Furtado), section 4.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from headgate.config.fields import Count, Duration, Settings, refuse

_PERCENT = re.compile(r"(\d{1,3}(?:\.\d{1,6})?)\s*%", re.ASCII)
_PERCENT_HINT = "write a share of the whole, such as 50% or 0.5"

Distribution = Literal["on demand", "round robin"]


def _share(value: object) -> object:
    """A share as people write it: 50% or 0.5."""
    if isinstance(value, str):
        match = _PERCENT.fullmatch(value.strip())
        found = None if match is None else float(match[1]) / 100
    else:
        found = float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
    if found is None:
        raise refuse(f"{value!r} is not a share", _PERCENT_HINT)
    if not 0 < found <= 1:
        raise refuse(f"{value!r} is not between 0% and 100%", _PERCENT_HINT)
    return found


def _margin(value: object) -> object:
    """A margin may be nothing, and never half of the limit: a part could not shrink."""
    if (isinstance(value, str) and value.strip() in ("0", "0%")) or (value == 0 and not isinstance(value, bool)):
        return 0.0
    found = _share(value)
    if isinstance(found, float) and found >= 0.5:
        raise refuse(f"the margin {value!r} leaves nothing of the limit", "a margin is less than 50%")
    return found


Share = Annotated[float, BeforeValidator(_share)]
Margin = Annotated[float, BeforeValidator(_margin)]
NONE = timedelta(0)


class ExecutorSettings(Settings):
    """How many executors Spark may have."""

    min: Count = 1
    max: Count = 8
    ready: Annotated[int, Field(ge=0)] = 1
    """Kept beyond what is needed, so that growing does not wait for a process to start."""

    @model_validator(mode="after")
    def _ordered(self) -> ExecutorSettings:
        if self.min > self.max:
            raise refuse(f"min is {self.min} and max is {self.max}", "min is at most max")
        return self


class ExtractScaling(Settings):
    """Readers of sources."""

    period: Duration = timedelta(seconds=2)
    """How often a source is to be read."""
    limit: Duration | None = timedelta(seconds=1)
    """How long reading it may take; null: until the next period begins."""
    margin: Margin = 0.1
    """X of the paper, as a share of the limit."""
    distribution: Distribution = "on demand"
    """How ranges of a large load are dealt: `on demand`, who is free takes the next; `round robin`, each in turn."""

    @model_validator(mode="after")
    def _usable(self) -> ExtractScaling:
        if self.allowed <= NONE:
            raise refuse("extract needs a limit or a period", "give a limit, or a period, of more than 0s")
        if self.limit is not None and self.period > NONE and self.limit > self.period:
            raise refuse("the limit is longer than the period", "reading must be done before the next period begins")
        return self

    @property
    def allowed(self) -> timedelta:
        return self.period if self.limit is None else self.limit


class TransformScaling(Settings):
    """Tasks that maintain tables."""

    queue: Share = 0.5
    """Of limits.stream_bytes: what a source may have waiting."""


class BufferScaling(Settings):
    """The streams: memory, then disk."""

    memory: Share = 0.5
    """Of limits.unwritten_bytes: from here on it is written to the disk, until nothing is left in memory."""
    disk: Share = 0.8
    """Of the disk that holds the streams."""


class SwitchScaling(Settings):
    """Cutting jobs."""

    rate: Count = 500_000
    """Rows a second that one cutter is to take."""
    margin: Margin = 0.2
    """Z of the paper, as a share of the rate."""


class TimeScaling(Settings):
    """Work that should take no longer than a limit, on average."""

    limit: Duration
    margin: Margin = 0.1

    @model_validator(mode="after")
    def _usable(self) -> TimeScaling:
        if self.limit <= NONE:
            raise refuse("the limit is zero", "give a limit of more than 0s")
        return self


class ScalingSettings(Settings):
    executors: ExecutorSettings = ExecutorSettings()
    extract: ExtractScaling = ExtractScaling()
    transform: TransformScaling = TransformScaling()
    buffer: BufferScaling = BufferScaling()
    switch: SwitchScaling = SwitchScaling()
    load: TimeScaling = TimeScaling(limit=timedelta(seconds=1))
    query: TimeScaling = TimeScaling(limit=timedelta(seconds=60))
    hold: Duration = timedelta(seconds=30)
    """How long a part must have had little to do before it shrinks; it grows again a tenth of that after it grew."""
    most_executor_hours: Annotated[float, Field(gt=0)] = 24.0
    """Of one day (UTC): growth stops there and says so."""

    @model_validator(mode="after")
    def _holds(self) -> ScalingSettings:
        if self.hold <= NONE:
            raise refuse("hold is zero", "give a time, such as 30s: sizes would follow every fluctuation")
        return self
