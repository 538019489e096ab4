"""A request is answered as soon as what it needs is captured, and at its deadline with what there is."""

from __future__ import annotations

import time
from concurrent.futures import CancelledError
from datetime import timedelta

import pytest

from headgate.capture.source import Sample
from headgate.clock import ManualClock, SystemClock
from tests.gears.scripted import (
    HOUR,
    ScriptedMethod,
    advance,
    gears,
    milliseconds,
    never,
    running,
)
from tests.waiting import PATIENCE, eventually


def test_what_is_captured_is_answered_at_once() -> None:
    clock = ManualClock()
    method = ScriptedMethod(clock, captured=7)
    with running(method, clock, gears((HOUR, 1))) as agent:
        outcome = agent.request(None, milliseconds(0))
        assert outcome.met and outcome.latency == timedelta(0)
        assert agent.request(clock.now() - timedelta(hours=1), milliseconds(0)).met
        measures = agent.status.measures
        assert (measures.requests, measures.expired) == (2, 0.0)


def test_an_idle_source_meets_a_position_that_nothing_led_to() -> None:
    clock = ManualClock()
    method = ScriptedMethod(clock)
    with running(method, clock, gears((100, 1))) as agent:
        moved_on = Sample(clock.now(), 5, timedelta(0), timedelta(0))
        future = agent.submit(moved_on, timedelta(seconds=5))
        never(future.done)
        advance(clock, agent, milliseconds(100))
        assert future.result(PATIENCE).met
        assert agent.request(moved_on, milliseconds(0)).met


def test_a_look_that_finds_nothing_new_counts_once_the_tasks_before_are_published() -> None:
    clock = ManualClock()
    method = ScriptedMethod(clock)
    method.hold(1)
    method.commit()
    with running(method, clock, gears((100, 1), queue=2)) as agent:
        eventually(lambda: method.reading == 1)
        advance(clock, agent, milliseconds(50))
        future = agent.submit(clock.now(), timedelta(seconds=5))
        advance(clock, agent, milliseconds(50))
        eventually(lambda: method.plans == 2)
        never(future.done)
        method.let_go(1)
        outcome = future.result(PATIENCE)
        assert outcome.met and outcome.captured.at == clock.now()


def test_an_expired_request_gets_what_there_is() -> None:
    clock = ManualClock()
    method = ScriptedMethod(clock, captured=4)
    with running(method, clock, gears((HOUR, 1))) as agent:
        looked_at = clock.now()
        eventually(lambda: agent.status.captured.at == looked_at)
        clock.advance(timedelta(seconds=7))
        method.commit()
        future = agent.submit(None, timedelta(seconds=2))
        advance(clock, agent, timedelta(seconds=2))
        never(future.done)
        advance(clock, agent, timedelta.resolution)
        outcome = future.result(PATIENCE)
        assert not outcome.met
        assert outcome.captured.position == 4
        assert outcome.staleness == timedelta(seconds=7)
        assert outcome.latency == timedelta(seconds=2)
        assert agent.status.measures.expired == 1.0


def test_what_comes_after_the_deadline_is_too_late() -> None:
    clock = ManualClock()
    method = ScriptedMethod(clock)
    method.hold(1)
    method.commit()
    with running(method, clock, gears((HOUR, 1))) as agent:
        future = agent.submit(None, timedelta(seconds=2))
        eventually(lambda: method.reading == 1)
        never(future.done)
        clock.advance(timedelta(seconds=3))
        method.let_go(1)
        outcome = future.result(PATIENCE)
        assert not outcome.met and outcome.captured.position == 0
        assert agent.request(None, timedelta(0)).met


def test_a_request_ends_at_its_deadline_while_the_source_hangs() -> None:
    method = ScriptedMethod(SystemClock())
    method.hold(1)
    method.commit()
    with running(method, SystemClock(), gears((10, 1), queue=0)) as agent:
        began = time.monotonic()
        outcome = agent.request(None, milliseconds(50))
        assert not outcome.met
        assert 0.05 <= time.monotonic() - began < PATIENCE


def test_a_cancelled_request_leaves_no_trace() -> None:
    clock = ManualClock()
    method = ScriptedMethod(clock)
    settings = gears((HOUR / 2, 1), (HOUR, 1))
    with running(method, clock, settings) as agent:
        method.commit()
        future = agent.submit(None, milliseconds(HOUR * 0.75))
        assert agent.status.waiting == 1
        assert agent.status.gear == settings.gears[0]
        assert future.cancel()
        with pytest.raises(CancelledError):
            future.result()
        status = agent.status
        assert (status.waiting, status.gear, status.measures.requests) == (0, settings.lowest, 0)
        advance(clock, agent, milliseconds(HOUR))
        eventually(lambda: method.published == [(0, 1)])


def test_only_recent_requests_are_measured() -> None:
    clock = ManualClock()
    method = ScriptedMethod(clock)
    with running(method, clock, gears((HOUR, 1), recent_requests=3)) as agent:
        for _ in range(5):
            agent.request(None, timedelta(0))
        assert agent.status.measures.requests == 3
