"""Reading snapshots: a query's tables become views of one job, pinned while the answer lives."""

from __future__ import annotations

import difflib
import re
import time
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from copy import copy
from functools import partial

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from headgate.config.live import LiveProject
from headgate.dataflow.graph import Scan
from headgate.dataflow.relation import column_list
from headgate.delta.changes import JobId
from headgate.errors import DefiniteError, Location, UnknownTable
from headgate.ranges.key_set import ALL, KeySet
from headgate.runtime.flows.flow_set import NO_KEYS, FlowSet
from headgate.runtime.flows.range_status import missing_reasons, range_jobs
from headgate.runtime.reading.answer import SnapshotAnswer
from headgate.runtime.reading.kept_answers import AskedQuery, KeptAnswers
from headgate.runtime.reading.narrowing import WHOLE, KeysOutdated, Narrowed, Narrowing, Unnarrowed
from headgate.runtime.reading.picking import picked_keys, picked_rows
from headgate.runtime.reading.query_work import Interruption
from headgate.runtime.reading.reads import Reads
from headgate.runtime.reading.result import PickedResult, PlannedResult, Result
from headgate.runtime.reading.snapshot import Snapshot, Snapshots
from headgate.runtime.reading.spark_reading import SparkReading
from headgate.runtime.signal import Signal
from headgate.runtime.spark.parser import SparkParser
from headgate.runtime.spark.problems import query_problem
from headgate.runtime.spark.sessions import SparkSessions
from headgate.runtime.spark.views import Views
from headgate.runtime.tables.catalog import WarehouseCatalog
from headgate.runtime.tables.journal import Journal
from headgate.runtime.tables.stored import StoredTable
from headgate.runtime.tables.tables import Tables
from headgate.sql.guard import require_select
from headgate.sql.names import substituted
from headgate.sql.positions import SyntaxProblem
from headgate.sql.references import Edited, TableText, tables_of_query
from headgate.warehouse.local import empty_frame, local_frame
from headgate.warehouse.problems import storage_problems, translate
from headgate.warehouse.storage import Folder

_QUERY = Location("query")


