"""How a column cuts a table: bounds in order, of which n make n + 1 ranges that cover everything.

    bounds       100          200          300
    range    0    |     1      |     2      |    3
             NULL, < 100   100 ... 199            >= 300

A value equal to a bound is in the range that the bound begins. NULL is in the first range.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from typing import Any, Literal

from headgate.errors import ConfigError
from headgate.ranges.key_set import End, Interval, KeySet, Value

Kind = Literal["integer", "date", "timestamp", "text"]
Ranges = frozenset[int]
"""Numbers of ranges."""

ONE_RANGE: Ranges = frozenset({0})
"""All ranges of a table that is not cut."""
MOST_RANGES = 1_000
_KINDS: Mapping[str, Kind] = {
    "tinyint": "integer",
    "smallint": "integer",
    "int": "integer",
    "bigint": "integer",
    "date": "date",
    "timestamp": "timestamp",
    "string": "text",
}


def kind_of(type_name: str) -> Kind | None:
    """The kind of a Spark SQL type whose order Spark, Arrow and sources agree on; None for any other type."""
    return _KINDS.get(type_name)


@dataclass(frozen=True, slots=True)
class RangeMap:
    """The ranges of one family of tables."""

    kind: Kind
    bounds: tuple[Value, ...] = ()

    def __post_init__(self) -> None:
        if any(not before < after for before, after in zip(self.bounds, self.bounds[1:], strict=False)):  # type: ignore[operator]
            raise ConfigError(
                f"the bounds of ranges are not in order: {', '.join(map(str, self.bounds))}",
                hint="give each bound once, in ascending order",
            )
        if len(self.bounds) >= MOST_RANGES:
            raise ConfigError(
                f"{len(self.bounds) + 1} ranges are more than a table can have",
                hint=f"take at most {MOST_RANGES} ranges",
            )

    @property
    def count(self) -> int:
        return len(self.bounds) + 1

    @property
    def all(self) -> Ranges:
        return frozenset(range(self.count))

    def of(self, value: Value | None) -> int:
        """The range that holds the value."""
        return 0 if value is None else bisect_right(self.bounds, value)

    def interval(self, number: int) -> Interval:
        low = End(self.bounds[number - 1], above=False) if number else None
        high = End(self.bounds[number], above=False) if number < len(self.bounds) else None
        return Interval(low, high)

    def holding(self, keys: KeySet) -> Ranges:
        """The ranges that hold some of the keys."""
        found = {0} if keys.has_null else set()
        for interval in keys.intervals:
            low, high = interval.low, interval.high
            first = 0 if low is None else bisect_right(self.bounds, low.value)
            # Values below a bound are in the range before it.
            find = bisect_left if high is not None and not high.above else bisect_right
            last = len(self.bounds) if high is None else find(self.bounds, high.value)
            found.update(range(first, last + 1))
        return frozenset(found)

    def keys_of(self, ranges: Collection[int]) -> KeySet:
        """All keys of the ranges."""
        found = KeySet((), has_null=0 in ranges)
        for number in sorted(ranges):
            found = found.union(KeySet((self.interval(number),)))
        return found

    # changing

    def split(self, at: Value) -> RangeMap:
        """With one more bound."""
        if at in self.bounds:
            raise ConfigError(f"{shown(at)} is a bound already", hint=f"the bounds are {self.shown_bounds}")
        return replace(self, bounds=(*self.bounds[: self.of(at)], at, *self.bounds[self.of(at) :]))

    def merge(self, number: int) -> RangeMap:
        """With a range and the one that follows it as one."""
        if not 0 <= number < len(self.bounds):
            raise ConfigError(
                f"there is no range {number} with one behind it", hint=f"there are ranges 0 to {len(self.bounds)}"
            )
        return replace(self, bounds=self.bounds[:number] + self.bounds[number + 1 :])

    @property
    def shown_bounds(self) -> str:
        return ", ".join(shown(bound) for bound in self.bounds) or "none"

    def name(self, number: int) -> str:
        """A range in words."""
        low = shown(self.bounds[number - 1]) if number else ""
        high = shown(self.bounds[number]) if number < len(self.bounds) else ""
        return f"[{low}, {high})" if low else f"(, {high})"

    # as text

    def body(self) -> dict[str, Any]:
        return {"kind": self.kind, "bounds": [text_of(bound) for bound in self.bounds]}

    @staticmethod
    def from_body(body: Mapping[str, Any]) -> RangeMap:
        return RangeMap(body["kind"], tuple(parse(body["kind"], bound) for bound in body["bounds"]))


def parse(kind: Kind, text: object) -> Value:
    """A value of the kind, from what a user or the ledger says."""
    try:
        match kind:
            case "integer":
                number = int(str(text))
                if not -(1 << 63) <= number < 1 << 63:
                    raise ValueError
                return number
            case "date":
                return text if type(text) is date else date.fromisoformat(str(text))
            case "timestamp":
                found = text if isinstance(text, datetime) else datetime.fromisoformat(str(text))
                return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
            case "text":
                return str(text)
    except ValueError:
        raise ConfigError(f"{text!r} is no {kind}, which the range column holds", hint=_HINTS[kind]) from None


_HINTS: Mapping[Kind, str] = {
    "integer": "give a whole number of 64 bits",
    "date": "give a date, for example 2026-01-31",
    "timestamp": "give an instant, for example 2026-01-31T12:00:00Z",
    "text": "give a text",
}


def shown(value: Value) -> str:
    return repr(value) if isinstance(value, str) else str(text_of(value))


def text_of(value: Value) -> str | int:
    """The value as the ledger holds it; `parse` reads it."""
    return value.isoformat() if isinstance(value, date) else value


def sql_literal(value: Value) -> str:
    """The value as Spark SQL."""
    if isinstance(value, datetime):
        return f"TIMESTAMP '{value.astimezone(UTC).isoformat()}'"
    if isinstance(value, date):
        return f"DATE '{value.isoformat()}'"
    if isinstance(value, str):
        # Hexadecimal: no character has a meaning of its own.
        return f"CAST(X'{value.encode().hex()}' AS STRING)"
    return f"{value}L" if abs(value) < 1 << 63 else str(value)


def sql_predicate(column: str, keys: KeySet) -> str:
    """Whether a column, given as quoted SQL, has one of the keys; true or false, never NULL."""
    parts = [f"{column} IS NULL"] if keys.has_null else []
    for interval in keys.intervals:
        ends = [f"{column} IS NOT NULL"]
        if interval.low is not None:
            ends.append(f"{column} {'>' if interval.low.above else '>='} {sql_literal(interval.low.value)}")
        if interval.high is not None:
            ends.append(f"{column} {'<=' if interval.high.above else '<'} {sql_literal(interval.high.value)}")
        parts.append(f"({' AND '.join(ends)})")
    return f"({' OR '.join(parts) or 'false'})"


def even_bounds(values: Sequence[Value], count: int) -> tuple[Value, ...]:
    """Bounds that cut the values, which are in order, into about equal parts; equal values are never cut."""
    found: list[Value] = []
    for number in range(1, count):
        value = values[number * len(values) // count]
        if value > values[0] and (not found or value > found[-1]):  # type: ignore[operator]
            found.append(value)
    return tuple(found)


UNCUT = RangeMap("integer")
"""One range, of whatever type."""
