"""How fresh an answer must be: what the project, the session, the query's tail and the call say, put together.

project file  <  SET of the session  <  tail of the query  <  arguments of the call      later ones win, each field by itself
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from headgate.config.durations import DURATION_HINT, parse_duration
from headgate.config.settings import FreshnessSettings, WhenStale
from headgate.errors import DefiniteError
from headgate.receipts import bound_text
from headgate.sql.tail import ANY, WHEN_STALE, AnyAge, FreshnessClause

Duration = timedelta | str | float
"""A duration, its text ('10m'), or a number of seconds."""

_EARLIEST = datetime.min.replace(tzinfo=UTC)
_LATEST = datetime.max.replace(tzinfo=UTC)
_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class Bound:
    """A query's bound; it holds for all of its tables together."""

    max_staleness: timedelta | None
    """None is any: the newest complete snapshot, without waiting."""
    deadline: timedelta | None
    """How long the query waits at most; None is as long as it takes."""
    when_stale: WhenStale
    """What happens when the deadline passes first."""

    @property
    def ends_at_deadline(self) -> bool:
        """Whether there is no answer after the deadline."""
        return self.deadline is not None and self.when_stale == "fail"

    @staticmethod
    def of(
        project: FreshnessSettings,
        session: FreshnessClause | None = None,
        tail: FreshnessClause | None = None,
        *,
        max_staleness: Duration | None = None,
        deadline: Duration | None = None,
        when_stale: str | None = None,
    ) -> Bound:
        session, tail = session or FreshnessClause(), tail or FreshnessClause()
        age = _last(
            project.max_staleness,
            session.max_staleness,
            tail.max_staleness,
            None if max_staleness is None else _age(max_staleness),
        )
        wait = None if deadline is None else _duration("deadline", deadline)
        return Bound(
            None if age == ANY else age,
            _last(project.deadline, session.deadline, tail.deadline, wait),
            _last(project.when_stale, session.when_stale, tail.when_stale, _when_stale(when_stale)),
        )

    def since(self, arrived_at: datetime) -> datetime | None:
        """Everything acknowledged before this instant must be in the answer; None when nothing must."""
        if self.max_staleness is None:
            return None
        return arrived_at - min(self.max_staleness, arrived_at - _EARLIEST)

    def deadline_at(self, arrived_at: datetime) -> datetime | None:
        """When the query gives up waiting; None when it does not."""
        if self.deadline is None or self.when_stale == "wait":
            return None
        return arrived_at + min(self.deadline, _LATEST - arrived_at)

    def __str__(self) -> str:
        return bound_text(self.to_json())

    def to_json(self) -> dict[str, Any]:
        return {
            "max_staleness": None if self.max_staleness is None else self.max_staleness.total_seconds(),
            "deadline": None if self.deadline is None else self.deadline.total_seconds(),
            "when_stale": self.when_stale,
        }

    @staticmethod
    def from_json(body: Mapping[str, Any]) -> Bound:
        age, deadline = body["max_staleness"], body["deadline"]
        return Bound(
            None if age is None else timedelta(seconds=age),
            None if deadline is None else timedelta(seconds=deadline),
            body["when_stale"],
        )


def _last(first: _Value, *later: _Value | None) -> _Value:
    return next((value for value in reversed(later) if value is not None), first)


def _age(value: Duration) -> timedelta | AnyAge:
    if isinstance(value, str) and value.strip().lower() == ANY:
        return ANY
    return _duration("max_staleness", value, ", or any")


def _duration(name: str, value: Duration, otherwise: str = "") -> timedelta:
    hint = f"{DURATION_HINT}, or seconds as a number{otherwise}"
    try:
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            if not math.isfinite(value):
                raise ValueError(f"{value} is not a duration")
            return parse_duration(timedelta(seconds=value))
        return parse_duration(value)
    except OverflowError:
        raise DefiniteError(f"{name}: {value} is too long", hint=hint) from None
    except ValueError as error:
        raise DefiniteError(f"{name}: {error}", hint=hint) from None


def _when_stale(value: str | None) -> WhenStale | None:
    if value is None:
        return None
    for choice in WHEN_STALE:
        if isinstance(value, str) and value.strip().lower() == choice:
            return choice
    raise DefiniteError(f"when_stale cannot be {value!r}", hint=f"it is one of {', '.join(WHEN_STALE)}")
