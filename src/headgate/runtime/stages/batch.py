"""A batch: the closed jobs (after, upto] of some tables, run as one.

It lends the stages what they share: the sessions, the views, the chain of jobs, a scratch folder for what is too large
for the driver, and each source table's changes per transaction, which its replica and its dimensions both need.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from headgate.dataflow.relation import column_list
from headgate.delta.changes import JOB, WEIGHT, JobId
from headgate.runtime.spark.pools import POOL_PROPERTY
from headgate.runtime.spark.scratch import Scratch
from headgate.runtime.spark.sessions import SparkSessions
from headgate.runtime.stages.event_files import EventFiles
from headgate.runtime.stages.ways import Ways
from headgate.runtime.tables.jobs import JobChain
from headgate.runtime.tables.stored import BatchViews, KeptViews
from headgate.warehouse.changes import ChangeSet
from headgate.warehouse.spec import TableSpec


class TransactionChanges:
    """A source table's changes per transaction: rows in the driver or, when there are many, in files."""

    def __init__(self, rows: pa.Table | None, schema: StructType, enter: Callable[[], str]) -> None:
        self.rows = rows
        self.schema = schema
        self._enter = enter

    @cached_property
    def view(self) -> str:
        """The changes as a view, made when first asked for."""
        return self._enter()


@dataclass
class Batch:
    chain: JobChain
    sessions: SparkSessions
    kept: KeptViews
    scratch: Scratch
    many_rows: int
    """From here on rows stay in files and the session with code generation is used."""
    ways: Ways
    settle: Callable[[], None]
    """Makes every closed job durable: called before something outside learns of one."""
    transaction_changes: dict[tuple[str, JobId, JobId], TransactionChanges | None] = field(default_factory=dict)
    event_files: dict[tuple[str, JobId, JobId], EventFiles] = field(default_factory=dict)
    _open: dict[int, BatchViews] = field(default_factory=dict)
    _folders: list[Path] = field(default_factory=list)

    def views(self, rows: int) -> BatchViews:
        """The views of the session that suits this many changed rows."""
        return self._views_of(self.sessions.small if rows < self.many_rows // 10 else self.sessions.bulk)

    @property
    def has_views(self) -> bool:
        """Whether closing the batch takes calls of Spark."""
        return bool(self._open)

    @property
    def bulk_views(self) -> BatchViews:
        return self._views_of(self.sessions.bulk)

    def _views_of(self, session: SparkSession) -> BatchViews:
        if id(session) not in self._open:
            collector = self.sessions.collector if session is self.sessions.small else None
            self._open[id(session)] = BatchViews(session, self.kept, collector)
        return self._open[id(session)]

    def to_files(self, frame: DataFrame) -> str:
        """Writes rows that are too many for the driver into a folder that stays until the scratch folder is emptied."""
        folder = self.new_folder()
        frame.write.parquet(str(folder))
        return str(folder)

    def new_folder(self) -> Path:
        """A name for a folder of the scratch folder."""
        self._folders.append(self.scratch.new())
        return self._folders[-1]

    def appeared(self, spec: TableSpec, text: str, job: JobId, views: BatchViews) -> ChangeSet | None:
        """The rows of a query over the views as changes of one job that made them all."""
        names = column_list(spec.columns)
        query = f"SELECT {names}, CAST({job} AS BIGINT) AS {JOB}, 1L AS {WEIGHT} FROM ({text})"
        before = JobId(job - 1)
        if views.session is self.sessions.small:
            rows, _ = views.collect(query)
            return ChangeSet.of_table(spec, rows, before, job) if rows.num_rows else None
        changes = ChangeSet.of_files(spec, self.to_files(views.session.sql(query)), before, job)
        return changes if changes.rows else None

    def close(self) -> None:
        for views in self._open.values():
            views.close()
        self.scratch.done(self._folders)


@dataclass(frozen=True)
class BatchFactory:
    """Makes batches; several may be open at a time, in different threads."""

    chain: JobChain
    sessions: SparkSessions
    kept: KeptViews
    scratch: Scratch
    many_rows: int
    ways: Ways
    settle: Callable[[], None]

    @contextmanager
    def open(self, pool: str | None = None) -> Iterator[Batch]:
        """A batch, whose Spark jobs go into a pool of Spark's scheduler if one is named."""
        if pool is not None:
            self.sessions.context.setLocalProperty(POOL_PROPERTY, pool)
        batch = Batch(self.chain, self.sessions, self.kept, self.scratch, self.many_rows, self.ways, self.settle)
        try:
            yield batch
        finally:
            batch.close()
