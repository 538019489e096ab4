"""A set of key values: disjoint intervals of one ordered type, with or without NULL.

Values are whole numbers, dates, instants (aware, UTC) or text. Python orders text by code points, which is the order of
its UTF-8 bytes: the order of Spark's default collation, of Arrow and of files' statistics.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

Value = int | date | datetime | str


@dataclass(frozen=True, slots=True)
class End:
    """An end of an interval. Ends are ordered: below a value, at it, above it; None is beyond all values."""

    value: Value
    above: bool
    """Whether the end lies behind the value rather than before it."""

    def __lt__(self, other: End) -> bool:
        mine: Any = self.value
        return (not self.above and other.above) if mine == other.value else bool(mine < other.value)


@dataclass(frozen=True, slots=True)
class Interval:
    """Values between two ends; None is no end."""

    low: End | None = None
    high: End | None = None

    @property
    def is_empty(self) -> bool:
        return self.low is not None and self.high is not None and not self.low < self.high

    def holds(self, value: Value) -> bool:
        at, behind = End(value, above=False), End(value, above=True)
        return (self.low is None or not at < self.low) and (self.high is None or not self.high < behind)

    def meets(self, other: Interval) -> bool:
        """Whether some value is, or may be, in both."""
        return not _both(self, other).is_empty


@dataclass(frozen=True, slots=True)
class KeySet:
    intervals: tuple[Interval, ...] = ()
    """Disjoint, in order."""
    has_null: bool = False

    def union(self, other: KeySet) -> KeySet:
        return KeySet(_merged((*self.intervals, *other.intervals)), self.has_null or other.has_null)

    def intersection(self, other: KeySet) -> KeySet:
        found = (_both(one, another) for one in self.intervals for another in other.intervals)
        return KeySet(_merged(found), self.has_null and other.has_null)

    def holds(self, value: Value | None) -> bool:
        return self.has_null if value is None else any(interval.holds(value) for interval in self.intervals)


ALL = KeySet((Interval(),), has_null=True)
NOTHING = KeySet()
NULL = KeySet((), has_null=True)
NOT_NULL = KeySet((Interval(),))


def equal_to(value: Value) -> KeySet:
    return KeySet((Interval(End(value, above=False), End(value, above=True)),))


def below(value: Value, *, inclusive: bool = False) -> KeySet:
    return KeySet((Interval(None, End(value, above=inclusive)),))


def above(value: Value, *, inclusive: bool = False) -> KeySet:
    return KeySet((Interval(End(value, above=not inclusive), None),))


def any_of(values: Iterable[Value]) -> KeySet:
    return KeySet(_merged(part for value in values for part in equal_to(value).intervals))


def _both(one: Interval, other: Interval) -> Interval:
    lows = [end for end in (one.low, other.low) if end is not None]
    highs = [end for end in (one.high, other.high) if end is not None]
    low = (lows[0] if len(lows) == 1 or lows[1] < lows[0] else lows[1]) if lows else None
    high = (highs[0] if len(highs) == 1 or highs[0] < highs[1] else highs[1]) if highs else None
    return Interval(low, high)


def _merged(intervals: Iterable[Interval]) -> tuple[Interval, ...]:
    """The same values as disjoint intervals, in order."""
    found: list[Interval] = []
    for each in sorted((each for each in intervals if not each.is_empty), key=_Low):
        last = found[-1] if found else None
        if last is None or (last.high is not None and each.low is not None and last.high < each.low):
            found.append(each)
        elif last.high is not None and (each.high is None or last.high < each.high):
            found[-1] = Interval(last.low, each.high)
    return tuple(found)


@dataclass(frozen=True, slots=True)
class _Low:
    """Orders intervals by their low ends."""

    interval: Interval

    def __lt__(self, other: _Low) -> bool:
        mine, theirs = self.interval.low, other.interval.low
        return theirs is not None and (mine is None or mine < theirs)
