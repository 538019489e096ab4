"""What keeps an open warehouse small and durable: arrangements, materialization, letting go of what nobody can ask for."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from threading import RLock
from typing import Any

from headgate.capture.source import Source
from headgate.config.live import LiveProject
from headgate.dataflow.demands import Demand
from headgate.delta.changes import NO_JOB, JobId
from headgate.ranges.range_map import Ranges
from headgate.runtime.execution.executor import Executor
from headgate.runtime.flows.flow_set import FlowSet
from headgate.runtime.reading.reader import Reader
from headgate.runtime.recent import RecentTimes
from headgate.runtime.signal import Signal
from headgate.runtime.spark.giving_way import GiveWay
from headgate.runtime.stages.batch import Batch, BatchFactory
from headgate.runtime.stages.dimension_stage import DimensionStage
from headgate.runtime.stages.materialization import Materializer, durable_jobs
from headgate.runtime.stages.replica_stage import ReplicaStage
from headgate.runtime.stages.stage import Stage, tables_of
from headgate.runtime.tables.journal import Entries, Journal
from headgate.runtime.tables.records import ARRANGEMENT, GAPS, ArrangementRecord
from headgate.runtime.tables.stored import StoredTable
from headgate.runtime.tables.tables import Tables, arrangement_path
from headgate.scaling.policies.timed import loads
from headgate.warehouse.versioned import VersionedTable

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
    _executor: Executor
    _lock: RLock = field(default_factory=RLock, init=False)
    _retained: JobId = field(default=NO_JOB, init=False)
    """The oldest job that has to be readable."""
    folds: RecentTimes = field(default_factory=RecentTimes, init=False)
    """How long it took to fold what there was."""

    @property
    def held_bytes(self) -> int:
        """Changes that are not materialized or that somebody may still read."""
        return sum(table.overlay_bytes for _, table in self._tables.physical())

    @property
    def lead_bytes(self) -> int:
        """Changes of ranges that are ahead of others of their table: these hold them back."""
        return sum(table.lead_bytes for _, table in self._tables.physical())

    def slowest_ranges(self) -> tuple[Stage | None, Ranges]:
        """The slowest ranges of the table whose ranges hold back most; no stage where none holds anything back."""
        held = {
            stage.name: sum(table.lead_bytes for stored in tables_of(stage) for table in stored.physical())
            for stage in self._flows.stages()
        }
        stage = max(self._flows.stages(), key=lambda each: held.get(each.name, 0), default=None)
        if stage is None or not held[stage.name]:
            return None, frozenset()
        throughs, missing = stage.target.throughs, stage.target.missing
        return stage, frozenset(
            number for number, job in enumerate(throughs) if job == stage.target.level and number not in missing
        )

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
            self._flows.delete_former(self._retained)
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
            jobs = {id(table): job for table, job in self._durable_jobs()}
            records = []
            with self._batches.open() as batch:
                for demand in wanted:
                    table = tables.get(demand.table)
                    with table.lock:
                        if jobs[id(table.main)] != table.through or len(set(table.throughs)) > 1:
                            continue
                        if self._is_read_behind(table):
                            continue
                        self._fill_arrangement(demand, table, batch)
                    path = arrangement_path(demand)
                    record = ArrangementRecord(demand.table, demand.by, demand.columns, path)
                    records.append((ARRANGEMENT, record.body()))
            if records:
                self._checkpoint(self._durable_jobs(), records)

    def _is_read_behind(self, table: StoredTable) -> bool:
        """Whether a stage has ranges at an earlier job than a table that it reads: it looks rows up as of that job."""
        targets = [stage.target for stage in self._flows.stages() if table.name in stage.inputs]
        return any(each.level < table.through for each in targets if len(each.missing) < len(each.ranges))

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
                if len(stage.target.missing) < len(stage.target.ranges):
                    job = stage.target.level
                    for name in stage.inputs:
                        needed[name] = min(job, needed.get(name, job))
            for stage in stages:
                kept = JobId(min(retained, needed.get(stage.name, retained), stage.target.foldable(journal.chain)))
                for stored in tables_of(stage):
                    for table in stored.physical():
                        table.release(kept)
            self._reader.forget_before(JobId(retained))
            self._retained = JobId(retained)

    def giving_way(self, is_busy: Callable[[], bool], signal: Signal) -> GiveWay:
        """For one fold that nobody waits for."""
        return GiveWay(is_busy, signal, self._materializer.sessions.context)

    def materialize(self, give_way: GiveWay | None = None) -> None:
        """Folds every table's overlay into its Delta table and records the versions; what gives way also leaves a slot of Spark
        to others."""
        journal, tables = self._journal, self._tables
        with self._lock:
            self._executor.exclude_failed_ranges()
            durable = self._durable_jobs()
            began, size = time.monotonic(), self.unmaterialized_bytes
            self._checkpoint(durable, give_way=give_way)
            for took in loads(timedelta(seconds=time.monotonic() - began), size) if size else ():
                self.folds.add(took.total_seconds())
            self._trim()
            self._flows.delete_former(self._retained)
            for _, table in tables.physical():
                if give_way is not None:
                    give_way.rest()
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
            jobs = {id(table): job for table, job in self._durable_jobs()}
            stages.reverse()
            for first in range(0, len(stages), _FOLDED_AT_ONCE):
                group = [stored for stage in stages[first : first + _FOLDED_AT_ONCE] for stored in tables_of(stage)]
                tables = [(table, jobs[id(table)]) for stored in group for table in stored.physical()]
                behind = [table for table, job in tables if job > table.base_through]
                left = until - time.monotonic()
                if left <= 0 or sum(table.overlay_bytes for table in behind) > left * _FOLDED_BYTES_A_SECOND:
                    return False
                if behind:
                    self._checkpoint(tables)
            self._trim()
            return True

    def _trim(self) -> None:
        """Lets go of what no table needs of the stream logs; a damaged one may be restored, and then goes on from where it was."""
        for name, source in self._sources.items() if not self._tables.damaged else ():
            source.log.trim(self._needed_after(name))

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
            self._checkpoint([(table, job) for table, job in self._durable_jobs() if id(table) in chosen])

    def _durable_jobs(self) -> list[tuple[VersionedTable, JobId]]:
        return durable_jobs(self._flows.stages(), self._flows.held, self._journal.chain)

    def _checkpoint(
        self,
        tables: Sequence[tuple[VersionedTable, JobId]],
        more: Entries = (),
        *,
        give_way: GiveWay | None = None,
    ) -> None:
        """Commits each table at its job, and records what is missing of it there."""
        jobs = {id(table): job for table, job in tables}
        gaps = [
            (GAPS, found) for stage in self._flows.stages() if (found := self._gaps(stage.target, jobs)) is not None
        ]
        self._materializer.checkpoint(tables, [*more, *gaps], give_way=give_way)

    def _gaps(self, table: StoredTable, jobs: Mapping[int, JobId]) -> dict[str, Any] | None:
        """What the ledger is to know of a table's gaps, if that is something else than before."""
        job = jobs.get(id(table.main))
        path = self._tables.path(table.versioned)
        known = self._journal.records.gaps.get(path, ())
        if job is None or not (known or table.gaps.found):
            return None
        found = tuple(gap.body() for gap in table.gaps.lasting(job))
        return None if found == known else {"table": path, "gaps": list(found)}

    def _folders_in_use(self) -> set[str]:
        tables = self._tables.physical()
        return {Path(file).parent.name for _, table in tables for file in table.overlay_files}

    def _needed_after(self, source: str) -> int:
        """The position in the source's log up to which every stage that reads it has all that it needs in its tables."""
        chain, stages = self._journal.chain, self._flows.stages()
        replicas = {
            stage.name: stage for stage in stages if isinstance(stage, ReplicaStage) and stage.source.name == source
        }
        found = [chain.position(source, chain.newest)]
        found += [chain.position(source, job) for name, job in self._flows.held.items() if name in replicas]
        for stage in stages:
            replica = _replica_of(stage, replicas)
            if replica is not None:
                found.append(replica.needed_after(stage.target.main.base_through, chain))
        return min(found)


def _replica_of(stage: Stage, replicas: Mapping[str, ReplicaStage]) -> ReplicaStage | None:
    """The replica whose events a stage reads: its own, or those of a dimension, which needs every version."""
    if isinstance(stage, DimensionStage):
        return next((replicas[name] for name in stage.inputs if name in replicas), None)
    return replicas.get(stage.name)
