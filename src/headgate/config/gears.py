"""Gears: how often a source is asked for changes, by how many workers, and how one is chosen.

A ladder goes from the highest gear (shortest period: freshest, and dearest for the source) to the lowest.

    gears: [{period: 20ms, workers: 2}, {period: 320ms}]    # from the highest to the lowest
    w: 0.8                                                  # or by time of day:
    w: [{from: "08:00", to: "18:00", w: 0.8}]

`w` is the weight of the source's own throughput against the freshness and speed of answers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, time, timedelta
from itertools import pairwise
from types import MappingProxyType
from typing import Annotated, Literal
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, field_validator

from headgate.config.durations import format_duration
from headgate.config.fields import Count, Duration, Settings, refuse
from headgate.errors import ConfigError

CaptureMethod = Literal["log", "trigger", "timestamp"]
"""How a database is captured."""
PacedMethod = Literal["log", "trigger", "timestamp", "files"]


class Gear(Settings):
    """A pace of capture."""

    period: Duration
    """From the start of one look at the source to the start of the next; 0 looks again at once."""
    workers: Count = 1

    def __str__(self) -> str:
        return f"{format_duration(self.period)}×{self.workers}"


def _ladder(*gears: tuple[int, int]) -> tuple[Gear, ...]:
    return tuple(Gear(period=timedelta(milliseconds=period), workers=workers) for period, workers in gears)


LADDERS: Mapping[PacedMethod, tuple[Gear, ...]] = MappingProxyType(
    {
        "trigger": _ladder((20, 2), (160, 2), (320, 1)),
        "timestamp": _ladder((20, 2), (640, 2), (1280, 1)),
        "log": _ladder((0, 1), (120, 1)),
        "files": _ladder((20, 1), (10_000, 1)),
    }
)

DEFAULT_W = 0.5

_TIME = re.compile(r"([01]\d|2[0-3]):([0-5]\d)", re.ASCII)


def _time_of_day(value: object) -> object:
    if isinstance(value, time):
        return value
    if isinstance(value, int) and not isinstance(value, bool) and 600 <= value < 1440:
        # YAML reads 18:00 without quotes as a number of base 60.
        return time(*divmod(value, 60))
    match = _TIME.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise refuse(f"{value!r} is not a time of day", 'write hours and minutes, in quotes: "08:00"')
    return time(int(match[1]), int(match[2]))


def _by_time_of_day(value: object) -> object:
    """One number is a period that lasts the whole day."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return ({"from": "00:00", "to": "00:00", "w": value},)
    return value


def _known_time_zone(value: str) -> str:
    try:
        ZoneInfo(value)
    except (KeyError, OSError, ValueError):
        raise refuse(f"{value!r} is not a time zone", "use a name such as UTC or Europe/Zurich") from None
    return value


TimeOfDay = Annotated[time, BeforeValidator(_time_of_day)]
Share = Annotated[float, Field(ge=0, le=1)]


class WeightPeriod(Settings):
    """The weight from one time of the day until another; it may pass midnight, and equal times are the whole day."""

    model_config = ConfigDict(populate_by_name=True)

    start: TimeOfDay = Field(alias="from")
    end: TimeOfDay = Field(alias="to")
    w: Share

    def holds(self, at: time) -> bool:
        if self.start < self.end:
            return self.start <= at < self.end
        return at >= self.start or at < self.end


class GearSettings(Settings):
    """The ladder of gears and how the controller chooses among them."""

    gears: tuple[Gear, ...] = ()
    """From the highest to the lowest; empty until `for_method` fills in the method's own. One gear is a constant pace."""
    w: Annotated[tuple[WeightPeriod, ...], BeforeValidator(_by_time_of_day)] = ()
    """The first period that holds counts; outside of all it is one half."""
    time_zone: Annotated[str, AfterValidator(_known_time_zone)] = "UTC"
    """Of the times of day."""
    recent_requests: Count = 100
    """How many of the last requests the measures are taken over."""
    epsilon: Annotated[float, Field(gt=0, lt=1)] = 0.1
    """The least that staleness, latency and expiration ratio count as, on a scale to 1."""
    hysteresis: Annotated[float, Field(ge=0, lt=1)] = 0.02
    """How much more gain another gear must promise before it is taken."""
    queue: Annotated[int, Field(ge=0)] = 1
    """Tasks that may be on their way beyond one per worker."""

    @field_validator("gears")
    @classmethod
    def _descend(cls, gears: tuple[Gear, ...]) -> tuple[Gear, ...]:
        for higher, lower in pairwise(gears):
            if (higher.period, -higher.workers) >= (lower.period, -lower.workers):
                raise refuse(f"the gear {lower} follows {higher}", "list gears from the shortest period to the longest")
        return gears

    @property
    def lowest(self) -> Gear:
        return self.gears[-1]

    @property
    def most_workers(self) -> int:
        return max(gear.workers for gear in self.gears)

    def for_method(self, method: PacedMethod) -> GearSettings:
        """The same with the method's own ladder where none is given."""
        if method == "log" and self.gears and self.most_workers > 1:
            raise ConfigError("a log is read in order, by one worker", hint="give its gears only a period")
        return self.model_copy(update={"gears": self.gears or LADDERS[method]})

    def with_w(self, w: float) -> GearSettings:
        """The same with another weight, at any time of the day."""
        return type(self).model_validate({**dict(self), "w": w})

    def w_at(self, now: datetime) -> float:
        """The weight that counts at an instant."""
        local = now.astimezone(ZoneInfo(self.time_zone)).time()
        return next((period.w for period in self.w if period.holds(local)), DEFAULT_W)
