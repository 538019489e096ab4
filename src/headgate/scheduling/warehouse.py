"""The warehouse that a user opens: an engine, and a scheduler that makes it work when a query needs that."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import MappingProxyType

from pyspark.sql import SparkSession

from headgate.capture.memory import MemorySource
from headgate.capture.producer import ProducerSource
from headgate.capture.source import Source, SourceTable
from headgate.clock import Clock, SystemClock
from headgate.config.project import load_project
from headgate.config.settings import Project
from headgate.delta.changes import JobId
from headgate.errors import DefiniteError, raise_all
from headgate.runtime.engine import CAPTURE_WINDOW, Approve, Engine
from headgate.runtime.execution.executor import Executor
from headgate.runtime.flows.descriptions import TableDescription, describe_tables
from headgate.runtime.flows.explain import Explanation, explain_flow
from headgate.runtime.reading.answer import SnapshotAnswer
from headgate.runtime.recovery.backup import OnCopied, back_up_open
from headgate.runtime.recovery.manifest import Manifest
from headgate.runtime.sources.progress import OnProgress, default_progress
from headgate.runtime.sources.sources import find_producer_source, find_source
from headgate.runtime.stages.procedures import Procedure
from headgate.runtime.stages.view_stage import ViewStage
from headgate.runtime.tables.jobs import Job
from headgate.runtime.tables.stored import BatchViews, KeptViews, StoredTable
from headgate.runtime.tables.tables import INTERNAL
from headgate.scheduling.applying import Applying, Preview
from headgate.scheduling.background import Background
from headgate.scheduling.bound import Duration
from headgate.scheduling.cutter import Cutter
from headgate.scheduling.history import History
from headgate.scheduling.leases import Leases
from headgate.scheduling.scheduler import Scheduler
from headgate.scheduling.session import Answer, Session
from headgate.scheduling.status import WarehouseStatus, observe
from headgate.scheduling.tuning import Tuning
from headgate.warehouse.store import Step, no_step


def open_warehouse(
    project: str | Path | Mapping[str, object],
    *,
    clock: Clock | None = None,
    takeover: bool = False,
    step: Step = no_step,
    progress: OnProgress | None = None,
    procedures: Sequence[Procedure] = (),
    approve: Approve = lambda changes, flows: None,
) -> Warehouse:
    """Opens the warehouse of a project: a file, its folder, or a dict with the same keys.

    One process owns a warehouse at a time; `takeover` takes it from an owner that is gone for good. `step` is told each
    point of a commit, for tests of what a crash leaves behind. `progress` hears how far a source's tables are read at first
    contact; by default that is a line on the terminal. `procedures` are called with the changes of tables; one that is no
    longer given is archived. `approve` hears which flows are built or archived, before that is done, and may raise.
    """
    return Warehouse(
        load_project(project),
        clock or SystemClock(),
        takeover,
        step,
        default_progress() if progress is None else progress,
        procedures,
        approve=approve,
        load=lambda: load_project(project),
    )


class Warehouse:
    """Use it in a `with` block; its methods may be called from any thread."""

    def __init__(
        self,
        project: Project,
        clock: Clock,
        takeover: bool,
        step: Step,
        progress: OnProgress | None = None,
        procedures: Sequence[Procedure] = (),
        executor: type[Executor] = Executor,
        approve: Approve = lambda changes, flows: None,
        load: Callable[[], Project] | None = None,
    ) -> None:
        """`executor` is how stages run; benchmarks have others, to compare. `load` reads the project again when it is applied."""
        self._closing = threading.RLock()
        self._fold_seconds = 0.0
        with ExitStack() as opened:
            self._engine = engine = Engine(project, clock, takeover, step, progress, procedures, executor, approve)
            opened.callback(lambda: engine.close(self._fold_seconds))
            self._cutter = Cutter(engine.sources, clock, CAPTURE_WINDOW, engine, engine.signal)
            opened.callback(self._cutter.close)
            self._scheduler = Scheduler(
                engine.settings,
                clock,
                engine.journal,
                engine.catalog,
                engine.flows,
                engine.reader,
                engine.executor,
                self._cutter,
                engine.sources,
                engine.signal,
            )
            self._leases = Leases(engine.settings)
            self.history = History(self._scheduler, Path(project.storage) / INTERNAL)
            """The latest jobs and queries."""
            self._tuning = Tuning(engine.settings, engine.journal, engine.sources, engine.upkeep)
            self._applying = Applying(engine, self._tuning, load or (lambda: project))
            self._session = self.session()
            self._background = Background(self._scheduler, engine.upkeep, self._leases, self.history)
            opened.callback(self._background.close)
            self._opened = opened.pop_all()

    # asking

    def session(self) -> Session:
        """A reader of its own: its `SET`s hold for it alone, and its answers never go back in time."""
        self._engine.require_open()
        return Session(self._scheduler, self._leases, self.history)

    def sql(
        self,
        text: str,
        job: int | None = None,
        *,
        max_staleness: Duration | None = None,
        deadline: Duration | None = None,
        when_stale: str | None = None,
    ) -> Answer:
        """Answers one SELECT from one snapshot of all its tables, at most as stale as it says.

        The bound can be given here, in the query's tail, by `SET`, or in the project file; here counts first. With a
        job, that snapshot is read, whatever its age. All calls share one session; `session()` gives others.
        """
        self._engine.require_open()
        return self._session.sql(text, job, max_staleness=max_staleness, deadline=deadline, when_stale=when_stale)

    def table(self, name: str, job: int | None = None) -> SnapshotAnswer:
        """All rows of a table at a job, by default the newest that it has reached."""
        self._engine.require_open()
        if job:
            self.job(job)
        entry = self._engine.catalog.find(name)
        if entry is not None:
            self._scheduler.make_again([entry.name], None if job is None else JobId(job))
        return self._engine.reader.table(name, None if job is None else JobId(job))

    @property
    def tables(self) -> tuple[str, ...]:
        """The names that SQL can use."""
        return self._engine.catalog.names()

    def describe(self) -> tuple[TableDescription, ...]:
        """Every table that SQL can name: columns, key, and what it derives from."""
        with self._engine.journal.lock:
            return describe_tables(self._engine.catalog, self._engine.flows)

    def location(self, name: str) -> str:
        """Where the table lies: a Delta table that any client can read."""
        tables = self._engine.tables
        return f"{self.project.storage}/{tables.path(tables.get(name).main)}"

    @property
    def spark_for_small_jobs(self) -> SparkSession:
        """The session that small batches run in."""
        return self._engine.sessions.small

    # jobs

    @property
    def newest_job(self) -> JobId:
        """The newest closed job; 0 before the first."""
        return self._engine.journal.chain.newest

    def job(self, job: int) -> Job:
        """The cut and labels of a closed job."""
        return self._engine.journal.chain.get(JobId(job))

    def close_job(self) -> JobId:
        """Closes the open job at now without running it; without a new commit, the newest job stays the newest.

        Waits until every source's acknowledged transactions are captured.
        """
        captured = self._engine.capture()
        raise_all([*captured.missing.values()])
        return self._engine.cut(captured.samples)[0]

    def refresh(self, *, table: str | None = None, full: bool = False) -> JobId:
        """Closes the open job and brings every table up to it; gives the newest job.

        With `full`, all tables of all sources are read whole again first: the remedy when a source's changes can no
        longer be followed. With `table`, only that table of a source is read whole, or that flow is built again from its
        inputs. What differs from the replicas becomes changes, so that history is kept. If a table had been stopped, jobs
        from before can no longer be read. What fails keeps nothing else from going on, and is raised at the end.
        """
        return self._engine.refresh(table, full)

    @property
    def failures(self) -> tuple[BaseException, ...]:
        """Why tables lag behind: what failed when jobs last ran, and source tables that cannot be followed any further."""
        return self._engine.failures

    def materialize(self) -> None:
        """Folds every table's overlay into its Delta table and records the versions: afterwards nothing is made again on opening."""
        self._engine.require_open()
        self._engine.upkeep.materialize()

    # flows

    def flow(self, name: str, sql: str) -> None:
        """Adds a materialized view, or replaces the one of that name; it is kept when the warehouse is opened again."""
        with self._engine.defining_flows():
            self._engine.defining.declare(name, sql)

    def drop(self, name: str) -> None:
        """Archives a flow that a program declared: its table stays on the storage but is no longer kept or answered."""
        with self._engine.defining_flows():
            self._engine.defining.drop(name)

    def resume(self) -> None:
        """Takes the project's flow files as they are now and tries again what had failed."""
        self._engine.resume()

    def apply(self, *, dry_run: bool = False, diff: bool = False, expected: str | None = None) -> Preview:
        """Takes the project's files as they are now: flows that are new, changed or gone, and settings; gives what changed.

        Only what changed, and what reads it, is built, and everything else goes on answering. A mistake in a file changes
        nothing. With `dry_run` nothing is done; with `diff` the rows that would change are counted, which takes about as long
        as building the flows. `expected` is the identity of a preview: anything else is refused.
        """
        self._engine.require_open()
        return self._applying.apply(dry_run=dry_run, diff=diff, expected=expected)

    def explain(self, flow: str) -> Explanation:
        """The flow's graph, what is incremental and why the rest is not, and the bytes of its arrangements."""
        with self._engine.graph_lock:
            return explain_flow(self._engine.flows.get(flow), self._engine.tables.get, self._engine.ways.last)

    def from_scratch(self, flow: str) -> tuple[SparkSession, str]:
        """The session and the query that compute an incremental flow from its inputs' newest rows, for comparison."""
        with self._engine.graph_lock:
            stage = self._engine.flows.get(flow).stages[0]
            if not isinstance(stage, ViewStage):
                raise DefiniteError(f"{flow} is not a view", hint="dimensions are functions of history")
            session = self._engine.sessions.bulk
            return session, stage.from_scratch(BatchViews(session, KeptViews()))

    # sources

    @property
    def sources(self) -> Mapping[str, Source]:
        """Every source by its name."""
        return MappingProxyType(self._engine.sources)

    def source(self, name: str) -> MemorySource:
        """The in-process source of that name."""
        found = find_source(self._engine.sources, name)
        if not isinstance(found, MemorySource):
            raise DefiniteError(f"the source {name} is a database", hint="write to it there; headgate captures it")
        return found

    def producer_source(self, name: str | None = None) -> ProducerSource:
        """The source of that name, or the only one, that producers write to."""
        return find_producer_source(self._engine.sources, name)

    def create_table(self, source: str, table: SourceTable) -> None:
        """Declares a table that producers write to; it is kept when the warehouse is opened again."""
        found = self.producer_source(source)
        with self._engine.changing_flows():
            if any(table.name.casefold() == name.casefold() for name in found.tables):
                raise DefiniteError(
                    f"there is a table {source}.{table.name} already", hint="CREATE TABLE IF NOT EXISTS"
                )
            self._engine.replicas.declare(found, table, self.newest_job)

    def drop_table(self, source: str, table: str) -> None:
        """Archives a table that a producer declared: it is no longer answered."""
        found = self.producer_source(source)
        full = f"{source}.{table}"
        with self._engine.changing_flows():
            readers = [stage.name for stage in self._engine.flows.stages() if full in stage.inputs]
            if readers:
                raise DefiniteError(f"{', '.join(readers)} reads {full}", hint="drop what reads it first")
            self._engine.replicas.drop(found, table)

    def bring(self, source: str, tables: Collection[str]) -> JobId:
        """Brings tables of a source to a job that has all that it committed; gives the job."""
        found = find_source(self._engine.sources, source)
        sample = found.sample()
        found.capture(sample, CAPTURE_WINDOW)
        job, _ = self._engine.cut({source: sample})
        self._engine.executor.bring([f"{source}.{table}" for table in tables], job)
        return job

    def replica(self, table: str) -> StoredTable:
        """The table that stands for a source table."""
        return self._engine.replicas.stages[table].target

    def materialize_tables(self, source: str, tables: Collection[str]) -> None:
        """Folds all that was committed to tables of a source into their Delta tables.

        What derives from them is brought along and materialized too: a table is never past one that reads it.
        """
        job = self.bring(source, tables)
        affected = {f"{source}.{table}" for table in tables}
        for stage in self._engine.flows.stages():
            if not affected.isdisjoint(stage.inputs):
                affected.add(stage.name)
        self._engine.executor.bring(affected, job)
        self._engine.upkeep.materialize_stages(affected)

    # the whole

    @property
    def project(self) -> Project:
        """The project file's settings, with those that were changed since."""
        return self._engine.settings.current

    @property
    def tuning(self) -> Tuning:
        """The settings that can be changed now, and who changed them."""
        self._engine.require_open()
        return self._tuning

    @property
    def status(self) -> WarehouseStatus:
        """The warehouse now."""
        self._engine.require_open()
        return observe(
            self._scheduler,
            self._engine.upkeep,
            self._leases,
            self._background.actions,
            self._engine.tables.damaged,
            self.spark_lost,
            self._background.opening,
        )

    def backup(self, folder: str | Path, progress: OnCopied | None = None) -> Manifest:
        """Copies ledger, tables and stream logs as they are now into an empty folder, while the warehouse works.

        `headgate.runtime.recovery.backup` restores it. `progress` hears how many bytes are done, and of how many.
        """
        engine = self._engine
        engine.require_open()
        return back_up_open(
            self.project.storage, engine.journal, engine.scratch, engine.keeping_files(), folder, progress
        )

    @property
    def spark_lost(self) -> str | None:
        """Why Spark cannot be used any more, if so: then only a new process can go on."""
        return self._engine.sessions.health.lost

    def on_spark_lost(self, call: Callable[[str], None]) -> None:
        """Has the reason told, from any thread, when Spark's process has died or does not end what it does."""
        self._engine.sessions.health.on_lost(call)

    def on_close(self, call: Callable[[], None]) -> None:
        """Has something that stands on the warehouse closed first."""
        self._opened.callback(call)

    def close(self, fold_seconds: float = math.inf) -> None:
        """Folds every table, for about so many seconds, and closes sources, ledger and sessions.

        Committed transactions and closed jobs are durable already; of what is not folded, jobs are run again after the opening.
        """
        with self._closing:
            self._fold_seconds = fold_seconds
            self._opened.close()

    def __enter__(self) -> Warehouse:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        # Whoever was interrupted, or has failed, waits for nothing more.
        self.close(0.0 if kind is not None else math.inf)
