"""The size of a part, how it may change, and why.

    grows     at once when its trigger fires, by what the overrun asks for, at most to twice its size; again only when a tenth of
              the holding time has shown what that brought
    shrinks   by one, when it had little to do for the whole holding time since the last change

so a part shrinks more slowly than it grows, and between the two triggers it stays as it is. A queue is empty with every size that is
large enough, and does not tell whether one less would be: where the trigger is a queue, the part remembers at which rate of rows it
was too small, and tries so few again at such a rate only after `PATIENCE` holding times.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from math import ceil
from typing import Literal

from headgate.config.durations import format_duration
from headgate.delta.changes import BEGINNING

Part = Literal["extract", "transform", "buffer", "switch", "load", "query"]
PARTS: tuple[Part, ...] = ("extract", "transform", "buffer", "switch", "load", "query")
GROWTH_SHARE = 10
"""Growing again waits for this part of the holding time."""
PATIENCE = 16
"""Holding times that a part waits before it shrinks to a size that was too small for what it has to do."""
_SAME_RATE = 0.75
"""Of the rows a second that were too many for one: so many may be, too."""
ZERO = timedelta(0)
_NO_HELP = 0.1
"""Work that takes as long as before, give or take this share, was not shortened."""
_CLEARLY_MORE = 1.25
"""So many times the size shortens shared work by more than that."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What becomes of a size."""

    change: int
    reason: str
    is_low: bool = False
    """The part has so little to do that it could be smaller."""
    is_limiting: bool = False
    """The part ought to grow and cannot."""
    overrun: float | None = None
    """Of a part that should grow: how many times as much as it should have it has, or how many times as long it takes."""
    load: float | None = None
    """What the part has to do, as a share of its limit; None when nothing was observed."""
    rate: float = 0.0
    """Rows a second that a part which should grow has to take, where its trigger is a queue."""

    def at(self, load: float | None) -> Decision:
        """The same, with the load that it was made at."""
        return replace(self, load=load)


@dataclass(frozen=True, slots=True)
class Sizing:
    """A part's size and bounds, and what it must remember to change slowly."""

    size: int
    most: int
    least: int = 1
    changed_at: datetime = BEGINNING
    low_since: datetime | None = None
    """Since when it has had little to do without interruption."""
    grew_at: float | None = None
    """The overrun at which it began to grow; None once the work is within its limit."""
    grew_from: int = 0
    """Its size then."""
    too_many: float | None = None
    """Rows a second for each of it that were too many when it began to grow last; None if its trigger is no queue."""
    too_small: int = 0
    """Its size then. Of larger ones nothing is known."""
    has_shrunk: bool = False
    """Its last change was that it shrank."""

    def after(self, decision: Decision, now: datetime) -> Sizing:
        """The sizing once the decision is applied."""
        if decision.change:
            changed = replace(self, size=self.size + decision.change, changed_at=now, low_since=None)
            if decision.change < 0:
                return replace(changed, grew_at=None, has_shrunk=True)
            # When it grows on, that is for what has gathered meanwhile.
            begins = decision.rate > 0 and (self.has_shrunk or self.too_many is None)
            changed = replace(changed, has_shrunk=False)
            if begins:
                changed = replace(changed, too_many=decision.rate / self.size, too_small=self.size)
            # It could not be told yet whether growing helps.
            if self.grew_at is not None and not self.has_grown_enough:
                return changed
            return replace(changed, grew_at=decision.overrun, grew_from=self.size)
        # Once the work is within its limit, growing has helped.
        grew_at = None if decision.overrun is None else self.grew_at
        return replace(self, grew_at=grew_at, low_since=(self.low_since or now) if decision.is_low else None)

    @property
    def has_grown_enough(self) -> bool:
        """Whether work that is shared by all must have become clearly shorter since it began to grow."""
        return self.size >= _CLEARLY_MORE * self.grew_from

    def would_be_short(self, rate: float) -> bool:
        """Whether one less would have about as many rows a second for each as were too many before."""
        fewer = self.size - 1
        return self.too_many is not None and fewer <= self.too_small and rate > fewer * _SAME_RATE * self.too_many


def grow(
    sizing: Sizing,
    hold: timedelta,
    now: datetime,
    overrun: float,
    why: str,
    *,
    shortens: bool = False,
    rate: float = 0.0,
) -> Decision:
    """More, because the load is `overrun` times what the part should have.

    Where more are to shorten the work and did not the last time, there are no more until it takes another time: what work takes
    however few rows it has is not shared by those who do it.
    """
    if sizing.size >= sizing.most:
        return Decision(0, f"{why}, and it is at its maximum of {sizing.most}", is_limiting=True, overrun=overrun)
    if now - sizing.changed_at < hold / GROWTH_SHARE:
        return Decision(0, f"{why}; its last change has to show first", overrun=overrun)
    began = sizing.grew_at if shortens and sizing.has_grown_enough else None
    if began is not None and abs(overrun / began - 1) < _NO_HELP:
        return Decision(
            0, f"{why}; with {sizing.size} it takes as long as with fewer", is_limiting=True, overrun=overrun
        )
    wanted = min(ceil(sizing.size * overrun), 2 * sizing.size, sizing.most)
    return Decision(max(1, wanted - sizing.size), why, overrun=overrun, rate=rate)


def shrink(sizing: Sizing, hold: timedelta, now: datetime, why: str, *, rate: float = 0.0) -> Decision:
    """One less, if there was little to do for long enough."""
    if sizing.size <= sizing.least:
        return Decision(0, f"{why}, and it is at its minimum of {sizing.least}", is_low=True)
    wait = hold * (PATIENCE if sizing.would_be_short(rate) else 1)
    since = max(now if sizing.low_since is None else sizing.low_since, sizing.changed_at)
    # A clock that went back begins the time anew.
    if not ZERO < wait <= now - since:
        return Decision(0, f"{why}; it shrinks after {format_duration(wait)} of that", is_low=True)
    return Decision(-1, f"{why}, for {format_duration(wait)}", is_low=True)


def stay(why: str) -> Decision:
    return Decision(0, why)


def seconds(duration: timedelta) -> str:
    """A measured time in words."""
    return f"{duration.total_seconds():.3g} s"
