"""The agent of a source: plans tasks at the gear's pace, has them read by workers, answers requests.

    agent thread    every period: plan ──► task line (bounded)
    workers         take ──► read ──► whoever completes the first task publishes, in order, one at a time
    timekeeper      ends the requests whose window is over, and steers when nothing else does

All state is behind one lock, which is never held while the method works or a reader is told its outcome. After every
event the controller is asked, and a shift takes effect at once. A step that fails with a `TransientError` is repeated
with the same plan number, task or batch, so a method must be able to go on where it failed. Any other error stops the
agent and is what every waiting and later request gets.
"""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import Future
from datetime import datetime, timedelta
from functools import partial
from typing import Generic

from headgate.capture.gears.controller import CaptureObservation, choose
from headgate.capture.gears.crew import Crew
from headgate.capture.gears.method import Batch, Method, Range, Task
from headgate.capture.gears.requests import NONE, Request, RequestOutcome
from headgate.capture.gears.status import Shift, Status
from headgate.capture.gears.tasks import TaskLine
from headgate.capture.gears.throughput import TaskTimes, ThroughputMeter
from headgate.capture.gears.waiting import Answer, WaitingRequests, hand_over, hand_over_error
from headgate.capture.source import Sample, SourceFreshness
from headgate.clock import Clock
from headgate.config.gears import GearSettings
from headgate.delta.changes import BEGINNING
from headgate.errors import DefiniteError, TransientError

_SHORTEST_REST = timedelta(milliseconds=1)
"""After a look that found nothing new, so that a period of 0 does not spin."""
_STEERING_INTERVAL = timedelta(seconds=1)
"""How long the controller may go unasked: the weight changes with the time of day."""
_RECENT_SHIFTS = 100
_CLOSING_SECONDS = 10.0


