"""What passes is tried again, what stays stops the agent and is told, and closing never waits."""

from __future__ import annotations

import threading
import time
from datetime import timedelta

import pytest

from headgate.capture.gears.agent import Agent
from headgate.capture.source import Sample
from headgate.clock import ManualClock, SystemClock
from headgate.errors import DefiniteError, TransientError
from tests.gears.scripted import (
    HOUR,
    ScriptedMethod,
    advance,
    attempts_come_to,
    gears,
    looks_come_to,
    milliseconds,
    running,
)
from tests.waiting import PATIENCE, eventually


@pytest.mark.parametrize("step", ["plan", "read", "publish"])
def test_a_step_that_fails_for_a_while_is_repeated_with_growing_pauses(step: str) -> None:
    clock = ManualClock()
    method = ScriptedMethod(clock)
    method.trouble[step] = [TransientError("the connection was lost"), TransientError("the server is starting")]
    method.commit()
    with running(method, clock, gears((HOUR, 1))) as agent:
        future = agent.submit(None, timedelta(minutes=5))
        for attempts, pause in ((1, 50), (2, 100)):
            attempts_come_to(method, step, attempts)
            eventually(lambda: agent.status.problem is not None)
            advance(clock, agent, milliseconds(pause - 1))
            attempts_come_to(method, step, attempts)
            advance(clock, agent, milliseconds(1))
        assert future.result(PATIENCE).met
        assert method.published == [(0, 1)]
        assert agent.status.problem is None


def test_throughput_that_cannot_be_read_holds_nothing_up() -> None:
    clock = ManualClock()
    method = ScriptedMethod(clock)
    method.trouble["throughput"] = [TransientError("not now")]
    with running(method, clock, gears((1000, 1))) as agent:
        for count in (100, 350, 600):
            method.transactions = count
            looks = method.plans
            advance(clock, agent, timedelta(seconds=1))
            looks_come_to(method, looks + 1)
        eventually(lambda: method.attempts.count("throughput") == 4)
        eventually(lambda: agent.status.throughput is not None and agent.status.throughput.rate == 250.0)


@pytest.mark.parametrize("step", ["plan", "read", "publish", "throughput"])
@pytest.mark.parametrize("error", [DefiniteError("the slot is lost"), ValueError("a mistake")])
def test_an_error_that_stays_stops_the_agent_and_is_what_requests_get(step: str, error: Exception) -> None:
    clock = ManualClock()
    method = ScriptedMethod(clock)
    with running(method, clock, gears((1000, 1))) as agent:
        # Throughput is asked for after a look; the first count has been taken by then.
        eventually(lambda: method.attempts.count("throughput") == 1)
        method.hold(1)
        method.commit()
        future = agent.submit(None, timedelta(minutes=5))
        method.trouble[step] = [error]
        advance(clock, agent, timedelta(seconds=1))
        method.let_go(1)
        if step != "throughput":
            with pytest.raises(type(error), match=str(error)):
                future.result(PATIENCE)
        eventually(lambda: agent.status.stopped)
        assert agent.status.problem is error
        with pytest.raises(type(error), match=str(error)):
            agent.request(None, timedelta(seconds=1))


def test_a_source_that_cannot_be_asked_fails_the_request_alone() -> None:
    class Silent(ScriptedMethod):
        def sample(self) -> Sample:
            raise TransientError("the server does not answer")

    clock = ManualClock()
    with running(Silent(clock), clock, gears((1000, 1))) as agent:
        with pytest.raises(TransientError, match="does not answer"):
            agent.request(None, timedelta(seconds=1))
        assert not agent.status.stopped


def test_closing_ends_threads_and_requests_promptly() -> None:
    method = ScriptedMethod(SystemClock())
    method.hold(1)
    method.commit()
    before = set(threading.enumerate())
    agent = Agent(method, SystemClock(), gears((20, 2), (HOUR, 1)))
    future = agent.submit(None, timedelta(minutes=5))
    eventually(lambda: method.reading == 1)
    began = time.monotonic()
    agent.close()
    assert time.monotonic() - began < PATIENCE
    assert set(threading.enumerate()) <= before
    with pytest.raises(DefiniteError, match="closed"):
        future.result(0)
    with pytest.raises(DefiniteError, match="closed"):
        agent.request(None, timedelta(seconds=1))
    agent.close()
    assert method.published == []


def test_closing_while_a_step_is_being_repeated_does_not_wait_for_its_pause() -> None:
    clock = ManualClock()
    method = ScriptedMethod(clock)
    method.trouble["plan"] = [TransientError("the server is away")] * 100
    with running(method, clock, gears((10, 1))) as agent:
        eventually(lambda: agent.status.problem is not None)
        began = time.monotonic()
        agent.close()
        assert time.monotonic() - began < PATIENCE


def test_a_callback_may_close_the_agent() -> None:
    clock = ManualClock()
    method = ScriptedMethod(clock)
    with running(method, clock, gears((100, 1))) as agent:
        method.commit()
        closed = threading.Event()

        def close(_: object) -> None:
            agent.close()
            closed.set()

        agent.submit(None, timedelta(minutes=5)).add_done_callback(close)
        advance(clock, agent, milliseconds(100))
        assert closed.wait(PATIENCE)
        assert agent.status.stopped
