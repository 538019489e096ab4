"""The controller takes the gear that promises the most gain, and says why."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.capture.gears.controller import CaptureObservation, choose, gain, undisturbed_share, usual_task_time
from headgate.capture.gears.requests import NONE, Measures, Request
from headgate.capture.source import Sample, SourceFreshness
from headgate.config.gears import Gear, GearSettings
from tests.gears.scripted import milliseconds

NOW = datetime(2024, 1, 1, tzinfo=UTC)
SETTINGS = GearSettings().for_method("trigger")
HIGH, _, LOW = SETTINGS.gears

QUIET = CaptureObservation(
    gear=LOW,
    waiting=(),
    captured=SourceFreshness(10, NOW - milliseconds(110)),
    reading=SourceFreshness(10, NOW - milliseconds(110)),
    planned=SourceFreshness(10, NOW - milliseconds(110)),
    planned_at=NOW - milliseconds(110),
    tasks=0,
    task_time=milliseconds(10),
    load_cost=0.25,
)


def request(window: float, position: int = 11) -> Request:
    return Request.of(Sample(NOW, position, NONE, NONE), milliseconds(window), NOW)


def measures(staleness: float, latency: float, expired: float) -> Measures:
    return Measures(10, milliseconds(staleness), milliseconds(latency), expired)


def test_gain_lies_within_0_and_1_and_rewards_each_part() -> None:
    best, worst = measures(0, 0, 0), measures(1000, 1000, 1)
    assert gain(SETTINGS, 1.0, best, NOW) == 1.0
    assert gain(SETTINGS, 0.0, worst, NOW) == pytest.approx(0.5 * SETTINGS.epsilon**3)
    middle = gain(SETTINGS, 0.9, measures(100, 100, 0.5), NOW)
    assert gain(SETTINGS, 1.0, measures(100, 100, 0.5), NOW) > middle
    assert gain(SETTINGS, 0.9, measures(50, 100, 0.5), NOW) > middle
    assert gain(SETTINGS, 0.9, measures(100, 50, 0.5), NOW) > middle
    assert gain(SETTINGS, 0.9, measures(100, 100, 0.2), NOW) > middle


def test_the_weight_shifts_the_gain() -> None:
    served_badly = measures(300, 300, 1)
    assert gain(SETTINGS.with_w(1.0), 0.9, served_badly, NOW) == pytest.approx(0.9)
    assert gain(SETTINGS.with_w(0.0), 0.9, served_badly, NOW) < 0.01


def test_without_requests_the_lowest_gear_holds() -> None:
    choice = choose(SETTINGS, replace(QUIET, gear=HIGH), NOW)
    assert choice.gear == LOW
    assert choice.reason == "no request waits"


def test_a_request_that_the_low_gear_would_let_expire_takes_a_high_one() -> None:
    choice = choose(SETTINGS, replace(QUIET, waiting=(request(30),)), NOW)
    assert choice.gear == HIGH
    assert "1 waiting" in choice.reason and "against" in choice.reason


def test_what_is_being_read_needs_no_gear() -> None:
    reading = SourceFreshness(11, NOW)
    observation = replace(QUIET, gear=HIGH, waiting=(request(30),), reading=reading, planned=reading, tasks=1)
    assert choose(SETTINGS, observation, NOW).gear == LOW
    assert choose(SETTINGS, replace(observation, load_cost=0.0), NOW).gear == LOW
    # A task that still waits for a worker is not on its way yet: a lower gear might have no worker for it.
    waiting = replace(observation, reading=QUIET.reading, tasks=2)
    assert choose(SETTINGS, replace(waiting, task_time=milliseconds(20)), NOW).gear != LOW


def test_what_the_running_look_will_find_needs_no_gear() -> None:
    observation = replace(QUIET, gear=HIGH, waiting=(request(30),), planned_at=NOW)
    assert choose(SETTINGS, observation, NOW + milliseconds(5)).gear == HIGH
    assert choose(SETTINGS, replace(observation, looking=True), NOW + milliseconds(5)).gear == LOW
    earlier = replace(observation, looking=True, planned_at=NOW - milliseconds(1))
    assert choose(SETTINGS, earlier, NOW + milliseconds(5)).gear == HIGH


def test_a_task_that_covers_less_takes_less() -> None:
    """The low gear's tasks take 70 ms, yet a look right now is done well within the window."""
    observation = replace(QUIET, waiting=(request(60),), task_time=milliseconds(6), task_share=0.2)
    assert usual_task_time(LOW, observation) == milliseconds(70)
    assert usual_task_time(HIGH, observation) == milliseconds(10)
    assert choose(SETTINGS, observation, NOW).gear != LOW


