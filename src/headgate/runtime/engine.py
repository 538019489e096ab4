"""The engine: everything of a warehouse but the decision when to work. Sources, flows, jobs, and what keeps them durable.

The ledger holds what counts: every closed job, every flow's definition, and per table the Delta version that holds a job.
What was not materialized is made again on opening, from the stream logs and the recorded cuts.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar

from pyspark.sql import SparkSession

from headgate.capture.memory import MemorySource
from headgate.capture.producer import ProducerSource
from headgate.capture.ranges import LargeLoads
from headgate.capture.recovery import Expected
from headgate.capture.source import Sample, Source, SourceTable
from headgate.clock import Clock
from headgate.config.live import LiveProject
from headgate.config.settings import Project
from headgate.delta.changes import JobId
from headgate.errors import DefiniteError, FlowFailed, HeadgateError, UnknownTable, raise_all
from headgate.runtime.execution.executor import Executor
from headgate.runtime.flows.descriptions import TableDescription, describe_tables
from headgate.runtime.flows.evolution import take_wider_types
from headgate.runtime.flows.explain import Explanation, explain_flow
from headgate.runtime.flows.flow_set import FlowSet
from headgate.runtime.flows.replicas import Replicas
from headgate.runtime.reading.answer import SnapshotAnswer
from headgate.runtime.reading.reader import Reader
from headgate.runtime.reading.spark_reading import SparkReading
from headgate.runtime.recovery.damage import fillable, to_build_over
from headgate.runtime.signal import Signal
from headgate.runtime.sources.progress import OnProgress
from headgate.runtime.sources.sources import capture_all, next_job, open_source
from headgate.runtime.sources.spark_ranges import SparkRanges
from headgate.runtime.sources.streams import open_stream
from headgate.runtime.spark.environment import check_java, check_storage
from headgate.runtime.spark.scratch import Scratch
from headgate.runtime.spark.sessions import SparkSessions
from headgate.runtime.stages.batch import BatchFactory
from headgate.runtime.stages.materialization import Materializer
from headgate.runtime.stages.procedures import Procedure
from headgate.runtime.stages.replica_stage import ReplicaStage
from headgate.runtime.stages.view_stage import ViewStage
from headgate.runtime.tables.catalog import WarehouseCatalog
from headgate.runtime.tables.jobs import Job
from headgate.runtime.tables.journal import Journal
from headgate.runtime.tables.records import FORGOTTEN, RESNAPSHOT, STREAM_MARKED
from headgate.runtime.tables.stored import BatchViews, KeptViews, StoredTable
from headgate.runtime.tables.tables import INTERNAL, Tables
from headgate.runtime.upkeep.upkeep import Upkeep
from headgate.sql.names import did_you_mean
from headgate.warehouse.base import FileLimits
from headgate.warehouse.conversions import bring_up_to_date
from headgate.warehouse.ledger import Ledger
from headgate.warehouse.storage import Folder
from headgate.warehouse.store import Step, no_step

CAPTURE_WINDOW = timedelta(seconds=60)
"""How long a source may take to deliver, where nobody names a deadline."""


class Engine:
    """Its methods may be called from any thread."""

    executor_class: ClassVar[type[Executor]] = Executor
    """How stages run; benchmarks have others, to compare."""

    def __init__(
        self,
        project: Project,
        clock: Clock,
        takeover: bool = False,
        step: Step = no_step,
        progress: OnProgress | None = None,
        procedures: Sequence[Procedure] = (),
    ) -> None:
        check_java()
        check_storage(project.storage)
        self._settings = LiveProject(project)
        self._clock = clock
        self._progress = progress
        self._closed = False
        self._closing: list[Callable[[], None]] = []
        self._sources: dict[str, Source] = {}
        self._rereading: set[str] = set()
        """Sources whose tables are being read whole."""
        self._defining = threading.RLock()
        """Held by whoever changes the graph."""
        owner = f"{socket.gethostname()} process {os.getpid()}"
        self._ledger = Ledger.open(project.storage, owner, clock.now, takeover=takeover, step=step)
        self._signal = Signal()
        self._sessions: SparkSessions | None = None
        self._executor: Executor | None = None
        try:
            bring_up_to_date(self._ledger, project.storage, step)
            self._sessions = sessions = SparkSessions(project.spark, f"headgate {project.name}")
            self._journal = journal = Journal(self._ledger)
            self._scratch = scratch = Scratch(Path(project.storage) / INTERNAL / "scratch", self._ledger.epoch)
            limits = FileLimits(rows_per_file=project.limits.rows_per_file)
            self._tables = tables = Tables(
                project.storage, limits, project.limits.small_table_rows, sessions.bulk, step
            )
            self._catalog = catalog = WarehouseCatalog()
            batches = BatchFactory(
                journal.chain, sessions, tables.kept, scratch, project.limits.batch_rows, journal.settle
            )
            materializer = Materializer(journal, tables, sessions.bulk)
            self._replicas = Replicas(tables, catalog, journal, batches, materializer)
            self._flows = FlowSet(
                self._settings,
                sessions.small,
                tables,
                catalog,
                journal,
                batches,
                materializer,
                self._replicas,
                self._run_all,
            )
            self._reader = Reader(
                sessions.query,
                SparkReading(sessions.context, sessions.health, scratch),
                catalog,
                tables,
                journal,
                self._flows.plan_of,
                Folder.at(project.storage),
                self._signal,
            )
            self._upkeep = Upkeep(
                self._settings, journal, tables, self._flows, self._sources, self._reader, batches, materializer
            )
            self._executor = self.executor_class(self._flows, tables, self._sources, batches, self._signal)
            self._open_sources()
            if self._reread():
                # A crash came between: no stage may run through the jobs that are to be forgotten.
                self._close_at({})
            with self._changing_flows():
                self._flows.open(procedures)
        except BaseException:
            self._shut()
            raise

    @property
    def project(self) -> Project:
        """The project file's settings, with those that were changed since."""
        return self._settings.current

    # sources and jobs

    def source(self, name: str) -> MemorySource:
        """The in-process source of that name."""
        found = self._source(name)
        if not isinstance(found, MemorySource):
            raise DefiniteError(f"the source {name} is a database", hint="write to it there; headgate captures it")
        return found

    def producer_source(self, name: str | None = None) -> ProducerSource:
        """The source of that name, or the only one, that producers write to."""
        known = {source.name: source for source in self._sources.values() if isinstance(source, ProducerSource)}
        if name is None and len(known) == 1:
            return next(iter(known.values()))
        if name is not None and name in known:
            return known[name]
        if not known:
            raise DefiniteError(
                "no source is written by producers", hint="declare one: sources: {etl: {type: producer}}"
            )
        what = (
            "name the source that the producer writes to"
            if name is None
            else f"producers do not write to a source {name}"
        )
        raise DefiniteError(what, hint=f"they write to {', '.join(known)}")

    def create_table(self, source: str, table: SourceTable) -> None:
        """Declares a table that producers write to; it is kept when the warehouse is opened again."""
        found = self.producer_source(source)
        with self._changing_flows():
            if any(table.name.casefold() == name.casefold() for name in found.tables):
                raise DefiniteError(
                    f"there is a table {source}.{table.name} already", hint="CREATE TABLE IF NOT EXISTS"
                )
            self._replicas.declare(found, table, self._journal.chain.newest)

    def drop_table(self, source: str, table: str) -> None:
        """Archives a table that a producer declared: it is no longer answered."""
        found = self.producer_source(source)
        full = f"{source}.{table}"
        with self._changing_flows():
            readers = [stage.name for stage in self._flows.stages() if full in stage.inputs]
            if readers:
                raise DefiniteError(f"{', '.join(readers)} reads {full}", hint="drop what reads it first")
            self._replicas.drop(found, table)

    def bring(self, source: str, tables: Collection[str]) -> JobId:
        """Brings tables of a source to a job that has all that it committed; gives the job."""
        found = self._source(source)
        sample = found.sample()
        found.capture(sample, CAPTURE_WINDOW)
        job = self._cut({source: sample})
        names = [f"{source}.{table}" for table in tables]
        self._running.want(names, job)
        self._running.wait(names, job)
        return job

    def replica(self, table: str) -> StoredTable:
        """The table that stands for a source table."""
        return self._replicas.stages[table].target

    def materialize_tables(self, source: str, tables: Collection[str]) -> None:
        """Folds all that was committed to tables of a source into their Delta tables.

        What derives from them is brought along and materialized too: a table is never past one that reads it.
        """
        self._require_open()
        job = self.bring(source, tables)
        affected = {f"{source}.{table}" for table in tables}
        for stage in self._flows.stages():
            if not affected.isdisjoint(stage.inputs):
                affected.add(stage.name)
        self._running.want(affected, job)
        self._running.wait(affected, job)
        self._upkeep.materialize_stages(affected)

    def _source(self, name: str) -> Source:
        found = self._sources.get(name)
        if found is None:
            raise DefiniteError(
                f"there is no source {name}", hint=f"the project declares {', '.join(self._sources) or 'none'}"
            )
        return found

    @property
    def sources(self) -> Mapping[str, Source]:
        """Every source by its name."""
        return MappingProxyType(self._sources)

    @property
    def newest_job(self) -> JobId:
        """The newest closed job; 0 before the first."""
        return self._journal.chain.newest

    def job(self, job: int) -> Job:
        """The cut and labels of a closed job."""
        return self._journal.chain.get(JobId(job))

    def close_job(self) -> JobId:
        """Closes the open job at now without running it; without a new commit, the newest job stays the newest.

        Waits until every source's acknowledged transactions are captured.
        """
        self._require_open()
        samples, missing = capture_all(self._sources, self.project.freshness.deadline or CAPTURE_WINDOW)
        raise_all(missing)
        return self._cut(samples)

    def _cut(self, samples: Mapping[str, Sample]) -> JobId:
        """Closes the open job at what is captured; the samples are captured already."""
        self._widen()
        return self._close_at(samples)

    def _close_at(self, samples: Mapping[str, Sample]) -> JobId:
        journal = self._journal
        with journal.lock:
            self._require_open()
            # Asked before the cut is made, which then holds what was read.
            reread = self._reread()
            job, as_of = next_job(self._sources, journal.chain, samples, self._clock.now())
            if job is not None:
                # Jobs since a table was stopped would show it older than the others.
                forgotten = [(FORGOTTEN, {"before": job.id, "sources": reread})] if reread else []
                journal.close_job(job, forgotten)
            else:
                journal.chain.confirm(as_of)
            return journal.chain.newest

    def _widen(self) -> None:
        """Gives replicas the columns that their tables at the sources have; nothing runs meanwhile."""
        if any(self._replicas.are_narrow(source) for source in self._sources.values()):
            with self._changing_flows():
                for source in self._sources.values():
                    self._replicas.widen(source)
                take_wider_types(self._journal.records, self._replicas, self._flows, self._sources.values())

    def refresh(self, *, table: str | None = None, full: bool = False) -> JobId:
        """Closes the open job and brings every table up to it; gives the newest job.

        With `full`, all tables of all sources are read whole again first: the remedy when a source's changes can no
        longer be followed. With `table`, only that table of a source is read whole, or that flow is built again from its
        inputs. What differs from the replicas becomes changes, so that history is kept. If a table had been stopped, jobs
        from before can no longer be read. What fails keeps nothing else from going on, and is raised at the end.
        """
        self._require_open()
        if full and table is not None:
            raise DefiniteError("all tables are read whole, or one", hint="leave out the table, or full")
        problems: list[BaseException] = []
        if table is not None:
            self._renew(table)
        elif full:
            for source in self._sources:
                problems += self._read_whole(source)
        samples, missing = capture_all(self._sources, self.project.freshness.deadline or CAPTURE_WINDOW)
        job = self._cut(samples)
        self._catch_up(job)
        raise_all([*problems, *missing, *self._failures_of(table)])
        return job

    def _renew(self, table: str) -> None:
        """Reads a table of a source whole again, or builds a flow again from its inputs."""
        entry = self._catalog.find(table)
        replica = None if entry is None else self._replicas.stages.get(entry.name)
        if replica is not None and (damage := replica.target.main.find_damage()) is not None:
            with self._changing_flows():
                self._replicas.set_aside(replica.name, damage)
                self._flows.read_again()
            entry = None
        if entry is None and self._tables.find_damaged(table) is not None:
            self._fill_again(table)
            return
        if entry is None:
            raise UnknownTable(f"there is no table {table}", hint=did_you_mean(table, self._catalog.names()))
        if replica is None:
            with self._changing_flows():
                self._flows.build_again(entry.name)
        elif isinstance(replica.source, MemorySource) and replica.source.log.loss is None:
            raise DefiniteError(
                f"{entry.name} cannot be read again: programs write it, and all that they committed is here",
                hint="name a table of a database, or a flow",
            )
        else:
            raise_all(self._read_whole(replica.source.name, replica.table))

    def _fill_again(self, table: str) -> None:
        """Reads a damaged replica whole from its source, and builds again what reads it."""
        records = self._journal.records
        full, damage = next(
            (name, each) for name, each in self._tables.damaged.items() if name.casefold() == table.casefold()
        )
        above = self._flows.aside
        source = fillable(full, damage, self._sources, records, above)
        with self._changing_flows():
            reading = (RESNAPSHOT, {"source": source.name, "tables": [full.partition(".")[2]]})
            more = [reading, *to_build_over(full, above, records)]
            self._replicas.begin_anew(full, source, self.newest_job, more)
        raise_all(self._read_whole(source.name, full.partition(".")[2]))
        self._catch_up(self._cut({}))
        self._replicas.filled(full)
        self.resume()

    def _failures_of(self, table: str | None) -> list[BaseException]:
        """What keeps a table from going on, or any table."""
        if table is None:
            return list(self.failures)
        stages = self._flows.needed([table])
        failed = self._running.failures
        found = [failed[stage.name] for stage in stages if stage.name in failed]
        stopped = [stage.stopped for stage in stages if isinstance(stage, ReplicaStage) and stage.name not in failed]
        return [*found, *(each for each in stopped if each is not None)]

    def _catch_up(self, job: JobId) -> None:
        """Brings every table to the job, as far as that is possible, and tidies up."""
        executor = self._running
        executor.resume()
        names = [stage.name for stage in self._flows.stages()]
        executor.want(names, job)
        executor.settle(names, job)
        self._upkeep.tidy()

    def _run_all(self, leave: Collection[str] = ()) -> tuple[JobId, Sequence[BaseException]]:
        """Brings every table but those to leave to the newest job, in this thread: the flows are changing."""
        job = self._journal.chain.newest
        self._running.run_here(job, leave)
        self._upkeep.tidy()
        return job, self.failures

    @property
    def _started(self) -> SparkSessions:
        assert self._sessions is not None
        return self._sessions

    @property
    def _running(self) -> Executor:
        assert self._executor is not None
        return self._executor

    def _read_whole(self, source: str, table: str | None = None) -> list[HeadgateError]:
        """Reads a table of a source whole again, or all; gives what went wrong."""
        found = self._source(source)
        stopped = [name for name in found.problems if table in (None, name)]
        if stopped:
            # First the intention: after a crash, too, the job that holds what is read forgets those before it.
            self._journal.record([(RESNAPSHOT, {"source": source, "tables": stopped})])
        self._rereading.add(source)
        try:
            found.resnapshot(None if table is None else [table])
        except HeadgateError as error:
            return [error]
        finally:
            self._rereading.discard(source)
        return []

    def _reread(self) -> list[str]:
        """Sources some of whose stopped tables have been read whole since the newest job."""
        found = []
        for name, tables in self._journal.records.resnapshots.items():
            source = self._sources.get(name)
            if source is None or name in self._rereading or source.unopened is not None:
                continue
            if not tables <= source.problems.keys():
                found.append(name)
        return found

    @property
    def failures(self) -> tuple[BaseException, ...]:
        """Why tables lag behind: what failed when jobs last ran, and source tables that cannot be followed any further."""
        failed = [*self._tables.damaged.values(), *self._running.failures.values()]
        known = {failure.what for failure in failed if isinstance(failure, FlowFailed)}
        return (*failed, *(each for each in self._replicas.stopped() if each.what not in known))

    # reading

    @property
    def tables(self) -> tuple[str, ...]:
        """The names that SQL can use."""
        return self._catalog.names()

    def describe(self) -> tuple[TableDescription, ...]:
        """Every table that SQL can name: columns, key, and what it derives from."""
        with self._journal.lock:
            return describe_tables(self._catalog, self._flows)

    def table(self, name: str, job: int | None = None) -> SnapshotAnswer:
        """All rows of a table at a job, by default the newest that it has reached."""
        self._require_open()
        return self._reader.table(name, self._checked(job))

    def explain(self, flow: str) -> Explanation:
        """The flow's graph, what is incremental and why the rest is not, and the bytes of its arrangements."""
        with self._defining:
            return explain_flow(self._flows.get(flow), self._tables.get)

    def from_scratch(self, flow: str) -> tuple[SparkSession, str]:
        """The session and the query that compute an incremental flow from its inputs' newest rows, for comparison."""
        with self._defining:
            stage = self._flows.get(flow).stages[0]
            if not isinstance(stage, ViewStage):
                raise DefiniteError(f"{flow} is not a view", hint="dimensions are functions of history")
            session = self._started.bulk
            return session, stage.from_scratch(BatchViews(session, KeptViews()))

    @property
    def spark_for_small_jobs(self) -> SparkSession:
        """The session that small batches run in."""
        return self._started.small

    def location(self, name: str) -> str:
        """Where the table lies: a Delta table that any client can read."""
        tables = self._tables
        return f"{self.project.storage}/{tables.path(tables.get(name).main)}"

    def _checked(self, job: int | None) -> JobId | None:
        if job is None:
            return None
        return JobId(0) if job == 0 else self._journal.chain.get(JobId(job)).id

    @property
    def spark_lost(self) -> str | None:
        """Why Spark cannot be used any more, if so: then only a new process can go on."""
        return None if self._sessions is None else self._sessions.health.lost

    def on_spark_lost(self, call: Callable[[str], None]) -> None:
        """Has the reason told, from any thread, when Spark's process has died or does not end what it does."""
        self._started.health.on_lost(call)

    # flows

    def flow(self, name: str, sql: str) -> None:
        """Adds a materialized view, or replaces the one of that name; it is kept when the warehouse is opened again."""
        with self._changing_flows():
            self._flows.declare(name, sql)

    def drop(self, name: str) -> None:
        """Archives a flow that a program declared: its table stays on the storage but is no longer kept or answered."""
        with self._changing_flows():
            self._flows.drop(name)

    def resume(self) -> None:
        """Takes the project's flow files as they are now and tries again what had failed."""
        with self._changing_flows():
            self._flows.read_again()
            self._running.resume()

    @contextmanager
    def _changing_flows(self) -> Iterator[None]:
        with self._defining, self._running.paused():
            self._require_open()
            yield

    def materialize(self) -> None:
        """Folds every table's overlay into its Delta table and records the versions: afterwards nothing is made again on opening."""
        self._require_open()
        self._upkeep.materialize()

    # opening and closing

    def _open_sources(self) -> None:
        newest = self._journal.chain.newest
        large = LargeLoads(SparkRanges(self._started.context), self.project.limits.spark_load_bytes)
        for name, settings in self.project.sources.items():
            streams = Path(self.project.storage) / INTERNAL / "streams"
            expected = Expected(self._journal.chain.position(name, newest), name in self._journal.records.marked)
            log = open_stream(streams, name, self._ledger.epoch, self.project.limits, self._ledger.verify, expected)
            if not expected.is_marked:
                self._journal.record([(STREAM_MARKED, {"source": name})])
            source = self._sources[name] = open_source(
                self.project.name, name, settings, log, self._clock, self._progress, large
            )
            self._journal.logs[name] = log
            self._replicas.open(source, settings.tables, newest)
            if isinstance(source, ProducerSource):
                self._replicas.open_declared(source, newest)
            if log.loss is not None and source.unopened is None and not source.capabilities.intermediate_versions:
                # Polls promise no more than reading everything finds.
                raise_all(self._read_whole(name))

    def _require_open(self) -> None:
        if self._closed:
            raise DefiniteError("the warehouse is closed", hint="open it again")

    def on_close(self, call: Callable[[], None]) -> None:
        """Has something that stands on the warehouse closed first."""
        self._closing.append(call)

    def close(self) -> None:
        """Closes sources, ledger and sessions. Committed transactions and closed jobs are durable already."""
        while self._closing:
            self._closing.pop()()
        with self._defining:
            if not self._closed:
                self._shut()

    def _shut(self) -> None:
        self._closed = True
        try:
            if self._executor is not None:
                self._executor.close()
                self._journal.settle()
        finally:
            for source in self._sources.values():
                source.close()
            self._ledger.close()
            if self._sessions is not None:
                self._sessions.stop()
