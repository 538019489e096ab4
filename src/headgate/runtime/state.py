"""What the parts of an open warehouse share: the ledger and its records, the jobs, the tables, the Spark sessions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from threading import RLock
from typing import Any

from headgate.clock import Clock
from headgate.config.settings import Project
from headgate.delta.changes import JobId
from headgate.runtime.batch import Batch
from headgate.runtime.catalog import WarehouseCatalog
from headgate.runtime.jobs import JobChain
from headgate.runtime.materialization import materialize
from headgate.runtime.records import CHECKPOINT, Records
from headgate.runtime.scratch import Scratch
from headgate.runtime.spark_sessions import SparkSessions
from headgate.runtime.stored import KeptViews
from headgate.runtime.tables import Tables
from headgate.warehouse.ledger import Ledger
from headgate.warehouse.versioned import VersionedTable

Entries = Sequence[tuple[str, Mapping[str, Any]]]


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

    def record(self, entries: Entries) -> None:
        """Writes entries to the ledger; what they say counts from then on."""
        with self.lock:
            self.ledger.append(entries)
            for kind, body in entries:
                self.records.take(kind, body)

    def checkpoint(self, tables: Sequence[tuple[VersionedTable, JobId]], more: Entries = ()) -> None:
        """Commits each table at its job and records all their versions at once."""
        versions = materialize(tables, self.sessions.bulk, self.ledger.verify)
        body = {"tables": {self.tables.path(table): list(found) for table, found in versions}}
        self.record([*more, (CHECKPOINT, body)])

    def new_batch(self) -> Batch:
        return Batch(self.chain, self.sessions, self.kept, self.scratch, self.project.limits.batch_rows)