def test_tasks_that_cannot_keep_up_with_the_period_cover_what_passes_meanwhile() -> None:
    swamped = replace(QUIET, task_time=milliseconds(30), task_share=1.0)
    assert usual_task_time(HIGH, swamped) == milliseconds(60)
    assert undisturbed_share(HIGH, swamped) == pytest.approx(1 - 0.25 * 2)
    assert usual_task_time(HIGH, replace(swamped, task_share=100.0)) == milliseconds(300)


def test_a_heavy_weight_of_the_source_uses_the_window_to_its_end() -> None:
    observation = replace(QUIET, waiting=(request(1000),), load_cost=0.5)
    assert choose(SETTINGS.with_w(0.2), observation, NOW).gear != LOW
    assert choose(SETTINGS.with_w(0.99), observation, NOW).gear == LOW


def test_a_gear_is_kept_until_another_promises_clearly_more() -> None:
    observation = replace(QUIET, waiting=(request(1000),), load_cost=0.0, planned_at=NOW - milliseconds(319))
    steady, eager = (SETTINGS.model_copy(update={"hysteresis": hysteresis}) for hysteresis in (0.05, 0.0))
    for gear in SETTINGS.gears:
        assert choose(steady, replace(observation, gear=gear), NOW).gear == gear
    costly = replace(observation, gear=HIGH, load_cost=0.1)
    assert choose(steady, costly, NOW).gear == HIGH
    assert choose(eager, costly, NOW).gear != HIGH


def test_when_nothing_can_be_met_the_gear_that_keeps_things_fresher_wins() -> None:
    hopeless = replace(QUIET, waiting=(request(1),), load_cost=0.0)
    eager = SETTINGS.model_copy(update={"hysteresis": 0.0})
    assert choose(eager, hopeless, NOW).gear == HIGH


def test_a_gear_that_is_not_in_the_ladder_any_more_is_left() -> None:
    other = Gear(period=milliseconds(77), workers=5)
    assert choose(SETTINGS, replace(QUIET, gear=other, waiting=(request(1000),)), NOW).gear in SETTINGS.gears


def test_one_gear_is_always_the_one() -> None:
    constant = SETTINGS.model_copy(update={"gears": (HIGH,)})
    assert choose(constant, QUIET, NOW).gear == HIGH


def test_load_is_what_a_gear_can_keep_busy() -> None:
    def share(gear: Gear, task_time: float) -> float:
        return undisturbed_share(gear, replace(QUIET, task_time=milliseconds(task_time)))

    assert share(HIGH, 10) == pytest.approx(1 - 0.25 * 0.5)
    assert share(LOW, 32) == pytest.approx(1 - 0.25 * 0.1)
    assert share(HIGH, 1000) == pytest.approx(1 - 0.25 * 2)
    assert share(Gear(period=NONE, workers=1), 5) == pytest.approx(1 - 0.25)
    assert share(Gear(period=NONE, workers=1), 0) == 1.0


@given(
    windows=st.lists(st.integers(0, 2000), max_size=6),
    planned=st.integers(0, 2000),
    task=st.integers(0, 200),
    tasks=st.integers(0, 4),
    cost=st.floats(0, 1),
    w=st.floats(0, 1),
    gear=st.sampled_from(SETTINGS.gears),
)
def test_a_choice_is_stable_while_nothing_changes(
    windows: list[int], planned: int, task: int, tasks: int, cost: float, w: float, gear: Gear
) -> None:
    settings = SETTINGS.with_w(w)
    observation = replace(
        QUIET,
        gear=gear,
        waiting=tuple(request(window) for window in windows),
        planned_at=NOW - milliseconds(planned),
        task_time=milliseconds(task),
        tasks=tasks,
        load_cost=cost,
    )
    first = choose(settings, observation, NOW)
    assert first.gear in settings.gears
    assert choose(settings, replace(observation, gear=first.gear), NOW).gear == first.gear


def test_the_time_of_day_decides() -> None:
    by_day = GearSettings.model_validate({"w": [{"from": "08:00", "to": "18:00", "w": 0.99}]}).for_method("trigger")
    observation = replace(QUIET, waiting=(request(1000),), load_cost=0.5)
    assert choose(by_day, observation, NOW).gear != LOW
    noon = timedelta(hours=12)
    later = Request.of(Sample(NOW + noon, 11, NONE, NONE), milliseconds(1000), NOW + noon)
    at_noon = replace(observation, waiting=(later,), planned_at=QUIET.planned_at + noon)
    assert choose(by_day, at_noon, NOW + noon).gear == LOW
