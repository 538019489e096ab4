"""The warehouse that a user opens: an engine, and a scheduler that makes it work when a query needs that."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from headgate.capture.source import Sample
from headgate.clock import Clock, SystemClock
from headgate.config.project import load_project
from headgate.config.settings import Project
from headgate.config.sources import PostgresSourceSettings
from headgate.delta.changes import JobId
from headgate.runtime.engine import CAPTURE_WINDOW, Engine
from headgate.runtime.recovery.backup import OnCopied, back_up_open
from headgate.runtime.recovery.manifest import Manifest
from headgate.runtime.sources.progress import OnProgress, default_progress
from headgate.runtime.stages.procedures import Procedure
from headgate.runtime.tables.tables import INTERNAL
from headgate.scheduling.background import Background
from headgate.scheduling.bound import Duration
from headgate.scheduling.cutter import Cutter
from headgate.scheduling.history import History
from headgate.scheduling.leases import Leases
from headgate.scheduling.scheduler import Scheduler
from headgate.scheduling.session import Answer, Session
from headgate.scheduling.status import WarehouseStatus, observe
from headgate.scheduling.tuning import Paced, Tuning
from headgate.warehouse.store import Step, no_step


def open_warehouse(
    project: str | Path | Mapping[str, object],
    *,
    clock: Clock | None = None,
    takeover: bool = False,
    step: Step = no_step,
    progress: OnProgress | None = None,
    procedures: Sequence[Procedure] = (),
) -> Warehouse:
    """Opens the warehouse of a project: a file, its folder, or a dict with the same keys.

    One process owns a warehouse at a time; `takeover` takes it from an owner that is gone for good. `step` is told each
    point of a commit, for tests of what a crash leaves behind. `progress` hears how far a source's tables are read at first
    contact; by default that is a line on the terminal. `procedures` are called with the changes of tables; one that is no
    longer given is archived.
    """
    return Warehouse(
        load_project(project),
        clock or SystemClock(),
        takeover,
        step,
        default_progress() if progress is None else progress,
        procedures,
    )


class Warehouse(Engine):
    """Use it in a `with` block; its methods may be called from any thread."""

    def __init__(
        self,
        project: Project,
        clock: Clock,
        takeover: bool,
        step: Step,
        progress: OnProgress | None = None,
        procedures: Sequence[Procedure] = (),
    ) -> None:
        self._cutter: Cutter | None = None
        self._background: Background | None = None
        super().__init__(project, clock, takeover, step, progress, procedures)
        try:
            self._cutter = Cutter(self._sources, clock, CAPTURE_WINDOW, self, self._signal)
            self._scheduler = Scheduler(
                self._settings,
                clock,
                self._journal,
                self._catalog,
                self._flows,
                self._reader,
                self._running,
                self._cutter,
                self._sources,
                self._signal,
            )
            self._leases = Leases(self._settings)
            self.history = History(self._scheduler, Path(project.storage) / INTERNAL)
            """The latest jobs and queries."""
            self._tuning = Tuning(self._settings, self._journal, self._take)
            self._session = self.session()
            self._background = Background(self._scheduler, self._upkeep, self._leases, self.history)
        except BaseException:
            self._shut()
            raise

    def session(self) -> Session:
        """A reader of its own: its `SET`s hold for it alone, and its answers never go back in time."""
        self._require_open()
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
        self._require_open()
        return self._session.sql(text, job, max_staleness=max_staleness, deadline=deadline, when_stale=when_stale)

    @property
    def status(self) -> WarehouseStatus:
        """The warehouse now."""
        self._require_open()
        assert self._background is not None
        return observe(
            self._scheduler,
            self._upkeep,
            self._leases,
            self._background.actions,
            self._tables.damaged,
            self.spark_lost,
        )

    def backup(self, folder: str | Path, progress: OnCopied | None = None) -> Manifest:
        """Copies ledger, tables and stream logs as they are now into an empty folder, while the warehouse works.

        `headgate.runtime.recovery.backup` restores it. `progress` hears how many bytes are done, and of how many.
        """
        self._require_open()
        return back_up_open(self.project.storage, self._journal, self._scratch, self._keeping_files(), folder, progress)

    @contextmanager
    def _keeping_files(self) -> Iterator[None]:
        """Inside the block no file that the ledger names is deleted."""
        with self._defining, self._upkeep.paused():
            yield

    @property
    def tuning(self) -> Tuning:
        """The settings that can be changed now, and who changed them."""
        self._require_open()
        return self._tuning

    def _take(self, project: Project) -> None:
        """Goes on with other settings. Most parts read them when they need them, these are told."""
        self._settings.current = project
        for name, source in self._sources.items():
            source.log.limit_bytes = project.limits.stream_bytes
            settings = project.sources[name]
            if isinstance(settings, PostgresSourceSettings) and isinstance(source, Paced):
                source.change_pace(settings.pace)
        # Fewer jobs may be retained.
        self._upkeep.release()

    def cut(self, samples: Mapping[str, Sample]) -> tuple[JobId, bool]:
        """Closes the open job at what is captured; gives the newest job and whether it is new."""
        before = self._journal.chain.newest
        job = self._cut(samples)
        return job, job > before

    def is_busy(self, tables: frozenset[str]) -> bool:
        """Whether a table, or what it derives from, has not taken what was cut before: a new cut would wait for that."""
        known = [table for table in tables if self._catalog.find(table) is not None]
        return any(self._running.is_wanted(stage.name) for stage in self._flows.needed(known))

    def is_saturated(self) -> bool:
        """Whether more answers are being read than Spark has slots for."""
        return self._reader.reads.running > self._started.context.defaultParallelism

    def _shut(self) -> None:
        for part in (self._background, self._cutter):
            if part is not None:
                part.close()
        super()._shut()

    def __enter__(self) -> Warehouse:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
