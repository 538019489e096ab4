"""A batch: the closed jobs (after, upto] of some tables, run as one.

It lends the stages what they share: what its factory has (sessions, the chain of jobs, ways), the views, a scratch folder for
what is too large for the driver, and each source table's changes per transaction, which its replica and its dimensions
both need.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from headgate.dataflow.relation import column_list
from headgate.dataflow.sharing import SharedPart
from headgate.delta.changes import JOB, WEIGHT, JobId
from headgate.ranges.range_map import Ranges
from headgate.runtime.evaluation.shared_parts import SharedParts
from headgate.runtime.spark.pools import use_pool
from headgate.runtime.spark.scratch import Scratch
from headgate.runtime.spark.sessions import SparkSessions
from headgate.runtime.spark.views import LazyView
from headgate.runtime.stages.event_files import EventFiles, Events, SharedEvents
from headgate.runtime.stages.ways import Ways
from headgate.runtime.tables.batch_views import BatchViews, KeptViews
from headgate.runtime.tables.jobs import JobChain
from headgate.warehouse.changes import ChangeSet
from headgate.warehouse.spec import TableSpec
from headgate.warehouse.store import Step, no_step


class TransactionChanges:
    """A source table's changes per transaction: rows in the driver or, when there are many, in files."""

    def __init__(
        self, rows: pa.Table | None, schema: StructType, views: BatchViews, enter: Callable[[], str] | None = None
    ) -> None:
        """`views` are those of the session that the changes can be read in; `enter` makes the view of changes in files."""
        self.rows = rows
        self.schema = schema
        self.views = views
        self._view = LazyView(enter or (lambda: views.of_rows(self.rows, schema)))

    @property
    def view(self) -> str:
        """The changes as a view, made when first asked for."""
        return self._view.name


@dataclass
class Batch:
    factory: BatchFactory
    wide_replicas: dict[tuple[str, Ranges, JobId, JobId], bool] = field(default_factory=dict)
    """By replica and jobs whether its events stay in files."""
    transaction_changes: dict[tuple[str, Ranges, JobId, JobId], TransactionChanges | None] = field(default_factory=dict)
    alongside: tuple[str, ...] = ()
    """The stages that run at the same time, this one among them; one that works on several groups of ranges, as often."""
    parts: Sequence[SharedPart] = ()
    """What the stage has in common with others."""
    _events: list[Events] = field(default_factory=list)
    """Which events in files it was lent."""
    _open: dict[int, BatchViews] = field(default_factory=dict)
    _folders: list[Path] = field(default_factory=list)

    @property
    def share(self) -> float:
        """Of the time that the stage takes, the part that it would take without those alongside: all of them wait for each other, so
        what a way of working takes shows only in this part."""
        return min(1.0, self.factory.sessions.slots / max(1, len(self.alongside)))

    def views(self, rows: int) -> BatchViews:
        """The views of the session that suits this many changed rows."""
        return self._views_of(self.factory.session(rows))

    @property
    def has_views(self) -> bool:
        """Whether closing the batch takes calls of Spark."""
        return bool(self._open)

    @property
    def bulk_views(self) -> BatchViews:
        return self._views_of(self.factory.sessions.bulk)

    def _views_of(self, session: SparkSession) -> BatchViews:
        if id(session) not in self._open:
            collector = self.factory.sessions.collector if session is self.factory.sessions.small else None
            execution = self.factory.sessions.execution
            self._open[id(session)] = BatchViews(
                session, self.factory.kept, self.factory.many_rows, collector, execution
            )
        return self._open[id(session)]

    def to_files(self, frame: DataFrame) -> str:
        """Writes rows that are too many for the driver into a folder that stays until the scratch folder is emptied."""
        folder = self.new_folder()
        with self.factory.sessions.execution(frame):
            frame.write.parquet(str(folder))
        self.factory.step("batch-files")
        return str(folder)

    def made(self, spec: TableSpec, query: str, after: JobId, upto: JobId) -> ChangeSet | None:
        """The rows of a query over `bulk_views`, which executors write into files, as changes of the jobs (after, upto]."""
        found = ChangeSet.of_files(spec, self.to_files(self.bulk_views.sql(query)), after, upto)
        return found if found.rows else None

    def new_folder(self) -> Path:
        """A name for a folder of the scratch folder."""
        self._folders.append(self.factory.scratch.new())
        return self._folders[-1]

    def event_files(self, place: Events, make: Callable[[Path], EventFiles]) -> EventFiles:
        """Events in files, which the batch has until it is closed."""
        self._events.append(place)
        return self.factory.events.lend(place, make)

    def appeared(self, spec: TableSpec, text: str, job: JobId, views: BatchViews) -> ChangeSet | None:
        """The rows of a query over the views as changes of one job that made them all."""
        names = column_list(spec.columns)
        query = f"SELECT {names}, CAST({job} AS BIGINT) AS {JOB}, 1L AS {WEIGHT} FROM ({text})"
        before = JobId(job - 1)
        if views.session is self.factory.sessions.small:
            rows, _ = views.collect(query)
            return ChangeSet.of_table(spec, rows, before, job) if rows.num_rows else None
        return self.made(spec, query, before, job)

    def close(self, *, failed: bool) -> None:
        for views in self._open.values():
            views.close()
        self.factory.events.give_back(self._events, failed=failed)
        self.factory.scratch.done(self._folders)


@dataclass(frozen=True)
class BatchFactory:
    """Makes batches; several may be open at a time, in different threads."""

    chain: JobChain
    sessions: SparkSessions
    kept: KeptViews
    scratch: Scratch
    events: SharedEvents
    many_rows: int
    """From here on rows stay in files and the session with code generation is used."""
    ways: Ways
    shared_parts: SharedParts
    settle: Callable[[], None]
    """Makes every closed job durable: called before something outside learns of one."""
    step: Step = no_step
    """Hears of what is on the disk before it counts."""

    def session(self, rows: int) -> SparkSession:
        """The session that suits this many changed rows."""
        return self.sessions.small if rows < self.many_rows // 10 else self.sessions.bulk

    @contextmanager
    def open(
        self, pool: str | None = None, alongside: tuple[str, ...] = (), parts: Sequence[SharedPart] = ()
    ) -> Iterator[Batch]:
        """A batch, whose Spark jobs go into a pool of Spark's scheduler if one is named."""
        if pool is not None:
            use_pool(self.sessions.context, pool)
        batch, failed = Batch(self, alongside=alongside, parts=parts), True
        try:
            yield batch
            failed = False
        finally:
            batch.close(failed=failed)
