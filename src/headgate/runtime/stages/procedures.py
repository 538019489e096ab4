"""User procedures: a Python function that gets the changes of a table, job by job, and may touch state outside headgate.

It declares what it reads and writes there, and that decides how its jobs run:

    neither             pure: jobs run at the same time
    writes              jobs run at the same time; what a call returns to be committed is committed in the order of jobs
    reads (and writes)  in a zone, strictly one job after another; procedures that share a zone wait for each other

Each call gets its job's id. After a crash, jobs that were not durable are called again, so what a procedure does outside
should be the same when done twice, for example by remembering the job. Rows that it returns are a table of its own, by key;
without declared columns that table is the log of its calls.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from headgate.dataflow.relation import column_list, quoted
from headgate.delta.changes import COMMIT_AT, JOB, POSITION, WEIGHT, JobId
from headgate.delta.events import DELETE, OP, SEQUENCE, UPSERT
from headgate.errors import ConfigError, DefiniteError, FlowFailed
from headgate.runtime.rows import chains
from headgate.runtime.spark.pools import use_pool, used_pool
from headgate.runtime.spark.retrying import retried
from headgate.runtime.spark.types import parse_type
from headgate.runtime.stages.batch import Batch
from headgate.runtime.stages.differences import difference_text
from headgate.runtime.tables.stored import StoredTable
from headgate.warehouse.changes import ChangeSet
from headgate.warehouse.frames import column
from headgate.warehouse.spark_errors import reason_of
from headgate.warehouse.spec import TableSpec

CALL_LOG = {"job": "bigint", "called_at": "timestamp", "rows": "bigint"}
MOST_CALLS = 4
"""Jobs of one procedure that run at the same time."""

Kind = Literal["pure", "write_only", "read_write"]
Given = TypeVar("Given")


@dataclass(frozen=True, slots=True)
class Call:
    """What a call is for."""

    procedure: str
    job: JobId
    data_timestamp: datetime


Commit: TypeAlias = Callable[[], None]
Function: TypeAlias = Callable[[DataFrame, Call], "DataFrame | Commit | None"]


class CallFailed(FlowFailed):
    """A procedure raised; earlier jobs are complete."""


@dataclass(frozen=True)
class Procedure:
    """A function over the changes of table `on`, whose rows have `__weight`: 1 appeared, -1 went."""

    name: str
    on: str
    function: Function
    reads: Collection[str] = ()
    """What it reads outside headgate, by any name."""
    writes: Collection[str] = ()
    zone: str | None = None
    """Where it runs if it reads; by default with those that name the same outside state."""
    columns: Mapping[str, str] = field(default_factory=dict)
    """Spark SQL types of the rows that it returns, if it does."""
    key: Collection[str] = ()

    def __post_init__(self) -> None:
        if bool(self.columns) != bool(self.key):
            raise ConfigError(
                f"procedure {self.name} declares {'columns' if self.columns else 'a key'} without"
                f" {'a key' if self.columns else 'columns'}",
                hint="rows that a procedure returns need both",
            )
        for name in self.key:
            if name not in self.columns:
                raise ConfigError(
                    f"procedure {self.name}: the key column {name} is not declared",
                    hint=f"its columns are {', '.join(self.columns)}",
                )

    @property
    def kind(self) -> Kind:
        if self.reads:
            return "read_write"
        return "write_only" if self.writes else "pure"

    @property
    def zone_name(self) -> str | None:
        """The zone that its jobs run in, one at a time; None for none."""
        if self.kind != "read_write":
            return None
        return self.zone or "+".join(sorted({*self.reads, *self.writes}))

    def spec(self) -> TableSpec:
        schema = StructType()
        for name, text in (self.columns or CALL_LOG).items():
            try:
                schema.add(name, parse_type(text))
            except PySparkException:
                raise ConfigError(
                    f"the column {name} of procedure {self.name} has the type {text}, which Spark does not know",
                    hint="use a Spark SQL type such as bigint, string or decimal(10,2)",
                ) from None
        return TableSpec(self.name, schema, tuple(self.key) or ("job",))


@dataclass
class _Made:
    """What a call gave: rows to store, in place of all rows with these keys, and what is to be done when its turn comes."""

    rows: pa.Table
    touched: pa.Table | None
    commit: Commit | None
    many: tuple[DataFrame, DataFrame] | None = None
    """Rows to store that are too many for the driver, and the changes that they were made from."""

    @property
    def size(self) -> int:
        return int(self.rows.num_rows) + (0 if self.touched is None else int(self.touched.num_rows))


class ProcedureStage:
    """Keeps a procedure's table, by calling it once for every job that changed what it reads."""

    def __init__(self, procedure: Procedure, target: StoredTable, tables: Mapping[str, StoredTable]) -> None:
        self.procedure = procedure
        self.target = target
        self._tables = tables

    @property
    def name(self) -> str:
        return self.target.name

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.procedure.on,)

    @property
    def zone(self) -> str | None:
        return self.procedure.zone_name

    def advance(self, upto: JobId, batch: Batch) -> None:
        after = self.target.through
        jobs = [JobId(job) for job in range(after + 1, upto + 1) if self._changes(JobId(job)) is not None]
        made: dict[JobId, _Made] = {}
        try:
            for job, found in self._calls(jobs, batch):
                if found.commit is not None:
                    self._guarded(found.commit, job)
                if found.many or sum(each.size for each in made.values()) + found.size > batch.factory.many_rows:
                    # No more than the driver may hold is kept from job to job.
                    self._apply(made, after, JobId(job - 1), batch)
                    after, made = JobId(job - 1), {}
                if found.many is not None:
                    self._apply_many(*found.many, job, batch)
                    after = job
                else:
                    made[job] = found
        except CallFailed:
            self._apply(made, after, max(made, default=after), batch)
            raise
        self._apply(made, after, upto, batch)

    def build(self, job: JobId, batch: Batch) -> None:
        """Calls the procedure with all rows that its table has at the job: what it starts from."""
        source = self._tables[self.procedure.on]
        if source.is_empty(job):
            self.target.apply(None, job)
            return
        views = batch.views(source.count(job))
        names = ", ".join(quoted(name) for name in source.spec.columns)
        frame = views.sql(f"SELECT {names}, 1L AS {WEIGHT} FROM {views.whole(source, job)}")
        found = self._call(job, frame, None, batch)
        if found.commit is not None:
            self._guarded(found.commit, job)
        if found.many is not None:
            self._apply_many(*found.many, job, batch)
        else:
            self._apply({job: found}, JobId(job - 1), job, batch)

    def _changes(self, job: JobId) -> ChangeSet | None:
        found = self._tables[self.procedure.on].changes(JobId(job - 1), job)
        return found if found is not None and found.rows else None

    def _calls(self, jobs: list[JobId], batch: Batch) -> Iterator[tuple[JobId, _Made]]:
        """The results by job, in order; those of a procedure without a zone are made at the same time, a few ahead."""
        if self.zone is not None or len(jobs) < 2:
            yield from ((job, self._called(job, batch)) for job in jobs)
            return
        context = batch.factory.sessions.context
        name = used_pool(context)

        def called(job: JobId) -> _Made:
            use_pool(context, name)
            return self._called(job, batch)

        waiting: deque[tuple[JobId, Future[_Made]]] = deque()
        with ThreadPoolExecutor(min(MOST_CALLS, len(jobs)), thread_name_prefix=f"procedure {self.name}") as pool:
            for job in jobs:
                waiting.append((job, pool.submit(called, job)))
                if len(waiting) == MOST_CALLS:
                    first, future = waiting.popleft()
                    yield first, future.result()
            for job, future in waiting:
                yield job, future.result()

    def _called(self, job: JobId, batch: Batch) -> _Made:
        changes = self._changes(job)
        assert changes is not None
        session = batch.factory.session(changes.rows)
        return self._call(job, changes.frame(session).drop(JOB), changes, batch)

    def _call(self, job: JobId, frame: DataFrame, changes: ChangeSet | None, batch: Batch) -> _Made:
        batch.factory.settle()
        call = Call(self.name, job, batch.factory.chain.get(job).data_timestamp)
        given = self._guarded(lambda: self.procedure.function(frame, call), job)
        if not self.procedure.columns:
            commit = given if callable(given) else None
            rows = frame.count() if changes is None else changes.rows
            return _Made(self._log_row(job, rows), None, commit)
        if not isinstance(given, DataFrame):
            raise CallFailed(
                f"procedure {self.name} returned no DataFrame in job {job}, but declares columns",
                hint="return the rows, or declare no columns",
            )
        spec, most = self.target.spec, batch.factory.many_rows
        many = _Made(spec.arrow_schema.empty_table(), None, None, (given.select(*spec.columns), frame))
        if (self._tables[self.procedure.on].count(job) if changes is None else changes.rows) > most:
            return many
        few = given.select(*spec.columns).limit(most + 1)
        with batch.factory.sessions.execution(few):
            rows = self._guarded(few.toArrow, job)
        return many if rows.num_rows > most else _Made(_typed(rows, spec), self._touched(frame), None)

    def _touched(self, frame: DataFrame) -> pa.Table | None:
        """Keys of the rows that changed, if the key is among the columns that are read: what is not returned anew is gone."""
        key = self.target.spec.key
        if not set(key) <= set(frame.columns):
            return None
        return frame.select(*[quoted(name) for name in key]).distinct().toArrow()

    def _log_row(self, job: JobId, rows: int) -> pa.Table:
        row = {"job": job, "called_at": datetime.now(UTC), "rows": rows}
        return _typed(pa.Table.from_pylist([row]), self.target.spec)

    def _guarded(self, work: Callable[[], Given], job: JobId) -> Given:
        try:
            return retried(work, f"procedure {self.name}, job {job}")
        except CallFailed:
            raise
        except Exception as error:
            is_sparks = isinstance(error, PySparkException | Py4JError)
            told = reason_of(error).words if is_sparks else str(error).strip().partition("\n")[0]
            raise CallFailed(
                f"procedure {self.name} failed in job {job}: {type(error).__name__}: {told or 'no message'}",
                hint="correct it, then `headgate resume`; earlier jobs are complete",
            ) from error

    def _apply(self, made: Mapping[JobId, _Made], after: JobId, upto: JobId, batch: Batch) -> None:
        """Stores what the calls gave, each job's rows by key in place of those before."""
        spec = self.target.spec
        parts = []
        for job, found in made.items():
            at = batch.factory.chain.get(job).data_timestamp
            if found.touched is not None:
                parts.append(_events(_widened(found.touched, spec), DELETE, job, 0, at))
            parts.append(_events(found.rows, UPSERT, job, 1, at))
        events = pa.concat_tables(parts) if parts else None
        if events is None or not events.num_rows:
            self.target.apply(None, upto)
            return
        old = None
        if not self.target.is_empty(after):
            keys = events.select(list(spec.key)).group_by(list(spec.key)).aggregate([]).select(list(spec.key))
            old = self.target.lookup(spec.key, keys, after, spec.columns)
        rows = chains.transaction_changes(events, old, spec.key, list(spec.columns))
        rows = rows.select([*spec.columns, JOB, WEIGHT])
        self.target.apply(ChangeSet.of_table(spec, rows, after, upto) if rows.num_rows else None, upto)

    def _apply_many(self, given: DataFrame, frame: DataFrame, job: JobId, batch: Batch) -> None:
        """Stores the rows of one call by executors, by key in place of those before."""
        spec, views, after = self.target.spec, batch.bulk_views, JobId(job - 1)
        names = column_list(spec.key)
        # Written once: what the function made may not come out the same again.
        typed = given.select(
            [column(field.name).cast(field.dataType).alias(field.name) for field in spec.schema.fields]
        )
        folder = self._guarded(lambda: batch.to_files(typed), job)
        rows = views.of_frame(views.session.read.schema(spec.schema).parquet(f"file://{folder}"))
        last = f"ROW_NUMBER() OVER (PARTITION BY {names} ORDER BY {names}) AS __number"
        text = f"SELECT * EXCEPT (__number) FROM (SELECT *, {last} FROM {rows}) WHERE __number = 1"
        keys = f"SELECT {names} FROM {rows}"
        if set(spec.key) <= set(frame.columns):
            keys += f" UNION ALL SELECT {names} FROM {views.of_frame(frame)}"
        old = views.matching(self.target, after, spec.key, f"({keys})")
        if old is None:
            changes = batch.appeared(spec, text, job, views)
        else:
            changes = batch.made(spec, difference_text(spec, text, old, job), after, job)
        self.target.apply(changes, job)


