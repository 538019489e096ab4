"""What the parts of an open warehouse share: the ledger and its records, the jobs, the tables, the Spark sessions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import RLock
from typing import Any

from headgate.clock import Clock
from headgate.config.settings import Project
from headgate.delta.changes import JobId
from headgate.runtime.spark.scratch import Scratch
from headgate.runtime.spark.sessions import SparkSessions
from headgate.runtime.stages.batch import Batch
from headgate.runtime.stages.materialization import materialize
from headgate.runtime.tables.catalog import WarehouseCatalog
from headgate.runtime.tables.jobs import JobChain
from headgate.runtime.tables.records import CHECKPOINT, JOB_CLOSED, SETTING, Records
from headgate.runtime.tables.stored import KeptViews
from headgate.runtime.tables.tables import Tables
from headgate.warehouse.ledger import Ledger, LedgerEntry
from headgate.warehouse.versioned import VersionedTable

REMEMBERED_JOBS = 1_000
"""Closed jobs whose cuts and times can be asked for, at least."""
REMEMBERED_SETTINGS = 1_000
"""Changes of settings that can be asked for, beside those that hold."""

Entries = Sequence[tuple[str, Mapping[str, Any]]]


def _nothing() -> None:
    pass


@dataclass
class State:
    project: Project
    clock: Clock
    ledger: Ledger
    sessions: SparkSessions
    tables: Tables
    catalog: WarehouseCatalog
    records: Records
    scratch: Scratch
    chain: JobChain = field(default_factory=JobChain)
    kept: KeptViews = field(default_factory=KeptViews)
    lock: RLock = field(default_factory=RLock)
    """For short steps: closing a job, choosing and pinning a snapshot, letting go of one, adding to the ledger."""
    sync_streams: Callable[[], None] = _nothing
    """Makes the transactions of all closed jobs durable."""
    _deferred: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)

    def record(self, entries: Entries) -> None:
        """Writes entries to the ledger, those that were deferred first; what they say counts from then on."""
        with self.lock:
            self.sync_streams()
            self.ledger.append([*self._deferred, *entries])
            self._deferred.clear()
            for kind, body in entries:
                self.records.take(kind, body)

    def defer(self, entries: Entries) -> None:
        """Entries that count now, and are written with the next that have to be: what they rest on is not durable yet."""
        with self.lock:
            self._deferred += entries
            for kind, body in entries:
                self.records.take(kind, body)

    def settle(self) -> None:
        """Writes what was deferred: afterwards every closed job is durable."""
        with self.lock:
            if self._deferred:
                self.record(())

    def checkpoint(self, tables: Sequence[tuple[VersionedTable, JobId]], more: Entries = ()) -> None:
        """Commits each table at its job and records all their versions at once."""
        self.settle()
        versions = materialize(tables, self.sessions.bulk, self.ledger.verify)
        body = {"tables": {self.tables.path(table): list(found) for table, found in versions}}
        self.record([*more, (CHECKPOINT, body)])

    def forget_jobs(self, before: JobId) -> None:
        """No table and no source stands at an earlier job; the latest ones are remembered in any case."""
        with self.lock:
            self.chain.forget_before(JobId(min(before, self.chain.newest - REMEMBERED_JOBS)))

    def prune(self, entries: Sequence[LedgerEntry]) -> list[LedgerEntry]:
        """The ledger's entries that still count: of jobs and settings those that are remembered, of checkpoints one
        with the latest."""
        oldest = self.chain.oldest
        settings = [entry for entry in entries if entry.kind == SETTING]
        holding = {entry.body["name"]: entry.sequence for entry in settings}
        forgotten = {entry.sequence for entry in settings[:-REMEMBERED_SETTINGS]} - set(holding.values())
        kept = [
            entry
            for entry in entries
            if entry.kind != CHECKPOINT
            and (entry.kind != JOB_CLOSED or entry.body["id"] >= oldest)
            and entry.sequence not in forgotten
        ]
        tables: dict[str, Any] = {}
        for entry in entries:
            if entry.kind == CHECKPOINT:
                tables |= entry.body["tables"]
        if tables:
            kept.append(replace(entries[-1], kind=CHECKPOINT, body={"tables": tables}))
        return kept

    def new_batch(self) -> Batch:
        return Batch(self.chain, self.sessions, self.kept, self.scratch, self.project.limits.batch_rows, self.settle)
