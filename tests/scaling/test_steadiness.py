"""Sizes stay within their bounds, do not flap under noise, and shrink more slowly than they grow."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.config.scaling import ScalingSettings
from headgate.scaling.executors import ExecutorsObservation, executors
from headgate.scaling.policies.buffer import BufferFill, BufferObservation, buffer
from headgate.scaling.policies.extract import ExtractObservation, SourceReading, extract
from headgate.scaling.policies.switch import SwitchObservation, switch
from headgate.scaling.policies.timed import TimedObservation, load, query
from headgate.scaling.policies.transform import TransformObservation, transform
from headgate.scaling.sizing import GROWTH_SHARE, PATIENCE, Decision, Sizing

BEGAN = datetime(2024, 1, 1, tzinfo=UTC)
SETTINGS = ScalingSettings()
HOLD = SETTINGS.hold
MOST = 12

Policy = Callable[[Sizing, float, datetime], Decision]
"""Decides by the load: the size that would be exactly enough."""


def _extract(sizing: Sizing, work: float, now: datetime) -> Decision:
    took = timedelta(seconds=work / sizing.size)
    return extract(SETTINGS, ExtractObservation(sizing, [SourceReading("shop", took, sizing.size)]), now)


def _load(sizing: Sizing, work: float, now: datetime) -> Decision:
    return load(SETTINGS, TimedObservation(sizing, [timedelta(seconds=work / sizing.size)]), now)


def _query(sizing: Sizing, work: float, now: datetime) -> Decision:
    return query(SETTINGS, TimedObservation(sizing, [timedelta(seconds=60 * work / sizing.size)]), now)


def _switch(sizing: Sizing, work: float, now: datetime) -> Decision:
    return switch(SETTINGS, SwitchObservation(sizing, SETTINGS.switch.rate * work), now)


def _transform(sizing: Sizing, work: float, now: datetime) -> Decision:
    return transform(SETTINGS, TransformObservation(sizing, {"shop": work / sizing.size / 2}), now)


def _buffer(sizing: Sizing, work: float, now: datetime) -> Decision:
    fill = BufferFill(min(1.0, work / sizing.size), 0.0)
    return buffer(SETTINGS, BufferObservation(sizing, [fill] * sizing.size), now)


STEADY: dict[str, Policy] = {"extract": _extract, "load": _load, "query": _query, "switch": _switch}
ALL: dict[str, Policy] = {**STEADY, "transform": _transform, "buffer": _buffer}
LOADS = st.lists(st.tuples(st.floats(0.0, 40.0), st.floats(0.1, 60.0)), min_size=1, max_size=80)


def changes(policy: Policy, size: int, loads: list[tuple[float, float]]) -> list[tuple[datetime, int, int]]:
    """When the size changed, by how much, and to what; each load lasts for some seconds."""
    sizing, now, found = Sizing(size, MOST), BEGAN, []
    for work, lasting in loads:
        now += timedelta(seconds=lasting)
        decision = policy(sizing, work, now)
        sizing = sizing.after(decision, now)
        assert 1 <= sizing.size <= MOST
        assert decision.reason
        if decision.change:
            found.append((now, decision.change, sizing.size))
    return found


@pytest.mark.parametrize("name", ALL)
@given(size=st.integers(1, MOST), loads=LOADS)
def test_sizes_are_bounded_and_shrink_more_slowly_than_they_grow(
    name: str, size: int, loads: list[tuple[float, float]]
) -> None:
    for (before_at, _, _), (at, change, _) in pairwise([(BEGAN - HOLD, 0, size), *changes(ALL[name], size, loads)]):
        assert change >= -1
        assert at - before_at >= (HOLD if change < 0 else HOLD / GROWTH_SHARE)


@given(
    slots=st.integers(1, 4),
    ready=st.integers(0, 2),
    loads=st.lists(st.tuples(st.integers(1, 40), st.floats(0.1, 60.0)), min_size=1, max_size=80),
)
def test_executors_are_there_for_every_task_and_go_one_by_one(
    slots: int, ready: int, loads: list[tuple[int, float]]
) -> None:
    settings = ScalingSettings.model_validate({"executors": {"min": 1, "max": MOST, "ready": ready}})
    sizing, now, changed_at = Sizing(1, MOST), BEGAN, BEGAN - HOLD
    for tasks, lasting in loads:
        now += timedelta(seconds=lasting)
        seen = ExecutorsObservation(sizing, {"extract": 0, "maintenance": tasks, "query": 0}, slots, 0.0)
        decision = executors(settings, seen, now)
        sizing = sizing.after(decision, now)
        assert min(MOST, tasks / slots) <= sizing.size <= MOST
        assert decision.change >= -1
        assert decision.change >= 0 or now - changed_at >= HOLD
        changed_at = now if decision.change else changed_at


@pytest.mark.parametrize("name", STEADY)
@given(
    size=st.integers(1, MOST),
    work=st.floats(0.05, MOST * 0.85),
    noise=st.lists(st.floats(-0.1, 0.1), min_size=60, max_size=120),
)
def test_under_a_steady_load_with_noise_no_size_goes_one_way_and_then_the_other(
    name: str, size: int, work: float, noise: list[float]
) -> None:
    found = changes(STEADY[name], size, [(work * (1 + each), 5.0) for each in noise])
    assert len({change > 0 for _, change, _ in found}) <= 1, found


@given(work=st.floats(0.05, MOST * 0.85), chance=st.integers(0, 2**32).map(Random))
def test_a_queue_under_a_steady_load_with_noise_makes_its_part_try_fewer_rarely(work: float, chance: Random) -> None:
    """An empty queue does not tell whether fewer would do: it is tried once, and again after a long time."""
    sizing, now, queue, last, reversals = Sizing(1, MOST), BEGAN, 0.0, 0, 0
    for _ in range(720):
        now += timedelta(seconds=5)
        rate = work * chance.uniform(0.9, 1.1)
        queue = min(1.0, max(0.0, queue + 0.1 * (rate - sizing.size)))
        decision = transform(SETTINGS, TransformObservation(sizing, {"shop": queue}, rate), now)
        sizing = sizing.after(decision, now)
        assert 1 <= sizing.size <= MOST
        reversals += decision.change > 0 > last
        last = decision.change or last
    assert reversals <= 1 + (now - BEGAN) / (PATIENCE * HOLD)


@pytest.mark.parametrize("name", STEADY)
@given(work=st.floats(0.1, MOST * 0.85))
def test_a_size_comes_to_what_the_load_needs(name: str, work: float) -> None:
    found = changes(STEADY[name], 1, [(work, 5.0)] * 20)
    size = found[-1][2] if found else 1
    assert work <= size
