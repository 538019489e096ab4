"""A method in memory whose history, pace and trouble a test decides; its log is the list of published ranges."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from itertools import pairwise

from headgate.capture.gears.agent import Agent
from headgate.capture.gears.method import Task
from headgate.capture.gears.throttle import Throttle
from headgate.capture.source import Sample
from headgate.clock import Clock, ManualClock
from headgate.config.gears import Gear, GearSettings
from headgate.errors import TransientError
from tests.waiting import eventually

Positions = tuple[int, int]
"""A half-open range: after the first, up to the second."""

NOTHING = timedelta(0)
HOUR = 3_600_000.0
"""In milliseconds: a gear with this period never looks by itself in a test."""


class ScriptedMethod:
    """Implements `Method`; `commit` is the source's own work."""

    def __init__(self, clock: Clock, *, captured: int = 0) -> None:
        self.captured = captured
        self.published: list[Positions] = []
        self.plans = 0
        self.reads: list[int] = []
        self.attempts: list[str] = []
        """Every step begun, by name."""
        self.reading = 0
        self.most_reading = 0
        self.trouble: dict[str, list[Exception]] = defaultdict(list)
        """Errors that the next attempts of a step fail with."""
        self.publishing: Callable[[], None] = lambda: None
        """What publishing takes."""
        self.read_delay: Callable[[int], float] = lambda number: 0.0
        self.transactions = 0
        self.closed = False
        self.throttle = Throttle()
        self._clock = clock
        self._changed = threading.Condition()
        self._committed = self._planned = captured
        self._held: set[int] = set()

    def commit(self, count: int = 1) -> int:
        with self._changed:
            self._committed += count
            return self._committed

    def hold(self, *numbers: int) -> None:
        """Reading these tasks takes until they are let go."""
        with self._changed:
            self._held.update(numbers)

    def let_go(self, *numbers: int) -> None:
        with self._changed:
            self._held.difference_update(numbers)
            self._changed.notify_all()

    def sample(self) -> Sample:
        at = self._clock.now()
        with self._changed:
            return Sample(at, self._committed, NOTHING, NOTHING)

    def plan(self, number: int) -> Task[Positions] | None:
        self._attempt("plan")
        with self._changed:
            self.plans += 1
            if self._planned == self._committed:
                return None
            after, self._planned = self._planned, self._committed
            return Task(number, self._planned, (after, self._planned))

    def read(self, task: Task[Positions]) -> Positions:
        self._attempt("read")
        time.sleep(self.read_delay(task.number))
        with self._changed:
            self.reading += 1
            self.most_reading = max(self.most_reading, self.reading)
            self._changed.wait_for(lambda: task.number not in self._held or self.closed)
            self.reading -= 1
            if self.closed:
                raise TransientError("the connection is closed")
            self.reads.append(task.number)
            return task.range

    def publish(self, batch: Positions) -> None:
        self._attempt("publish")
        self.publishing()
        with self._changed:
            self.published.append(batch)
            self.captured = batch[1]

    def throughput(self) -> int:
        self._attempt("throughput")
        return self.transactions

    def close(self) -> None:
        with self._changed:
            self.closed = True
            self._changed.notify_all()

    def _attempt(self, step: str) -> None:
        with self._changed:
            self.attempts.append(step)
            if self.trouble[step]:
                raise self.trouble[step].pop(0)


def milliseconds(count: float) -> timedelta:
    return timedelta(milliseconds=count)


def gears(*periods_and_workers: tuple[float, int], **more: object) -> GearSettings:
    ladder = tuple(Gear(period=milliseconds(period), workers=workers) for period, workers in periods_and_workers)
    return GearSettings.model_validate({"gears": ladder, **more})


@contextmanager
def running(method: ScriptedMethod, clock: Clock, settings: GearSettings) -> Iterator[Agent[Positions, Positions]]:
    """An agent that has looked at its source once."""
    agent = Agent(method, clock, settings)
    try:
        eventually(lambda: method.plans > 0 or agent.status.problem is not None)
        yield agent
    finally:
        agent.close()


def never(condition: Callable[[], bool], seconds: float = 0.03) -> None:
    """Fails when it happens soon; threads that had nothing to wait for would have done it by then."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        assert not condition(), "this must not happen"
        time.sleep(0.001)


def assert_gap_free(method: ScriptedMethod, first: int = 0) -> None:
    """Everything published is one range without gaps or overlaps, in order."""
    assert method.published, "nothing was published"
    assert method.published[0][0] == first
    assert all(one[1] == other[0] for one, other in pairwise(method.published))


def advance(clock: ManualClock, agent: Agent[Positions, Positions], by: timedelta) -> None:
    clock.advance(by)
    agent.wake()


def looks_come_to(method: ScriptedMethod, count: int) -> None:
    eventually(lambda: method.plans == count)


def attempts_come_to(method: ScriptedMethod, step: str, count: int) -> None:
    eventually(lambda: method.attempts.count(step) == count)
    never(lambda: method.attempts.count(step) > count, seconds=0.01)
