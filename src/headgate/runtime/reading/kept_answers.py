"""Answers that are asked again and again, moved on by the changes since instead of read anew.

Kept are the sums behind an answer, in memory, at the job of the last ask; the next ask adds the changes since (`kept_plan`). What is not
asked costs nothing, and is gone once its job's changes are. The snapshot of the query is pinned as for every other, and
the answer is that of its job. Whatever goes wrong here is left to reading the query as written.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from headgate.config.live import LiveProject
from headgate.delta.changes import JobId
from headgate.errors import HeadgateError, SnapshotGone
from headgate.runtime.flows.analyses import Analyses
from headgate.runtime.flows.flows import Planner
from headgate.runtime.reading.keeping import Keep, Observed, choose
from headgate.runtime.reading.kept_plan import KeptPlan, NotKept, plan_kept, select_text
from headgate.runtime.reading.query_work import Interruption, Turn
from headgate.runtime.reading.spark_reading import SparkReading
from headgate.runtime.spark.partitions import ReadLimit
from headgate.runtime.spark.sessions import SparkSessions
from headgate.runtime.spark.views import Views
from headgate.runtime.tables.catalog import TableEntry, WarehouseCatalog
from headgate.runtime.tables.stored import StoredTable

MOST_GROUPS = 10_000
"""Of one kept answer."""
MOST_BYTES = 64 << 20
"""Of all kept answers together."""
_KNOWN_TEXTS = 256
_SMALL_SESSION_ROWS = 25_000
_LEAST_TABLE_PER_CHANGE = 4
"""A table of fewer rows per change is read anew."""


@dataclass(frozen=True)
class AskedQuery:
    """A query of one table, at its pinned snapshot."""

    text: str
    table: StoredTable
    entry: TableEntry
    job: JobId
    interruption: Interruption
    view: Callable[[], str]
    """A view of the table's rows at the job, for the session of queries."""
    frame: Callable[[], DataFrame]
    """The query as written."""


@dataclass(frozen=True)
class KeptAnswer:
    """Sums and answer at a job. The table and its columns are those that the plan was made for."""

    plan: KeptPlan
    table: StoredTable
    entry: TableEntry
    schema: StructType
    job: JobId
    state: pa.Table
    rows: pa.Table
    origin: str
    """Where the rows come from, in words."""

    @property
    def bytes(self) -> int:
        return int(self.state.nbytes + self.rows.nbytes)

    def is_for(self, asked: AskedQuery) -> bool:
        return self.table is asked.table and self.entry == asked.entry


@dataclass
class _Asks:
    """What is known about the asks of one text."""

    observed: Observed = field(default_factory=Observed)
    turn: Turn = field(default_factory=Turn)
    kept: KeptAnswer | None = None


