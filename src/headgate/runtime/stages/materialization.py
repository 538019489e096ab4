"""Folding overlays into Delta tables: data files of all tables first, then each table's commit.

Nothing counts before the caller has recorded the versions in the ledger: a crash in between leaves commits that the
next opening undoes and files that nothing names. Only the owner commits or undoes what others committed: a former owner
that was paused must not undo its successor's work, so `verify` is asked before each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

from pyspark.sql import SparkSession

from headgate.delta.changes import JobId
from headgate.runtime.spark.gates import TaskGate
from headgate.runtime.spark.giving_way import GiveWay
from headgate.runtime.spark.sessions import SparkSessions
from headgate.runtime.stages.replica_stage import ReplicaStage
from headgate.runtime.stages.stage import Stage, tables_of
from headgate.runtime.tables.jobs import JobChain
from headgate.runtime.tables.journal import Entries, Journal
from headgate.runtime.tables.records import CHECKPOINT
from headgate.runtime.tables.tables import Tables
from headgate.warehouse.folding import Prepared
from headgate.warehouse.store import ForeignCommit, Verify
from headgate.warehouse.versioned import VersionedTable


def durable_jobs(
    stages: Sequence[Stage], held: Mapping[str, JobId], chain: JobChain
) -> list[tuple[VersionedTable, JobId]]:
    """Every table of the stages with the job to materialize it at; inputs come before what reads them.

    That is its newest job, but never past a stage that lags behind and reads it: on opening, the stage goes on from its
    own job and must find its inputs there. The same holds for flows that are being built over tables `held` at a job.
    Missing ranges keep nothing back: they are made anew, at a job after the table's. A view some of whose ranges are not known
    yet at its job is not materialized at all, so that Delta clients see no part of it; all its ranges are made anew on opening.
    """
    needed = dict(held)
    found: list[tuple[VersionedTable, JobId]] = []
    for stage in reversed(stages):
        table, missing = stage.target, stage.target.missing
        job = min(table.level, needed.get(stage.name, table.level))
        if missing:
            job = min(job, table.foldable(chain))
        unknown = not isinstance(stage, ReplicaStage) and any(gap.is_first for gap in table.gaps.lasting(job))
        if unknown:
            job = table.main.base_through
        if len(missing) < len(table.ranges) and not unknown:
            for name in stage.inputs:
                needed[name] = min(job, needed.get(name, job))
        found += [(table, job) for stored in tables_of(stage) for table in stored.physical()]
    return found[::-1]


@dataclass(frozen=True)
class Materializer:
    """Makes tables durable."""

    journal: Journal
    tables: Tables
    sessions: SparkSessions

    def commit(
        self, tables: Sequence[tuple[VersionedTable, JobId]], *, give_way: GiveWay | None = None
    ) -> list[tuple[VersionedTable, tuple[int, JobId]]]:
        """Commits each table at its job, which counts when a checkpoint of it is recorded; gives versions and jobs."""
        self.journal.settle()
        session = self.sessions.folding(gives_way=give_way is not None)
        return materialize(tables, session, self.journal.verify, give_way, self.sessions.gates["load"])

    def checkpoint(
        self,
        tables: Sequence[tuple[VersionedTable, JobId]],
        more: Entries = (),
        *,
        give_way: GiveWay | None = None,
    ) -> None:
        """Commits each table at its job and records all their versions at once, together with `more`."""
        versions = self.commit(tables, give_way=give_way)
        body = {"tables": {self.tables.path(table): list(found) for table, found in versions}}
        self.journal.record([*more, (CHECKPOINT, body)])


def materialize(
    tables: Sequence[tuple[VersionedTable, JobId]],
    session: SparkSession,
    verify: Verify,
    give_way: GiveWay | None = None,
    gate: TaskGate | None = None,
) -> list[tuple[VersionedTable, tuple[int, JobId]]]:
    """Commits each table at its job, unless it is there already; gives the versions and their jobs.

    When it fails, tables that were committed stay so; the files of the others go.
    """
    verify()
    waiting: list[tuple[VersionedTable, Prepared]] = []
    try:
        for table, job in tables:
            if job > table.base_through:
                with nullcontext() if gate is None else gate.taken():
                    waiting.append((table, _prepared(table, job, session, give_way)))
        while waiting:
            _commit(*waiting[0], verify)
            waiting.pop(0)
    finally:
        for table, prepared in waiting:
            table.abandon(prepared)
    return [(table, (table.version, table.base_through)) for table, _ in tables]


def _prepared(table: VersionedTable, job: JobId, session: SparkSession, give_way: GiveWay | None) -> Prepared:
    if give_way is None:
        return table.prepare(session, job)
    return give_way.run(lambda: table.prepare(session, job, give_way.rest))


def _commit(table: VersionedTable, prepared: Prepared, verify: Verify) -> None:
    verify()
    try:
        table.commit(prepared)
    except ForeignCommit:
        verify()
        table.repair()
        table.commit(prepared)