class Agent(Generic[Range, Batch]):
    """Drives one method; works from its construction until `close`."""

    def __init__(
        self, method: Method[Range, Batch], clock: Clock, settings: GearSettings, *, captured_at: datetime = BEGINNING
    ) -> None:
        """`captured_at`: what the source acknowledged before it, on headgate's clock, had been captured already."""
        self._method = method
        self._throttle = method.throttle
        self._clock = clock
        self._settings = settings
        self._gear = settings.lowest
        self._reason = "no request waits"
        self._shifts: deque[Shift] = deque(maxlen=_RECENT_SHIFTS)
        self._line: TaskLine[Range, Batch] = TaskLine(SourceFreshness(method.captured, captured_at))
        self._requests = WaitingRequests(settings.recent_requests)
        self._meter = ThroughputMeter()
        self._planned_at = BEGINNING
        self._looking = self._found_nothing = False
        self._task_times = TaskTimes()
        self._took: timedelta | None = None
        self._most_workers: int | None = None
        self._closed = False
        self._workers = 0
        self._lock = threading.RLock()
        self._pace = threading.Condition(self._lock)
        self._work = threading.Condition(self._lock)
        self._alarm = threading.Condition(self._lock)
        self._crew = Crew(clock, self._lock, self._end_requests)
        with self._lock:
            self._crew.start("capture agent", self._plan_tasks)
            self._crew.start("capture timekeeper", self._keep_time)
            self._grow_pool()

    def submit(self, need: Sample | datetime | None, window: timedelta) -> Future[RequestOutcome]:
        """A request that waits at most for the window; returns without waiting for its outcome.

        It needs a position that the source gave, or everything acknowledged before an instant; None stands for
        the source's newest commit. Cancelling the future withdraws the request; what is called back by it must be quick.
        """
        arrived_at = self._clock.now()
        if need is None:
            need = self._method.sample()
        request = Request.of(need, window, arrived_at)
        with self._lock:
            if self._crew.stopped_by is not None:
                raise self._crew.stopped_by
            future = self._requests.add(request, self._line.captured)
            self._steer()
            if self._requests.deadline == request.deadline:
                self._alarm.notify()
        future.add_done_callback(self._forget_cancelled)
        return future

    def request(self, need: Sample | datetime | None, window: timedelta) -> RequestOutcome:
        """As `submit`, and waits for the outcome."""
        future = self.submit(need, window)
        try:
            return future.result()
        finally:
            future.cancel()

    @property
    def captured(self) -> SourceFreshness:
        with self._lock:
            return self._line.captured

    @property
    def status(self) -> Status:
        with self._lock:
            return Status(
                gear=self._gear,
                reason=self._reason,
                shifts=tuple(self._shifts),
                captured=self._line.captured,
                waiting=len(self._requests),
                measures=self._requests.measures,
                throughput=self._meter.newest,
                queued=self._line.waiting,
                in_flight=len(self._line),
                problem=self._crew.stopped_by or self._crew.problem,
                stopped=self._crew.stopped_by is not None,
                took=self._took,
            )

    def change(self, settings: GearSettings) -> None:
        """Goes on with other settings, at once."""
        with self._lock:
            self._settings = settings
            self._requests.keep_recent(settings.recent_requests)
            self._grow_pool()
            self._steer()
            self.wake()

    def limit_workers(self, most: int | None) -> None:
        """No more workers read at the same time than this, whatever the gear; None: as many as the gear has."""
        with self._lock:
            self._most_workers = most
            self._work.notify_all()

    def wake(self) -> None:
        """Makes every thread look again, at the clock too, which may have jumped."""
        with self._lock:
            for condition in (self._pace, self._work, self._alarm):
                condition.notify_all()
            self._crew.wake()

    def close(self) -> None:
        """Stops all threads, closes the method and ends waiting requests with an error."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._crew.stop(DefiniteError("capture of this source is closed", hint="open the warehouse again"))
        self._method.close()
        self.wait()

    def wait(self) -> None:
        """Waits for the threads of a stopped agent to end."""
        stuck = self._crew.join(_CLOSING_SECONDS)
        if stuck:
            raise TransientError(
                f"threads of capture wait for the source and do not end: {', '.join(stuck)}",
                hint="they end with this process",
            )

    def _plan_tasks(self) -> None:
        number = 1
        while True:
            self._wait_for_turn()
            number += self._crew.persist(self._plan, number)
            self._count_transactions()

    def _wait_for_turn(self) -> None:
        """Waits until the gear's period is over and the line has room."""
        with self._lock:
            while True:
                self._crew.require_running()
                now = self._clock.now()
                has_room = len(self._line) < self._gear.workers + self._settings.queue
                period = max(self._gear.period, _SHORTEST_REST if self._found_nothing else NONE)
                rest = self._planned_at + period - now
                # More than a period ahead: the clock went back.
                if has_room and not NONE < rest <= period:
                    return
                self._pace.wait(rest.total_seconds() if has_room else None)

    def _plan(self, number: int) -> bool:
        """Looks at the source; whether there is a task now."""
        with self._lock:
            at = self._planned_at = self._clock.now()
            self._looking = True
            needed_position = self._requests.needed_position
        task = self._method.plan(number)
        with self._lock:
            self._looking = False
            now = self._clock.now()
            self._meter.was_busy(now - at)
            self._found_nothing = task is None
            if task is not None:
                self._line.add(task, SourceFreshness(task.upto, at), now - at)
                self._work.notify_all()
                return True
            # Nothing is new, so whatever a request knew of before the look is captured or on its way.
            self._line.reach(SourceFreshness(max(needed_position, self._method.captured), at))
            self._crew.problem = None
            answers = self._settle(now)
        hand_over(answers)
        return False

    def _count_transactions(self) -> None:
        if not self._meter.is_due(self._clock.now()):
            return
        try:
            count = self._method.throughput()
        except TransientError:
            return
        with self._lock:
            self._meter.count(count, self._clock.now())

    def _work_on(self, index: int) -> None:
        while True:
            task = self._wait_for_task(index)
            self._crew.persist(self._read, task)
            while (due := self._take_due()) is not None:
                self._crew.persist(self._publish, due[1])

    def _wait_for_task(self, index: int) -> Task[Range]:
        with self._lock:
            while True:
                self._crew.require_running()
                # In a gear with fewer workers the rest of the pool waits here.
                allowed = min(self._gear.workers, self._most_workers or self._gear.workers)
                task = self._line.take() if index < allowed else None
                if task is not None:
                    self._steer()
                    return task
                self._work.wait()

    def _read(self, task: Task[Range]) -> None:
        began_at = self._clock.now()
        batch = self._method.read(task)
        with self._lock:
            took = self._clock.now() - began_at
            self._meter.was_busy(took)
            self._line.put_back(task.number, batch, took)

    def _take_due(self) -> tuple[int, Batch] | None:
        """The task to publish next, if it is read and no other worker publishes: that one will take this worker's too."""
        with self._lock:
            return self._line.next_to_publish()

    def _publish(self, batch: Batch) -> None:
        began_at = self._clock.now()
        self._throttle.begin(self._gear.period)
        self._method.publish(batch)
        with self._lock:
            now = self._clock.now()
            # What has expired by now gets what was captured before.
            answers = self._requests.settle(self._line.captured, now)
            before_at = self._line.captured.at
            done, took = self._line.published(), now - began_at - self._throttle.rested
            self._meter.was_busy(took)
            self._took = done.took + took
            self._task_times.took(self._took, done.reaches.at - before_at)
            self._crew.problem = None
            answers += self._settle(now)
            self._pace.notify()
        hand_over(answers)

    def _keep_time(self) -> None:
        while True:
            with self._lock:
                self._crew.require_running()
                now = self._clock.now()
                answers = self._settle(now)
                if not answers:
                    deadline = self._requests.deadline
                    rest = _STEERING_INTERVAL if deadline is None else min(deadline - now, _STEERING_INTERVAL)
                    self._alarm.wait(max(rest, _SHORTEST_REST).total_seconds())
            hand_over(answers)

    def _settle(self, now: datetime) -> list[Answer]:
        """Takes out what can be answered, and steers; the caller holds the lock."""
        answers = self._requests.settle(self._line.captured, now)
        self._steer()
        return answers

    def _steer(self) -> None:
        """Asks the controller, and shifts; the caller holds the lock."""
        self._throttle.hurry(len(self._requests) > 0)
        now = self._clock.now()
        observation = CaptureObservation(
            gear=self._gear,
            waiting=self._requests.requests,
            captured=self._line.captured,
            reading=self._line.reading,
            planned=self._line.planned,
            planned_at=self._planned_at,
            tasks=self._line.unread,
            task_time=self._task_times.fixed,
            load_cost=self._meter.load_cost,
            task_share=self._task_times.share,
            looking=self._looking,
        )
        choice = choose(self._settings, observation, now)
        if choice.gear == self._gear:
            return
        self._shifts.append(Shift(now, self._gear, choice.gear, choice.reason))
        self._gear, self._reason = choice.gear, choice.reason
        self._pace.notify()
        self._work.notify_all()

    def _grow_pool(self) -> None:
        for index in range(self._workers, self._settings.most_workers):
            self._crew.start(f"capture worker {index + 1}", partial(self._work_on, index))
            self._workers += 1

    def _forget_cancelled(self, future: Future[RequestOutcome]) -> None:
        if future.cancelled():
            with self._lock:
                self._requests.remove(future)
                self._steer()

    def _end_requests(self, error: BaseException) -> None:
        with self._lock:
            abandoned = self._requests.abandon()
            self.wake()
        hand_over_error(abandoned, error)
