"""The warehouse at one moment: its jobs, tables and sources, who waits, and what was done without being asked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from headgate.delta.changes import BEGINNING, NO_JOB, JobId
from headgate.errors import HeadgateError
from headgate.runtime.stages.ways import Way
from headgate.runtime.upkeep.upkeep import Upkeep
from headgate.scheduling.background import Action, OpeningProgress
from headgate.scheduling.expectations import ExpectationStatus, Violations
from headgate.scheduling.leases import Leases
from headgate.scheduling.scaling import ScalingStatus
from headgate.scheduling.scheduler import Scheduler


@dataclass(frozen=True, slots=True)
class OpenJob:
    """The one job that is open: what was captured since the last cut belongs to it."""

    id: JobId
    rows: int
    transactions: int


@dataclass(frozen=True, slots=True)
class ClosedJob:
    """A job that some table has not reached."""

    id: JobId
    data_timestamp: datetime
    behind: tuple[str, ...]
    """The tables that have not reached it."""


@dataclass(frozen=True, slots=True)
class TableStatus:
    name: str
    through: JobId
    data_timestamp: datetime | None
    lag: timedelta | None
    target_lag: timedelta | None
    failure: str | None
    expectations: tuple[ExpectationStatus, ...] = ()
    """Its constraints, and how many rows violate them."""
    ranges: Mapping[str, JobId] = field(default_factory=dict)
    """The job of each key range, where there are several."""
    missing: Mapping[str, str] = field(default_factory=dict)
    """By key range why nobody can read it now."""


@dataclass(frozen=True, slots=True)
class WarehouseStatus:
    at: datetime
    open: OpenJob
    closed: tuple[ClosedJob, ...]
    complete: JobId
    """The newest job that every table has reached."""
    tables: tuple[TableStatus, ...]
    captured: Mapping[str, datetime]
    """Per source the instant up to which everything acknowledged is in its log."""
    waiting: int
    """Queries that wait for a job to be closed."""
    answers: int
    """Answers that hold a snapshot."""
    executions: int
    """Batches that stages have run since the warehouse was opened."""
    held_bytes: int
    """Changes that tables hold beside their Delta files."""
    actions: tuple[Action, ...]
    """What was done without a query, the latest last."""
    spark_lost: str | None = None
    """Why Spark cannot be used any more."""
    opening: OpeningProgress | None = None
    """Tables that are made again, and flows that are built, after the opening; None once all are there."""
    scaling: ScalingStatus | None = None
    """The sizes of the parts; None where they do not change."""
    ways: Mapping[str, int] = field(default_factory=dict)
    """How many batches with changes were narrow, wide or recomputed."""
    kept_answers: int = 0
    """Answers that are moved on from job to job."""
    kept_answers_bytes: int = 0
    answers_from_kept: int = 0
    """Answers that came from kept ones since the warehouse was opened."""
    subscriptions: int = 0
    """Subscriptions that are open."""


def observe(
    scheduler: Scheduler,
    upkeep: Upkeep,
    leases: Leases,
    subscriptions: int,
    actions: Iterable[Action],
    damaged: Mapping[str, HeadgateError],
    spark_lost: str | None,
    opening: OpeningProgress | None,
    scaling: ScalingStatus | None,
    violations: Violations,
) -> WarehouseStatus:
    """Everything at this moment; `damaged` tables cannot be read."""
    now, chain = scheduler.clock.now(), scheduler.journal.chain
    newest = chain.newest
    failures = scheduler.executor.failures
    tables = []
    for name in scheduler.catalog.names():
        needed = scheduler.flows.needed([name])
        through = scheduler.reader.through(name)
        at = scheduler.backlog.as_of(name)
        at = None if at == BEGINNING else at
        failure = next((_told(failures[stage.name]) for stage in needed if stage.name in failures), None)
        lag = None if at is None else max(timedelta(0), now - at)
        target = scheduler.flows.target_lag(name)
        ranges = scheduler.reader.ranges(name)
        missing = scheduler.reader.missing(name)
        tables.append(TableStatus(name, through, at, lag, target, failure, violations.status(name), ranges, missing))
    complete = min((table.through for table in tables), default=newest)
    closed = [
        ClosedJob(
            JobId(job),
            chain.get(JobId(job)).data_timestamp,
            tuple(table.name for table in tables if table.through < job),
        )
        for job in range(complete + 1, newest + 1)
    ]
    tables += [TableStatus(name, NO_JOB, None, None, None, str(error)) for name, error in damaged.items()]
    pending = [
        transaction
        for name, source in scheduler.sources.items()
        for transaction in source.log.transactions(chain.position(name, newest), source.log.durable)
    ]
    rows = sum(sum(transaction.rows.values()) for transaction in pending)
    kept = scheduler.reader.kept
    return WarehouseStatus(
        at=now,
        open=OpenJob(JobId(newest + 1), rows, len(pending)),
        closed=tuple(closed),
        complete=complete,
        tables=tuple(tables),
        captured={name: source.captured.at for name, source in scheduler.sources.items()},
        waiting=len(scheduler.cutter.waiting),
        answers=len(leases),
        subscriptions=subscriptions,
        executions=scheduler.executor.executions,
        ways={str(way): scheduler.executor.taken[way] for way in Way},
        held_bytes=upkeep.held_bytes,
        kept_answers=len(kept.kept),
        kept_answers_bytes=sum(answer.bytes for answer in kept.kept),
        answers_from_kept=kept.served,
        actions=tuple(actions),
        spark_lost=spark_lost,
        opening=opening,
        scaling=scaling,
    )


def _told(failure: BaseException) -> str:
    """What failed and where; what to do about it is among the warehouse's failures."""
    if not isinstance(failure, HeadgateError):
        return str(failure)
    return failure.what if failure.where is None else f"{failure.where}: {failure.what}"