def check_zones(procedures: Collection[Procedure]) -> None:
    """Procedures that read or write the same outside state, one of them reading it, must share a zone."""
    for one in procedures:
        for other in procedures:
            shared = {*one.reads} & {*other.writes}
            if one is not other and shared and one.zone_name != other.zone_name:
                raise DefiniteError(
                    f"procedure {one.name} reads {', '.join(sorted(shared))}, which {other.name} writes, in another zone",
                    hint=f'give both zone="{one.zone_name}", and declare that {other.name} reads it too',
                )


def _events(rows: pa.Table, op: int, job: JobId, rank: int, at: datetime) -> pa.Table:
    """Rows as events of one transaction per job; a later event of a key counts."""
    count = rows.num_rows
    columns = {
        OP: pa.array(np.full(count, op, dtype=np.int8)),
        SEQUENCE: pa.array(rank * (1 << 40) + np.arange(count, dtype=np.int64)),
        POSITION: pa.array(np.full(count, job, dtype=np.int64)),
        COMMIT_AT: pa.array([at] * count, pa.timestamp("us", tz="UTC")),
        JOB: pa.array(np.full(count, job, dtype=np.int64)),
    }
    for name, values in columns.items():
        rows = rows.append_column(name, values)
    return rows


def _widened(keys: pa.Table, spec: TableSpec) -> pa.Table:
    wanted = spec.arrow_schema
    for place, missing in enumerate(wanted):
        if missing.name not in keys.column_names:
            keys = keys.add_column(place, missing, pa.nulls(keys.num_rows, missing.type))
    return _typed(keys, spec)


def _typed(rows: pa.Table, spec: TableSpec) -> pa.Table:
    """The spec's columns and types."""
    return rows.select(list(spec.columns)).cast(spec.arrow_schema)
