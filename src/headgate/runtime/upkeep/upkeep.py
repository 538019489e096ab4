"""What keeps an open warehouse small and durable: arrangements, materialization, letting go of what nobody can ask for."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import RLock

from headgate.capture.source import Source
from headgate.config.live import LiveProject
from headgate.dataflow.demands import Demand
from headgate.delta.changes import JobId
from headgate.runtime.flows.flow_set import FlowSet
from headgate.runtime.reading.reader import Reader
from headgate.runtime.stages.batch import Batch, BatchFactory
from headgate.runtime.stages.dimension_stage import DimensionStage
from headgate.runtime.stages.materialization import Materializer, durable_jobs
from headgate.runtime.stages.replica_stage import ReplicaStage
from headgate.runtime.stages.stage import Stage, tables_of
from headgate.runtime.tables.journal import Journal
from headgate.runtime.tables.records import ARRANGEMENT, ArrangementRecord
from headgate.runtime.tables.stored import StoredTable
from headgate.runtime.tables.tables import Tables, arrangement_path

_FOLDED_AT_ONCE = 4
_FOLDED_BYTES_A_SECOND = 4 << 20
"""Changes that are folded in a second, at the least."""


@dataclass(eq=False)
class Upkeep:
    """Its methods may run while stages work and queries read, one of them at a time."""

    _settings: LiveProject
    _journal: Journal
    _tables: Tables
    _flows: FlowSet
    _sources: Mapping[str, Source]
    _reader: Reader
    _batches: BatchFactory
    _materializer: Materializer
    _lock: RLock = field(default_factory=RLock, init=False)

    @property
    def held_bytes(self) -> int:
        """Changes that are not materialized or that somebody may still read."""
        return sum(table.overlay_bytes for _, table in self._tables.physical())

    @property
    def unmaterialized_bytes(self) -> int:
        """Of these, in tables that have jobs which their Delta table lacks."""
        tables = [table for _, table in self._tables.physical()]
        return sum(table.overlay_bytes for table in tables if table.base_through < table.through)

    @property
    def is_behind(self) -> bool:
        """Whether a table has jobs that its Delta table lacks, changes or not."""
        return any(table.base_through < table.through for _, table in self._tables.physical())

    @property
    def has_files(self) -> bool:
        """Whether a bulk load lies in files that want to be folded."""
        return any(table.has_files for _, table in self._tables.physical())

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Inside the block no table is materialized or vacuumed, and no stream trimmed."""
        with self._lock:
            yield

    def tidy(self) -> None:
        """What is due after jobs have run."""
        with self._lock:
            self.arrange()
            self.release()
            if self.has_files or self.held_bytes > self._settings.current.limits.overlay_bytes:
                self.materialize()

    def arrange(self) -> None:
        """Makes the arrangements that lookups into large tables lack.

        An arrangement is durable together with its table, at the same job, so everything is materialized with it.
        """
        tables = self._tables
        with self._lock:
            wanted = [demand for demand in self._flows.demands() if tables.missing(demand)]
            if not wanted:
                return
            jobs = {id(table): job for table, job in durable_jobs(self._flows.stages(), self._flows.held)}
            records = []
            with self._batches.open() as batch:
                for demand in wanted:
                    table = tables.get(demand.table)
                    with table.lock:
                        if jobs[id(table.main)] != table.through:
                            continue
                        self._fill_arrangement(demand, table, batch)
                    path = arrangement_path(demand)
                    record = ArrangementRecord(demand.table, demand.by, demand.columns, path)
                    records.append((ARRANGEMENT, record.body()))
            if records:
                self._materializer.checkpoint(durable_jobs(self._flows.stages(), self._flows.held), records)

    def _fill_arrangement(self, demand: Demand, table: StoredTable, batch: Batch) -> None:
        """Makes a new arrangement from the table's rows as they are now."""
        job = table.through
        arrangement = self._tables.new_arrangement(demand, JobId(job - 1))
        views = batch.views(table.main.count(job))
        rows = f"SELECT * FROM {views.whole(table, job)}"
        arrangement.apply(batch.appeared(arrangement.spec, rows, job, views), job)
        self._tables.attach(demand, arrangement)

    def release(self) -> None:
        """Lets go of what no retained job, and no stage that lags behind, can ask for."""
        journal = self._journal
        with journal.lock:
            oldest = journal.chain.newest - self._settings.current.retention.jobs + 1
            retained = max(journal.records.readable_from, oldest, 0)
            stages, held = self._flows.stages(), self._flows.held
            needed = dict(held)
            for stage in stages:
                for name in stage.inputs:
                    needed[name] = min(stage.target.through, needed.get(name, stage.target.through))
            for stage in stages:
                kept = JobId(min(retained, needed.get(stage.name, retained)))
                for stored in tables_of(stage):
                    for table in stored.physical():
                        table.release(kept)
            self._reader.forget_before(JobId(retained))

    def materialize(self, *, in_background: bool = False) -> None:
        """Folds every table's overlay into its Delta table and records the versions; in the background, a slot of Spark is
        left to others."""
        journal, tables = self._journal, self._tables
        with self._lock:
            durable = durable_jobs(self._flows.stages(), self._flows.held)
            self._materializer.checkpoint(durable, in_background=in_background)
            self._trim()
            for _, table in tables.physical():
                table.vacuum(verify=journal.verify)
            if not tables.damaged:
                journal.forget_jobs(
                    min((table.base_through for _, table in tables.physical()), default=journal.chain.newest)
                )
            self._batches.scratch.clean(self._folders_in_use)

    def fold(self, seconds: float) -> bool:
        """Materializes group after group of stages while that fits into so many seconds; gives whether all are. Nothing runs
        meanwhile.

        What reads a table comes before the table: on opening, it must not find its inputs ahead.
        """
        with self._lock:
            until = time.monotonic() + seconds
            stages = self._flows.stages()
            jobs = {id(table): job for table, job in durable_jobs(stages, self._flows.held)}
            stages.reverse()
            for first in range(0, len(stages), _FOLDED_AT_ONCE):
                group = [stored for stage in stages[first : first + _FOLDED_AT_ONCE] for stored in tables_of(stage)]
                tables = [(table, jobs[id(table)]) for stored in group for table in stored.physical()]
                behind = [table for table, job in tables if job > table.base_through]
                left = until - time.monotonic()
                if left <= 0 or sum(table.overlay_bytes for table in behind) > left * _FOLDED_BYTES_A_SECOND:
                    return False
                if behind:
                    self._materializer.checkpoint(tables)
            self._trim()
            return True

    def _trim(self) -> None:
        """Lets go of what no table needs of the stream logs; a damaged one may be restored, and then goes on from where it was."""
        for name, source in self._sources.items() if not self._tables.damaged else ():
            source.log.trim(self._journal.chain.position(name, self._durable(name)))

    def materialize_stages(self, names: Collection[str]) -> None:
        """The same for the tables of some stages, with which all that read them are given: on opening, a stage goes on from
        where its own tables are, and must find its inputs there."""
        with self._lock:
            stages = self._flows.stages()
            chosen = {
                id(table)
                for stage in stages
                if stage.name in names
                for stored in tables_of(stage)
                for table in stored.physical()
            }
            durable = durable_jobs(stages, self._flows.held)
            self._materializer.checkpoint([(table, job) for table, job in durable if id(table) in chosen])

    def _folders_in_use(self) -> set[str]:
        tables = self._tables.physical()
        return {Path(file).parent.name for _, table in tables for file in table.overlay_files}

    def _durable(self, source: str) -> JobId:
        """The job up to which every stage that reads the source's log has all that it needs in its tables."""
        stages = self._flows.stages()
        replicas = {stage.name for stage in stages if isinstance(stage, ReplicaStage) and stage.source.name == source}
        readers = [stage for stage in stages if stage.name in replicas or _reads_log(stage, replicas)]
        held = [job for name, job in self._flows.held.items() if name in replicas]
        return min([*(stage.target.main.base_through for stage in readers), *held], default=self._journal.chain.newest)


def _reads_log(stage: Stage, replicas: set[str]) -> bool:
    """A dimension reads every version, which only the log has."""
    return isinstance(stage, DimensionStage) and not replicas.isdisjoint(stage.inputs)