class Reader:
    """Answers from snapshots; may be used by many threads."""

    def __init__(
        self,
        catalog: WarehouseCatalog,
        tables: Tables,
        journal: Journal,
        flows: FlowSet,
        storage: Folder,
        signal: Signal,
        settings: LiveProject,
    ) -> None:
        self._catalog = catalog
        self._tables = tables
        self._stored = tables.get
        self._journal = journal
        self._flows = flows
        self._plan = flows.plan_of
        self._storage = storage
        self.reads = Reads(signal)
        self.kept = KeptAnswers(settings, catalog)
        self._snapshots = Snapshots(catalog, tables, flows)
        self._narrowing = Narrowing(lambda: self._session)
        self.asked: Counter[str] = Counter()
        """By table, how often it was read."""

    def begin(self, sessions: SparkSessions, reading: SparkReading) -> None:
        """Spark is there: from now on queries can be read."""
        self._session = sessions.query
        self._snapshots.begin(sessions.query, reading.scratch)
        self._reading = reading
        self._parser = SparkParser(sessions.query)
        self.kept.begin(sessions, reading)

    def through(self, table: str, keys: Mapping[str, KeySet] = NO_KEYS) -> JobId:
        """The newest job at which the table can be read, or those of its rows that have these keys."""
        with self._journal.lock:
            stored = self._stored_tables(table)
            return min(
                (found.through_of(keys.get(found.name, ALL)) for found in stored), default=self._journal.chain.newest
            )

    def ranges(self, table: str) -> dict[str, JobId]:
        with self._journal.lock:
            return range_jobs(self._stored_tables(table))

    def missing(self, table: str) -> dict[str, str]:
        with self._journal.lock:
            return missing_reasons(self._stored_tables(table))

    def oldest(self, tables: Collection[str], keys: Mapping[str, KeySet] = NO_KEYS) -> JobId:
        """The oldest job that all of the tables still hold, or those of their rows that have these keys."""
        return max((self._oldest(table, keys) for table in tables), default=JobId(0))

    def _oldest(self, name: str, keys: Mapping[str, KeySet]) -> JobId:
        flow = self._flows.first(name)
        if flow is None:
            return self._stored(name).readable_from(keys.get(name, ALL))
        stored = [stage.target.readable_from(keys.get(stage.target.name, ALL)) for stage in flow.stages]
        return max([flow.since, *stored, *(self._oldest(below, keys) for below in flow.plan.read_when_asked)])

    def read(self, text: str) -> TableText:
        """The query and where it names tables; a DefiniteError that says why it may not be run."""
        try:
            return tables_of_query(require_select(text, _QUERY), self._catalog.hidden)
        except SyntaxProblem:
            return self._parser.read(text, _QUERY, self._catalog.hidden)

    def tables_of(self, query: TableText) -> tuple[str, ...]:
        """The tables that a query names, each once."""
        return tuple(
            dict.fromkeys(
                self.require_known(each.name, _QUERY.within(query.text, each.start)) for each in query.references
            )
        )

    def narrowed(self, query: TableText, interruption: Interruption, until: float | None = None) -> Narrowed:
        """The keys that a query can depend on, of each stored table with ranges that it reads.

        Raises `DeadlineExceeded` when they are not known by an instant of the monotonic clock.
        """
        if not query.is_repeatable:
            # Spark would read the time, or chance, into the plan: another one than the query's.
            return WHOLE
        names = self.tables_of(query)
        with self._journal.lock:
            stored = [table for name in names for table in self._stored_tables(name)]
            columns = {table.name: table.division.column for table in stored if table.division is not None}
            premise = self._premise(names) if columns else None
        if not columns:
            return WHOLE
        if query.picks is not None and len(query.references) == 1 and len(stored) == 1:
            # Many such queries come at a time, and plans are made one after the other.
            (table,) = stored
            picked = picked_keys(query.picks, table.spec.schema, columns[table.name])
            if picked is not None:
                return Narrowed({table.name: picked}, premise)

        def text(relation: Callable[[str, StructType], str]) -> str:
            return query.replaced(
                lambda table: self._without_rows(self.require_known(table.name), table.hidden, relation)
            ).text

        def planned() -> Mapping[str, KeySet]:
            return self._narrowing.keys(columns, text, (query.text, premise))

        known = self._narrowing.known((query.text, premise))
        try:
            keys = self._reading.work.run(planned, interruption, until) if known is None else known
        except Unnarrowed:
            return WHOLE
        return Narrowed(keys, premise)

    def keys_where(self, text: str) -> tuple[str, KeySet]:
        """A table and, behind WHERE, the keys of its rows for which a predicate may hold; all without one."""
        table, *where = (part.strip() for part in re.split(r"\swhere\s", text, maxsplit=1, flags=re.IGNORECASE))
        if not where:
            return table, ALL
        query = self.read(f"SELECT * FROM {table} WHERE {where[0]}")
        (name,) = self.tables_of(query)
        keys = self.narrowed(query, Interruption()).keys.get(name, ALL)
        if keys == ALL:
            raise DefiniteError(
                f"all ranges of {table} can hold rows for which {where[0]} is true",
                hint="compare the column that the table is loaded by with literals; `headgate ranges show` names it",
            )
        return table, keys

    def _premise(self, names: Iterable[str], job: JobId | None = None) -> Hashable:
        """What keys of the tables are told from, of the flows in use or of those that have a job; the journal's lock is held."""
        found: dict[str, Hashable] = {}
        waiting = list(names)
        while waiting:
            name = waiting.pop()
            if name in found:
                continue
            flow = self._flows.find(name) if job is None else self._flows.at(name, job)
            tables = [self._stored(name)] if flow is None else [stage.target for stage in flow.stages]
            columns = [(table.name, table.division.column) for table in tables if table.division is not None]
            found[name] = ("" if flow is None else flow.plan.fingerprint, *columns)
            if flow is not None and flow.plan.fragment is not None:
                waiting += flow.plan.read_when_asked
        return frozenset(found.items())

    def _without_rows(self, name: str, hidden: Collection[str], relation: Callable[[str, StructType], str]) -> str:
        """A table, or what its fragment makes of tables, over relations without rows."""
        entry, plan = self._catalog.find(name), self._plan(name)
        assert entry is not None
        shown = column_list([*entry.schema.names, *hidden])
        if plan is not None and plan.fragment is not None and plan.fragment.context:
            # What depends on the time is evaluated once per job, from all rows.
            raise Unnarrowed
        if plan is None or plan.fragment is None:
            return f"(SELECT {shown} FROM {relation(name, entry.full_schema)})"
        mapping = {}
        for part, node in plan.fragment.inputs:
            if isinstance(node, Scan):
                below = self._without_rows(node.table, self._catalog.hidden(node.table), relation)
                mapping[part] = f"(SELECT {node.select_list} FROM {below})"
            else:
                full = f"{plan.name}.{part}"
                schema = StructType([self._stored(full).spec.schema[column] for column in node.columns])
                mapping[part] = f"(SELECT {column_list(node.columns)} FROM {relation(full, schema)})"
        return f"({substituted(plan.fragment.sql, mapping)})"

    def pin(self, names: Collection[str], job: JobId | None, narrowed: Narrowed = WHOLE) -> Snapshot:
        """The tables at one job, by default the newest that all of them have reached, kept until it is released.

        Of keys that are not read, ranges need not be there, and rows are left out. Raises `KeysOutdated`.
        """
        keys = narrowed.keys
        with self._journal.lock:
            chosen = min((self.through(name, keys) for name in names), default=JobId(0)) if job is None else job
            if narrowed.premise is not None and narrowed.premise != self._premise(names, chosen):
                raise KeysOutdated
            self.asked.update(names)
            return self._snapshots.pin(names, chosen, keys)

    def sql(self, query: TableText, job: JobId | None, interruption: Interruption | None = None) -> SnapshotAnswer:
        """Answers a SELECT from the snapshot of a job."""
        names, interruption = self.tables_of(query), interruption or Interruption()
        try:
            snapshot = self.pin(names, job, self.narrowed(query, interruption))
        except KeysOutdated:
            # The job is of flows that were other ones.
            snapshot = self.pin(names, job)
        return self.answer(query, snapshot, interruption)

    def answer(
        self, query: TableText, snapshot: Snapshot, interruption: Interruption, until: float | None = None
    ) -> SnapshotAnswer:
        """Answers a SELECT from a pinned snapshot, which the answer then holds.

        Raises `DeadlineExceeded` when it is not planned by an instant of the monotonic clock.
        """
        snapshot.interruption = interruption

        given: Edited | None = None

        def plan() -> DataFrame:
            nonlocal given
            given = query.replaced(lambda table: snapshot.view(self.require_known(table.name), table.hidden))
            return self._session.sql(given.text)

        def result() -> Result:
            asked = self._asked(query, snapshot, plan)
            kept = self.kept.answer(asked) if asked is not None else None
            if kept is not None:
                return PickedResult(kept.schema, kept.rows, plan, kept.origin)
            began = time.monotonic()
            frame = plan()
            planned = time.monotonic() - began
            observe = partial(self.kept.observe, query.text) if asked is not None else None
            return PlannedResult(frame, self._reading, observe and (lambda seconds: observe(planned + seconds)))

        work = self._reading.work
        try:
            picked = None
            if query.picks is not None:
                picked = work.run(partial(self._picked, query, snapshot), interruption, until, in_spark=False)
            found = work.run(result, interruption, until) if picked is None else PickedResult(*picked, plan)
        except (PySparkException, Py4JError) as error:
            snapshot.release()
            known = translate(error, self._storage)
            if known is not None:
                raise known from error
            raise query_problem(error, query.text, given) from None
        except BaseException:
            snapshot.release()
            raise
        same = snapshot.same(query.text) if query.is_repeatable else None
        return SnapshotAnswer(
            found,
            snapshot.job,
            self._storage,
            self.reads.rows(same),
            self._reading,
            snapshot.release,
            interruption,
            query.text,
            snapshot.drop,
        )

    def _picked(self, query: TableText, snapshot: Snapshot) -> tuple[StructType, pa.Table] | None:
        """The rows of a query that does nothing but pick them; None when Spark is to read them."""
        if query.picks is None or len(query.references) != 1:
            return None
        reference = query.references[0]
        entry = self._catalog.find(reference.name)
        if entry is None or entry.name not in snapshot.stored:
            return None
        table = snapshot.part(entry.name).main
        shown = [column for column in table.spec.columns if column in entry.schema.names]
        return picked_rows(query.picks, table, snapshot.job, shown, reference.hidden)

    def columns(self, query: TableText, interruption: Interruption) -> StructType:
        """The columns that a SELECT has, as Spark says over empty tables; nothing is pinned or read."""
        given: Edited | None = None

        def plan() -> StructType:
            nonlocal given
            views = Views(self._session)
            try:
                given = query.replaced(
                    lambda table: views.of_frame(self._empty(self.require_known(table.name), table.hidden))
                )
                return self._session.sql(given.text).schema
            finally:
                views.close()

        try:
            return self._reading.work.run(plan, interruption, None)
        except (PySparkException, Py4JError) as error:
            raise query_problem(error, query.text, given) from None

    def _empty(self, name: str, hidden: Collection[str]) -> DataFrame:
        entry = self._catalog.find(name)
        assert entry is not None
        named = [field for field in entry.hidden.fields if field.name in hidden]
        return empty_frame(self._session, StructType([*entry.schema.fields, *named]))

    def _asked(self, query: TableText, snapshot: Snapshot, frame: Callable[[], DataFrame]) -> AskedQuery | None:
        """The query, if it has the same rows whenever it is run and reads one stored table."""
        if not query.is_repeatable or len(query.references) != 1 or query.references[0].hidden:
            return None
        entry = self._catalog.find(query.references[0].name)
        table = None if entry is None else snapshot.stored.get(entry.name)
        if entry is None or table is None:
            return None
        return AskedQuery(
            query.text, table, entry, snapshot.job, snapshot.interruption, lambda: snapshot.view(entry.name, ()), frame
        )

    def count(self, table: str) -> int | None:
        """How many rows a stored table has at the newest job that it has reached; None for one that is run when read."""
        plan = self._plan(table)
        if plan is not None and plan.fragment is not None:
            return None
        stored = self._stored(table)
        return stored.count(stored.level)

    def plan_text(self, query: TableText) -> str:
        """How Spark would read a query's tables as they are."""
        with self.sql(query, None) as answer:
            if isinstance(answer._result, PickedResult):
                return "rows are picked by key in the driver, without Spark"
            return str(answer.dataframe._jdf.queryExecution().simpleString())

    def of_rows(
        self, schema: StructType, rows: pa.Table, job: JobId, interruption: Interruption, text: str
    ) -> SnapshotAnswer:
        """Rows that were read elsewhere, of tables at a job."""
        result = PickedResult(schema, rows, lambda: local_frame(self._session, rows, schema))
        return SnapshotAnswer(
            result, job, self._storage, self.reads.rows(), self._reading, lambda: None, interruption, text
        )

    def constant(self, rows: Sequence[tuple[object, ...]], columns: str) -> SnapshotAnswer:
        """Rows that come from no table."""
        frame = self._session.createDataFrame(list(rows), columns)
        result = PlannedResult(frame, self._reading)
        return SnapshotAnswer(result, JobId(0), self._storage, self.reads.rows(), self._reading, lambda: None)

    def table(self, name: str, job: JobId | None) -> SnapshotAnswer:
        known = self.require_known(name)
        snapshot = self.pin([known], job)
        try:
            with storage_problems(self._storage):
                view = snapshot.view(known, self._catalog.hidden(known) if self._catalog.is_versioned(known) else ())
                frame = self._session.sql(f"SELECT * FROM {view}")
        except BaseException:
            snapshot.release()
            raise
        return SnapshotAnswer(
            PlannedResult(frame, self._reading),
            snapshot.job,
            self._storage,
            self.reads.rows(),
            self._reading,
            snapshot.release,
            drop=snapshot.drop,
        )

    def require_known(self, name: str, where: Location | None = None) -> str:
        """The table's name as it is spelled; raises when there is none."""
        entry = self._catalog.find(name)
        if entry is None and (damage := self._tables.find_damaged(name)) is not None:
            raise copy(damage)
        if entry is None:
            close = difflib.get_close_matches(name, self._catalog.names(), n=1)
            hint = (
                f"did you mean {close[0]}?" if close else f"there are {', '.join(self._catalog.names()) or 'no tables'}"
            )
            raise UnknownTable(f"there is no table {name}", where=where, hint=hint)
        return entry.name

    def _stored_tables(self, name: str) -> list[StoredTable]:
        """What a table's rows are read from: itself, or what its fragment reads."""
        plan = self._plan(name)
        if plan is None or plan.fragment is None:
            return [self._stored(name)]
        found = []
        for part, node in plan.fragment.inputs:
            found += self._stored_tables(node.table) if isinstance(node, Scan) else [self._stored(f"{name}.{part}")]
        return found

    def forget_before(self, job: JobId) -> None:
        """Drops kept answers and evaluated fragments of jobs that are no longer retained."""
        self.kept.forget_before(job)
        self._snapshots.forget_before(job)
