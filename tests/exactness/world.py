"""A warehouse and its model side by side: what is done to one is done to the other, and `check` compares them.

The oracle runs each flow's text, as it was written, on Spark over the model's rows of a job.
"""

from __future__ import annotations

import random
import re
import shutil
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

import headgate
from headgate.dataflow.cutting import cut_places, find_places, operator_key
from headgate.dataflow.graph import Node
from headgate.delta.changes import JobId
from headgate.errors import SnapshotGone
from headgate.ranges.range_map import sql_predicate
from headgate.runtime.reading.narrowing import Narrowed
from headgate.runtime.stages.ways import Way
from headgate.runtime.tables.stored import StoredTable
from headgate.scheduling.warehouse import Warehouse
from tests.exactness.comparing import Rows, difference, rows_of_each
from tests.exactness.model import COMMIT_AT, Change, Delete, Dimension, Insert, Model, Row, Table, Truncate, Update
from tests.seed import SEED

SMALL_QUERIES = {
    "spark.master": "local[2]",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.leafNodeDefaultParallelism": "1",
}
"""Tables here are tiny: what costs time is compiling."""

START = datetime(2024, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class View:
    """A flow; `oracle` is the text that gives its result where that is not the flow's own (as-of lookups)."""

    name: str
    text: str
    oracle: str | None = None
    lookup_miss: str | None = None
    ranges: tuple[str, int] | None = None
    """The column and number of its own ranges."""

    def statement(self) -> str:
        said = {"lookup_miss": self.lookup_miss} if self.lookup_miss else {}
        if self.ranges is not None:
            said |= {"range_column": self.ranges[0], "ranges": str(self.ranges[1])}
        listed = ", ".join(f"'{name}' = '{value}'" for name, value in said.items())
        properties = f" TBLPROPERTIES ({listed})" if said else ""
        return f"CREATE MATERIALIZED VIEW {self.name}{properties} AS\n{self.text};\n"


@dataclass
class World:
    folder: Path
    spark: SparkSession
    """A session whose temporary views are the oracle's alone."""
    tables: Mapping[str, Table]
    dimensions: Sequence[Dimension] = ()
    views: Sequence[View] = ()
    limits: Mapping[str, object] = field(default_factory=dict)
    ranges: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    """By table how it is cut into ranges."""
    model: Model = field(init=False)
    warehouse: Warehouse = field(init=False)
    surrogate_keys: dict[tuple[str, object, object], int] = field(default_factory=dict)
    oldest: int = 0
    """The oldest job that can be read: after opening, one that was materialized."""
    _left: int = -1
    """Steps until the disk is copied; none below 0."""
    _stepping: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)
    """Several threads may write at once: while one copies the disk, the others rest at their next step."""
    _through: int = 0
    _checked: int = 0
    _expected: dict[int, dict[str, Rows]] = field(default_factory=dict)
    """By job, what each flow must hold."""

    def __post_init__(self) -> None:
        self.model = Model(self.tables)
        self.open()

    def __enter__(self) -> World:
        return self

    def __exit__(self, *_: object) -> None:
        self.warehouse.close()

    def open(self) -> None:
        flows = self.folder / "flows"
        flows.mkdir(parents=True, exist_ok=True)
        text = "".join(dimension.statements(self.tables[dimension.source]) for dimension in self.dimensions)
        text += "".join(view.statement() for view in self.views)
        (flows / "flows.sql").write_text(text, encoding="utf-8")
        project = {
            "name": "exactness",
            "storage": str(self.folder / "warehouse"),
            "spark": SMALL_QUERIES,
            "libraries": [{"glob": {"include": f"{flows}/**"}}],
            "retention": {"jobs": 1000},
            "limits": dict(self.limits),
            # Jobs are closed by the test alone, however long its machine takes between two of them.
            "background": {"system_jobs": False},
            "sources": {
                "s": {
                    "type": "memory",
                    "stream": random.Random(f"{SEED}{self.folder.name}").choice(["local", "elastic"]),
                    "tables": {
                        name: {"columns": dict(table.columns), "key": list(table.key), "ranges": self.ranges.get(name)}
                        for name, table in self.tables.items()
                    },
                }
            },
        }
        way = self.way if hasattr(self, "warehouse") else None
        self.warehouse = headgate.open(project, step=self._step)
        if way is not None:
            self.way = way

    @property
    def way(self) -> Way | None:
        """The way in which batches are taken, if one is forced."""
        return self.warehouse._engine.batches.ways.forced

    @way.setter
    def way(self, way: Way | None) -> None:
        self.warehouse._engine.batches.ways.forced = way

    def reopen(self) -> None:
        """Opens the warehouse again as if its process had been killed, with the dimensions and views that the world has now."""
        self.warehouse.close(fold_seconds=0)
        self._expected.clear()  # a view's text may stay while a view that it reads has changed
        self.open()
        engine = self.warehouse._engine
        engine.defining.bring(self.warehouse.tables, engine.journal.chain.newest)
        self._through = len(self.model.jobs)
        self.oldest = next(job for job in range(self._through + 1) if self._holds(job))

    def kill_in(self, action: Callable[[], object], after_steps: int) -> None:
        """Does something that writes, and opens what lay on the disk when so many of its steps were done."""
        copy = self.folder / "copy"
        self._left = after_steps
        try:
            action()
        finally:
            self._left = -1
        self.warehouse.close(fold_seconds=0)
        if copy.exists():
            shutil.rmtree(self.folder / "warehouse")
            copy.rename(self.folder / "warehouse")
        self.open()

    def _step(self, step: str) -> None:
        with self._stepping:
            if self._left == 0:
                # Files of other tables may go meanwhile; what the ledger names is still then.
                with suppress(shutil.Error):
                    shutil.copytree(self.folder / "warehouse", self.folder / "copy")
            self._left -= 1

    def _holds(self, job: int) -> bool:
        """Whether every flow can be read at the job."""
        try:
            for flow in (*self.dimensions, *self.views):
                self.warehouse.table(flow.name, job=job).close()
        except SnapshotGone:
            return False
        return True

    def materialize(self) -> None:
        self.warehouse.materialize()

    def commit(self, *changes: Change, commit_at: datetime | None = None, initial: bool = False) -> None:
        """One transaction, by default a minute after the last one."""
        last = self.model.transactions[-1].commit_at if self.model.transactions else START
        moment = commit_at or last + timedelta(minutes=1)
        with self.warehouse.source("s").transaction(commit_at=moment, initial=initial) as transaction:
            for change in changes:
                match change:
                    case Insert(table, row):
                        transaction.insert(table, row)
                    case Update(table, row, key):
                        transaction.update(table, row, key=key)
                    case Delete(table, key):
                        transaction.delete(table, key)
                    case Truncate(table):
                        transaction.truncate(table)
        if transaction.position is not None:
            self.model.commit(changes, moment, initial)

    def close_job(self) -> None:
        assert self.warehouse.close_job() == self.model.close_job()

    def refresh(self) -> int:
        job = int(self.warehouse.refresh())
        assert job == self.model.close_job()
        self._through = job
        return job

    def move(self, number: int) -> None:
        """Stores the results of a flow elsewhere; the number says which flow and where."""
        engine = self.warehouse._engine
        read = {table for flow in engine.flows for table in flow.plan.tables_read}
        plans = [flow.plan for flow in engine.flows if flow.plan.uncut is not None and flow.plan.name not in read]
        found = [(plan.name, cut) for plan in plans for cut in _cuts(plan.uncut.root) if cut != plan.cut and plan.uncut]
        if found:
            flow, cut = found[number % len(found)]
            with engine.defining_flows():
                engine.defining.move(flow, cut)
            assert engine.flows.get(flow).plan.cut == cut, f"{flow} could not be cut"

    def stored(self, flow: str) -> StoredTable:
        return self.warehouse._engine.tables.get(flow)

    def bring(self, flow: str, ranges: Collection[int], job: int | None = None) -> int:
        """Brings some ranges of a flow to a job, by default the newest, and compares what they hold."""
        engine = self.warehouse._engine
        job = len(self.model.jobs) if job is None else job
        table = self.stored(flow)
        keys = {flow: table.range_map.keys_of(ranges)} if table.division is not None else {}
        engine.executor.bring([flow], JobId(job), keys)
        self.check_ranges(flow, ranges, job)
        return job

    def check_ranges(self, flow: str, ranges: Collection[int], job: int) -> None:
        """Some ranges of a flow at a job are what Spark makes of the model's rows."""
        table, reader = self.stored(flow), self.warehouse._engine.reader
        keys = {flow: table.range_map.keys_of(ranges)} if table.division is not None else {}
        snapshot = reader.pin([flow], JobId(job), Narrowed(keys))
        try:
            actual = Rows.of(reader._session.table(snapshot.view(flow, ())))
        finally:
            snapshot.release()
        self._register(job, {dimension.name: self._dimension_at(dimension.name, job) for dimension in self.dimensions})
        expected = self.spark.table(flow)
        if table.division is not None:
            expected = expected.where(sql_predicate(table.division.column, keys[flow]))
        found = difference(actual, Rows.of(expected))
        assert found is None, f"{flow} in ranges {sorted(ranges)} at job {job}:\n {found}"

    def _dimension_at(self, name: str, job: int) -> Rows:
        self.warehouse._engine.executor.bring([name], JobId(job))
        with self.warehouse.table(name, job=job) as answer:
            return Rows.of(answer.dataframe)

    def bring_all(self) -> int:
        """Closes a job and brings every flow to it, as queries do: what is there is not folded."""
        self.close_job()
        engine, job = self.warehouse._engine, len(self.model.jobs)
        engine.executor.bring([stage.name for stage in engine.flows.stages()], JobId(job))
        self._through = job
        return job

    def step(self, *changes: Change) -> None:
        """One transaction in a job of its own, and a comparison."""
        self.commit(*changes)
        self.check(self.refresh())

    def check_all(self, since: int = 1) -> None:
        """Every retained job from `since` on."""
        for job in range(max(since, self.oldest), self._through + 1):
            self.check(job)

    def check_new_jobs(self) -> None:
        """The jobs that ran since the last call."""
        self.check_all(self._checked + 1)
        self._checked = self._through

    def check(self, job: int) -> None:
        """Every flow at the job is what Spark makes of the model's rows."""
        flows = (*self.dimensions, *self.views)
        with ExitStack() as open_answers:
            answers = {
                flow.name: open_answers.enter_context(self.warehouse.table(flow.name, job=job)) for flow in flows
            }
            frames = {name: answer.dataframe for name, answer in answers.items()}
            actual = rows_of_each(next(iter(frames.values())).sparkSession, frames)
        if not actual.keys() <= self._expected.get(job, {}).keys():
            self._register(job, actual)
            self._expected[job] = rows_of_each(self.spark, {flow.name: self.spark.table(flow.name) for flow in flows})
        failures = []
        for flow in flows:
            expected = self._expected[job][flow.name]
            versioned = isinstance(flow, Dimension) and flow.scd_type == 2
            found = difference(actual[flow.name], expected.without("__version") if versioned else expected)
            if found is None and versioned:
                found = self._check_surrogate_keys(flow, expected)
            text = flow.text if isinstance(flow, View) else ""
            failures += [f"{flow.name} at job {job}:\n {text}\n {found}"] if found else []
        assert not failures, "\n".join(failures)

    def rows(self, name: str, job: int | None = None) -> set[tuple[object, ...]]:
        """A table's rows as plain values, for expectations that a test spells out."""
        with self.warehouse.table(name, job=job) as answer:
            return set(Rows.of(answer.dataframe).values)

    def _register(self, job: int, actual: Mapping[str, Rows]) -> None:
        """The oracle's views of a job: source tables (with hidden columns under another name), dimensions, flows."""
        for name, table in self.tables.items():
            schema = ", ".join(f"{column} {kind}" for column, kind in table.columns.items())
            rows = [dict(row) for row in self.model.at_job(job)[name].values()]
            frame = self._frame(rows, f"{schema}, {COMMIT_AT} timestamp")
            frame.createOrReplaceTempView(f"{name}__full")
            frame.drop(COMMIT_AT).createOrReplaceTempView(name)
        for dimension in self.dimensions:
            self._dimension_frame(dimension, job, actual[dimension.name]).createOrReplaceTempView(dimension.name)
        for view in self.views:
            self.spark.sql(oracle_text(view)).createOrReplaceTempView(view.name)

    def _frame(self, rows: list[Row], schema: str) -> DataFrame:
        wanted = cast(StructType, StructType.fromDDL(schema))
        arrow = pa.Table.from_pylist(rows, to_arrow_schema(wanted, timezone="UTC"))
        return self.spark.createDataFrame(arrow, wanted)

    def _dimension_frame(self, dimension: Dimension, job: int, actual: Rows) -> DataFrame:
        """The dimension told from the model; surrogate keys as the warehouse gave them, -2 where it gave none.

        Versions that differ in nothing else take theirs in any order.
        """
        schema = ", ".join(f"{name} {kind}" for name, kind in self.tables[dimension.source].columns.items())
        rows = dimension.rows(self.model, self.model.jobs[job - 1] if job else 0)
        if dimension.scd_type == 1:
            return self._frame(rows, schema)
        given: dict[str, list[int]] = {}
        for row in sorted(actual.dicts(), key=lambda row: row["__sk"]):
            surrogate_key = row.pop("__sk")
            given.setdefault(_place(row), []).append(surrogate_key)
        for row in rows:
            found = given.get(_place(row))
            row["__sk"] = found.pop() if found else -2
        return self._frame(rows, f"{schema}, __sk bigint, __start_at timestamp, __end_at timestamp, __version int")

    def _check_surrogate_keys(self, dimension: Dimension, expected: Rows) -> str | None:
        """A surrogate key belongs to one version of one key, at every job and after every opening."""
        seen: set[object] = set()
        for row in expected.dicts():
            key = tuple(row[column] for column in self.tables[dimension.source].key)
            place = (dimension.name, key, row["__version"])
            known = self.surrogate_keys.setdefault(place, row["__sk"])
            if known != row["__sk"]:
                return f"version {row['__version']} of {key} had the surrogate key {known}, now it has {row['__sk']}"
            if row["__sk"] in seen or row["__sk"] < 0:
                return f"version {row['__version']} of {key} has the surrogate key {row['__sk']} of another"
            seen.add(row["__sk"])
        return None


def _cuts(root: Node) -> list[tuple[str, ...] | None]:
    """The whole result, none, each place, and pairs of places in different branches."""
    places = [node for node in cut_places(root) if node is not root]
    single = [(operator_key(node),) for node in places]
    pairs = [(*one, *other) for one in single for other in single if one < other]
    return [None, (), *single, *(pair for pair in pairs if find_places(root, pair) is not None)]


def _place(row: Row) -> str:
    """A version by its content."""
    plain = {name: _plain(value) for name, value in sorted(row.items()) if name != "__version"}
    return repr(plain)


def _plain(value: object) -> object:
    """Equal values as equal objects: instants in one zone, no negative zero."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    return value + 0.0 if isinstance(value, float) else value


def oracle_text(view: View) -> str:
    """The view's text over the oracle's views; a text that names `__commit_at` reads the tables with it."""
    text = view.oracle if view.oracle is not None else view.text
    return re.sub(r"\bs\.(\w+)\b", r"\1__full" if COMMIT_AT in text else r"\1", text)
