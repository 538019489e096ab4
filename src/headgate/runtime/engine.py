"""The engine: everything of a warehouse but the decision when to work. It opens the parts, and closes them again.

The ledger holds what counts: every closed job, every flow's definition, and per table the Delta version that holds a job.
What was not materialized is made again on opening, from the stream logs and the recorded cuts.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta
from functools import partial
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from headgate.capture.log_manifest import LogManifest
from headgate.capture.producer import ProducerSource
from headgate.capture.ranges import LargeLoads
from headgate.capture.recovery import Expected
from headgate.capture.source import Sample, Source
from headgate.clock import Clock
from headgate.config.live import LiveProject
from headgate.config.settings import Project
from headgate.delta.changes import JobId
from headgate.errors import DefiniteError, raise_all
from headgate.runtime.defining.building import Builder, Definitions
from headgate.runtime.defining.defining import Defining
from headgate.runtime.defining.dividing import Dividing
from headgate.runtime.defining.evolution import take_wider_types
from headgate.runtime.defining.preview import FlowChange, flow_changes
from headgate.runtime.evaluation.shared_parts import SharedParts
from headgate.runtime.execution.executor import Executor
from headgate.runtime.execution.failures import all_failures
from headgate.runtime.flows.analyses import Analyses
from headgate.runtime.flows.explain import Explanation, explain_flow
from headgate.runtime.flows.flow_set import FlowSet
from headgate.runtime.flows.procedure_set import ProcedureSet
from headgate.runtime.flows.range_maps import RangeMaps
from headgate.runtime.flows.replicas import Replicas
from headgate.runtime.placing.platforms import Platforms
from headgate.runtime.reading.reader import Reader
from headgate.runtime.reading.spark_reading import SparkReading
from headgate.runtime.signal import Signal
from headgate.runtime.sources.cuts import Cuts
from headgate.runtime.sources.loading import Loads
from headgate.runtime.sources.progress import OnProgress
from headgate.runtime.sources.range_loads import RangeLoads
from headgate.runtime.sources.sources import Captured, capture, needs_spark, open_source, own_tables
from headgate.runtime.sources.spark_parts import SparkParts
from headgate.runtime.sources.spark_ranges import MOST_TASKS, SparkRanges
from headgate.runtime.sources.streams import open_stream
from headgate.runtime.spark.environment import check_java, check_storage
from headgate.runtime.spark.executors import SETTINGS as EXECUTOR_SETTINGS
from headgate.runtime.spark.scratch import Scratch
from headgate.runtime.spark.sessions import SparkSessions
from headgate.runtime.stages.batch import BatchFactory
from headgate.runtime.stages.event_files import SharedEvents
from headgate.runtime.stages.materialization import Materializer
from headgate.runtime.stages.procedures import Procedure
from headgate.runtime.stages.ways import Way, Ways
from headgate.runtime.tables.catalog import WarehouseCatalog
from headgate.runtime.tables.journal import Journal
from headgate.runtime.tables.records import STREAM, STREAM_MARKED
from headgate.runtime.tables.tables import INTERNAL, Tables
from headgate.runtime.upkeep.upkeep import Upkeep
from headgate.warehouse.base import FileLimits
from headgate.warehouse.conversions import bring_up_to_date
from headgate.warehouse.ledger import Ledger
from headgate.warehouse.storage import Folder
from headgate.warehouse.store import Step, no_step

_LOGGER = logging.getLogger(__name__)
_BUILDING = "headgate-building"
"""Spark's tag for the jobs that build flows after the opening."""
CAPTURE_WINDOW = timedelta(seconds=60)
"""How long a source may take to deliver, where nobody names a deadline."""

Approve = Callable[[Sequence[FlowChange], int, Journal], None]
"""Hears what opening does to flows, how many there are, and the journal, before that is done; raises where it is not to be done."""


