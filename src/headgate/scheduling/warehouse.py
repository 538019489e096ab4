"""The warehouse that a user opens: an engine, and a scheduler that makes it work when a query needs that."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import MappingProxyType

from pyspark.sql import SparkSession

from headgate.capture.memory import MemorySource
from headgate.capture.producer import ProducerSource
from headgate.capture.queue_status import QueueStatus
from headgate.capture.source import Source
from headgate.clock import Clock
from headgate.config.settings import Project
from headgate.delta.changes import JobId
from headgate.errors import DefiniteError, raise_all
from headgate.runtime.engine import CAPTURE_WINDOW, Engine
from headgate.runtime.flows.advice import FlowAdvice
from headgate.runtime.flows.descriptions import Lineage, TableDescription, describe_tables, lineage_of
from headgate.runtime.flows.explain import Explanation
from headgate.runtime.flows.range_status import TableRangesStatus
from headgate.runtime.placing.platforms import Platforms
from headgate.runtime.reading.answer import SnapshotAnswer
from headgate.runtime.recovery.backup import OnCopied, back_up_open
from headgate.runtime.recovery.manifest import Manifest
from headgate.runtime.sources.loading import SourceLoad
from headgate.runtime.sources.progress import OnProgress
from headgate.runtime.sources.sources import find_producer_source, find_source
from headgate.runtime.spark.executors import executor_supply
from headgate.runtime.stages.procedures import Procedure
from headgate.runtime.stages.view_stage import ViewStage
from headgate.runtime.tables.batch_views import BatchViews, KeptViews
from headgate.runtime.tables.jobs import Job
from headgate.runtime.tables.stored import StoredTable
from headgate.runtime.tables.tables import INTERNAL
from headgate.scheduling.advisor import Advisor
from headgate.scheduling.applying import Applying, ApproveOpening, Preview
from headgate.scheduling.background import Background
from headgate.scheduling.bound import Bound, Duration
from headgate.scheduling.cutter import Cutter
from headgate.scheduling.expectations import Violations
from headgate.scheduling.history import History
from headgate.scheduling.leases import Leases
from headgate.scheduling.producer_tables import ProducerTables
from headgate.scheduling.refreshing import Refreshing
from headgate.scheduling.scaling import Scaling
from headgate.scheduling.scaling_records import ScalingRecords
from headgate.scheduling.scheduler import Scheduler
from headgate.scheduling.session import Answer, Session
from headgate.scheduling.showing import Catalogue
from headgate.scheduling.status import WarehouseStatus, observe
from headgate.scheduling.subscription import Subscription, Subscriptions
from headgate.scheduling.tuning import Tuning, left_changes
from headgate.warehouse.store import Step


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
        approve: ApproveOpening = lambda changes, flows, settings: None,
        load: Callable[[], Project] | None = None,
        build_later: bool = False,
    ) -> None:
        """`load` reads the project again when it is applied."""
        self._closing = threading.RLock()
        self._fold_seconds = 0.0
        with ExitStack() as opened:
            self._engine = engine = Engine(
                project,
                clock,
                takeover,
                step,
                progress,
                procedures,
                lambda changes, flows, journal: approve(changes, flows, left_changes(journal, project)[1]),
                build_later,
            )
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
                engine.platforms,
                engine.loads,
            )
            self._leases = Leases(engine.settings)
            self._violations = Violations(engine.flows, engine.tables)
            self.history = History(self._scheduler, Path(project.storage) / INTERNAL, self._violations)
            """The latest jobs and queries."""
            self._tuning = Tuning(engine.settings, engine.journal, engine.sources, engine.upkeep)
            self._applying = Applying(engine, self._tuning, load or (lambda: project))
            self._catalogue = Catalogue(self._scheduler, self._violations, engine)
            self._session = self.session()
            self._subscriptions = Subscriptions(self._scheduler, engine.tables, self._leases)
            opened.callback(self._subscriptions.close)
            self._advisor = Advisor(engine, self._subscriptions)
            opened.callback(self._advisor.close)
            self._background = Background(
                self._scheduler,
                engine.upkeep,
                self._leases,
                self.history,
                self._subscriptions,
                self._advisor,
                engine.dividing,
            )
            opened.callback(self._background.close)
            self._scaling: Scaling | None = None
            if project.scaling is not None:
                supply = executor_supply(engine.sessions.context)
                times = self.history.query_times
                self._scaling = Scaling(
                    project.scaling,
                    supply,
                    self._scheduler,
                    engine.upkeep,
                    times,
                    engine.sessions,
                    ScalingRecords(Path(project.storage) / INTERNAL),
                    lambda: engine.spark_ranges.under_way,
                )
                opened.callback(self._scaling.close)
            if engine.flows.unbuilt:
                building = threading.Thread(target=engine.build_left, name="building", daemon=True)
                building.start()
                opened.callback(self._end_building, building)
            self._opened = opened.pop_all()

    def _end_building(self, building: threading.Thread) -> None:
        while building.is_alive():
            self._engine.stop_building()
            building.join(0.1)

    # asking

    def session(self) -> Session:
        """A reader of its own: its `SET`s hold for it alone, and its answers never go back in time."""
        self._engine.require_open()
        return Session(self._scheduler, self._leases, self.history, self._catalogue)

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
        self._scheduler.wait_until_built([name], None)
        entry = self._engine.catalog.find(name)
        if entry is not None:
            self._scheduler.make_again([entry.name], None if job is None else JobId(job))
        return self._engine.reader.table(name, None if job is None else JobId(job))

    def subscribe(
        self, table: str, as_of: int | str | None = None, *, max_staleness: Duration | None = None
    ) -> Subscription:
        """Follows a table: its rows at one job, then the weighted changes of each later job.

        `as_of` is a job whose rows the reader has, or the position that an earlier subscription gave: then only what came after it is
        given. The table is kept as fresh as the bound says, by default the project's; with "any" changes come when
        something else brings them. Close it, or use it in a `with` block.
        """
        self._engine.require_open()
        bound = Bound.of(self.project.freshness, max_staleness=max_staleness)
        self._scheduler.wait_until_built([table], None)
        return self._subscriptions.open(table, as_of, Bound(bound.max_staleness, None, "wait"))

    @property
    def tables(self) -> tuple[str, ...]:
        """The names that SQL can use."""
        return self._engine.catalog.names()

    def describe(self) -> tuple[TableDescription, ...]:
        """Every table that SQL can name: columns, key, and what it derives from."""
        with self._engine.journal.lock:
            return describe_tables(self._engine.catalog, self._engine.flows)

    def lineage(self, table: str) -> Lineage:
        """Which columns of which tables each of the table's columns is made of."""
        name = self._engine.reader.require_known(table)
        with self._engine.journal.lock:
            return lineage_of(name, self._engine.catalog, self._engine.flows)

    def column_type(self, table: str, column: str) -> str | None:
        """The type of a table's column as Spark SQL writes it; None if there is no such column."""
        entry = self._engine.catalog.find(table)
        fields = () if entry is None else entry.full_schema.fields
        return next(
            (each.dataType.simpleString() for each in fields if each.name.casefold() == column.casefold()), None
        )

    def location(self, name: str) -> str:
        """Where the table lies: a Delta table that any client can read."""
        return self._engine.location(name)

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
        return Refreshing(self._engine).refresh(table, full)

    def split_partition(self, source: str, partition: int) -> QueueStatus:
        """Cuts a partition of a source's elastic queue in two, for what is put from now on."""
        return find_source(self.sources, source).log.split(partition)

    def merge_partitions(self, source: str, partition: int, other: int) -> QueueStatus:
        """Joins two neighbouring partitions of a source's elastic queue, for what is put from now on."""
        return find_source(self.sources, source).log.merge(partition, other)

    @property
    def failures(self) -> tuple[BaseException, ...]:
        """Why tables lag behind: what failed when jobs last ran, and source tables that cannot be followed any further. Also which
        flows of the project's files do not count, because a client or program has one of the name."""
        return (*self._engine.failures, *self._engine.defining.disputed)

    def materialize(self) -> None:
        """Folds every table's overlay into its Delta table and records the versions: afterwards nothing is made again on opening."""
        self._engine.require_open()
        self._engine.upkeep.materialize()

    # flows

    def flow(self, name: str, sql: str) -> None:
        """Adds a materialized view, or replaces the one of that name; it is kept when the warehouse is opened again.

        `sql` is its query, or a CREATE MATERIALIZED VIEW with constraints and properties.
        """
        with self._engine.defining_flows():
            self._engine.defining.declare(name, sql)

    def drop(self, name: str) -> None:
        """Archives a flow that a program declared: its table stays on the storage but is no longer kept or answered."""
        with self._engine.defining_flows():
            self._engine.defining.drop(name)

    @property
    def declared(self) -> Mapping[str, str]:
        """The queries of the flows that programs declared, by name; all others are of the project's files."""
        return dict(self._engine.defining.declared)

    def redeclare(self, flows: Mapping[str, str | None], *, dry_run: bool = False) -> None:
        """Adds, replaces and (None) drops several flows of programs at once; with `dry_run` only tells mistakes."""
        with self._engine.defining_flows():
            self._engine.defining.redeclare(flows, dry_run=dry_run)

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
        return self._engine.explain(flow)

    def ranges(self) -> list[TableRangesStatus]:
        """How every table is cut into key ranges, where these stand, and which scans of views are aligned."""
        return self._engine.dividing.status()

    def change_ranges(
        self,
        table: str,
        *,
        split: str | None = None,
        merge: int | None = None,
        bounds: Sequence[str] | None = None,
        count: int | None = None,
    ) -> None:
        """Cuts a table, and those aligned with it, in other places; nothing is rewritten, queries and writers go on."""
        self._engine.require_open()
        if split is not None:
            self._engine.dividing.split(table, split)
        elif merge is not None:
            self._engine.dividing.merge(table, merge)
        elif count is not None:
            self._engine.dividing.set_count(table, count)
        else:
            self._engine.dividing.set_bounds(table, bounds or ())

    def advise(
        self, flow: str | None = None, *, space: float | None = None, dry_run: bool = False
    ) -> tuple[FlowAdvice, ...]:
        """Stores those results of one flow, or of all that do not say 'advise' = 'never', which take least time; gives why.

        `space` is σ: what a second of building, which grows with a result's space, counts beside a second of latency; by default what
        the project says. With `dry_run` nothing is measured or moved.
        """
        self._engine.require_open()
        if dry_run:
            return self._advisor.advice(flow, space=space)
        return self._advisor.apply(flow, space=space)

    @property
    def advised(self) -> dict[str, str]:
        """By flow with 'advise' = 'auto' what was decided at the last look, and why."""
        return dict(self._advisor.last)

    def from_scratch(self, flow: str) -> tuple[SparkSession, str]:
        """The session and the query that compute an incremental flow from its inputs' newest rows, for comparison."""
        with self._engine.graph_lock:
            stage = self._engine.flows.get(flow).stages[0]
            if not isinstance(stage, ViewStage):
                raise DefiniteError(f"{flow} is not a view", hint="a dimension cannot be recomputed from current rows")
            session = self._engine.sessions.bulk
            return session, stage.from_scratch(BatchViews(session, KeptViews(), self._engine.batches.many_rows))

    # platforms

    @property
    def platforms(self) -> Platforms:
        """The databases beside Spark that tables are placed at: what they have, and how it is repaired."""
        self._engine.require_open()
        return self._engine.platforms

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

    def replica(self, table: str) -> StoredTable:
        """The table that stands for a source table."""
        return self._engine.replicas.stages[table].target

    @property
    def producer_tables(self) -> ProducerTables:
        """The tables that programs declare and fill."""
        return ProducerTables(self._engine)

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
    def scaling(self) -> Scaling:
        """The sizes of the parts, which follow what they have to do."""
        if self._scaling is None:
            raise DefiniteError(
                "no part of this warehouse is scaled", hint="add the section scaling to the project file"
            )
        return self._scaling

    @property
    def status(self) -> WarehouseStatus:
        """The warehouse now."""
        self._engine.require_open()
        return observe(
            self._scheduler,
            self._engine.upkeep,
            self._leases,
            len(self._subscriptions),
            self._background.actions,
            self._engine.tables.damaged,
            self.spark_lost,
            self._background.opening,
            None if self._scaling is None else self._scaling.status,
            self._violations,
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
    def loads(self) -> dict[str, SourceLoad]:
        """Per source whose tables do not all have their first rows, what is missing and how far it is."""
        return self._engine.loads.status

    def load_first(self, table: str) -> None:
        """Has the first rows of a source table read before those of others; what is being read goes on.

        `shop.orders WHERE id < 1000` has the ranges of a table read first that hold such rows.
        """
        self._engine.require_open()
        self._engine.loads.put_first(*self._engine.reader.keys_where(table))

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