class KeptAnswers:
    """One warehouse's; may be used by many threads."""

    def __init__(self, settings: LiveProject, catalog: WarehouseCatalog) -> None:
        self._settings = settings
        self._catalog = catalog
        self._lock = threading.Lock()
        self._planning = threading.Lock()
        self._queries: OrderedDict[str, _Asks] = OrderedDict()
        self.choose: Callable[[Observed], Keep] = choose
        self.served = 0
        """Answers that came from kept ones."""

    def begin(self, sessions: SparkSessions, reading: SparkReading) -> None:
        self._sessions = sessions
        self._reading = reading
        # Not the session in which flows are analysed: empty tables have the same names there, and are dropped.
        self._analyses = Analyses(lambda: sessions.query)

    def answer(self, asked: AskedQuery) -> KeptAnswer | None:
        """The answer at the job of the query's snapshot, if it is kept or is to be from now on; None to read it as written."""
        if self._settings.current.limits.kept_answers == 0:
            self.clear()
            return None
        query = self._query(asked)
        if not self.choose(query.observed).keep:
            query.kept = None
            return None
        with query.turn.taken(asked.interruption):
            if query.kept is not None and not query.kept.is_for(asked):
                query.kept = None
            if query.kept is not None and query.kept.job > asked.job:
                return None
            found = None
            try:
                found = self._found(query, asked)
            except NotKept as why:
                query.observed.refused = str(why)
            except (PySparkException, Py4JJavaError, HeadgateError) as problem:
                asked.interruption.check()
                query.observed.pause(f"it could not be kept: {type(problem).__name__}")
            query.kept = found
        if found is not None:
            with self._lock:
                self.served += 1
            self._bound()
        return found

    def observe(self, text: str, seconds: float) -> None:
        """The query was planned and read as written, which took so long."""
        with self._lock:
            query = self._queries.get(text)
            if query is not None:
                query.observed.read_seconds.append(seconds)

    def find(self, text: str) -> str:
        """Whether the query's answer is kept, in words."""
        with self._lock:
            query = self._queries.get(text)
            if query is None:
                return "not kept: not asked before"
            return f"{'kept' if query.kept is not None else 'not kept'}: {self.choose(query.observed).reason}"

    @property
    def kept(self) -> list[KeptAnswer]:
        with self._lock:
            return [query.kept for query in self._queries.values() if query.kept is not None]

    def forget_before(self, job: JobId) -> None:
        """Lets answers go whose changes since may be gone."""
        with self._lock:
            for query in self._queries.values():
                if query.kept is not None and query.kept.job < job:
                    query.kept = None

    def clear(self) -> None:
        with self._lock:
            self._queries.clear()

    def _query(self, asked: AskedQuery) -> _Asks:
        with self._lock:
            query = self._queries.setdefault(asked.text, _Asks())
            self._queries.move_to_end(asked.text)
            while len(self._queries) > _KNOWN_TEXTS:
                self._queries.popitem(last=False)
            query.observed.ask(asked.job)
            return query

    def _bound(self) -> None:
        """Lets those go that were not asked for longest, as far as there are too many."""
        most, size = self._settings.current.limits.kept_answers, MOST_BYTES
        with self._lock:
            for query in reversed(self._queries.values()):
                if query.kept is not None:
                    most, size = most - 1, size - query.kept.bytes
                    if most < 0 or size < 0:
                        query.kept = None

    def _found(self, query: _Asks, asked: AskedQuery) -> KeptAnswer:
        """The answer at the query's job; what is kept is of an earlier one, or of the same."""
        kept = query.kept
        if kept is None:
            return self._built(*self._planned(asked), asked)
        if kept.job == asked.job:
            return replace(kept, origin=f"kept at job {kept.job}")
        began = time.monotonic()
        moved = self._moved(kept, asked)
        if moved is None:
            return self._built(kept.plan, kept.schema, asked)
        query.observed.moved_seconds.append(time.monotonic() - began)
        return moved

    def _built(self, plan: KeptPlan, schema: StructType, asked: AskedQuery) -> KeptAnswer:
        """Reads the sums from the snapshot."""
        frame = self._sessions.query.sql(plan.state_text(asked.view()))
        state = self._reading.read(frame, ReadLimit(rows=MOST_GROUPS + 1)).to_arrow()
        if state.num_rows > MOST_GROUPS:
            raise NotKept(f"it has more than {MOST_GROUPS:,} groups")
        views = self._views_for(0)
        try:
            result, kinds = views.collect(plan.result_text(views.of_rows(state, plan.state)))
            rows = self._rest(plan, result, kinds, views)
        finally:
            views.close()
        return KeptAnswer(plan, asked.table, asked.entry, schema, asked.job, state, _shown(rows, schema), "read whole")

    def _planned(self, asked: AskedQuery) -> tuple[KeptPlan, StructType]:
        schema = asked.frame().schema
        with self._planning:
            try:
                plan = plan_kept(asked.text, Planner(self._analyses, self._catalog, lambda _: None))
            except (HeadgateError, PySparkException, Py4JJavaError) as problem:
                raise NotKept(f"it has no incremental form: {type(problem).__name__}") from problem
            finally:
                self._analyses.keep_used()
        return plan, schema

    def _moved(self, kept: KeptAnswer, asked: AskedQuery) -> KeptAnswer | None:
        """The answer after the changes since it was kept; None when reading it anew is the better way."""
        try:
            changes = asked.table.changes(kept.job, asked.job)
        except SnapshotGone:
            return None
        if changes is None or not changes.rows:
            return replace(kept, job=asked.job, origin=f"kept at job {kept.job}, nothing has changed since")
        if (
            changes.table is None
            or not changes.in_memory
            or changes.rows * _LEAST_TABLE_PER_CHANGE > asked.table.count(asked.job)
        ):
            return None
        plan = kept.plan
        views = self._views_for(changes.rows)
        try:
            changed = views.of_rows(plan.changed(changes.table), _read_columns(plan, asked.table))
            fused = plan.moved(changed, views.of_rows(kept.state, plan.state))
            columns = plan.graph.root.columns
            found, kinds = views.collect(select_text(fused, columns))
            state = found.select(list(fused.state_columns)).rename_columns(list(fused.state_columns.values()))
            result = found
            for flag in fused.kept_flags:
                result = result.filter(result.column(flag))
            shown = StructType([kinds[name] for name in columns])
            rows = self._rest(plan, result.select(list(columns)), shown, views)
        finally:
            views.close()
        if state.num_rows > MOST_GROUPS:
            raise NotKept(f"it has more than {MOST_GROUPS:,} groups")
        origin = f"kept at job {kept.job}, moved on by {changes.rows:,} changes"
        return replace(
            kept,
            job=asked.job,
            state=state.select(list(plan.state.names)),
            rows=_shown(rows, kept.schema),
            origin=origin,
        )

    def _views_for(self, rows: int) -> Views:
        """Of the session that suits this many changed rows."""
        sessions = self._sessions
        return Views(sessions.small, sessions.collector) if rows < _SMALL_SESSION_ROWS else Views(sessions.query)

    def _rest(self, plan: KeptPlan, result: pa.Table, columns: StructType, views: Views) -> pa.Table:
        """The answer from the graph's result."""
        if plan.rest is None:
            return result
        return views.collect(plan.rest_text(views.of_rows(result, columns)))[0]


def _read_columns(plan: KeptPlan, table: StoredTable) -> StructType:
    """The columns of `KeptPlan.changed`."""
    names = dict.fromkeys(output.sql for output in plan.scan.outputs)
    schema = table.spec.change_schema
    return StructType([schema[name] for name in (*names, *schema.names[-2:])])


def _shown(rows: pa.Table, schema: StructType) -> pa.Table:
    """The rows under the names, and in the types, that Spark gives the query; by position."""
    arrow = to_arrow_schema(schema, timezone="UTC")
    if len(rows.column_names) != len(arrow):
        raise NotKept("its columns are others than Spark's")
    arrays = []
    for column, wanted in zip(rows.columns, arrow, strict=True):
        if column.type != wanted.type:
            raise NotKept(f"its column {wanted.name} has another type than Spark's")
        arrays.append(column)
    return pa.Table.from_arrays(arrays, schema=arrow)
