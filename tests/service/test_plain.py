"""Values as plain JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum, StrEnum

from headgate.config.gears import Gear
from headgate.errors import FlowFailed, Location
from headgate.service.plain import to_plain
from tests.service.scripted import RECEIPT


class Colour(Enum):
    RED = 1


class Word(StrEnum):
    YES = "yes"


@dataclass(frozen=True, slots=True)
class Inner:
    lasts: timedelta
    at: datetime | None


@dataclass(frozen=True)
class Outer:
    name: str
    inner: tuple[Inner, ...]
    more: dict[int, object]


def test_dataclasses_become_objects_with_seconds_and_instants() -> None:
    at = datetime(2024, 1, 2, tzinfo=UTC)
    outer = Outer("x", (Inner(timedelta(milliseconds=1500), at), Inner(timedelta(0), None)), {1: Colour.RED})
    assert to_plain(outer) == {
        "name": "x",
        "inner": [{"lasts": 1.5, "at": "2024-01-02T00:00:00+00:00"}, {"lasts": 0.0, "at": None}],
        "more": {"1": 1},
    }


def test_errors_say_what_and_what_to_do() -> None:
    error = FlowFailed("it failed", where=Location("a.sql", 3), hint="correct it")
    assert to_plain(error) == {"kind": "FlowFailed", "what": "it failed", "where": "a.sql:3", "hint": "correct it"}
    assert to_plain(ValueError("no"))["what"] == "no"


def test_all_that_comes_out_is_json() -> None:
    values = [
        Word.YES,
        Decimal("1.50"),
        float("nan"),
        {"b", "a"},
        Gear(period=timedelta(milliseconds=20)),
        RECEIPT,
        True,
    ]
    found = to_plain(values)
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert found[:5] == ["yes", "1.50", None, ["a", "b"], {"period": 0.02, "workers": 1}]
    assert found[5]["waited"]["spark"] == 0.2
