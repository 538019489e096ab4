"""The executor: brings tables to the jobs that are wanted of them.

A stage is wanted at a job; it goes there as soon as what it reads is there, and takes all the jobs that it lacks as one
batch. Stages share a few threads, and work on different jobs at the same time.

What fails on its data stays failed until `resume`, a view until a later job is wanted of it, whose data may heal what
failed: everything that needs it is told why, everything else goes on. Other problems (a full disk, a lost connection)
are told to whoever waits, and met again when someone asks again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from functools import partial

from headgate.capture.source import Source
from headgate.delta.changes import NO_JOB, JobId
from headgate.errors import DefiniteError, FlowFailed
from headgate.runtime.execution.weights import StageInput, input_rows, zone_aware
from headgate.runtime.flows.flow_set import FlowSet
from headgate.runtime.signal import Signal
from headgate.runtime.spark.pools import pool
from headgate.runtime.spark.threads import DaemonThreads
from headgate.runtime.stages.batch import BatchFactory
from headgate.runtime.stages.maintenance import advance, batch_ends, run_stages
from headgate.runtime.stages.stage import Stage, zone_of
from headgate.runtime.stages.view_stage import ViewStage
from headgate.runtime.stages.ways import Choice, Way
from headgate.runtime.tables.tables import Tables

_LOGGER = logging.getLogger(__name__)

_REMEMBERED_RUNS = 10_000
MOST_STAGES = 32
"""Stages that run at the same time: they wait for Spark most of the time, and their small queries are run together."""


@dataclass(frozen=True, slots=True)
class StageRun:
    """A batch of a stage: the jobs (after, upto], and how long it took to run them."""

    stage: str
    after: JobId
    upto: JobId
    seconds: float
    choice: Choice | None
    """The way in which it was taken, and why; None where nothing had changed."""


class Executor:
    """Runs stages in threads of its own; the methods may be called from any thread."""

    def __init__(
        self,
        flows: FlowSet,
        tables: Tables,
        sources: Mapping[str, Source],
        batches: BatchFactory,
        signal: Signal,
    ) -> None:
        self._flows = flows
        self._tables = tables
        self._sources = sources
        self._batches = batches
        self.ways = batches.ways
        self._signal = signal
        self._changed = threading.Condition()
        """A stage has ended."""
        self._wanted: dict[str, JobId] = {}
        self._failures: dict[str, BaseException] = {}
        self._pauses = 0
        self._running: dict[str, StageInput] = {}
        """By the stage's name what it works on now."""
        self._closed = False
        self.executions = 0
        """How many batches have run."""
        self.taken: Counter[Way] = Counter()
        """How many batches with changes were taken in each way."""
        self.runs: deque[StageRun] = deque(maxlen=_REMEMBERED_RUNS)
        """The latest of them."""
        self._threads = DaemonThreads("stage")

    # what is wanted

    def want(self, tables: Iterable[str], upto: JobId) -> None:
        """Asks for the tables, and all that they derive from, to be brought to a job; returns at once."""
        with self._changed:
            stages = self._flows.needed(tables)
            for stage in stages:
                tried = self._wanted.get(stage.name, NO_JOB)
                # A view may go on where a job's data heal what failed before.
                if not isinstance(self._failures.get(stage.name), FlowFailed) or (
                    upto > tried and isinstance(stage, ViewStage)
                ):
                    self._failures.pop(stage.name, None)
                self._wanted[stage.name] = max(upto, tried)
            self._notify()

    def arrived(self, tables: Collection[str], upto: JobId) -> bool:
        """Whether the tables are at the job. Raises why one of them cannot get there."""
        with self._changed:
            # Asked anew each time: flows may have been replaced meanwhile.
            behind = [stage for stage in self._flows.needed(tables) if stage.target.through < upto]
            for stage in behind:
                if stage.name in self._failures:
                    # A copy: several threads may be told.
                    failure = self._failures[stage.name]
                    raise copy(failure) from failure.__cause__
            if behind and self._closed:
                raise DefiniteError("the warehouse was closed", hint="open it again")
            return not behind

    def bring(self, tables: Collection[str], upto: JobId) -> None:
        """Asks for the tables and waits until they are at the job. Raises why one of them cannot get there."""
        self.want(tables, upto)
        self._signal.wait_until(lambda: self.arrived(tables, upto))

    def settle(self, tables: Collection[str], upto: JobId) -> None:
        """Asks for the tables and waits until they are at the job or cannot get there."""
        self.want(tables, upto)
        self._signal.wait_until(lambda: self._closed or not self._moving(tables, upto))

    def _moving(self, tables: Collection[str], upto: JobId) -> bool:
        """Whether one of the tables is behind and neither it nor anything that it reads has failed."""
        stuck: set[str] = set()
        moving = False
        with self._changed:
            for stage in self._flows.needed(tables):
                if stage.target.through >= upto:
                    continue
                if stage.name in self._failures or not stuck.isdisjoint(stage.inputs):
                    stuck.add(stage.name)
                else:
                    moving = True
        return moving

    def is_wanted(self, stage: str) -> bool:
        """Whether the stage is wanted at a job that it has not reached, and can get there."""
        with self._changed:
            wanted = self._wanted.get(stage)
            return wanted is not None and stage not in self._failures and self._tables.get(stage).through < wanted

    @property
    def failures(self) -> dict[str, BaseException]:
        """By the stage's name why it does not go on."""
        with self._changed:
            return dict(self._failures)

    def resume(self) -> None:
        """Forgets failures: what was wanted is tried again."""
        with self._changed:
            self._failures.clear()
            self._notify()

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
                for lost in [name for name in {*self._wanted, *self._failures} if name not in live]:
                    self._wanted.pop(lost, None)
                    self._failures.pop(lost, None)
                self._notify()

    @property
    def is_paused(self) -> bool:
        """Whether someone is inside `paused`."""
        with self._changed:
            return self._pauses > 0

    def run_here(self, upto: JobId, leave: Collection[str] = ()) -> None:
        """Brings every stage but those to leave to the job in the calling thread, inside `paused`."""
        stages = [stage for stage in self._flows.stages() if stage.name not in leave]
        left = [stage for stage in self._flows.stages() if stage.name in leave]
        after = min((stage.target.through for stage in stages), default=upto)
        if after < upto:
            failed: dict[str, BaseException] = {}
            zones = [zone for stage in stages if (zone := zone_of(stage)) is not None]
            # Stages that share a zone take each job together.
            each_job = len(set(zones)) < len(zones)
            for end in range(after + 1, upto + 1) if each_job else self._ends(after, upto):
                failed |= run_stages(stages, JobId(end), self._batches, self._flows.flow_of, left)
            with self._changed:
                self._failures = failed

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
            self._start()
        self._changed.notify_all()
        self._signal.notify()

    def _start(self) -> None:
        busy = sum(each.rows > 0 for each in self._running.values())
        ready: list[tuple[Stage, JobId]] = []
        idle: list[tuple[Stage, JobId]] = []
        for stage in self._flows.stages():
            if busy < MOST_STAGES and stage.name not in self._running:
                reach = self._reach(stage)
                if reach is not None:
                    found = self._running[stage.name] = self._input(stage, reach)
                    (ready if found.rows else idle).append((stage, reach))
                    busy += found.rows > 0
        weights = zone_aware(list(self._running.values())) if ready else {}
        for stage, reach in ready:
            self._threads.submit(partial(self._work, [(stage, reach)], weights[stage.name]))
        if idle:
            # What nothing has changed for takes less than starting it.
            self._threads.submit(partial(self._work, idle))

    def _ends(self, after: JobId, upto: JobId) -> list[JobId]:
        """Where batches end."""
        return batch_ends(self._batches.chain, self._sources.values(), after, upto, self._batches.many_rows)

    def _reach(self, stage: Stage) -> JobId | None:
        """The job that the stage can go to now, if it is further than it is; called with the lock held."""
        wanted = self._wanted.get(stage.name)
        if wanted is None or wanted <= stage.target.through or stage.name in self._failures:
            return None
        inputs = [self._tables.by_name.get(name) for name in stage.inputs]
        if None in inputs:
            return None
        reach = min([wanted, *(table.through for table in inputs if table is not None)])
        zone = zone_of(stage)
        if zone is not None:
            others = [other.target.through for other in self._flows.stages() if zone_of(other) == zone]
            reach = JobId(min(reach, min(others) + 1))
        return reach if reach > stage.target.through else None

    def _work(self, stages: Sequence[tuple[Stage, JobId]], weight: int | None = None) -> None:
        """Runs the stages one after the other; those that have something to do, each in a thread, have a share of Spark."""
        failures: dict[str, BaseException] = {}
        try:
            for stage, reach in stages:
                try:
                    self._run(stage, reach, weight)
                except Exception as error:
                    if not isinstance(error, FlowFailed):
                        _LOGGER.warning("stage stopped: stage=%s: %s", stage.name, error)
                    failures[stage.name] = error
        finally:
            with self._changed:
                live = self._flows.stages() if failures else []
                for stage, _ in stages:
                    # One that was replaced meanwhile has failed in vain.
                    if stage.name in failures and stage in live:
                        self._failures[stage.name] = failures[stage.name]
                    del self._running[stage.name]
                self.executions += len(stages)
                self._notify()

    def _input(self, stage: Stage, reach: JobId) -> StageInput:
        """What the stage can work on now; called with the lock held."""
        return StageInput(stage.name, zone_of(stage), input_rows(stage, reach, self._batches.chain, self._tables))

    def _run(self, stage: Stage, reach: JobId, weight: int | None) -> None:
        after, began = stage.target.through, time.monotonic()
        before = self.ways.last.get(stage.name)
        try:
            with self._batches.open(None if weight is None else pool(weight)) as batch:
                end = reach if zone_of(stage) is not None else self._ends(after, reach)[0]
                advance(stage, end, batch, self._flows.flow_of(stage))
                if batch.has_views:
                    # The table is there: nobody waits until the views of the batch are dropped.
                    with self._changed:
                        self._notify()
        finally:
            choice = self.ways.last.get(stage.name)
            choice = None if choice is before else choice
            self.runs.append(StageRun(stage.name, after, stage.target.through, time.monotonic() - began, choice))
            if choice is not None:
                with self._changed:
                    self.taken[choice.way] += 1
