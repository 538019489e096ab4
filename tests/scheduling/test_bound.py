"""A bound is what project, session, tail and call say together."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any

import pytest

from headgate.config.settings import FreshnessSettings
from headgate.errors import DefiniteError
from headgate.scheduling.bound import Bound
from headgate.sql.tail import ANY, FreshnessClause

NOW = datetime(2024, 1, 1, tzinfo=UTC)


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


def test_the_later_one_wins_field_by_field() -> None:
    project = FreshnessSettings(max_staleness=seconds(1), deadline=seconds(1), when_stale="serve")
    for said in product((False, True), repeat=3):
        session = FreshnessClause(seconds(2), seconds(2), "wait") if said[0] else FreshnessClause()
        tail = FreshnessClause(seconds(3), None, "fail") if said[1] else FreshnessClause()
        arguments: dict[str, Any] = {"max_staleness": 4, "when_stale": "serve"} if said[2] else {}
        bound = Bound.of(project, session, tail, **arguments)
        last = max((place for place, is_said in enumerate(said, 2) if is_said), default=1)
        assert bound.max_staleness == seconds(last)
        assert bound.deadline == seconds(2 if said[0] else 1)
        assert bound.when_stale == {1: "serve", 2: "wait", 3: "fail", 4: "serve"}[last]


def test_without_a_word_a_query_is_fresh_and_waits() -> None:
    assert Bound.of(FreshnessSettings()) == Bound(timedelta(0), None, "fail")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("10m", seconds(600)),
        (seconds(7), seconds(7)),
        (1.5, seconds(1.5)),
        (0, seconds(0)),
        ("any", None),
        (" ANY ", None),
    ],
)
def test_arguments_are_durations_texts_or_seconds(value: Any, expected: timedelta | None) -> None:
    assert Bound.of(FreshnessSettings(), max_staleness=value).max_staleness == expected


def test_any_can_be_said_everywhere_and_be_taken_back() -> None:
    assert Bound.of(FreshnessSettings(max_staleness="any")).max_staleness is None
    assert Bound.of(FreshnessSettings(), FreshnessClause(ANY)).max_staleness is None
    assert Bound.of(
        FreshnessSettings(max_staleness="any"), FreshnessClause(ANY), FreshnessClause(seconds(0))
    ).max_staleness == seconds(0)


@pytest.mark.parametrize(
    "arguments",
    [
        {"max_staleness": -1},
        {"max_staleness": seconds(-1)},
        {"max_staleness": "10"},
        {"max_staleness": True},
        {"max_staleness": float("nan")},
        {"max_staleness": float("inf")},
        {"max_staleness": 1e300},
        {"deadline": "any"},
        {"deadline": [5]},
        {"when_stale": "never"},
        {"when_stale": 3},
    ],
)
def test_a_mistake_names_the_argument(arguments: dict[str, Any]) -> None:
    with pytest.raises(DefiniteError, match=next(iter(arguments))) as mistake:
        Bound.of(FreshnessSettings(), **arguments)
    assert mistake.value.hint


def test_a_bound_says_what_must_be_in_and_until_when() -> None:
    bound = Bound(seconds(10), seconds(5), "fail")
    assert bound.since(NOW) == NOW - seconds(10)
    assert bound.deadline_at(NOW) == NOW + seconds(5)
    assert Bound(None, None, "fail").since(NOW) is None
    assert Bound(seconds(0), seconds(5), "wait").deadline_at(NOW) is None
    endless = Bound(timedelta.max, timedelta.max, "fail")
    assert endless.since(NOW) == datetime.min.replace(tzinfo=UTC)
    assert endless.deadline_at(NOW) == datetime.max.replace(tzinfo=UTC)


@pytest.mark.parametrize(
    "bound", [Bound(None, None, "fail"), Bound(seconds(0), seconds(5), "serve"), Bound(seconds(0.000001), None, "wait")]
)
def test_a_bound_goes_through_json(bound: Bound) -> None:
    assert Bound.from_json(bound.to_json()) == bound


def test_a_bound_reads_well() -> None:
    assert str(Bound(seconds(600), seconds(5), "serve")) == "at most 10 min stale, within 5 s, else serve"
    assert str(Bound(None, None, "fail")) == "any age"
