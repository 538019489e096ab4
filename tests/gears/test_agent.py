"""The agent plans at its gear's pace, shifts at once, and keeps its line of tasks bounded and in order."""

from __future__ import annotations

from datetime import timedelta

from headgate.clock import ManualClock
from tests.gears.scripted import (
    HOUR,
    ScriptedMethod,
    advance,
    assert_gap_free,
    attempts_come_to,
    gears,
    looks_come_to,
    milliseconds,
    never,
    running,
)
from tests.waiting import PATIENCE, eventually


def test_a_look_follows_each_period() -> None:
    clock = ManualClock()
    method = ScriptedMethod(clock)
    with running(method, clock, gears((100, 1))) as agent:
        for look in (1, 2, 3):
            method.commit()
            advance(clock, agent, milliseconds(99))
            attempts_come_to(method, "plan", look)
            advance(clock, agent, milliseconds(1))
            looks_come_to(method, look + 1)
            attempts_come_to(method, "publish", look)
        assert_gap_free(method)
        assert agent.status.captured.at == clock.now()


def test_a_clock_that_goes_back_does_not_stop_the_agent() -> None:
    clock = ManualClock()
    method = ScriptedMethod(clock)
    with running(method, clock, gears((100, 1))) as agent:
        clock._now -= timedelta(hours=1)
        agent.wake()
        eventually(lambda: method.plans == 2)


def test_a_request_shifts_up_wakes_the_agent_and_lets_it_idle_again() -> None:
    clock = ManualClock()
    method = ScriptedMethod(clock)
    settings = gears((20, 2), (HOUR, 1))
    with running(method, clock, settings) as agent:
        clock.advance(milliseconds(30))
        method.commit(3)
        outcome = agent.submit(None, timedelta(seconds=5)).result(PATIENCE)
        assert outcome.met and outcome.captured.position == 3
        eventually(lambda: agent.status.gear == settings.lowest)
        shifts = agent.status.shifts
        assert [(shift.before, shift.after) for shift in shifts] == [
            (settings.gears[1], settings.gears[0]),
            (settings.gears[0], settings.gears[1]),
        ]
        assert "1 waiting" in shifts[0].reason
        assert agent.status.reason == shifts[1].reason != ""
        assert method.published == [(0, 3)]


def test_workers_may_finish_out_of_order() -> None:
    clock = ManualClock()
    method = ScriptedMethod(clock)
    method.hold(1)
    method.commit()
    with running(method, clock, gears((10, 2), queue=2)) as agent:
        for _ in range(2):
            method.commit()
            advance(clock, agent, milliseconds(10))
            eventually(lambda: method.plans == method.sample().position)
        eventually(lambda: method.reads == [2, 3])
        assert method.published == []
        method.let_go(1)
        eventually(lambda: len(method.published) == 3)
        assert method.published == [(0, 1), (1, 2), (2, 3)]


def test_the_line_of_tasks_is_bounded() -> None:
    clock = ManualClock()
    method = ScriptedMethod(clock)
    method.hold(1)
    method.commit()
    with running(method, clock, gears((10, 2), queue=1)) as agent:
        for _ in range(6):
            method.commit()
            advance(clock, agent, milliseconds(10))
            never(lambda: agent.status.in_flight > 3, seconds=0.01)
        status = agent.status
        # The second worker has read all it may; what it read waits for the first.
        assert (status.in_flight, status.queued, method.plans) == (3, 0, 3)
        method.let_go(1)
        eventually(lambda: method.captured == 7)
        assert_gap_free(method)


def test_the_pool_follows_the_gear() -> None:
    clock = ManualClock()
    method = ScriptedMethod(clock)
    method.hold(*range(1, 20))
    one, three = gears((10, 1), queue=3), gears((10, 3), queue=3)
    with running(method, clock, one) as agent:

        def commit_and_look(times: int) -> None:
            for _ in range(times):
                planned = method.plans
                method.commit()
                advance(clock, agent, milliseconds(10))
                looks_come_to(method, planned + 1)

        commit_and_look(3)
        eventually(lambda: agent.status.queued == 2)
        never(lambda: method.reading > 1)
        agent.change(three)
        eventually(lambda: method.reading == 3)
        agent.change(one)
        commit_and_look(1)
        method.let_go(1, 2, 3)
        eventually(lambda: method.captured == 3 and method.reading == 1)
        commit_and_look(1)
        never(lambda: method.reading > 1)
        method.let_go(*range(1, 20))
        eventually(lambda: method.captured == 5)
        assert_gap_free(method)


def test_other_settings_take_effect_at_once() -> None:
    clock = ManualClock()
    method = ScriptedMethod(clock)
    with running(method, clock, gears((HOUR, 1))) as agent:
        method.commit()
        clock.advance(milliseconds(50))
        never(lambda: method.plans > 1)
        agent.change(gears((20, 1)))
        eventually(lambda: method.published == [(0, 1)])


def test_the_weight_can_change_at_runtime() -> None:
    clock = ManualClock()
    method = ScriptedMethod(clock)
    settings = gears((HOUR / 2, 1), (HOUR, 1), w=1.0)
    with running(method, clock, settings) as agent:
        method.commit()
        future = agent.submit(None, milliseconds(HOUR * 0.75))
        assert agent.status.gear == settings.lowest
        agent.change(settings.with_w(0.0))
        assert agent.status.gear == settings.gears[0]
        future.cancel()


def test_a_period_of_zero_does_not_spin_on_an_idle_source() -> None:
    clock = ManualClock()
    method = ScriptedMethod(clock)
    with running(method, clock, gears((0, 1))) as agent:
        looks_come_to(method, 1)
        for look in (2, 3):
            never(lambda before=look: method.plans >= before, seconds=0.01)  # type: ignore[misc]
            advance(clock, agent, milliseconds(1))
            looks_come_to(method, look)
        method.commit()
        future = agent.submit(None, timedelta(seconds=5))
        advance(clock, agent, milliseconds(1))
        assert future.result(PATIENCE).met
