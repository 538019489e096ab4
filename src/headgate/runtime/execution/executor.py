"""The executor: brings tables to the jobs that are wanted of them.

A stage is wanted at a job; it goes there as soon as what it reads is there, and takes all the jobs that it lacks as one
batch. Stages share a few threads, and work on different jobs at the same time; so do ranges of one stage that stand at
different jobs, and those that somebody wants by themselves.

What fails on its data stays failed until `resume`, a view until a later job is wanted of it, whose data may heal what
failed: everything that needs it is told why, everything else goes on. Other problems (a full disk, a lost connection)
are told to whoever waits, and met again when someone asks again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from functools import partial

from headgate.delta.changes import JobId
from headgate.errors import DefiniteError, FlowFailed
from headgate.ranges.key_set import KeySet
from headgate.ranges.range_map import ONE_RANGE, Ranges
from headgate.runtime.execution.reaches import Reaches
from headgate.runtime.execution.wanted_ranges import WantedRanges
from headgate.runtime.execution.weights import StageInput, input_rows, zone_aware
from headgate.runtime.flows.flow_set import NO_KEYS, FlowSet
from headgate.runtime.signal import Signal
from headgate.runtime.spark.pools import pool
from headgate.runtime.spark.threads import DaemonThreads
from headgate.runtime.stages.batch import BatchFactory
from headgate.runtime.stages.maintenance import advance_ranges, run_stages
from headgate.runtime.stages.stage import Stage, aligned_of, tables_of, within, zone_of
from headgate.runtime.stages.ways import Way, WayChoice
from headgate.runtime.tables.tables import Tables

_LOGGER = logging.getLogger(__name__)

_REMEMBERED_RUNS = 10_000
MOST_JOBS = 1_000
"""Of one batch: the query that tells the events of a wide one their jobs has a part for each."""
MOST_STAGES = 32
"""Stages that run at the same time: they wait for Spark most of the time, and their small queries are run together."""


@dataclass(frozen=True, slots=True)
class StageRun:
    """A batch of a stage: the jobs (after, upto], and how long it took to run them."""

    stage: str
    after: JobId
    upto: JobId
    seconds: float
    choice: WayChoice | None
    """The way in which it was taken, and why; None where nothing had changed."""
    ranges: Ranges = ONE_RANGE


class Executor:
    """Runs stages in threads of its own; the methods may be called from any thread."""

    def __init__(
        self,
        flows: FlowSet,
        tables: Tables,
        batches: BatchFactory,
        signal: Signal,
    ) -> None:
        self._flows = flows
        self._tables = tables
        self._batches = batches
        self.ways = batches.ways
        self._signal = signal
        self._wanted = WantedRanges(batches.chain)
        self._reaches = Reaches(flows, tables, batches.chain, self._wanted)
        self._changed = threading.Condition()
        """A stage has ended."""
        self._pauses = 0
        self._running: dict[tuple[str, Ranges], StageInput] = {}
        """By the stage's name and the ranges what it works on now."""
        self._stages: dict[str, Stage] = {}
        """All of them in order, and by table those that read it; they change only inside `paused`."""
        self._readers: dict[str, list[str]] = {}
        self._unseen: set[str] = set()
        """Stages that may be able to go on: to be looked at."""
        self._closed = False
        self._most_stages = MOST_STAGES
        self.executions = 0
        """How many batches have run."""
        self.taken: Counter[Way] = Counter()
        """How many batches with changes were taken in each way."""
        self.runs: deque[StageRun] = deque(maxlen=_REMEMBERED_RUNS)
        """The latest of them."""
        self._threads = DaemonThreads("stage")

    # what is wanted

    def want(self, tables: Collection[str], upto: JobId, keys: Mapping[str, KeySet] = NO_KEYS) -> None:
        """Asks for the tables, and all that they derive from, to be brought to a job; returns at once.

        `keys` names the keys that are read of some tables: only ranges that hold them are brought forward.
        """
        with self._changed:
            self._wanted.want(self._flows.needed_ranges(tables, keys), upto)
            self._notify()

    def arrived(self, tables: Collection[str], upto: JobId, keys: Mapping[str, KeySet] = NO_KEYS) -> bool:
        """Whether the tables, or the ranges with these keys, are at the job. Raises why one of them cannot get there."""
        with self._changed:
            # Asked anew each time: flows may have been replaced meanwhile.
            behind = self._behind(tables, upto, keys)
            for stage, number in behind:
                failure = self._wanted.failures.get(stage.name, {}).get(number)
                if failure is not None:
                    # A copy: several threads may be told.
                    raise copy(failure) from failure.__cause__
            if behind and self._closed:
                raise DefiniteError("the warehouse was closed", hint="open it again")
            return not behind

    def _behind(self, tables: Collection[str], upto: JobId, keys: Mapping[str, KeySet]) -> list[tuple[Stage, int]]:
        """The ranges of stages that the tables need and that are not at the job."""
        found: list[tuple[Stage, int]] = []
        for stage, ranges in self._flows.needed_ranges(tables, keys):
            throughs = stage.target.throughs
            found += [(stage, number) for number in sorted(ranges) if throughs[number] < upto]
        return found

    def bring(self, tables: Collection[str], upto: JobId, keys: Mapping[str, KeySet] = NO_KEYS) -> None:
        """Asks for the tables and waits until they are at the job. Raises why one of them cannot get there."""
        self.want(tables, upto, keys)
        self._signal.wait_until(lambda: self.arrived(tables, upto, keys))

    def settle(
        self,
        tables: Collection[str],
        upto: JobId,
        keys: Mapping[str, KeySet] = NO_KEYS,
        is_cancelled: Callable[[], bool] = lambda: False,
    ) -> None:
        """Asks for the tables and waits until they are at the job or cannot get there, or nobody waits any more."""
        tables = frozenset(tables)
        self.want(tables, upto, keys)
        self._signal.wait_until(lambda: self._closed or is_cancelled() or not self._moving(tables, upto, keys))

    def _moving(self, tables: Collection[str], upto: JobId, keys: Mapping[str, KeySet]) -> bool:
        """Whether one of the tables is behind and neither it nor anything that it reads has failed."""
        stuck: set[tuple[str, int]] = set()
        rowless: dict[str, Ranges] = {}
        moving = False
        with self._changed:
            if any(name in tables and self._tables.get(name).through < upto for name, _ in self._running):
                # Who waits looks whenever a stage has ended: what is on its way is not looked at each time.
                return True
            for stage, number in self._behind(tables, upto, keys):
                aligned = aligned_of(stage)
                if stage.name not in rowless:
                    rowless[stage.name] = self._reaches.rowless(stage)
                if (
                    number in self._wanted.failures.get(stage.name, {})
                    or number in rowless[stage.name]
                    or self._reaches.is_unscheduled(stage, number)
                    or any(name in stage.inputs and (each == number or name not in aligned) for name, each in stuck)
                ):
                    stuck.add((stage.name, number))
                else:
                    moving = True
            if moving and not (self._running or self._pauses or self._closed):
                # A job that was closed since has what kept it back.
                self._start_all()
        return moving

    def is_wanted(self, stage: str) -> bool:
        """Whether the stage is wanted at a job that it has not reached, and can get there."""
        with self._changed:
            failures, throughs = self._wanted.failures.get(stage, {}), self._tables.get(stage).throughs
            wanted = self._wanted.jobs.get(stage, {})
            return any(number not in failures and throughs[number] < job for number, job in wanted.items())

    @property
    def failures(self) -> dict[str, BaseException]:
        """By the stage's name why it does not go on."""
        with self._changed:
            return {name: next(iter(found.values())) for name, found in self._wanted.failures.items() if found}

    def failures_of(self, tables: Collection[str], keys: Mapping[str, KeySet] = NO_KEYS) -> list[BaseException]:
        """Why ranges that the tables need, or those of their ranges that have keys, do not go on."""
        with self._changed:
            return [
                failure
                for stage, ranges in self._flows.needed_ranges(tables, keys)
                for number, failure in self._wanted.failures.get(stage.name, {}).items()
                if number in ranges
            ]

    def resume(self) -> None:
        """Forgets failures: what was wanted is tried again."""
        with self._changed:
            self._wanted.resume()
            self._notify()

    def exclude_failed_ranges(self) -> None:
        """Leaves out ranges of views that failed on their data, and what derives from them: they keep nobody back.

        They are made anew when somebody asks for them at a later job, or after `resume`.
        """
        with self._changed:
            if not self._wanted.lost(self._flows.stages()):
                return
        with self.paused(), self._changed:
            for stage, ranges, reason in self._wanted.lost(self._flows.stages()):
                _LOGGER.warning("ranges given up: stage=%s ranges=%s: %s", stage.name, sorted(ranges), reason)
                for table in tables_of(stage):
                    table.leave_out(ranges, reason)

    # pausing

    @contextmanager
    def paused(self) -> Iterator[None]:
        """No stage runs inside the block: the graph may change, and stages may be run by the caller."""
        with self._changed:
            self._pauses += 1
            self._changed.wait_for(lambda: not self._running)
        try:
            yield
        finally:
            with self._changed:
                self._pauses -= 1
                live = {stage.name for stage in self._flows.stages()}
                self._wanted.keep(live)
                self._notify()

    @contextmanager
    def dividing(self) -> Iterator[None]:
        """Inside `paused`: tables may be cut otherwise inside the block, which nobody sees half done."""
        with self._changed:
            yield
            for stage in self._flows.stages():
                self._wanted.redivide(stage)

    @property
    def is_paused(self) -> bool:
        """Whether someone is inside `paused`."""
        with self._changed:
            return self._pauses > 0

    def limit_stages(self, most: int) -> None:
        """At most so many stages work on changes at the same time."""
        with self._changed:
            grows = min(most, MOST_STAGES) > self._most_stages
            self._most_stages = min(most, MOST_STAGES)
            if grows:
                self._notify()

    def run_here(self, upto: JobId, leave: Collection[str] = ()) -> None:
        """Brings every stage but those to leave to the job in the calling thread, inside `paused`."""
        stages = [stage for stage in self._flows.stages() if stage.name not in leave]
        left = [stage for stage in self._flows.stages() if stage.name in leave]
        after = min((stage.target.through for stage in stages), default=upto)
        if after < upto:
            failed: dict[str, dict[int, BaseException]] = {}
            zones = [zone for stage in stages if (zone := zone_of(stage)) is not None]
            # Stages that share a zone take each job together.
            each_job = len(set(zones)) < len(zones)
            step = 1 if each_job else MOST_JOBS
            for end in (*range(after + step, upto, step), upto):
                failed |= run_stages(stages, JobId(end), self._batches, self._flows.flow_of, left)
            with self._changed:
                self._wanted.failures = failed
                for stage in stages:
                    self._wanted.number(stage)

    def close(self) -> None:
        """Starts nothing any more and waits until what runs is done; whoever waits is told."""
        with self._changed:
            self._closed = True
            self._notify()
            self._changed.wait_for(lambda: not self._running)

    # inside

    def _notify(self) -> None:
        """Starts the stages that can go on, and has waiting queries look again; called with the lock held."""
        if not self._closed and not self._pauses:
            self._start_all()
        self._changed.notify_all()
        self._signal.notify()

    def _start_all(self) -> None:
        """Starts all stages that can go on; called with the lock held."""
        self._stages = {stage.name: stage for stage in self._flows.stages()}
        self._readers = {}
        for name, stage in self._stages.items():
            for read in stage.inputs:
                self._readers.setdefault(read, []).append(name)
        self._unseen = set(self._stages)
        self._start()

    def _start_after(self, moved: Collection[Stage]) -> None:
        """Starts those of the stages that moved, and of those that read them, that can go on; called with the lock held.

        What others need has not changed: with many flows, few are looked at.
        """
        if self._closed or self._pauses:
            return
        if any(zone_of(stage) is not None for stage in moved):
            self._start_all()
            return
        for stage in moved:
            self._unseen.update((stage.name, *self._readers.get(stage.name, ())))
        self._start()
        if not self._running:
            # Jobs may have been closed, or first rows been read, for others meanwhile.
            self._start_all()

    def _start(self) -> None:
        """Starts those that are to be looked at and can go on, as many as may run."""
        busy = sum(each.rows > 0 for each in self._running.values())
        ready: list[tuple[Stage, Ranges, JobId]] = []
        idle: list[tuple[Stage, Ranges, JobId]] = []
        for name, stage in self._stages.items():
            if name not in self._unseen:
                continue
            while busy < self._most_stages and (reach := self._reach(name, stage)) is not None:
                found = self._running[name, reach[0]] = self._input(within(stage, reach[0]), reach[1])
                (ready if found.rows else idle).append((stage, *reach))
                busy += found.rows > 0
            if busy >= self._most_stages:
                break
            self._unseen.discard(name)
        weights = zone_aware(list(self._running.values())) if ready else {}
        alongside = tuple(name for (name, _), each in self._running.items() if each.rows)
        for stage, ranges, end in ready:
            self._threads.submit(partial(self._work, [(stage, ranges, end)], weights[stage.name], alongside))
        if idle:
            # What nothing has changed for takes less than starting it.
            self._threads.submit(partial(self._work, idle))

    def _reach(self, name: str, stage: Stage) -> tuple[Ranges, JobId] | None:
        running = {number for each, ranges in self._running if each == name for number in ranges}
        return self._reaches.reach(stage, running)

    def _work(
        self,
        stages: Sequence[tuple[Stage, Ranges, JobId]],
        weight: int | None = None,
        alongside: tuple[str, ...] = (),
    ) -> None:
        """Runs the stages one after the other; those that have something to do, each in a thread, have a share of Spark."""
        failures: dict[tuple[str, Ranges], dict[int, BaseException]] = {}
        try:
            for stage, ranges, reach in stages:
                try:
                    failures[stage.name, ranges] = self._run(stage, ranges, reach, weight, alongside)
                except Exception as error:
                    if not isinstance(error, FlowFailed):
                        _LOGGER.warning("stage stopped: stage=%s: %s", stage.name, error)
                    failures[stage.name, ranges] = dict.fromkeys(ranges, error)
        finally:
            with self._changed:
                live = self._flows.stages() if any(failures.values()) else []
                for stage, ranges, reach in stages:
                    failed = failures.get((stage.name, ranges), {})
                    if failed:
                        stage.target.cancel_rebuild(frozenset(failed))
                    # One that was replaced meanwhile has failed in vain.
                    healing = {
                        number for number in ranges if self._wanted.healing.pop((stage.name, number), None) is not None
                    }
                    if failed and stage in live:
                        self._wanted.failed(stage, reach, failed, healing)
                    del self._running[stage.name, ranges]
                self.executions += len(stages)
                self._start_after([stage for stage, _, _ in stages])
                self._changed.notify_all()
                self._signal.notify()

    def _input(self, stage: Stage, reach: JobId) -> StageInput:
        """What the stage can work on now; called with the lock held."""
        return StageInput(stage.name, zone_of(stage), input_rows(stage, reach, self._batches.chain, self._tables))

    def _run(
        self, stage: Stage, ranges: Ranges, reach: JobId, weight: int | None, alongside: tuple[str, ...]
    ) -> dict[int, BaseException]:
        """Brings ranges of a stage to a job; gives why some of several did not get there."""
        part = within(stage, ranges)
        after, began = part.target.through, time.monotonic()
        before = self.ways.last.get(stage.name)
        failures: dict[int, BaseException] = {}
        try:
            parts = self._flows.parts_of(stage.name) if len(alongside) > 1 else ()
            with self._batches.open(None if weight is None else pool(weight), alongside, parts) as batch:
                whole = zone_of(stage) is not None or part.target.missing
                end = reach if whole else JobId(min(reach, after + MOST_JOBS))
                failures = advance_ranges(stage, ranges, end, batch, self._flows.flow_of(stage))
                if batch.has_views:
                    # The table is there: nobody waits until the views of the batch are dropped.
                    with self._changed:
                        self._start_after([stage])
                        self._signal.notify()
        finally:
            choice = self.ways.last.get(stage.name)
            choice = None if choice is before else choice
            took = time.monotonic() - began
            self.runs.append(StageRun(stage.name, after, part.target.through, took, choice, ranges))
            if choice is not None:
                with self._changed:
                    self.taken[choice.way] += 1
        return failures
