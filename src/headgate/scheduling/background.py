"""What happens when nobody asks: system jobs, materialization, arrangements, letting go, leases.

One thread looks at the warehouse about once a second, and at once when a stream passes its limit. What it does is
decided by pure functions (`policy`) and recorded with the reason. It starts nothing that would delay a waiting query, and what it
has begun rests while queries wait or are read.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from headgate.delta.changes import JobId
from headgate.errors import HeadgateError
from headgate.runtime.defining.dividing import Dividing
from headgate.runtime.spark.collecting import MOST_TOGETHER
from headgate.runtime.upkeep.upkeep import Upkeep
from headgate.scheduling.advisor import Advisor
from headgate.scheduling.history import History
from headgate.scheduling.leases import Leases
from headgate.scheduling.policy import (
    MaterializationSettings,
    Need,
    Overlays,
    SystemJob,
    SystemJobSettings,
    TableGoal,
    Workload,
    materialization,
    system_job,
)
from headgate.scheduling.scheduler import Scheduler
from headgate.scheduling.subscription import Subscriptions

_LOGGER = logging.getLogger(__name__)
_TICK_SECONDS = 1.0
_TICK = timedelta(seconds=_TICK_SECONDS)
_NEVER = timedelta(days=36_500)
_PATIENCE = timedelta(seconds=10)
"""How long a system job waits for its sources."""
_RECENT = 100
_CAUGHT_UP_AT_ONCE = MOST_TOGETHER
"""Tables that a system job brings forward between two looks whether a query waits."""
_MINUTE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Action:
    """Something that was done without a query, and why."""

    at: datetime
    what: str
    reason: str


@dataclass(frozen=True, slots=True)
class OpeningProgress:
    """Tables that are made again up to the job that was the newest when the warehouse was opened, and flows that are built."""

    job: JobId
    done: int
    of: int
    unbuilt: tuple[str, ...] = ()
    """Flows that are not built yet."""


class Background:
    """Works from its construction until `close`."""

    def __init__(
        self,
        scheduler: Scheduler,
        upkeep: Upkeep,
        leases: Leases,
        history: History,
        subscriptions: Subscriptions,
        advisor: Advisor,
        dividing: Dividing,
    ) -> None:
        self._scheduler = scheduler
        self._subscriptions = subscriptions
        self._advisor = advisor
        self._upkeep = upkeep
        self._dividing = dividing
        self._leases = leases
        self._history = history
        self._woken = threading.Event()
        self._closed = False
        self._seen_executions = -1
        self._oldest_at: datetime | None = None
        self._minute_due = 0.0
        self._not_before = 0.0
        self.actions: deque[Action] = deque(maxlen=_RECENT)
        names = scheduler.catalog.names()
        self._behind = [name for name in names if scheduler.reader.through(name) < scheduler.opened_at]
        self._opening = len(self._behind)
        for source in scheduler.sources.values():
            source.log.on_full(self._woken.set)
        self._thread = threading.Thread(target=self._loop, name="background", daemon=True)
        self._thread.start()

    @property
    def opening(self) -> OpeningProgress | None:
        """How far the tables are that lagged behind, or were to be built, when the warehouse was opened; None once all are there."""
        behind, unbuilt = len(self._behind), tuple(self._scheduler.flows.unbuilt.values())
        if not behind and not unbuilt:
            return None
        return OpeningProgress(self._scheduler.opened_at, self._opening - behind, self._opening, unbuilt)

    def close(self) -> None:
        self._closed = True
        self._woken.set()
        self._scheduler.signal.notify()
        self._thread.join()

    def _queries(self) -> int:
        """Queries that wait or are read."""
        return self._scheduler.waiting + self._scheduler.reader.reads.running

    def _is_busy(self) -> bool:
        """Whether work that nobody waits for should rest; on closing, somebody waits for all of it."""
        return not self._closed and self._queries() > 0

    def _loop(self) -> None:
        while True:
            self._woken.wait(_TICK_SECONDS)
            self._woken.clear()
            self._attempt(self._history.write)
            if self._closed:
                return
            steps = (
                self._flush_marks,
                self._scheduler.platforms.follow,
                self._leases.end_expired,
                self._make_again,
                self._tidy,
                self._run_minutely,
                self._system_job,
                self._materialize,
                self._advisor.review_if_due,
            )
            for step in steps:
                self._attempt(step)

    def _attempt(self, step: Callable[[], object]) -> None:
        try:
            step()
        except HeadgateError as error:
            _LOGGER.warning("background work failed and is tried again: %s", error)
        except Exception:
            _LOGGER.exception("background work failed and is tried again")

    def _flush_marks(self) -> None:
        """Has it survive a power failure, too, how far the logs of programs reach: a commit does not wait for that."""
        for source in self._scheduler.sources.values():
            source.log.flush_mark()

    def _make_again(self) -> None:
        """Brings table after table to the job that was the newest on opening, while no query waits or is read."""
        scheduler = self._scheduler
        while self._behind and not self._closed and not self._is_busy():
            name = self._behind[0]
            try:
                if scheduler.catalog.find(name) is not None:
                    scheduler.make_again([name])
            finally:
                self._behind.pop(0)

    def _tidy(self) -> None:
        executions = self._scheduler.executor.executions
        if executions == self._seen_executions:
            return
        self._seen_executions = executions
        self._upkeep.arrange()
        self._upkeep.release()

    def _run_minutely(self) -> None:
        """What is done once a minute."""
        if time.monotonic() < self._minute_due:
            return
        self._minute_due = time.monotonic() + _MINUTE_SECONDS
        self._scheduler.executor.ways.keep()
        self._compare_clocks()
        for table, count in self._dividing.choose():
            self._record("ranges", f"{table} was cut into {count}: bounds chosen automatically")

    def _compare_clocks(self) -> None:
        """Asks each source for its time: receipts tell it also where no query touched the source."""
        for name, source in self._scheduler.sources.items():
            if source.unopened is None:
                try:
                    self._scheduler.receipts.clocks[name] = source.sample()
                except HeadgateError as error:
                    _LOGGER.info("the clock of %s could not be compared: %s", name, error)

    def _system_job(self) -> None:
        scheduler, project = self._scheduler, self._scheduler.settings.current
        limits, settings = project.limits, project.background
        activity = Workload(scheduler.waiting, scheduler.asked_at, scheduler.backlog.unprocessed_bytes(), self._goals())
        idle_after = settings.idle_after if settings.system_jobs else _NEVER
        wanted = system_job(activity, SystemJobSettings(limits.stream_bytes, idle_after), scheduler.clock.now())
        full = any(source.log.over_limit for source in scheduler.sources.values())
        if wanted is None and self._upkeep.held_bytes > limits.overlay_bytes and self._lagging():
            self._run(SystemJob("tables that lag behind hold back too much"))
        elif wanted is not None and time.monotonic() >= self._not_before:
            self._run(wanted)
        elif self._upkeep.lead_bytes > limits.overlay_bytes // 2:
            self._level_ranges(limits.overlay_bytes // 2)
        if full and self._upkeep.is_behind:
            # Only what is materialized can leave the stream, and until then writers wait, perhaps queries for them.
            self._upkeep.release()
            self._upkeep.materialize(self._upkeep.giving_way(lambda: False, scheduler.signal))

    def _level_ranges(self, most_bytes: int) -> None:
        """Brings the slowest ranges to the job of the others, until what lags behind holds back at most so many bytes."""
        scheduler, upkeep = self._scheduler, self._upkeep
        held = upkeep.lead_bytes
        while upkeep.lead_bytes > most_bytes and not self._closed:
            with scheduler.journal.lock:
                stage, ranges = upkeep.slowest_ranges()
                if stage is None:
                    return
                table, before = stage.target, stage.target.throughs
                keys = table.range_map.keys_of(ranges)
            self._record(
                "ranges brought forward", f"{len(ranges)} of {table.name}: they hold back much of {held:,} bytes"
            )
            scheduler.executor.settle([stage.name], max(before), {stage.name: keys})
            if table.throughs == before:
                return

    def _lagging(self) -> bool:
        newest = self._scheduler.journal.chain.newest
        stages = self._scheduler.flows.stages()
        return any(job < newest for stage in stages for job in stage.target.known_throughs)

    def _run(self, wanted: SystemJob) -> None:
        scheduler = self._scheduler
        every = (stage.name for stage in scheduler.flows.stages())
        tables = tuple(every if wanted.tables is None else wanted.tables)
        self._record("system job", wanted.reason)
        now = scheduler.clock.now()
        sources = scheduler.flows.sources_of(tables)
        need = Need(scheduler.number(), sources, now, now + _PATIENCE, frozenset(tables))
        # A source that is away is not asked again at once.
        self._not_before = time.monotonic() + _PATIENCE.total_seconds()
        job = scheduler.cutter.submit(need).result().job
        self._not_before = 0.0
        if wanted.tables is not None:
            scheduler.executor.settle(tables, job)
            return
        # Nobody waits for all of them: a query that comes meanwhile waits for a few stages at most.
        give_way = self._upkeep.giving_way(self._is_busy, scheduler.signal)
        for first in range(0, len(tables), _CAUGHT_UP_AT_ONCE):
            give_way.rest()
            scheduler.executor.settle(tables[first : first + _CAUGHT_UP_AT_ONCE], job)

    def _goals(self) -> list[TableGoal]:
        scheduler, found = self._scheduler, []
        for table in scheduler.catalog.names():
            followed, lag = self._subscriptions.goal(table), scheduler.flows.target_lag(table)
            wanted = min((each for each in (followed, lag) if each is not None), default=None)
            if wanted is not None:
                as_of = scheduler.backlog.as_of(table)
                if as_of is not None:
                    found.append(TableGoal(table, wanted, as_of, _TICK, wanted != lag))
        return found

    def _materialize(self) -> None:
        scheduler, project = self._scheduler, self._scheduler.settings.current
        held, now = self._upkeep.unmaterialized_bytes, scheduler.clock.now()
        if not held:
            self._oldest_at = None
            return
        self._oldest_at = self._oldest_at or now
        settings = project.background
        wanted = MaterializationSettings(project.limits.overlay_bytes, settings.oldest_changes, settings.idle_after)
        waiting = self._queries()
        overlays = Overlays(held, self._oldest_at, waiting, scheduler.asked_at, self._upkeep.has_files)
        reason = materialization(overlays, wanted, now)
        if reason is not None:
            self._record("materialization", reason)
            self._upkeep.materialize(self._upkeep.giving_way(self._is_busy, scheduler.signal))
            self._oldest_at = None

    def _record(self, what: str, reason: str) -> None:
        self.actions.append(Action(self._scheduler.clock.now(), what, reason))
        _LOGGER.info("%s: %s", what, reason)