class Engine:
    """The parts of an open warehouse, and what takes several of them; may be used from any thread."""

    def __init__(
        self,
        project: Project,
        clock: Clock,
        takeover: bool = False,
        step: Step = no_step,
        progress: OnProgress | None = None,
        procedures: Sequence[Procedure] = (),
        approve: Approve = lambda changes, flows, journal: None,
        build_later: bool = False,
    ) -> None:
        """With `build_later`, flows that have to be built wait for `build_left`."""
        check_java()
        check_storage(project.storage)
        self.settings = LiveProject(project)
        self.signal = Signal()
        self.sources: dict[str, Source] = {}
        self.graph_lock = threading.RLock()
        """Held by whoever changes the graph."""
        self._is_closed = False
        ledger, self.sessions = _begun(project, clock, takeover, step)
        with ExitStack() as opened:
            opened.callback(self.sessions.stop)
            opened.callback(ledger.close)
            opened.callback(self._close_sources)
            self.journal = Journal(ledger)
            self._assemble(project, clock, step, ledger.epoch, progress)
            opened.callback(self.journal.settle)
            opened.callback(self.ways.keep)
            opened.callback(self.executor.close)
            opened.callback(self.platforms.close)
            old = any("schema" not in record for record in self.journal.records.sources.values())
            if old or procedures or any(map(needs_spark, project.sources.values())):
                # Spark reads the types of their columns.
                self.sessions.wait()
            self._open_sources(clock, progress, ledger.epoch)
            if self.cuts.reread():
                # A crash came between: no stage may run through the jobs that are to be forgotten.
                self.cuts.close_job({})
            with self.graph_lock:
                self.defining.open(
                    procedures,
                    lambda found: approve(self.flow_changes(found), len(found.plans), self.journal),
                    build_later,
                )
                self.flows.mark_unloaded()
                self.replicas.mark_entering()
                self.platforms.follow()
            sessions = self.sessions
            self.reader.begin(sessions, SparkReading(sessions, self.scratch))
            opened.callback(self.loads.close)
            self.loads.start()
            self._opened = opened.pop_all()

    def _assemble(self, project: Project, clock: Clock, step: Step, epoch: int, progress: OnProgress | None) -> None:
        """Makes the parts, each from those that it uses."""
        sessions, journal, limits = self.sessions, self.journal, project.limits
        self.scratch = Scratch(Path(project.storage) / INTERNAL / "scratch", epoch)
        self.catalog = WarehouseCatalog()
        self.tables = Tables(
            project.storage,
            FileLimits(rows_per_file=limits.rows_per_file, driver_rows=limits.batch_rows),
            limits.small_table_rows,
            lambda: sessions.bulk,
            step,
        )
        costs = Path(project.storage) / INTERNAL / "costs.json"
        self.ways = ways = Ways(limits.batch_rows, None if limits.way is None else Way(limits.way), costs)
        self.batches = batches = BatchFactory(
            journal.chain,
            sessions,
            self.tables.kept,
            self.scratch,
            SharedEvents(self.scratch),
            limits.batch_rows,
            ways,
            SharedParts(self.tables.kept.retire),
            journal.settle,
            step,
        )
        materializer = Materializer(journal, self.tables, sessions)
        self.cuts = Cuts(self.sources, journal, clock, self.signal)
        self.replicas = Replicas(
            self.tables, self.catalog, journal, batches, materializer, RangeMaps(self.settings, journal)
        )
        procedures = ProcedureSet(self.tables, self.catalog, journal, batches, materializer, self.replicas)
        self.flows = FlowSet(self.tables, self.catalog, journal, self.replicas, procedures)
        self.reader = Reader(
            self.catalog,
            self.tables,
            journal,
            self.flows,
            Folder.at(project.storage),
            self.signal,
            self.settings,
        )
        self.executor = Executor(self.flows, self.tables, batches, self.signal)
        self.upkeep = Upkeep(
            self.settings,
            journal,
            self.tables,
            self.flows,
            self.sources,
            self.reader,
            batches,
            materializer,
            self.executor,
        )
        range_loads = RangeLoads(journal, self.tables, lambda: sessions.context, self.upkeep.paused, self._widen)
        self.loads = Loads(
            self.sources, self.signal, self.flows.with_history, self.replicas.stages, range_loads, progress
        )
        self.platforms = Platforms(
            self.settings, journal, self.flows, self.executor, sessions, self.signal, journal.identity, epoch, step
        )
        self.defining = Defining(
            self.settings,
            Analyses(lambda: sessions.small, Path(project.storage) / INTERNAL / "analyses.json", sessions.identity),
            self.tables,
            self.catalog,
            journal,
            materializer,
            self.replicas,
            procedures,
            self.flows,
            Builder(self.tables, journal, batches, materializer, self.replicas),
            self.executor,
        )
        self.dividing = Dividing(
            self.settings,
            self.flows,
            self.replicas.range_maps,
            journal,
            self.executor,
            lambda: sessions.bulk,
            self.graph_lock,
        )

    def _open_sources(self, clock: Clock, progress: OnProgress | None, epoch: int) -> None:
        project, journal = self.settings.current, self.journal
        newest = journal.chain.newest
        scaling = project.scaling
        distribution = "on demand" if scaling is None else scaling.extract.distribution
        limits = project.limits
        if scaling is not None:
            # From this share on commits in memory are written to the disk.
            kept = int(limits.unwritten_bytes * scaling.buffer.memory)
            limits = limits.model_copy(update={"unwritten_bytes": kept})
        self.spark_ranges = SparkRanges(
            lambda: self.sessions.context, distribution, lambda: self.sessions.tasks.get("extract", MOST_TASKS)
        )
        large = LargeLoads(self.spark_ranges, project.limits.spark_load_bytes)
        files = SparkParts(lambda: self.sessions.context)
        for name, settings in project.sources.items():
            manifest = journal.records.streams.get(name)
            expected = Expected(journal.chain.position(name, newest), name in journal.records.marked)
            log = open_stream(
                Path(project.storage) / INTERNAL / "streams" / name,
                epoch,
                None if manifest is None else LogManifest.from_body(manifest),
                partial(self._record_stream, name),
                limits,
                journal.verify,
                expected,
                settings,
            )
            if not expected.is_marked:
                journal.record([(STREAM_MARKED, {"source": name})])
            source = open_source(project.name, name, settings, log, clock, progress, large, files, self.signal.notify)
            self.sources[name] = source
            journal.logs[name] = log
            self.replicas.open(source, [*settings.tables, *own_tables(settings)], newest)
            if isinstance(source, ProducerSource):
                self.replicas.open_declared(source, newest)
            if log.loss is not None and source.unopened is None and not source.capabilities.intermediate_versions:
                # Polls promise no more than reading everything finds.
                raise_all(self.cuts.read_whole(source))

    def _record_stream(self, source: str, manifest: LogManifest) -> None:
        self.journal.record([(STREAM, manifest.body(source))])

    # jobs

    def capture(self) -> Captured:
        """Captures what every source has acknowledged by now."""
        self.require_open()
        return capture(self.sources, self.settings.current.freshness.deadline or CAPTURE_WINDOW)

    def cut(self, samples: Mapping[str, Sample]) -> tuple[JobId, bool]:
        """Closes the open job at what is captured; gives the newest job and whether it is new."""
        self.require_open()
        self._widen(*self.sources.values())
        with self.journal.lock:
            before = self.journal.chain.newest
            job = self.cuts.close_job(samples)
        return job, job > before

    def _widen(self, *sources: Source) -> None:
        """Gives replicas the columns that their tables at the sources have."""
        if any(map(self.replicas.are_narrow, sources)):
            with self.changing_flows():
                for source in sources:
                    self.replicas.widen(source)
                if take_wider_types(self.journal.records, self.replicas, self.flows, sources):
                    self.defining.read_again()

    def is_busy(self, tables: frozenset[str]) -> bool:
        """Whether a table, or what it derives from, has not taken what was cut before: a new cut would wait for that."""
        known = [table for table in tables if self.catalog.find(table) is not None]
        return any(self.executor.is_wanted(stage.name) for stage in self.flows.needed(known))

    def is_saturated(self) -> bool:
        """Whether more answers are being read than Spark has slots for."""
        return self.reader.reads.running > self.sessions.context.defaultParallelism

    @property
    def failures(self) -> tuple[BaseException, ...]:
        """Why tables lag behind: what failed when jobs last ran, and source tables that cannot be followed any further."""
        return all_failures(self.tables, self.executor, self.replicas)

    # flows

    @contextmanager
    def changing_flows(self) -> Iterator[None]:
        """No stage runs inside the block, and nobody else changes the graph."""
        with self.graph_lock, self.executor.paused():
            self.require_open()
            yield

    @contextmanager
    def keeping_files(self) -> Iterator[None]:
        """Inside the block no file that the ledger names is deleted."""
        with self.graph_lock, self.upkeep.paused():
            yield

    @contextmanager
    def defining_flows(self) -> Iterator[None]:
        """Nobody else changes the graph inside the block; stages run."""
        with self.graph_lock:
            self.require_open()
            yield
        self.upkeep.tidy()

    def build_left(self) -> None:
        """Builds the flows that opening has left; each can be asked for as soon as it is there."""
        context = self.sessions.context
        context.addJobTag(_BUILDING)
        with self.graph_lock:
            if not self._is_closed:
                self.defining.build_left()
                self.platforms.follow()

    def stop_building(self) -> None:
        """Breaks off what `build_left` does; may be called again until that has returned."""
        self.defining.stop()
        with suppress(PySparkException, Py4JError):
            # Spark may be gone.
            self.sessions.context.cancelJobsWithTag(_BUILDING)

    def resume(self) -> None:
        """Takes the project's flow files as they are now and tries again what had failed."""
        with self.defining_flows():
            failed = list(self.executor.failures)
            self.executor.resume()
            self.defining.read_again()
            # What is defined otherwise now may have been tried as it was.
            self.executor.resume()
        live = {stage.name for stage in self.flows.stages()}
        self.defining.bring([name for name in failed if name in live], self.journal.chain.newest)

    def flow_changes(self, definitions: Definitions) -> tuple[FlowChange, ...]:
        """What taking the definitions would do."""
        return flow_changes(self.journal.records, self.tables, self.defining, definitions)

    def explain(self, flow: str) -> Explanation:
        """The flow's graph, what is incremental and why the rest is not, and the bytes of its arrangements."""
        with self.graph_lock:
            return explain_flow(self.flows.get(flow), self.tables.get, self.ways.last)

    def location(self, table: str) -> str:
        """Where the table lies: a Delta table that any client can read."""
        return f"{self.settings.current.storage}/{self.tables.path(self.tables.get(table).versioned)}"

    # closing

    def require_open(self) -> None:
        if self._is_closed:
            raise DefiniteError("the warehouse is closed", hint="open it again")

    def close(self, fold_seconds: float) -> None:
        """Folds tables for so many seconds, and closes sources, ledger and sessions."""
        with self.graph_lock:
            if not self._is_closed:
                self._is_closed = True
                self._opened.callback(self._fold, fold_seconds)
                self._opened.callback(self.executor.close)
                self._opened.callback(self.loads.close)
            self._opened.close()

    def _fold(self, seconds: float) -> None:
        if seconds <= 0 or self.sessions.health.lost is not None:
            return
        try:
            self.journal.settle()
            if not self.upkeep.fold(seconds):
                _LOGGER.info("not all tables could be folded in time: the next opening runs their jobs again")
        except Exception as error:
            # The warehouse is closed all the same, and the next opening runs the jobs again.
            _LOGGER.warning("tables could not be folded: %s", error)

    def _close_sources(self) -> None:
        for source in self.sources.values():
            source.close()


def _begun(project: Project, clock: Clock, takeover: bool, step: Step) -> tuple[Ledger, SparkSessions]:
    """The ledger, in this version's format, and Spark."""
    owner = f"{socket.gethostname()} process {os.getpid()}"
    ledger = Ledger.open(project.storage, owner, clock.now, takeover=takeover, step=step)
    try:
        bring_up_to_date(ledger, project.storage, step)
        return ledger, SparkSessions(
            project.spark,
            f"headgate {project.name}",
            in_background=True,
            needed={} if project.scaling is None else EXECUTOR_SETTINGS,
        )
    except BaseException:
        ledger.close()
        raise
