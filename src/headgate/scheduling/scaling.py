"""The actor of scaling: observes the parts once a second, asks the scaler, and applies what it decides.

    part        what is observed                          what its size is
    extract     how long sources took to be read          readers of a source, at most
    transform   what waits in the streams                 batches at once; tasks of a large one
    buffer      memory and disk of the streams            one: it spills, and tells
    switch      rows a second that go into jobs           one cutter: it tells
    load        how long folds took                       tasks of a fold
    query       how long queries took                     tasks of a query

It has a thread of its own: what happens in the background may take long just when more is needed.
"""

from __future__ import annotations

import logging
import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Protocol, runtime_checkable

from headgate.config.scaling import ScalingSettings
from headgate.delta.changes import JobId
from headgate.errors import DefiniteError, HeadgateError
from headgate.runtime.recent import RecentTimes
from headgate.runtime.spark.sessions import SparkSessions
from headgate.runtime.upkeep.upkeep import Upkeep
from headgate.scaling.executors import within_supply
from headgate.scaling.policies.buffer import BufferFill
from headgate.scaling.policies.extract import SourceReading
from headgate.scaling.policies.switch import RecentJobs
from headgate.scaling.scaler import SIZED, Observation, PartSize, Scaler, SizeChange, Sized
from headgate.scaling.sizing import PARTS
from headgate.scaling.supply import ExecutorSupply
from headgate.scheduling.scaling_records import ScalingRecords
from headgate.scheduling.scheduler import Scheduler

_LOGGER = logging.getLogger(__name__)
_TICK_SECONDS = 1.0


@runtime_checkable
class Limited(Protocol):
    """A source that several readers may read at the same time."""

    def limit_readers(self, most: int) -> None: ...


@dataclass(frozen=True, slots=True)
class ScalingStatus:
    """Every part's size and why, and what changed lately."""

    parts: Mapping[Sized, PartSize]
    executors: int
    """Executors that Spark has."""
    executor_hours: float
    """Of today, UTC."""
    changes: tuple[SizeChange, ...]
    """The latest, in order, those of earlier processes too."""
    changed: Mapping[Sized, int] = field(default_factory=dict)
    """By part how often its size has changed since the start."""


class Scaling:
    """Works from its construction until `close`."""

    def __init__(
        self,
        settings: ScalingSettings,
        supply: ExecutorSupply,
        scheduler: Scheduler,
        upkeep: Upkeep,
        query_times: RecentTimes,
        sessions: SparkSessions,
        records: ScalingRecords,
        loading: Callable[[], timedelta | None] = lambda: None,
        tick_seconds: float = _TICK_SECONDS,
    ) -> None:
        """`loading` tells for how long a large load has been read."""
        self._supply = supply
        self._scheduler = scheduler
        self._upkeep = upkeep
        self._query_times = query_times
        self._sessions = sessions
        self._loading = loading
        self._tick_seconds = tick_seconds
        self._lock = threading.Lock()
        self._scaler = Scaler(within_supply(settings, supply.most), supply.slots)
        self._records = records
        self._scaler.resume(*records.read(scheduler.clock.now()))
        self._running = supply.running
        self._seen_query = self._query_times.count
        self._seen_fold = upkeep.folds.count
        self._seen_job = scheduler.journal.chain.newest
        self._cut = RecentJobs(0, scheduler.clock.now(), scheduler.clock.now())
        self._closed = threading.Event()
        self._apply()
        self._thread = threading.Thread(target=self._loop, name="scaling", daemon=True)
        self._thread.start()

    @property
    def status(self) -> ScalingStatus:
        with self._lock:
            scaler = self._scaler
            return ScalingStatus(
                scaler.parts(), self._running, scaler.executor_hours, tuple(scaler.changes), dict(scaler.changed)
            )

    def fix(self, part: str, size: int | None) -> None:
        """Sets the size of a part, or of the executors, by hand; None gives it back to its policy."""
        known = next((each for each in SIZED if each == part), None)
        if known is None:
            raise DefiniteError(f"there is no part {part}", hint=f"the parts are {', '.join(SIZED)}")
        with self._lock:
            self._scaler.fix(known, size)
        self._tick()

    def close(self) -> None:
        self._closed.set()
        self._thread.join()
        self._note([], is_last=True)

    def _loop(self) -> None:
        while not self._closed.wait(self._tick_seconds):
            try:
                self._tick()
            except HeadgateError as error:
                _LOGGER.warning("scaling failed and is tried again: %s", error)
            except Exception:
                if self._sessions.health.lost is not None:
                    return
                _LOGGER.exception("scaling failed and is tried again")

    def _tick(self) -> None:
        with self._lock:
            self._running = self._supply.running
            changes = self._scaler.step(self._observe(), self._scheduler.clock.now())
            for change in changes:
                _LOGGER.info(
                    "size changed: part=%s from=%d to=%d: %s", change.part, change.before, change.after, change.reason
                )
            self._apply()
            self._note(changes)

    def _note(self, changes: Sequence[SizeChange], *, is_last: bool = False) -> None:
        now = self._scheduler.clock.now()
        try:
            self._records.write(changes, self._scaler.executor_hours, now, at_once=is_last)
        except (OSError, HeadgateError) as error:
            _LOGGER.warning("changes of sizes could not be written: %s", error)

    def _apply(self) -> None:
        sizes = self._scaler.sizes
        scheduler = self._scheduler
        scheduler.executor.limit_stages(sizes["transform"])
        self._sessions.resize({part: sizes[part] for part in PARTS})
        for source in scheduler.sources.values():
            if isinstance(source, Limited):
                source.limit_readers(sizes["extract"])
        self._supply.want(sizes["executors"])

    def _observe(self) -> Observation:
        scheduler, project = self._scheduler, self._scheduler.settings.current
        usage = shutil.disk_usage(project.storage)
        waiting = scheduler.backlog.waiting_bytes()
        readings, queues, buffers = [], {}, []
        if (lasted := self._loading()) is not None:
            readings.append(SourceReading("a large load", lasted, self._scaler.sizes["extract"]))
        for name, source in scheduler.sources.items():
            status = source.status
            if status.took is not None:
                workers = 1 if status.gear is None else status.gear.workers
                readings.append(SourceReading(name, status.took, workers, status.reads_in_order))
            queues[name] = waiting[name] / project.limits.stream_bytes
            memory = source.log.memory_bytes / project.limits.unwritten_bytes
            buffers.append(BufferFill(memory, usage.used / usage.total))
        self._seen_fold, folds = self._upkeep.folds.after(self._seen_fold)
        self._seen_query, queries = self._query_times.after(self._seen_query)
        return Observation(readings, queues, buffers, self._rate(), folds, queries, self._running, self._supply.slots)

    def _rate(self) -> float:
        """Rows a second that went into jobs: those of the jobs since the last tick over the time that they cover, and until the
        next job over the time since."""
        scheduler, chain = self._scheduler, self._scheduler.journal.chain
        now = scheduler.clock.now()
        with scheduler.journal.lock:
            first = max(JobId(self._seen_job + 1), chain.oldest)
            jobs = [chain.get(JobId(job)) for job in range(first, chain.newest + 1)]
        if jobs:
            self._seen_job = jobs[-1].id
            self._cut = RecentJobs(sum(job.rows or 0 for job in jobs), self._cut.upto, jobs[-1].closed_at or now)
        return self._cut.rate(now)
