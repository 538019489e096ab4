"""The workload scheduler: turns a query's bound into reuse, join or close, and waits for the tables it needs.

reuse   a snapshot that is complete and fresh enough: nothing is touched
join    a closed job that is fresh enough and not complete yet: its tables are brought there, no more
close   the open job is closed at what the sources have acknowledged by now (`cutter`), then joined
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime

from headgate.capture.source import Source
from headgate.clock import Clock
from headgate.config.live import LiveProject
from headgate.delta.changes import BEGINNING, NO_JOB, JobId
from headgate.errors import Cancelled, FlowFailed, HeadgateError, HistoryLost, SnapshotGone, TooStale, TransientError
from headgate.ranges.key_set import KeySet
from headgate.runtime.execution.executor import Executor
from headgate.runtime.flows.flow_set import NO_KEYS, FlowSet
from headgate.runtime.placing.platforms import Platforms, Serving
from headgate.runtime.reading.narrowing import WHOLE, KeysOutdated, Narrowed
from headgate.runtime.reading.reader import Reader
from headgate.runtime.reading.snapshot import Snapshot
from headgate.runtime.signal import Signal
from headgate.runtime.sources.loading import Loads
from headgate.runtime.sources.sources import CaptureTimedOut
from headgate.runtime.stages.replica_stage import ReplicaStage
from headgate.runtime.tables.catalog import WarehouseCatalog
from headgate.runtime.tables.journal import Journal
from headgate.scheduling.backlog import Backlog
from headgate.scheduling.bound import Bound
from headgate.scheduling.cutter import CutResult, Cutter
from headgate.scheduling.partial import loaded_part
from headgate.scheduling.pending_query import PendingQuery
from headgate.scheduling.policy import CloseJob, JoinJob, Offer, ReuseJob, choose
from headgate.scheduling.receipt import Receipt
from headgate.scheduling.receipt_maker import ReceiptMaker


@dataclass
class Scheduler:
    """Finds snapshots for queries; its methods may be called from any thread."""

    settings: LiveProject
    clock: Clock
    journal: Journal
    catalog: WarehouseCatalog
    flows: FlowSet
    reader: Reader
    executor: Executor
    cutter: Cutter
    sources: Mapping[str, Source]
    signal: Signal
    platforms: Platforms
    loads: Loads
    asked_at: datetime = BEGINNING
    """When the last query came."""
    waiting: int = 0
    """Queries on their way to a snapshot."""
    _numbers: itertools.count[int] = field(default_factory=itertools.count)
    _counting: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.asked_at = self.clock.now()
        self.backlog = Backlog(self.journal, self.flows, self.reader, self.sources)
        self.receipts = ReceiptMaker(self.journal, self.flows, self.sources)
        self.opened_at = self.journal.chain.newest
        """The job that was the newest when the warehouse was opened."""

    def make_again(
        self,
        tables: Iterable[str],
        upto: JobId | None = None,
        keys: Mapping[str, KeySet] = NO_KEYS,
        is_cancelled: Callable[[], bool] = lambda: False,
    ) -> None:
        """Brings tables, or those of their ranges that have keys, as far as they get to a closed job: by default the one that
        was the newest on opening, at which they may have been before."""
        job = self.opened_at if upto is None else upto
        behind = [table for table in tables if self.reader.through(table, keys) < job]
        if behind:
            self.executor.settle(behind, job, keys, is_cancelled)

    def bring(
        self,
        tables: Collection[str],
        job: JobId,
        is_cancelled: Callable[[], bool],
        keys: Mapping[str, KeySet] = NO_KEYS,
    ) -> None:
        """Brings tables that are behind a closed job to it, however long that takes."""
        behind = [table for table in tables if self.reader.through(table, keys) < job]
        if not behind:
            return
        self.executor.want(behind, job, keys)
        self._wait_until(lambda: self.executor.arrived(behind, job, keys), None, is_cancelled)

    def wait_until_built(
        self, tables: Iterable[str], until: float | None, is_cancelled: Callable[[], bool] = lambda: False
    ) -> bool:
        """Waits for those of the tables that opening has left to be built; gives whether there were any.

        `until` is on the monotonic clock. A flow that cannot be built is no longer waited for: who reads it hears why.
        """
        names = {table.casefold() for table in tables}
        if names.isdisjoint(self.flows.unbuilt):
            return False
        if not self._wait_until(lambda: names.isdisjoint(self.flows.unbuilt), until, is_cancelled):
            waiting = [name for place, name in self.flows.unbuilt.items() if place in names]
            raise TooStale(
                f"{', '.join(waiting)} could not be built in time: the warehouse was opened a moment ago",
                hint=f"ask again: {len(self.flows.unbuilt)} flows are still to be built, `headgate status` names them",
            )
        return True

    def number(self) -> int:
        """A number that no other need has."""
        return next(self._numbers)

    def snapshot(
        self,
        tables: tuple[str, ...],
        bound: Bound,
        floor: JobId,
        is_cancelled: Callable[[], bool],
        narrow: Callable[[], Narrowed] = lambda: WHOLE,
    ) -> tuple[Snapshot, Receipt]:
        """A snapshot of the tables, or of those keys that are read, that keeps the bound, pinned, and its receipt.

        `narrow` tells the keys; it is asked again when flows have changed meanwhile.

        The receipt is made with the choice, in one step: jobs that are closed while the answer is read change nothing in it.
        """
        query = PendingQuery(
            tables,
            self.flows.sources_of(tables),
            bound,
            floor,
            self.clock.now(),
            time.monotonic(),
            is_cancelled,
            self.number(),
        )
        with self._counted(query):
            while True:
                narrowed = narrow()
                query.keys = narrowed.keys
                self._freshen(query)
                try:
                    with self.journal.lock:
                        snapshot = self.reader.pin(tables, None, replace(narrowed, keys=query.keys))
                        as_of = {name: self.journal.chain.as_of(snapshot.job, name) for name in sorted(query.sources)}
                except KeysOutdated:
                    continue
                except SnapshotGone:
                    # Jobs went on meanwhile and one of the tables let this one go.
                    if query.missed is not None:
                        raise _nothing_to_serve(query) from None
                    continue
                if query.missed is None:
                    since = query.need.since
                    if not tables or (snapshot.job >= query.least and all(at >= since for at in as_of.values())):
                        return snapshot, self.receipts.receipt(query, snapshot.job, as_of)
                    # A table was built anew meanwhile, and stands at an older job.
                    snapshot.release()
                    continue
                if query.sources and snapshot.job == NO_JOB:
                    # Before the first job there is nothing, which is no state of any source.
                    snapshot.release()
                    raise _nothing_to_serve(query)
                if snapshot.job < floor:
                    query.missed += f"; the session has seen job {floor} already, this is job {snapshot.job}"
                return snapshot, self.receipts.receipt(query, snapshot.job, as_of)

    def decision(
        self, tables: tuple[str, ...], bound: Bound, floor: JobId, keys: Mapping[str, KeySet] = NO_KEYS
    ) -> str:
        """What a query for the tables would do now, and why; nothing is done."""
        arrived, began = self.clock.now(), time.monotonic()
        sources = self.flows.sources_of(tables)
        query = PendingQuery(tables, sources, bound, floor, arrived, began, lambda: False, self.number(), keys)
        choice = choose(query.need, floor, self._offers(query))
        word = {ReuseJob: "reuse", JoinJob: "join", CloseJob: "close"}[type(choice)]
        return f"{word}: {choice.reason}"

    def reuse_shipped(self, serving: Serving, bound: Bound, floor: JobId) -> Receipt | None:
        """The receipt of the job that a platform is at, if that keeps the bound: then nothing is to be waited for."""
        job = serving.platform.shipper.shipped
        if job is None or job < floor:
            return None
        now = self.clock.now()
        since = bound.since(now) or BEGINNING
        with self.journal.lock:
            chain = self.journal.chain
            if not chain.oldest <= job <= chain.newest:
                return None
            as_of = {name: chain.as_of(job, name) for name in sorted(serving.sources)}
            if any(at < since for at in as_of.values()):
                return None
        query = PendingQuery(
            serving.tables, serving.sources, bound, floor, now, time.monotonic(), lambda: False, self.number()
        )
        query.decision = f"reused job {job}, which {serving.platform.name} is at and which is fresh enough"
        query.shared_cut = bound.max_staleness is not None
        self.asked_at = now
        return self.receipts.receipt(query, job, as_of)

    def meets(self, receipt: Receipt, floor: JobId, job: JobId) -> bool:
        """Whether a job keeps what the receipt's query was promised; one that was not kept is no worse than the receipt's."""
        since = receipt.bound.since(receipt.arrived_at) or BEGINNING
        with self.journal.lock:
            chain = self.journal.chain
            if not chain.oldest <= job <= chain.newest or job < floor:
                return False
            if receipt.missed or job == receipt.job:
                return job >= receipt.job
            return all(chain.as_of(job, source.name) >= since for source in receipt.sources)

    @contextmanager
    def _counted(self, query: PendingQuery) -> Iterator[None]:
        with self._counting:
            self.asked_at = query.arrived_at
            self.waiting += 1
        self.signal.notify()
        try:
            yield
        finally:
            with self._counting:
                self.waiting -= 1
            self.signal.notify()

    def _freshen(self, query: PendingQuery) -> None:
        """Brings the query's tables where its bound wants them, or as far as its deadline lets it."""
        query.begin_anew()
        try:
            self._await_rows(query)
            job = self._job(query)
            if job is not None:
                self._bring(query, job)
        except (_DeadlinePassed, HeadgateError) as problem:
            if not self._may_serve(query, problem):
                raise self._too_stale(query, problem) from None
            if isinstance(problem, (_DeadlinePassed, CaptureTimedOut)):
                trouble = self._trouble(query)
                query.missed = f"the deadline passed{'' if trouble is None else f': {trouble.what}'}"
            else:
                query.missed = problem.what
        if query.left_out is not None:
            query.missed = "; ".join(filter(None, (str(query.left_out), query.missed)))

    def _await_rows(self, query: PendingQuery) -> None:
        """Waits until the query's source tables have their first rows; it is then answered at a job that has them."""
        needed = self._rows_needed(query)

        def lacking() -> dict[str, KeySet]:
            with self.journal.lock:
                found = {stage: keys for stage, keys in needed if stage.lacks(keys)}
            for stage in found:
                if stage.by_range and (failure := stage.stopped) is not None:
                    raise failure
            return {stage.name: keys for stage, keys in found.items()}

        if unloaded := lacking():
            began = time.monotonic()
            with self.loads.awaited(unloaded):
                if not self._leave_out_unloaded(query, lambda: not lacking()):
                    self._wait(query, lambda: not lacking())
            needed = self._rows_needed(query)
            took = time.monotonic() - began
            query.queue += took
            query.notes.append(f"waited {took:.1f} s for the first rows of {', '.join(unloaded)}")
        with self.journal.lock:
            begins = [stage.has_from(keys, self.journal.chain) for stage, keys in needed]
        query.begins = max((job for job in begins if job is not None), default=NO_JOB)

    def _leave_out_unloaded(self, query: PendingQuery, is_loaded: Callable[[], bool]) -> bool:
        """Waits half of the time of a query that takes what there is; then it leaves out the ranges that are still to be loaded, and
        has the other half for making the others fresh. Gives whether it did."""
        if query.bound.when_stale != "serve" or query.deadline is None:
            return False
        half = (time.monotonic() + query.deadline) / 2
        if self._wait_until(is_loaded, half, query.is_cancelled):
            return False
        with self.journal.lock:
            query.left_out = loaded_part(self.flows, query.tables, query.keys)
        if query.left_out is not None:
            query.keys = query.left_out.keys
        return query.left_out is not None

    def _rows_needed(self, query: PendingQuery) -> list[tuple[ReplicaStage, KeySet]]:
        """The source tables that a query needs, with the keys of them."""
        with self.journal.lock:
            return [
                (stage, stage.target.range_map.keys_of(ranges))
                for stage, ranges in self.flows.needed_ranges(query.tables, query.keys)
                if isinstance(stage, ReplicaStage)
            ]

    def _may_serve(self, query: PendingQuery, problem: Exception) -> bool:
        """Whether what there is answers the query although it could not be made fresher."""
        if isinstance(problem, Cancelled) or query.bound.when_stale != "serve":
            return False
        passing = isinstance(problem, (_DeadlinePassed, TransientError, FlowFailed, HistoryLost))
        return passing or any(problem is self.sources[name].status.trouble for name in query.sources)

    def _trouble(self, query: PendingQuery) -> HeadgateError | None:
        """What keeps one of the query's sources from delivering, or one of its tables from taking it."""
        found = [
            self.loads.missing({stage.name: keys for stage, keys in self._rows_needed(query)}),
            *(self.sources[name].status.trouble for name in sorted(query.sources)),
            *self.executor.failures_of(query.tables, query.keys),
        ]
        return next((each for each in found if isinstance(each, HeadgateError)), None)

    def _job(self, query: PendingQuery) -> JobId | None:
        """The job to bring the tables to; None when they are where they must be."""
        choice = choose(query.need, query.least, self._offers(query))
        query.decision = (
            choice.reason if query.begins <= query.floor else "first rows were loaded, which no job has yet"
        )
        match choice:
            case ReuseJob():
                query.shared_cut = query.bound.max_staleness is not None
                return None
            case JoinJob(job=job):
                query.shared_cut = True
                return job
            case CloseJob():
                closed = self._closed(query)
                while closed.job < query.begins:
                    # Another table of the source that is read whole again holds cuts back.
                    self._wait(query, lambda: self._can_be_cut(query))
                    closed = self._closed(query)
                query.closed = closed
                query.shared_cut = closed.others > 0
                if not closed.is_new:
                    query.decision = f"nothing was committed since job {closed.job} was closed"
                return max(closed.job, query.least)

    def _can_be_cut(self, query: PendingQuery) -> bool:
        """Whether one of the query's sources has something that no job holds and that a job may hold now."""
        chain = self.journal.chain
        return any(self.sources[name].cut() > chain.position(name, chain.newest) for name in query.sources)

    def _offers(self, query: PendingQuery) -> list[Offer]:
        """The jobs that could serve: the newest that all tables have reached, and the closed ones after it.

        A table that others have left far behind has to catch up first: they no longer hold the job that it is at.
        """
        with self.journal.lock:
            chain = self.journal.chain
            complete = min((self.reader.through(table, query.keys) for table in query.tables), default=chain.newest)
            jobs = range(max(complete, self.reader.oldest(query.tables, query.keys)), chain.newest + 1)
            return [
                Offer(JobId(job), {name: chain.as_of(JobId(job), name) for name in query.sources}, job == complete)
                for job in jobs
            ]

    def _closed(self, query: PendingQuery) -> CutResult:
        submitted = time.monotonic()
        future = self.cutter.submit(query.need)
        try:
            closed = self._result(query, future)
        finally:
            future.cancel()
        self.receipts.clocks.update(closed.samples)
        query.queue += max(0.0, closed.began - submitted)
        query.capture += closed.captured - max(closed.began, submitted)
        return closed

    def _result(self, query: PendingQuery, future: Future[CutResult]) -> CutResult:
        self._wait(query, future.done)
        try:
            return future.result()
        except CancelledError:
            raise Cancelled("the query was cancelled") from None

    def _bring(self, query: PendingQuery, job: JobId) -> None:
        began = time.monotonic()
        before = job
        with self.journal.lock:
            for stage, ranges in self.flows.needed_ranges(query.tables, query.keys):
                jobs = [stage.target.throughs[number] for number in ranges]
                before = min([before, *jobs])
                query.brought[stage.name] = sum(through < job for through in jobs)
        if before < job:
            query.jobs = job - before
            query.rows = self._rows(query, before, job)
        self.executor.want(query.tables, job, query.keys)
        self._wait(query, lambda: self.executor.arrived(query.tables, job, query.keys))
        took = time.monotonic() - began
        query.spark += took
        if query.closed is not None and query.closed.is_new:
            self.cutter.batch_took(took)

    def _rows(self, query: PendingQuery, after: JobId, upto: JobId) -> int:
        """Source changes that the jobs hold of the tables' sources."""
        chain = self.journal.chain
        return sum(
            self.sources[name].log.rows_held(chain.position(name, after), chain.position(name, upto))
            for name in query.sources
        )

    def _wait(self, query: PendingQuery, holds: Callable[[], bool]) -> None:
        if not self._wait_until(holds, query.deadline, query.is_cancelled):
            raise _DeadlinePassed

    def _wait_until(self, holds: Callable[[], bool], until: float | None, is_cancelled: Callable[[], bool]) -> bool:
        """The one place where a query waits: until `holds()`, it is cancelled, or `until`, on the monotonic clock, has passed."""

        def looked() -> bool:
            if is_cancelled():
                raise Cancelled("the query was cancelled")
            return holds()

        return self.signal.wait_until(looked, until)

    def _too_stale(self, query: PendingQuery, problem: Exception) -> Exception:
        # Capture, too, waits no longer than the deadline.
        if query.deadline is None or not isinstance(problem, (_DeadlinePassed, CaptureTimedOut)):
            return problem
        with self.journal.lock:
            complete = min((self.reader.through(table, query.keys) for table in query.tables), default=JobId(0))
            as_of = {name: self.journal.chain.as_of(complete, name) for name in query.sources}
        slowest = min(as_of, key=as_of.__getitem__, default=None)
        gap = (
            "" if slowest is None else f", the newest snapshot is {_age(query.arrived_at, as_of[slowest])} ({slowest})"
        )
        if complete < query.floor:
            gap += f", the session has seen job {query.floor} already"
        assert query.bound.deadline is not None
        age = query.bound.max_staleness
        wanted = "answer" if age is None else f"answer at most {age.total_seconds():g} s old"
        trouble = self._trouble(query)
        why = "" if trouble is None else f": {trouble.what}"
        first = f"{trouble.advice}; " if trouble is not None and trouble.advice else ""
        return TooStale(
            f"no {wanted} could be made within {query.bound.deadline.total_seconds():g} s{gap}{why}",
            hint=f"{first}allow a longer deadline or a larger max_staleness, or say WHEN STALE SERVE to accept a stale answer",
        )


def _nothing_to_serve(query: PendingQuery) -> TooStale:
    return TooStale(
        f"there is no snapshot that all of {', '.join(query.tables)} hold, and a newer one could not be made: {query.missed}",
        hint="ask again: the tables that lag behind are being processed; a larger retention: {jobs: …} holds snapshots longer",
    )


class _DeadlinePassed(Exception):
    pass


def _age(now: datetime, at: datetime) -> str:
    return "of unknown age" if at == BEGINNING else f"{max(0.0, (now - at).total_seconds()):.3g} s old"
