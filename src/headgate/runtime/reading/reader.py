"""Reading snapshots: a query's tables become views of one job, pinned while the answer lives."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Hashable, Sequence
from copy import copy

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from headgate.dataflow.graph import Scan
from headgate.dataflow.relation import column_list, quoted
from headgate.delta.changes import JobId
from headgate.errors import Location, SnapshotGone, UnknownTable
from headgate.runtime.flows.flows import FlowPlan
from headgate.runtime.reading.answer import SnapshotAnswer
from headgate.runtime.reading.picking import picked_rows
from headgate.runtime.reading.query_work import Interruption, Turn
from headgate.runtime.reading.reads import Reads
from headgate.runtime.reading.result import PickedResult, PlannedResult, Result
from headgate.runtime.reading.spark_reading import SparkReading
from headgate.runtime.signal import Signal
from headgate.runtime.spark.parser import SparkParser
from headgate.runtime.spark.problems import query_problem
from headgate.runtime.spark.views import Views
from headgate.runtime.tables.catalog import WarehouseCatalog
from headgate.runtime.tables.journal import Journal
from headgate.runtime.tables.stored import StoredTable
from headgate.runtime.tables.tables import Tables
from headgate.sql.guard import require_select
from headgate.sql.names import substituted
from headgate.sql.positions import Unread
from headgate.sql.references import Edited, TableText, read_tables
from headgate.warehouse.local import local_frame
from headgate.warehouse.problems import storage_problems, translate
from headgate.warehouse.storage import Folder
from headgate.warehouse.versioned import Pin

_QUERY = Location("query")


class Reader:
    """Answers from snapshots; may be used by many threads."""

    def __init__(
        self,
        catalog: WarehouseCatalog,
        tables: Tables,
        journal: Journal,
        plan: Callable[[str], FlowPlan | None],
        storage: Folder,
        signal: Signal,
    ) -> None:
        self._catalog = catalog
        self._tables = tables
        self._stored = tables.get
        self._journal = journal
        self._plan = plan
        self._storage = storage
        self.reads = Reads(signal)
        self._evaluating = Turn()
        self._evaluated: dict[tuple[str, str, JobId], pa.Table] = {}

    def begin(self, session: SparkSession, reading: SparkReading) -> None:
        """Spark is there: from now on queries can be read."""
        self._session = session
        self._reading = reading
        self._parser = SparkParser(session)

    def through(self, table: str) -> JobId:
        """The newest job at which the table can be read."""
        plan = self._plan(table)
        if plan is None or plan.fragment is None:
            return self._stored(table).through
        inputs = [self._input_through(plan, name, node) for name, node in plan.fragment.inputs]
        return min(inputs, default=self._journal.chain.newest)

    def oldest(self, tables: Collection[str]) -> JobId:
        """The oldest job that all of the tables still hold."""
        stored = [found for table in tables for found in self._stored_tables(table)]
        return max((found.readable_from for found in stored), default=JobId(0))

    def _input_through(self, plan: FlowPlan, name: str, node: object) -> JobId:
        if isinstance(node, Scan):
            return self.through(node.table)
        return self._stored(f"{plan.name}.{name}").through

    def read(self, text: str) -> TableText:
        """The query and where it names tables; a DefiniteError that says why it may not be run."""
        try:
            require_select(text)
            return read_tables(text, _QUERY, self._catalog.hidden)
        except Unread:
            return self._parser.read(text, _QUERY, self._catalog.hidden)

    def tables_of(self, query: TableText) -> tuple[str, ...]:
        """The tables that a query names, each once."""
        return tuple(
            dict.fromkeys(self._known(each.name, _QUERY.within(query.text, each.start)) for each in query.references)
        )

    def pin(self, names: Collection[str], job: JobId | None) -> Snapshot:
        """The tables at one job, by default the newest that all of them have reached, kept until it is released."""
        with self._journal.lock:
            chosen = min((self.through(name) for name in names), default=JobId(0)) if job is None else job
            snapshot = Snapshot(self, chosen)
            try:
                for name in names:
                    snapshot.pin(name)
            except BaseException:
                snapshot.release()
                raise
            return snapshot

    def sql(self, query: TableText, job: JobId | None, interruption: Interruption | None = None) -> SnapshotAnswer:
        """Answers a SELECT from the snapshot of a job."""
        return self.answer(query, self.pin(self.tables_of(query), job), interruption or Interruption())

    def answer(
        self, query: TableText, snapshot: Snapshot, interruption: Interruption, until: float | None = None
    ) -> SnapshotAnswer:
        """Answers a SELECT from a pinned snapshot, which the answer then holds.

        Raises `TimeIsOver` when it is not planned by an instant of the monotonic clock.
        """
        snapshot.interruption = interruption

        given: Edited | None = None

        def plan() -> DataFrame:
            nonlocal given
            given = query.replaced(lambda table: snapshot.view(self._known(table.name), table.hidden))
            return self._session.sql(given.text)

        def result() -> Result:
            picked = self._picked(query, snapshot.job)
            return PlannedResult(plan(), self._reading) if picked is None else PickedResult(*picked, plan)

        try:
            found = self._reading.work.run(result, interruption, until)
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

    def _picked(self, query: TableText, job: JobId) -> tuple[StructType, pa.Table] | None:
        """The rows of a query that does nothing but pick them; None when Spark is to read them."""
        if query.picks is None or len(query.references) != 1:
            return None
        reference = query.references[0]
        entry = self._catalog.find(reference.name)
        if entry is None or entry.is_fragment:
            return None
        table = self._stored(entry.name).main
        shown = [column for column in table.spec.columns if column in entry.schema.names]
        return picked_rows(query.picks, table, job, shown, reference.hidden)

    def constant(self, rows: Sequence[tuple[str, ...]], columns: str) -> SnapshotAnswer:
        """Rows that come from no table."""
        frame = self._session.createDataFrame(list(rows), columns)
        result = PlannedResult(frame, self._reading)
        return SnapshotAnswer(result, JobId(0), self._storage, self.reads.rows(), self._reading, lambda: None)

    def table(self, name: str, job: JobId | None) -> SnapshotAnswer:
        known = self._known(name)
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

    def _known(self, name: str, where: Location | None = None) -> str:
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

    def _frame(self, snapshot: Snapshot, name: str, job: JobId) -> DataFrame:
        plan = self._plan(name)
        if plan is None or plan.fragment is None:
            return self._stored(name).main.frame(self._session, job)
        with self._evaluating.taken(snapshot.interruption):
            return self._fragment_frame(snapshot, plan, job)

    def _fragment_frame(self, snapshot: Snapshot, plan: FlowPlan, job: JobId) -> DataFrame:
        """Runs what is not incremental; functions of context are evaluated once per job."""
        assert plan.fragment is not None
        snapshot.definitions.append(plan.fingerprint)
        place = (plan.name, plan.fingerprint, job)
        schema = plan.entry.schema
        if place in self._evaluated:
            return local_frame(self._session, self._evaluated[place], schema)
        mapping = {}
        for name, node in plan.fragment.inputs:
            if isinstance(node, Scan):
                below = snapshot.view(node.table, self._catalog.hidden(node.table))
                mapping[name] = f"(SELECT {node.select_list} FROM {below})"
            else:
                table = self._stored(f"{plan.name}.{name}")
                rows = snapshot.views.of_frame(table.main.frame(self._session, job))
                mapping[name] = f"(SELECT {column_list(node.columns)} FROM {rows})"
        frame = self._session.sql(substituted(plan.fragment.sql, mapping))
        if plan.fragment.context:
            self._evaluated[place] = frame.toArrow()
            return local_frame(self._session, self._evaluated[place], schema)
        return frame

    def forget_before(self, job: JobId) -> None:
        """Drops evaluated fragments of jobs that are no longer retained."""
        with self._evaluating.taken(Interruption()):
            self._evaluated = {place: rows for place, rows in self._evaluated.items() if place[2] >= job}


class Snapshot:
    """Tables at one job, pinned; as views when asked for."""

    def __init__(self, reader: Reader, job: JobId) -> None:
        self._reader = reader
        self.job = job
        self.views = Views(reader._session)
        self.interruption = Interruption()
        """That of the query which reads the snapshot."""
        self._pins: list[Pin] = []
        self._frames: dict[str, DataFrame] = {}
        self._named: dict[tuple[str, ...], str] = {}
        self.definitions: list[str] = []
        """Of what is not stored but run for the query."""

    def pin(self, name: str) -> None:
        for table in self._reader._stored_tables(name):
            if table.skipped_to(self.job):
                raise SnapshotGone(
                    f"table {name} does not hold job {self.job}: a job failed on its data",
                    hint=f"it holds jobs {table.readable_from} to {table.through}",
                )
            self._pins.append(table.main.pin(self.job))

    def view(self, name: str, hidden: Collection[str]) -> str:
        """A view of the table with the columns that `*` stands for and these hidden ones."""
        place = (name, *hidden)
        if place in self._named:
            return self._named[place]
        if name not in self._frames:
            self._frames[name] = self._reader._frame(self, name, self.job)
        frame = self._frames[name]
        entry = self._reader._catalog.find(name)
        assert entry is not None
        shown = [column for column in frame.columns if column in entry.schema.names]
        shown += hidden
        self._named[place] = self.views.of_frame(frame.select(*[quoted(column) for column in shown]))
        return self._named[place]

    def same(self, text: str) -> Hashable:
        """Equal for queries that have the same rows: what is built anew has other bases, or another definition."""
        return text, self.job, tuple(pin.base for pin in self._pins), tuple(self.definitions)

    def release(self) -> None:
        self._unpin()
        self.views.close()

    def drop(self) -> None:
        """Releases the snapshot without a call of Spark."""
        self._unpin()
        self.views.abandon()

    def _unpin(self) -> None:
        for pin in self._pins:
            pin.release()
        self._pins.clear()
