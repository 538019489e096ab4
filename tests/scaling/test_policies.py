"""Every trigger of every policy, with its reason."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

from headgate.config.scaling import ScalingSettings
from headgate.scaling.executors import ExecutorsObservation, executors, pool_sizes
from headgate.scaling.policies.buffer import BufferFill, BufferObservation, buffer, spills
from headgate.scaling.policies.extract import ExtractObservation, SourceReading, extract
from headgate.scaling.policies.switch import SwitchObservation, switch
from headgate.scaling.policies.timed import LOAD_BYTES, TimedObservation, load, loads, query
from headgate.scaling.policies.transform import TransformObservation, transform
from headgate.scaling.sizing import Decision, Sizing

NOW = datetime(2024, 1, 1, tzinfo=UTC)
SETTINGS = ScalingSettings()
NO_LIMIT = ScalingSettings.model_validate({"extract": {"limit": None}})


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def lasting(*seconds: float) -> list[timedelta]:
    return [timedelta(seconds=each) for each in seconds]


THREE = Sizing(3, 8, changed_at=ago(1000))
LONG_LOW = Sizing(3, 8, changed_at=ago(1000), low_since=ago(30))
SHORTLY_LOW = Sizing(3, 8, changed_at=ago(1000), low_since=ago(29))
JUST_CHANGED = Sizing(3, 8, changed_at=ago(2))
TWO_TOO_FEW = Sizing(3, 8, changed_at=ago(1000), low_since=ago(479), too_many=300, too_small=2)
ONE_TOO_FEW = Sizing(3, 8, changed_at=ago(1000), low_since=ago(479), too_many=10, too_small=1)
TWO_TRIED_AGAIN = Sizing(3, 8, changed_at=ago(1000), low_since=ago(480), too_many=300, too_small=2)
SHRUNK_LATELY = Sizing(3, 8, changed_at=ago(20), low_since=ago(100))
FULL = Sizing(8, 8, changed_at=ago(1000))
ONE = Sizing(1, 8, changed_at=ago(1000), low_since=ago(100))


@dataclass(frozen=True)
class Case:
    name: str
    decision: Decision
    change: int
    reason: str
    is_low: bool = False
    is_limiting: bool = False


def extracted(sizing: Sizing, *readings: SourceReading, settings: ScalingSettings = SETTINGS) -> Decision:
    return extract(settings, ExtractObservation(sizing, readings), NOW)


def reading(seconds: float, source: str = "shop", readers: int = 1, is_single: bool = False) -> SourceReading:
    return SourceReading(source, timedelta(seconds=seconds), readers, is_single)


def transformed(sizing: Sizing, rate: float = 0.0, /, **queues: float) -> Decision:
    return transform(SETTINGS, TransformObservation(sizing, queues, rate), NOW)


def buffered(sizing: Sizing, *fills: BufferFill, asked: bool = False) -> Decision:
    return buffer(SETTINGS, BufferObservation(sizing, fills, asked), NOW)


def switched(sizing: Sizing, rate: float) -> Decision:
    return switch(SETTINGS, SwitchObservation(sizing, rate), NOW)


def loaded(sizing: Sizing, *seconds: float) -> Decision:
    return load(SETTINGS, TimedObservation(sizing, lasting(*seconds)), NOW)


def fold_of(seconds: float, size: int) -> list[float]:
    return [each.total_seconds() for each in loads(timedelta(seconds=seconds), size)]


def asked(sizing: Sizing, *seconds: float) -> Decision:
    return query(SETTINGS, TimedObservation(sizing, lasting(*seconds)), NOW)


def provided(size: int, tasks: int, hours: float = 0.0, low_since: datetime | None = None, slots: int = 1) -> Decision:
    sizing = Sizing(size, 8, changed_at=ago(1000), low_since=low_since)
    return executors(SETTINGS, ExecutorsObservation(sizing, {"query": tasks}, slots, hours), NOW)


CASES = [
    Case("extract overruns its limit", extracted(THREE, reading(1.2)), 1, "reading shop took 1.2 s, its limit is 1 s"),
    Case("extract grows by its overrun", extracted(THREE, reading(1.6)), 2, "took 1.6 s"),
    Case("extract at most doubles", extracted(THREE, reading(20)), 3, "took 20 s"),
    Case("extract stops at its maximum", extracted(Sizing(7, 8), reading(20)), 1, "took 20 s"),
    Case("extract within its limit", extracted(THREE, reading(1.0)), 0, "keep within 1 s"),
    Case("without a limit the period counts", extracted(THREE, reading(1.9), settings=NO_LIMIT), 0, "within 2 s"),
    Case("extract overruns its period", extracted(THREE, reading(2.1), settings=NO_LIMIT), 1, "took 2.1 s, its period"),
    Case("extract waits for its last change", extracted(JUST_CHANGED, reading(3)), 0, "its last change has to show"),
    Case("extract at its maximum", extracted(FULL, reading(3)), 0, "at its maximum of 8", is_limiting=True),
    Case(
        "a log has one reader",
        extracted(THREE, reading(3, is_single=True)),
        0,
        "by one reader, which",
        is_limiting=True,
    ),
    Case(
        "what can be shared comes before a log",
        extracted(THREE, reading(9, "log", is_single=True), reading(1.5, "bank")),
        2,
        "reading bank took 1.5 s",
    ),
    Case("two readers under half", extracted(LONG_LOW, reading(0.3), reading(0.3)), -1, "for 30s", is_low=True),
    Case("one source that two read", extracted(LONG_LOW, reading(0.3, readers=2)), -1, "2 readers took", is_low=True),
    Case("one reader under half", extracted(LONG_LOW, reading(0.3), reading(0.7)), 0, "keep within"),
    Case("under half, but within the margin", extracted(LONG_LOW, reading(0.45, readers=3)), 0, "keep within"),
    Case(
        "without a limit half of the period",
        extracted(LONG_LOW, reading(0.7, readers=2), settings=NO_LIMIT),
        -1,
        "2 readers took less than 0.8 s",
        is_low=True,
    ),
    Case("not yet for long", extracted(SHORTLY_LOW, reading(0.3, readers=2)), 0, "after 30s of that", is_low=True),
    Case(
        "shrinking waits since the last change",
        extracted(SHRUNK_LATELY, reading(0.3, readers=2)),
        0,
        "after 30s of that",
        is_low=True,
    ),
    Case("never below one", extracted(ONE, reading(0.3, readers=2)), 0, "at its minimum of 1", is_low=True),
    Case("nothing was read", extracted(LONG_LOW), 0, "keep within"),
    Case("a queue passes its share", transformed(THREE, shop=0.51), 1, "of shop is 51% full, its limit is 50%"),
    Case("a queue at its share", transformed(THREE, shop=0.5, bank=0.1), 0, "of shop, is 50% full"),
    Case("two queues under half", transformed(LONG_LOW, a=0.2, b=0.2, c=0.4), -1, "2 of 3 queues", is_low=True),
    Case("two queues under half, one near", transformed(LONG_LOW, a=0.2, b=0.2, c=0.48), 0, "of c, is 48% full"),
    Case("one queue of two under half", transformed(LONG_LOW, a=0.2, b=0.3), 0, "of b, is 30% full"),
    Case("the only queue under half", transformed(LONG_LOW, a=0.2), -1, "1 of 1 queues", is_low=True),
    Case("two were too few at this rate", transformed(TWO_TOO_FEW, 600, a=0), 0, "after 8m of that", is_low=True),
    Case("two were too few, at another rate", transformed(TWO_TOO_FEW, 440, a=0), -1, "for 30s", is_low=True),
    Case("one was too few, which says nothing of two", transformed(ONE_TOO_FEW, 600, a=0), -1, "for 30s", is_low=True),
    Case("two were too few, long ago", transformed(TWO_TRIED_AGAIN, 600, a=0), -1, "for 8m", is_low=True),
    Case("no source", transformed(LONG_LOW), 0, "no source"),
    Case("transform at its maximum", transformed(FULL, a=0.9), 0, "maximum of 8", is_limiting=True),
    Case("memory fills although it spills", buffered(THREE, BufferFill(1.0, 0.2, True)), 1, "memory is full"),
    Case("the disk passes its share", buffered(THREE, BufferFill(0.1, 0.81)), 1, "the disk is 81% full"),
    Case("the buffer is one", buffered(Sizing(1, 1), BufferFill(1, 0)), 0, "maximum of 1", is_limiting=True),
    Case("the buffer never shrinks by itself", buffered(LONG_LOW, BufferFill(0, 0), BufferFill(0, 0)), 0, "memory 0%"),
    Case(
        "on request, if it fits",
        buffered(THREE, BufferFill(0.1, 0.3), BufferFill(0, 0.4), asked=True),
        -1,
        "user asked",
    ),
    Case(
        "on request, memory and disk each by itself",
        buffered(THREE, BufferFill(0.6, 0.3), BufferFill(0.3, 0.3), asked=True),
        -1,
        "user asked",
    ),
    Case(
        "on request, but memory would be full",
        buffered(THREE, BufferFill(0.6, 0.1), BufferFill(0.4, 0.1), asked=True),
        0,
        "no buffer has room",
    ),
    Case(
        "on request, if any two fit",
        buffered(THREE, BufferFill(0, 0.7), BufferFill(0, 0.5), BufferFill(0, 0.3), asked=True),
        -1,
        "user asked",
    ),
    Case("on request, the only one", buffered(ONE, BufferFill(0, 0), asked=True), 0, "no buffer has room"),
    Case(
        "on request, but it does not fit",
        buffered(THREE, BufferFill(0.1, 0.5), BufferFill(0, 0.4), asked=True),
        0,
        "no buffer has room",
    ),
    Case("more rows than the cutters take", switched(THREE, 1_600_000), 1, "1,600,000 rows a second"),
    Case("as many as they take", switched(THREE, 1_500_000), 0, "1,500,000 may be"),
    Case("two would do, with the margin", switched(LONG_LOW, 799_999), -1, "for 30s", is_low=True),
    Case("two would do, without the margin", switched(LONG_LOW, 801_000), 0, "may be"),
    Case("two would do, not yet for long", switched(SHORTLY_LOW, 1_000), 0, "after 30s", is_low=True),
    Case("the cutter is one", switched(Sizing(1, 1), 600_000), 0, "maximum of 1", is_limiting=True),
    Case(
        "loads take too long", loaded(THREE, 0.9, 1.3), 1, "the last 2 loads took 1.1 s on average, their limit is 1 s"
    ),
    Case("one slow load of many", loaded(THREE, 0.5, 0.5, 1.3), 0, "took 0.767 s"),
    Case(
        "a fold of 1 GB is ten loads", loaded(THREE, *fold_of(9.0, 10 * LOAD_BYTES)), 0, "the last 10 loads took 0.9 s"
    ),
    Case("ten loads that take too long", loaded(THREE, *fold_of(12.0, 10 * LOAD_BYTES)), 1, "their limit is 1 s"),
    Case("a fold of 100 MB is one load", loaded(THREE, *fold_of(2.0, LOAD_BYTES)), 3, "the last 1 loads took 2 s"),
    Case("loads are quick", loaded(LONG_LOW, 0.3, 0.3), -1, "for 30s", is_low=True),
    Case("loads under half, but within the margin", loaded(LONG_LOW, 0.45), 0, "took 0.45 s on average"),
    Case("loads are quick, not yet for long", loaded(SHORTLY_LOW, 0.3), 0, "after 30s of that", is_low=True),
    Case("no loads", loaded(LONG_LOW), -1, "no loads", is_low=True),
    Case("queries take too long", asked(THREE, 50, 80), 1, "their limit is 60 s"),
    Case("queries within their limit", asked(THREE, 50, 60), 0, "on average"),
    Case("queries are quick", asked(LONG_LOW, 1, 2), -1, "for 30s", is_low=True),
    Case("queries under half, but within the margin", asked(LONG_LOW, 27), 0, "took 27 s on average"),
    Case("no queries", asked(LONG_LOW), -1, "no queries", is_low=True),
    Case("query at its maximum", asked(FULL, 90), 0, "at its maximum of 8", is_limiting=True),
    Case("executors for all tasks and one ready", provided(1, 3), 3, "3 tasks may run, 1 on an executor, 1 kept ready"),
    Case("two tasks on each", provided(1, 3, slots=2), 2, "2 on an executor"),
    Case("executors at most", provided(5, 30), 3, "30 tasks"),
    Case("executors at their maximum", provided(8, 30), 0, "maximum of 8", is_limiting=True),
    Case("the day's hours are used up", provided(2, 5, hours=24), 0, "24 executor hours are used up", is_limiting=True),
    Case("executors stay for a while", provided(5, 2, low_since=ago(29)), 0, "after 30s of that", is_low=True),
    Case("executors are released", provided(5, 2, low_since=ago(30)), -1, "for 30s", is_low=True),
    Case("enough executors", provided(3, 2), 0, "2 tasks may run"),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_triggers(case: Case) -> None:
    decision = case.decision
    assert (decision.change, decision.is_low, decision.is_limiting) == (case.change, case.is_low, case.is_limiting)
    assert case.reason in decision.reason


def test_a_buffer_spills_from_its_share_of_memory_until_nothing_is_left() -> None:
    assert not spills(SETTINGS, BufferFill(0.49, 0))
    assert spills(SETTINGS, BufferFill(0.5, 0))
    assert spills(SETTINGS, BufferFill(0.01, 0, is_spilling=True))
    assert not spills(SETTINGS, BufferFill(0, 0.3, is_spilling=True))


def test_a_pool_has_the_tasks_of_its_parts() -> None:
    sizes = pool_sizes({"extract": 1, "transform": 2, "buffer": 1, "switch": 1, "load": 3, "query": 4})
    assert sizes == {"extract": 1, "maintenance": 5, "query": 4}


def test_a_part_begins_to_count_when_it_first_has_little_to_do() -> None:
    low = Decision(0, "", is_low=True)
    sizing = THREE.after(low, ago(5)).after(low, NOW)
    assert sizing.low_since == ago(5)
    assert sizing.after(Decision(0, ""), NOW).low_since is None
    shrunk = sizing.after(Decision(-1, "", is_low=True), NOW)
    assert (shrunk.size, shrunk.low_since, shrunk.changed_at) == (2, None, NOW)


def test_a_part_remembers_the_rate_at_which_it_was_too_small() -> None:
    more, fewer = Decision(1, "", rate=600), Decision(-1, "", is_low=True)
    sizing = Sizing(2, 8).after(more, NOW)
    assert (sizing.too_many, sizing.too_small) == (300, 2)
    # Growing on is for what has gathered, and says nothing about the rate.
    assert sizing.after(more, NOW).too_small == 2
    assert sizing.after(fewer, NOW).after(more, NOW).too_many == 300
    assert sizing.after(fewer, NOW).after(fewer, NOW).after(more, NOW).too_many == 600
    assert Sizing(2, 8).after(Decision(1, ""), NOW).too_many is None
