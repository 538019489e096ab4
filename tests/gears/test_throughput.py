"""The cost of capture is the slope of the source's throughput over the load that capture puts on it.

What tasks take is a line too: something each, and a share of the history that they cover.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from headgate.capture.gears.throughput import PRIOR_COST, RateInterval, TaskTimes, ThroughputMeter, load_cost

START = datetime(2024, 1, 1, tzinfo=UTC)


def intervals(cost: float, loads: list[float]) -> list[RateInterval]:
    return [RateInterval(1000 * (1 - cost * load), load) for load in loads]


def test_nothing_known_costs_the_prior() -> None:
    assert load_cost([]) == PRIOR_COST
    assert load_cost([RateInterval(0.0, 0.1)]) == PRIOR_COST
    assert load_cost(intervals(0.9, [0.3] * 60)) == pytest.approx(PRIOR_COST, rel=0.1)


@pytest.mark.parametrize("cost", [0.0, 0.1, 0.4])
def test_many_different_loads_show_the_cost(cost: float) -> None:
    assert load_cost(intervals(cost, [0.0, 2.0] * 30)) == pytest.approx(cost, rel=0.05, abs=0.01)


def test_a_source_that_does_more_under_load_costs_nothing() -> None:
    assert load_cost(intervals(-0.5, [0.0, 2.0] * 30)) == 0.0


def test_the_meter_makes_intervals_of_counts() -> None:
    meter = ThroughputMeter()
    assert meter.is_due(START) and meter.newest is None
    meter.count(1000, START)
    assert meter.newest is None and not meter.is_due(START + timedelta(milliseconds=999))
    meter.was_busy(timedelta(seconds=1))
    assert meter.is_due(START + timedelta(seconds=2))
    meter.count(1500, START + timedelta(seconds=2))
    assert meter.newest == RateInterval(rate=250.0, load=0.5)


def test_a_count_that_begins_anew_is_no_interval() -> None:
    meter = ThroughputMeter()
    meter.count(1000, START)
    meter.count(5, START + timedelta(seconds=1))
    assert meter.newest is None
    meter.count(15, START + timedelta(seconds=2))
    assert meter.newest == RateInterval(rate=10.0, load=0.0)


def task_times(*tasks: tuple[float, float]) -> TaskTimes:
    """Of (taken, covered) in milliseconds."""
    times = TaskTimes()
    for taken, covered in tasks:
        times.took(timedelta(milliseconds=taken), timedelta(milliseconds=covered))
    return times


def test_tasks_that_cover_more_and_less_show_what_each_takes_anyway() -> None:
    times = task_times(*([(10 + 0.1 * 20, 20), (10 + 0.1 * 320, 320)] * 20))
    assert times.fixed == pytest.approx(timedelta(milliseconds=10), abs=timedelta(milliseconds=1))
    assert times.share == pytest.approx(0.1, abs=0.01)


def test_tasks_that_all_cover_as_much_promise_that_less_is_cheaper() -> None:
    times = task_times(*([(32, 320)] * 20))
    assert times.fixed == pytest.approx(timedelta(0), abs=timedelta(microseconds=2))
    assert times.share == pytest.approx(0.1)


def test_tasks_that_take_the_same_whatever_they_cover_have_no_share() -> None:
    times = task_times(*([(10, 20), (10, 320)] * 20))
    assert times.share == pytest.approx(0.0, abs=0.01)
    assert times.fixed == pytest.approx(timedelta(milliseconds=10), abs=timedelta(milliseconds=1))


def test_a_task_after_a_long_pause_tells_nothing() -> None:
    assert task_times((5, 1e9)).fixed == timedelta(0)
    assert task_times((5, 1e9)).share == 0.0
