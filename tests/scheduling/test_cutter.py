"""Cuts: shared by those who wait, and a source that is away holds nobody else up."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from datetime import UTC, datetime, timedelta
from typing import cast

import pytest

from headgate.capture.source import Sample, Source, SourceFreshness
from headgate.clock import SystemClock
from headgate.delta.changes import BEGINNING, JobId
from headgate.errors import TransientError
from headgate.runtime.signal import Signal
from headgate.scheduling.cutter import SATURATED_REST, CutResult, Cutter
from headgate.scheduling.policy import Need
from tests.waiting import PATIENCE


class Held:
    """A source that delivers when it is let."""

    def __init__(self) -> None:
        self.may_go = threading.Event()
        self.is_away = False
        self.captured = SourceFreshness(0, BEGINNING)
        self.asked = 0

    def sample(self, since: datetime | None = None) -> Sample:
        if self.is_away:
            raise TransientError("the server does not answer")
        self.asked += 1
        return Sample(datetime.now(UTC), 1, timedelta(0), timedelta(0))

    def capture(self, upto: Sample, window: timedelta) -> bool:
        return self.may_go.wait(window.total_seconds())


class Bench:
    """A cutter over two sources and a pipeline that is as busy as it is told to be."""

    def __init__(self) -> None:
        self.one, self.two = Held(), Held()
        self.cuts: list[frozenset[str]] = []
        self.signal = Signal()
        self._busy, self._saturated = False, False
        sources = cast(Mapping[str, Source], {"one": self.one, "two": self.two})
        self.cutter = Cutter(sources, SystemClock(), timedelta(seconds=20), self, self.signal)
        self._number = 0

    def cut(self, samples: Mapping[str, Sample]) -> tuple[JobId, bool]:
        self.cuts.append(frozenset(samples))
        return JobId(len(self.cuts)), True

    def is_busy(self, tables: frozenset[str]) -> bool:
        return self._busy

    def is_saturated(self) -> bool:
        return self._saturated

    def set(self, *, busy: bool = False, saturated: bool = False) -> None:
        self._busy, self._saturated = busy, saturated
        self.signal.notify()

    def ask(self, *sources: str, deadline: float | None = None) -> Future[CutResult]:
        now = datetime.now(UTC)
        self._number += 1
        until = None if deadline is None else now + timedelta(seconds=deadline)
        return self.cutter.submit(Need(self._number, frozenset(sources), now, until))


@pytest.fixture
def bench() -> Iterator[Bench]:
    found = Bench()
    yield found
    found.one.may_go.set()
    found.two.may_go.set()
    found.cutter.close()


def test_those_who_come_during_a_capture_share_the_next_cut(bench: Bench) -> None:
    first = bench.ask("one")
    while bench.one.asked == 0:
        pass
    later = [bench.ask("one") for _ in range(5)]
    bench.one.may_go.set()
    assert first.result(PATIENCE).job == 1
    assert {closed.result(PATIENCE).job for closed in later} == {2}
    assert later[0].result().others == 4
    assert bench.one.asked == 2


def test_a_slow_source_holds_up_only_those_who_need_it(bench: Bench) -> None:
    slow = bench.ask("one")
    while bench.one.asked == 0:
        pass
    bench.two.may_go.set()
    assert bench.ask("two").result(PATIENCE).job == 1
    assert not slow.done()
    bench.one.may_go.set()
    assert slow.result(PATIENCE).job == 2


def test_a_source_that_is_away_fails_those_who_need_it(bench: Bench) -> None:
    bench.one.is_away = True
    bench.two.may_go.set()
    bench.set(busy=True)
    both, two = bench.ask("one", "two"), bench.ask("two")
    bench.set(busy=False)
    with pytest.raises(TransientError, match="does not answer"):
        both.result(PATIENCE)
    assert two.result(PATIENCE).job == 1


def test_what_is_not_captured_within_the_deadline_is_told(bench: Bench) -> None:
    with pytest.raises(TransientError, match="source one did not deliver"):
        bench.ask("one", deadline=0.2).result(PATIENCE)


def test_a_withdrawn_need_makes_no_cut(bench: Bench) -> None:
    bench.set(busy=True)
    withdrawn = bench.ask("one")
    assert withdrawn.cancel()
    bench.set(busy=False)
    bench.two.may_go.set()
    assert bench.ask("two").result(PATIENCE).job == 1
    assert bench.one.asked == 0 and not bench.cutter.waiting


def test_closing_tells_those_who_wait() -> None:
    bench = Bench()
    bench.set(busy=True)
    waiting = bench.ask("one")
    bench.cutter.close()
    with pytest.raises(Exception, match="closed"):
        waiting.result(PATIENCE)


def test_while_readers_crowd_spark_those_who_come_share_a_later_cut(bench: Bench) -> None:
    bench.one.may_go.set()
    bench.set(saturated=True)
    bench.cutter.batch_took(60.0)
    waiting = [bench.ask("one") for _ in range(3)]
    time.sleep(0.3)
    assert not bench.cuts
    bench.set(saturated=False)
    assert {closed.result(PATIENCE).job for closed in waiting} == {1}


def test_a_crowd_holds_up_cuts_no_longer_than_the_batch_is_worth(bench: Bench) -> None:
    bench.one.may_go.set()
    bench.set(saturated=True)
    bench.cutter.batch_took(0.05)
    began = time.monotonic()
    assert bench.ask("one").result(PATIENCE).job == 1
    assert bench.ask("one").result(PATIENCE).job == 2
    assert time.monotonic() - began >= 0.05 * (1 + SATURATED_REST)


def test_a_deadline_does_not_wait_for_a_crowd(bench: Bench) -> None:
    bench.one.may_go.set()
    bench.set(saturated=True)
    bench.cutter.batch_took(600.0)
    assert bench.ask("one", deadline=601.0).result(PATIENCE).job == 1
