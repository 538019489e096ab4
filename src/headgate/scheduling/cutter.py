"""Closes jobs for queries that no snapshot satisfies: one actor, so that waiting queries share cuts.

    needs ──► (while what they need or Spark is busy, more come in) ──► plan ──► sample ──► capture ──► close ──► job

Of a source, one capture is under way at a time; those who come meanwhile are planned together for the next. Cuts whose
sources differ do not wait for each other. What cannot be captured fails the queries that need that source, nobody else.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import timedelta
from math import inf
from typing import Protocol

from headgate.capture.source import Sample, Source
from headgate.clock import Clock
from headgate.delta.changes import JobId
from headgate.errors import DefiniteError
from headgate.runtime.signal import Signal
from headgate.runtime.sources.sources import capture
from headgate.scheduling.policy import Need, PlannedCut, plan_cuts

LONGEST_GATHERING = 2.0
"""Seconds that a cut waits at most for the tables to take what was cut before."""
REST = 0.5
"""After a batch the next cut is made when this part of the time has passed that the batch took."""
SATURATED_REST = 4.0
"""The same while readers crowd Spark, so that about a fifth of the time goes into batches."""
LONGEST_SATURATED = 5.0
"""Seconds that such a rest takes at most."""


@dataclass(frozen=True, slots=True)
class CutResult:
    """What a need got: a job that holds all that it asked for."""

    job: JobId
    samples: Mapping[str, Sample]
    reason: str
    began: float
    """When the cut began and when everything was captured, on the monotonic clock."""
    captured: float
    others: int
    """Needs that the same cut served."""
    is_new: bool
    """Whether a job was closed: without new commits, the newest job stays the newest."""


class Pipeline(Protocol):
    """What the cutter asks of those who maintain and read tables; the methods return at once."""

    def cut(self, samples: Mapping[str, Sample]) -> tuple[JobId, bool]:
        """Closes the open job at what is captured; gives the newest job and whether it is new."""

    def is_busy(self, tables: frozenset[str]) -> bool:
        """Whether one of the tables is on its way to an earlier job: a new cut would wait for that."""

    def is_saturated(self) -> bool:
        """Whether more answers are being read than Spark has slots for."""


@dataclass(eq=False)
class _WaitingNeed:
    need: Need
    future: Future[CutResult] = field(default_factory=Future)


class Cutter:
    """Works from its construction until `close`; may be asked from any thread."""

    def __init__(
        self, sources: Mapping[str, Source], clock: Clock, window: timedelta, pipeline: Pipeline, signal: Signal
    ) -> None:
        self._sources = sources
        self._clock = clock
        self._window = window
        self._pipeline = pipeline
        self._signal = signal
        self._lock = threading.Lock()
        """Guards the needs that wait and the sources that are asked."""
        self._waiting: list[_WaitingNeed] = []
        self._seconds: dict[str, float] = {}
        self._asked: set[str] = set()
        """Sources whose capture is under way."""
        self._closed = False
        self._cut_at = time.monotonic()
        self.cuts = 0
        self._batch_seconds = 0.0
        """How long the tables took lately to take what was cut."""
        self._captures = ThreadPoolExecutor(max(1, len(sources)), thread_name_prefix="cut")
        self._thread = threading.Thread(target=self._loop, name="scheduler", daemon=True)
        self._thread.start()

    def submit(self, need: Need) -> Future[CutResult]:
        """A job that satisfies the need; cancelling the future withdraws it. The signal tells when it is done."""
        waiting = _WaitingNeed(need)
        with self._lock:
            if self._closed:
                raise _closed()
            self._waiting.append(waiting)
        self._signal.notify()
        return waiting.future

    @property
    def waiting(self) -> tuple[Need, ...]:
        with self._lock:
            return tuple(each.need for each in self._waiting if not each.future.done())

    def batch_took(self, seconds: float) -> None:
        """Tells how long the tables took to take the latest cut."""
        self._batch_seconds = seconds

    def close(self) -> None:
        with self._lock:
            self._closed = True
        self._signal.notify()
        self._thread.join()
        self._captures.shutdown(wait=True, cancel_futures=True)
        for each in self._waiting:
            if each.future.set_running_or_notify_cancel():
                each.future.set_exception(_closed())
        self._signal.notify()

    def _loop(self) -> None:
        while True:
            self._signal.wait_until(lambda: self._closed or bool(self._waiting))
            self._gather()
            self._defer_while_saturated()
            if self._closed:
                return
            seen = self._signal.count
            with self._lock:
                cut = self._next()
                if cut is not None:
                    self._asked |= cut[0].sources
            if cut is not None:
                self._captures.submit(self._make, *cut)
            elif self._waiting:
                # Whoever waits needs a source whose capture is under way.
                self._signal.wait_past(seen)

    def _gather(self) -> None:
        """Lets more needs come in while a cut could not be worked on anyway, and a little longer under a steady stream.

        Right behind a batch, the rest is a part of what that took: readers get on, and the next cut serves more of those who
        come. Whoever comes while nothing runs, or has no time to lose, does not wait for others.
        """
        end = time.monotonic() + LONGEST_GATHERING
        was_busy, rest_until = False, 0.0
        while not self._closed:
            seen, now = self._signal.count, time.monotonic()
            if self._pipeline.is_busy(frozenset(table for need in self.waiting for table in need.tables)):
                was_busy, until = True, end
            else:
                if was_busy:
                    was_busy, rest_until = False, now + REST * (now - self._cut_at)
                until = min(end, rest_until, now + self._seconds_to_urgency(3 * (now - self._cut_at)))
            if now >= until:
                return
            self._signal.wait_past(seen, until)

    def _defer_while_saturated(self) -> None:
        """While readers crowd Spark, who comes waits until some are done: in a moment one cut serves them all.

        Their rows could hardly be read any sooner, and what is being read meanwhile has Spark for itself.
        """
        batch = self._batch_seconds
        end = self._cut_at + batch + min(SATURATED_REST * batch, LONGEST_SATURATED)
        while not self._closed:
            seen, now = self._signal.count, time.monotonic()
            until = min(end, now + self._seconds_to_urgency(3 * batch))
            if now >= until or not self._pipeline.is_saturated():
                return
            self._signal.wait_past(seen, until)

    def _seconds_to_urgency(self, margin: float) -> float:
        """How long until someone who waits has a deadline within the margin."""
        deadlines = [need.deadline for need in self.waiting if need.deadline is not None]
        if not deadlines:
            return inf
        return max(0.0, (min(deadlines) - self._clock.now()).total_seconds() - margin)

    def _next(self) -> tuple[PlannedCut, list[_WaitingNeed]] | None:
        """The first cut of the plan that can be made now, and whom it serves."""
        self._waiting = [each for each in self._waiting if not each.future.cancelled()]
        if not self._waiting:
            return None
        captured = {name: source.captured.at for name, source in self._sources.items()}
        cuts = plan_cuts([each.need for each in self._waiting], self._clock.now(), self._seconds, captured)
        cut = next((cut for cut in cuts if self._asked.isdisjoint(cut.sources)), None)
        if cut is None:
            return None
        served = {need.query for need in cut.needs}
        chosen = [each for each in self._waiting if each.need.query in served]
        self._waiting = [each for each in self._waiting if each.need.query not in served]
        return cut, chosen

    def _make(self, cut: PlannedCut, served: Sequence[_WaitingNeed]) -> None:
        try:
            self._serve(cut, served)
        finally:
            with self._lock:
                self._asked -= cut.sources
            self._signal.notify()

    def _serve(self, cut: PlannedCut, served: Sequence[_WaitingNeed]) -> None:
        began = time.monotonic()
        sources = {name: self._sources[name] for name in sorted(cut.sources)}
        found = capture(sources, self._latest(served), max(need.since for need in cut.needs))
        captured = time.monotonic()
        for name, took in found.seconds.items():
            self._seconds[name] = 0.7 * self._seconds.get(name, took) + 0.3 * took
        alive = []
        for each in served:
            wrong = next((found.missing[name] for name in each.need.sources if name in found.missing), None)
            if wrong is None:
                alive.append(each)
            elif each.future.set_running_or_notify_cancel():
                each.future.set_exception(wrong)
        alive = [each for each in alive if each.future.set_running_or_notify_cancel()]
        if not alive:
            return
        try:
            job, is_new = self._pipeline.cut(found.samples)
        except Exception as error:
            for each in alive:
                each.future.set_exception(error)
            return
        self.cuts += is_new
        self._cut_at = time.monotonic()
        for each in alive:
            each.future.set_result(CutResult(job, found.samples, cut.reason, began, captured, len(alive) - 1, is_new))

    def _latest(self, served: Sequence[_WaitingNeed]) -> timedelta:
        """How long capture may take: until the last of those it serves gives up."""
        deadlines = [each.need.deadline for each in served]
        if None in deadlines:
            return self._window
        latest = max((at for at in deadlines if at is not None), default=self._clock.now())
        return max(timedelta(0), min(self._window, latest - self._clock.now()))


def _closed() -> DefiniteError:
    return DefiniteError("the warehouse was closed", hint="open it again")
