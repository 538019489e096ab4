"""The warehouse that a user opens: sources, flows, jobs, and what keeps them durable.

The ledger holds what counts: every closed job, every flow's definition, and per table the Delta version that holds a job.
What was not materialized is made again on opening, from the stream logs and the recorded cuts.
"""

from __future__ import annotations

import os
import shutil
import socket
import threading
from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from headgate.capture.memory import MemorySource
from headgate.capture.source import Source
from headgate.clock import Clock, SystemClock
from headgate.config.project import load_project
from headgate.config.settings import Project
from headgate.dataflow.demands import Demand
from headgate.dataflow.flow import Flow
from headgate.delta.changes import NO_JOB, JobId
from headgate.errors import DefiniteError, FlowError, FlowFailed
from headgate.runtime.answer import Answer
from headgate.runtime.batch import Batch
from headgate.runtime.catalog import WarehouseCatalog
from headgate.runtime.definitions import definitions, read_statements, view_statement
from headgate.runtime.environment import check_java, check_storage
from headgate.runtime.explain import Explanation, explain_flow
from headgate.runtime.flows import FlowPlan, Planner, RunningFlow, Stage, first_line, open_flow
from headgate.runtime.jobs import Job, JobChain
from headgate.runtime.maintenance import batch_ends, run_stages
from headgate.runtime.materialization import durable_jobs, materialize
from headgate.runtime.progress import OnProgress, default_progress
from headgate.runtime.reading import Reader
from headgate.runtime.records import (
    ARRANGEMENT,
    CHECKPOINT,
    FLOW,
    FLOW_ARCHIVED,
    FORGOTTEN,
    JOB_CLOSED,
    ArrangementRecord,
    FlowRecord,
    Records,
)
from headgate.runtime.replica_stage import ReplicaStage
from headgate.runtime.replicas import Replicas
from headgate.runtime.sources import capture_all, next_job, open_source
from headgate.runtime.spark_sessions import SparkSessions
from headgate.runtime.stored import BatchViews, KeptViews
from headgate.runtime.streams import open_stream, require_whole
from headgate.runtime.tables import INTERNAL, Tables, arrangement_path
from headgate.runtime.view_stage import ViewStage
from headgate.sql.statements import Statement
from headgate.warehouse.ledger import Ledger
from headgate.warehouse.storage import Folder
from headgate.warehouse.store import Step, no_step
from headgate.warehouse.versioned import Limits, VersionedTable

_CAPTURE_WINDOW = timedelta(seconds=60)
"""How long a source may take to deliver, where the project names no deadline."""


def open_warehouse(
    project: str | Path | Mapping[str, object],
    *,
    clock: Clock | None = None,
    takeover: bool = False,
    step: Step = no_step,
    progress: OnProgress | None = None,
) -> Warehouse:
    """Opens the warehouse of a project: a file, its folder, or a dict with the same keys.

    One process owns a warehouse at a time; `takeover` takes it from an owner that is gone for good. `step` is told each
    point of a commit, for tests of what a crash leaves behind. `progress` hears how far a source's tables are read at first
    contact; by default that is a line on the terminal.
    """
    return Warehouse(
        load_project(project),
        clock or SystemClock(),
        takeover,
        step,
        default_progress() if progress is None else progress,
    )


