"""Work that nobody waits for is done in bites: how long it rests, and that a reader ends that at once."""

from __future__ import annotations

import threading
import time
from datetime import timedelta

import pytest

from headgate.capture.gears import throttle as throttle_module
from headgate.capture.gears.throttle import Throttle
from headgate.capture.gears.throughput import TaskTimes
from headgate.clock import SystemClock
from tests.gears.scripted import HOUR, ScriptedMethod, gears, running
from tests.waiting import PATIENCE, eventually

SECOND = timedelta(seconds=1)


def work(seconds: float) -> None:
    """Uses the processor."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


def test_rests_are_some_times_as_long_as_the_work_between_them() -> None:
    throttle = Throttle()
    throttle.hurry(False)
    throttle.begin(60 * SECOND)
    for _ in range(10):
        work(0.002)
        throttle.rest()
    assert timedelta(seconds=0.06) < throttle.rested < timedelta(seconds=PATIENCE)


def test_work_that_has_hardly_begun_needs_no_rest() -> None:
    throttle = Throttle()
    throttle.hurry(False)
    throttle.begin(SECOND)
    throttle.rest()
    assert throttle.rested == timedelta(0)


def test_there_is_none_until_it_is_known_that_nobody_waits() -> None:
    throttle = Throttle()
    throttle.begin(SECOND)
    work(0.002)
    throttle.rest()
    assert throttle.rested == timedelta(0)


def test_there_is_none_soon_after_somebody_waited(monkeypatch: pytest.MonkeyPatch) -> None:
    throttle = Throttle()
    for quiet, rests in ((60.0, False), (0.0, True)):
        monkeypatch.setattr(throttle_module, "_QUIET", quiet)
        throttle.hurry(True)
        time.sleep(0.001)
        throttle.hurry(False)
        throttle.begin(SECOND)
        work(0.002)
        throttle.rest()
        assert (throttle.rested > timedelta(0)) == rests


def test_the_time_for_the_work_is_not_used_up_by_rests() -> None:
    throttle = Throttle()
    throttle.hurry(False)
    throttle.begin(timedelta(seconds=0.5))
    for _ in range(300):
        work(0.002)
        throttle.rest()
    # Without an end there would have been rests of 2.4 s.
    assert timedelta(0) < throttle.rested < timedelta(seconds=1.2)
    # A gear without a pause has no time to rest.
    throttle.begin(timedelta(0))
    work(0.002)
    throttle.rest()
    assert throttle.rested == timedelta(0)


def bites(method: ScriptedMethod, count: int, resting: threading.Event) -> None:
    """Publishes so, with four times as long for rests as for work."""

    def publishing() -> None:
        for _ in range(count):
            work(0.002)
            method.throttle.rest()
            if method.throttle.rested:
                resting.set()

    method.publishing = publishing


def test_a_request_ends_the_rests() -> None:
    method, resting = ScriptedMethod(SystemClock()), threading.Event()
    bites(method, 400, resting)
    method.commit()
    with running(method, SystemClock(), gears((HOUR, 1))) as agent:
        assert resting.wait(PATIENCE)
        agent.request(method.sample(), timedelta(seconds=60))
        # With all its rests the work would have rested for 3.2 s.
        assert timedelta(0) < method.throttle.rested < timedelta(seconds=PATIENCE)


def test_rests_are_not_counted_as_what_a_task_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[timedelta] = []
    monkeypatch.setattr(TaskTimes, "took", lambda self, lasting, covering: taken.append(lasting))
    method, resting = ScriptedMethod(SystemClock()), threading.Event()
    bites(method, 50, resting)
    method.commit()
    began = time.monotonic()
    with running(method, SystemClock(), gears((HOUR, 1))):
        eventually(lambda: taken)
        lasted = timedelta(seconds=time.monotonic() - began)
    assert method.throttle.rested >= timedelta(seconds=0.3)
    assert taken[0] <= lasted - method.throttle.rested