class Warehouse:
    """Use it in a `with` block; its methods may be called from any thread."""

    def __init__(
        self, project: Project, clock: Clock, takeover: bool, step: Step, progress: OnProgress | None = None
    ) -> None:
        check_java()
        check_storage(project.storage)
        self.project = project
        self._clock = clock
        self._progress = progress
        self._lock = threading.RLock()
        self._closed = False
        self._catalog = WarehouseCatalog()
        self._chain = JobChain()
        self._kept = KeptViews()
        self._flows: dict[str, RunningFlow] = {}
        self._sources: dict[str, Source] = {}
        self._file_statements: list[Statement] = []
        self._declared: dict[str, tuple[str, str]] = {}
        self._failures: tuple[FlowFailed, ...] = ()
        self._sessions: SparkSessions | None = None
        owner = f"{socket.gethostname()} process {os.getpid()}"
        self._ledger = Ledger.open(project.storage, owner, clock.now, takeover=takeover, step=step)
        try:
            self._sessions = SparkSessions(project.spark, f"headgate {project.name}")
            self._spark = self._sessions
            scratch = Path(project.storage) / INTERNAL / "scratch"
            shutil.rmtree(scratch, ignore_errors=True)
            self._scratch = scratch / str(self._ledger.epoch)
            self._tables = Tables(
                project.storage,
                Limits(rows_per_file=project.limits.rows_per_file),
                project.limits.small_table_rows,
                self._spark.bulk,
                step,
            )
            self._reader = Reader(
                self._spark.query, self._catalog, self._tables.get, self._plan_of, Folder.at(project.storage)
            )
            self._records = Records.of(self._ledger.entries())
            self._replicas = Replicas(
                self._tables, self._catalog, self._kept, self._records, self._record, self._ledger.verify
            )
            for job in self._records.jobs:
                self._chain.add(job)
            self._open_sources()
            self._open_flows()
        except BaseException:
            self._shut()
            raise

    # sources and jobs

    def source(self, name: str) -> MemorySource:
        """The in-process source of that name."""
        found = self._source(name)
        if not isinstance(found, MemorySource):
            raise DefiniteError(f"the source {name} is a database", hint="write to it there; headgate captures it")
        return found

    def _source(self, name: str) -> Source:
        found = self._sources.get(name)
        if found is None:
            raise DefiniteError(
                f"there is no source {name}", hint=f"the project declares {', '.join(self._sources) or 'none'}"
            )
        return found

    def _checked_tables(self, source: str, tables: Collection[str] | None) -> tuple[str, ...] | None:
        known = self.project.sources[source].tables
        for table in tables or ():
            if table not in known:
                raise DefiniteError(
                    f"the source {source} has no table {table}", hint=f"its tables are {', '.join(known)}"
                )
        return None if tables is None else tuple(tables)

    @property
    def sources(self) -> Mapping[str, Source]:
        """Every source by its name."""
        return MappingProxyType(self._sources)

    @property
    def newest_job(self) -> JobId:
        """The newest closed job; 0 before the first."""
        return self._chain.newest

    def job(self, job: int) -> Job:
        """The cut and labels of a closed job."""
        return self._chain.get(JobId(job))

    def close_job(self) -> JobId:
        """Closes the open job at now without running it; without a new commit, the newest job stays the newest.

        Waits until every source's acknowledged transactions are captured.
        """
        self._require_open()
        at = capture_all(self._sources, self.project.freshness.deadline or _CAPTURE_WINDOW)
        with self._lock:
            self._require_open()
            for source in self._sources.values():
                self._replicas.widen(source)
            job = next_job(self._sources, self._chain, at or self._clock.now())
            if job is not None:
                self._record([(JOB_CLOSED, job.body())])
                self._chain.add(job)
            return self._chain.newest

    def refresh(self) -> JobId:
        """Closes the open job and brings every table up to it; gives the newest job."""
        self.close_job()
        with self._lock:
            self._catch_up()
            if self._failures:
                raise self._failures[0]
            return self._chain.newest

    def resnapshot(self, source: str, tables: Collection[str] | None = None) -> JobId:
        """Reads tables of a source whole again, by default all, and brings every table up to that; gives the newest job.

        The remedy when a source's changes can no longer be followed. What differs from the replicas becomes changes, so
        that history is kept. If a table had been stopped, jobs from before can no longer be read.
        """
        self._require_open()
        found = self._source(source)
        stopped = bool(found.problems)
        found.resnapshot(self._checked_tables(source, tables))
        job = self.close_job()
        if stopped:
            # Jobs since the table was stopped would show it older than the others.
            with self._lock:
                self._record([(FORGOTTEN, {"before": job})])
        return self.refresh()

    @property
    def failures(self) -> tuple[FlowFailed, ...]:
        """Why tables lag behind the newest job: what failed when jobs last ran."""
        return self._failures

    # reading

    def sql(self, text: str, job: int | None = None) -> Answer:
        """Answers one SELECT from the snapshot of a job, by default the newest that all its tables have reached."""
        with self._lock:
            self._require_open()
            return self._reader.sql(text, self._checked(job))

    def table(self, name: str, job: int | None = None) -> Answer:
        """All rows of a table at a job, by default the newest that it has reached."""
        with self._lock:
            self._require_open()
            return self._reader.table(name, self._checked(job))

    @property
    def tables(self) -> tuple[str, ...]:
        """The names that SQL can use."""
        return self._catalog.names()

    def explain(self, flow: str) -> Explanation:
        """The flow's graph, what is incremental and why the rest is not, and the bytes of its arrangements."""
        with self._lock:
            found = self._flows.get(flow.casefold())
            if found is None:
                known = ", ".join(running.plan.name for running in self._flows.values())
                raise DefiniteError(f"there is no flow {flow}", hint=f"there are {known or 'none'}")
            return explain_flow(found, self._tables.get)

    def from_scratch(self, flow: str) -> tuple[SparkSession, str]:
        """The session and the query that compute an incremental flow from its inputs' newest rows, for comparison."""
        with self._lock:
            stage = self._flows[flow.casefold()].stages[0]
            if not isinstance(stage, ViewStage):
                raise DefiniteError(f"{flow} is not a view", hint="dimensions are functions of history")
            return self._spark.bulk, stage.from_scratch(BatchViews(self._spark.bulk, self._kept))

    @property
    def spark_for_small_jobs(self) -> SparkSession:
        """The session that small batches run in."""
        return self._spark.small

    def location(self, name: str) -> str:
        """Where the table lies: a Delta table that any client can read."""
        with self._lock:
            return f"{self.project.storage}/{self._tables.path(self._tables.get(name).main)}"

    def _checked(self, job: int | None) -> JobId | None:
        if job is None:
            return None
        return JobId(0) if job == 0 else self._chain.get(JobId(job)).id

    # flows

    def flow(self, name: str, sql: str) -> None:
        """Adds a materialized view, or replaces the one of that name; it is kept when the warehouse is opened again."""
        with self._lock:
            self._require_open()
            self._catch_up()
            self._define({**self._declared, name.casefold(): (name, sql)})

    def drop(self, name: str) -> None:
        """Archives a flow that a program declared: its table stays on the storage but is no longer kept or answered."""
        with self._lock:
            self._require_open()
            if name.casefold() not in self._declared:
                raise DefiniteError(
                    f"no program declared a flow {name}", hint="remove a project file's flow from its file"
                )
            self._define({place: found for place, found in self._declared.items() if place != name.casefold()})

    def _open_flows(self) -> None:
        self._file_statements = read_statements(self.project.flow_files)
        declared = {
            record.name.casefold(): (record.name, record.text)
            for record in self._records.flows.values()
            if record.text is not None and not record.is_archived
        }
        self._define(declared)

    def _define(self, declared: Mapping[str, tuple[str, str]]) -> None:
        """Makes the files' flows and these of programs the warehouse's: opens, builds, replaces and archives as needed."""
        statements = [*self._file_statements, *(view_statement(name, sql) for name, sql in declared.values())]
        catalog = self._catalog.sources_only()
        planner = Planner(self._spark.small, catalog, self._recorded_columns)
        plans: list[FlowPlan] = []
        fingerprints: dict[str, str] = {}
        for definition in definitions(statements, catalog):
            plan = planner.plan(definition, fingerprints)
            self._refuse_changed_history(plan)
            fingerprints[plan.name] = plan.fingerprint
            catalog.add(plan.entry)
            plans.append(plan)
        for plan in plans:
            self._install(plan, declared[plan.name.casefold()][1] if plan.name.casefold() in declared else None)
        live = {plan.name for plan in plans}
        gone = [name for name, record in self._records.flows.items() if not record.is_archived and name not in live]
        if gone:
            self._record([(FLOW_ARCHIVED, {"name": name}) for name in gone])
        for name in gone:
            self._forget(name)
        self._declared = dict(declared)
        self._catch_up()

    def _recorded_columns(self, flow: str) -> StructType | None:
        record = self._records.flows.get(flow)
        if record is None or record.is_archived or record.columns is None:
            return None
        return StructType.fromJson(dict(record.columns))

    def _refuse_changed_history(self, plan: FlowPlan) -> None:
        record = self._records.flows.get(plan.name)
        if record is None or record.is_archived or not record.is_versioned or record.fingerprint == plan.fingerprint:
            return
        raise FlowError(
            f"the definition of {plan.name} has changed, but its history cannot be made again from current rows",
            where=plan.flow.where,
            hint="give the new definition another name, or remove the flow and open the warehouse once to archive the table",
        )

    def _install(self, plan: FlowPlan, text: str | None) -> None:
        record = self._records.flows.get(plan.name)
        if record is None or record.is_archived or record.fingerprint != plan.fingerprint:
            self._build(plan, text, record.generation + 1 if record is not None else 1)
        elif plan.name.casefold() not in self._flows:
            self._add(self._opened(plan, record.generation, NO_JOB))

    def _opened(self, plan: FlowPlan, generation: int, through: JobId) -> RunningFlow:
        return open_flow(
            plan,
            generation,
            self._tables,
            self._records.checkpoints,
            through,
            self._replicas.stages.__getitem__,
            self._chain.newest_commit_at,
        )

    def _add(self, flow: RunningFlow) -> None:
        self._forget(flow.plan.name)
        self._flows[flow.plan.name.casefold()] = flow
        self._catalog.add(flow.plan.entry)
        for table in flow.tables():
            self._tables.add(table)
        for demand in self._demands():
            record = self._records.arrangements.get((demand.table, demand.by))
            opened = self._tables.get(demand.table).arrangements
            if record is not None and demand.by not in opened and demand.columns <= record.columns:
                wanted = Demand(demand.table, demand.by, record.columns)
                self._tables.open_arrangement(wanted, self._records.checkpoints[record.path], NO_JOB)

    def _forget(self, name: str) -> None:
        old = self._flows.pop(name.casefold(), None)
        if old is not None:
            self._catalog.remove(name)
            for table in old.tables():
                self._kept.forget(table.name)
                self._tables.remove(table.name)

    def _build(self, plan: FlowPlan, text: str | None, generation: int) -> None:
        """Fills a new flow from its inputs at the newest job and makes it durable; until then the old one answers."""
        if plan.entry.is_versioned:
            self._replicas.warn_of_missed_versions(plan.name, plan.tables_read[0])
        self._catch_up()
        job = self._chain.newest
        flow = self._opened(plan, generation, JobId(job - 1))
        inputs = {name for stage in flow.stages for name in stage.inputs} - {table.name for table in flow.tables()}
        for name in inputs:
            if self._tables.get(name).through < job:
                raise FlowFailed(
                    f"flow {plan.name} cannot be built while {name} lags behind",
                    where=plan.flow.where,
                    hint=str(next(iter(self._failures), "run its jobs first")),
                )
        batch = self._new_batch()
        try:
            for stage in flow.stages:
                assert not isinstance(stage, ReplicaStage)
                stage.build(job, batch)
        except PySparkException as error:
            raise FlowFailed(
                f"flow {plan.name} could not be built at job {job}: {first_line(error)}", where=plan.flow.where
            ) from error
        finally:
            batch.close()
        columns = plan.entry.schema.jsonValue() if plan.entry.is_versioned else None
        record = FlowRecord(plan.name, plan.fingerprint, generation, plan.entry.is_versioned, text, columns=columns)
        tables = [(found, job) for table in flow.tables() for found in table.physical()]
        self._checkpoint(tables, [(FLOW, record.body())])
        self._add(flow)

    def _plan_of(self, table: str) -> FlowPlan | None:
        found = self._flows.get(table.casefold())
        return found.plan if found is not None else None

    # maintenance

    def _catch_up(self) -> None:
        """Runs every closed job that some table has not reached; what fails lags behind and is in `failures`."""
        upto = self._chain.newest
        stages = self._stages()
        after = min((stage.target.through for stage in stages), default=upto)
        failures: list[FlowFailed] = []
        if after < upto:
            many_rows = self.project.limits.batch_rows
            for end in batch_ends(self._chain, self._sources.values(), after, upto, many_rows):
                failures += run_stages(stages, end, self._new_batch, self._flow_of)
        known = {failure.what for failure in failures}
        self._failures = (*failures, *(each for each in self._replicas.stopped() if each.what not in known))
        self._arrange()
        self._release()
        held = sum(table.overlay_bytes for _, table in self._tables.physical())
        if held > self.project.limits.overlay_bytes or any(table.has_files for _, table in self._tables.physical()):
            self.materialize()

    def _stages(self) -> list[Stage]:
        return [*self._replicas.stages.values(), *(stage for flow in self._flows.values() for stage in flow.stages)]

    def _flow_of(self, stage: Stage) -> Flow | None:
        for flow in self._flows.values():
            if stage in flow.stages:
                return flow.plan.flow
        return None

    def _demands(self) -> list[Demand]:
        """What flows look up, one demand per table and columns."""
        merged: dict[tuple[str, tuple[str, ...]], frozenset[str]] = {}
        for flow in self._flows.values():
            for demand in flow.demands:
                place = (demand.table, demand.by)
                merged[place] = merged.get(place, frozenset()) | demand.columns
        return [Demand(table, by, columns) for (table, by), columns in merged.items()]

    def _arrange(self) -> None:
        """Makes the arrangements that lookups into large tables lack.

        An arrangement is durable together with its table, at the same job, so everything is materialized with it.
        """
        wanted = [demand for demand in self._demands() if self._tables.missing(demand)]
        if not wanted:
            return
        jobs = {id(table): job for table, job in durable_jobs(self._stages())}
        records = []
        batch = self._new_batch()
        try:
            for demand in wanted:
                table = self._tables.get(demand.table)
                if jobs[id(table.main)] == table.through:
                    self._tables.arrange(demand, batch)
                    path = arrangement_path(demand)
                    record = ArrangementRecord(demand.table, demand.by, demand.columns, path)
                    records.append((ARRANGEMENT, record.body()))
        finally:
            batch.close()
        if records:
            self._checkpoint(durable_jobs(self._stages()), records)

    def _release(self) -> None:
        """Lets go of what no retained job and no stage that lags behind can ask for."""
        oldest = min((stage.target.through for stage in self._stages()), default=self._chain.newest)
        retained = max(self._records.readable_from, self._chain.newest - self.project.retention.jobs + 1)
        kept = JobId(max(0, min(oldest, retained)))
        for _, table in self._tables.physical():
            table.release(kept)
        self._reader.forget_before(kept)

    def materialize(self) -> None:
        """Folds every table's overlay into its Delta table and records the versions: afterwards nothing is made again on opening."""
        with self._lock:
            self._require_open()
            self._checkpoint(durable_jobs(self._stages()), [])
            for name, source in self._sources.items():
                through = min((stage.target.main.base_through for stage in self._stages()), default=self._chain.newest)
                source.log.trim(self._chain.position(name, through))
            for _, table in self._tables.physical():
                table.vacuum(verify=self._ledger.verify)
            self._empty_scratch()

    def _empty_scratch(self) -> None:
        """Deletes what no retained job's changes lie in."""
        used = {Path(file).parent.name for _, table in self._tables.physical() for file in table.overlay_files}
        for folder in self._scratch.glob("*"):
            if folder.name not in used:
                shutil.rmtree(folder, ignore_errors=True)

    def _checkpoint(
        self, tables: Sequence[tuple[VersionedTable, JobId]], more: Sequence[tuple[str, Mapping[str, Any]]]
    ) -> None:
        """Commits each table at its job and records all their versions at once."""
        versions = materialize(tables, self._spark.bulk, self._ledger.verify)
        body = {"tables": {self._tables.path(table): list(found) for table, found in versions}}
        self._record([*more, (CHECKPOINT, body)])

    def _record(self, entries: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
        self._ledger.append(entries)
        for kind, body in entries:
            self._records.take(kind, body)

    def _new_batch(self) -> Batch:
        self._scratch.mkdir(parents=True, exist_ok=True)
        return Batch(self._chain, self._spark, self._kept, self._scratch, self.project.limits.batch_rows)

    # opening and closing

    def _open_sources(self) -> None:
        for name, settings in self.project.sources.items():
            streams = Path(self.project.storage) / INTERNAL / "streams"
            log = open_stream(streams, name, self._ledger.epoch, self.project.limits, self._ledger.verify)
            require_whole(log, name, self._chain.position(name, self._chain.newest))
            source = self._sources[name] = open_source(
                self.project.name, name, settings, log, self._clock, self._progress
            )
            self._replicas.open(source, settings.tables, self._chain.newest)

    def _require_open(self) -> None:
        if self._closed:
            raise DefiniteError("the warehouse is closed", hint="open it again with headgate.open(…)")

    def close(self) -> None:
        """Closes sources, ledger and sessions. Committed transactions and closed jobs are durable already."""
        with self._lock:
            if not self._closed:
                self._shut()

    def _shut(self) -> None:
        self._closed = True
        for source in self._sources.values():
            source.close()
        self._ledger.close()
        if self._sessions is not None:
            self._sessions.stop()

    def __enter__(self) -> Warehouse:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
