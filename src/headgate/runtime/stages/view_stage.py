"""A materialized view: its inputs' changes in, its own and its running states' changes out.

Changes go through the incremental rules, on rows in the driver (narrow) or in files (wide). To recompute is to run the query as
written on the inputs' snapshot and to compare the result with what the table has, as also when the view is built; that gives one
snapshot, so jobs are recomputed one by one. A narrow batch whose groups would be computed from too many rows is halved.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime

import pyarrow as pa
from pyspark.sql.types import StructField, StructType

from headgate.dataflow.accumulators import GROUP, Running
from headgate.dataflow.graph import Aggregate, scanned_tables
from headgate.dataflow.reference import plain_sql
from headgate.dataflow.relation import SIGNS, column_list, quoted, same_values
from headgate.dataflow.typed_graph import TypedGraph
from headgate.delta.changes import COPY, JOB, NO_JOB, ROW_HASH, WEIGHT, JobId
from headgate.runtime.evaluation.evaluation import Evaluation, TooMuchToRead
from headgate.runtime.evaluation.wide import WideEvaluation
from headgate.runtime.rows.copies import nested_text, numbered, row_hash
from headgate.runtime.stages.batch import Batch
from headgate.runtime.stages.ways import Way
from headgate.runtime.tables.stored import BatchViews, StoredTable
from headgate.warehouse.changes import ChangeSet
from headgate.warehouse.spec import TableSpec


class ViewStage:
    def __init__(
        self,
        flow: str,
        graph: TypedGraph,
        target: StoredTable,
        states: Mapping[Aggregate, StoredTable],
        tables: Mapping[str, StoredTable],
        newest_commit_at: Callable[[JobId], datetime | None],
    ) -> None:
        self.flow = flow
        self.graph = graph
        self.target = target
        self.states = states
        self._tables = tables
        self._newest_commit_at = newest_commit_at
        self._is_bag = ROW_HASH in target.spec.key
        self.inputs = scanned_tables(graph.root)

    @property
    def name(self) -> str:
        return self.target.name

    def advance(self, upto: JobId, batch: Batch) -> None:
        after = self.target.through
        # Where an input has no rows for some of the jobs, neither has the view.
        self.target.skip_to(max((self._tables[table].skipped_to(after) for table in self.inputs), default=NO_JOB))
        found = [self._tables[table].changes(after, upto) for table in self.inputs]
        changes = [change for change in found if change is not None and change.rows]
        if not changes:
            self._apply({}, None, upto)
            return
        rows = sum(change.rows for change in changes)
        whole = sum(self._tables[table].count(upto) for table in self.inputs)
        way = batch.ways.choose(self.name, rows, recomputed_rows=whole, jobs=upto - after).way
        began = time.monotonic()
        if way is Way.RECOMPUTE:
            for job in range(after + 1, upto + 1):
                self._recompute(JobId(job - 1), JobId(job), batch)
            batch.ways.took(self.name, way, whole, (time.monotonic() - began) / (upto - after))
            return
        take = self._widely if way is Way.WIDE else self._narrowly
        take(after, upto, rows, batch)
        batch.ways.took(self.name, way, rows, time.monotonic() - began)

    def _narrowly(self, after: JobId, upto: JobId, rows: int, batch: Batch) -> None:
        evaluation = Evaluation(
            self.flow,
            self.graph,
            self._tables,
            self.states,
            batch.views(rows),
            after,
            upto,
            self._newest_commit_at,
            batch.many_rows,
        )
        try:
            result = evaluation.result(keyed=not self._is_bag)
        except TooMuchToRead:
            self.advance(JobId((after + upto) // 2), batch)
            self.advance(upto, batch)
            return
        changes = None
        if result is not None:
            if self._is_bag:
                result = self._expanded(result, after, batch)
            changes = ChangeSet.of_table(self.target.spec, result, after, upto)
        states = {
            node: ChangeSet.of_table(self.states[node].spec, table, after, upto)
            for node, table in evaluation.state_changes.items()
        }
        self._apply(states, changes, upto)

    def _widely(self, after: JobId, upto: JobId, rows: int, batch: Batch) -> None:
        evaluation = WideEvaluation(
            self.flow,
            self.graph,
            self._tables,
            self.states,
            batch.bulk_views,
            batch,
            after,
            upto,
            self._newest_commit_at,
            rows,
        )
        changes = evaluation.result(self.target)
        self._apply(evaluation.state_changes, changes, upto)

    def _apply(self, states: Mapping[Aggregate, ChangeSet | None], changes: ChangeSet | None, upto: JobId) -> None:
        for node, table in self.states.items():
            table.apply(states.get(node), upto)
        self.target.apply(changes, upto)

    def _expanded(self, result: pa.Table, after: JobId, batch: Batch) -> pa.Table:
        """Weighted rows of a bag as single copies, each with its row hash and number."""
        views = batch.views(result.num_rows)
        spec = self.target.spec
        names = [name for name in spec.columns if name not in (ROW_HASH, COPY)]
        plain = self.target.schema_of(tuple(names))
        weighted = StructType([*plain.fields]).add(JOB, "long").add(WEIGHT, "long")
        view = views.of_rows(result.select([*names, JOB, WEIGHT]), weighted)
        hashed, _ = views.collect(f"SELECT *, {row_hash(plain)} AS {ROW_HASH} FROM {view}")
        present: pa.Table | None = None
        if not self.target.is_empty(after):
            hashes = pa.table({ROW_HASH: hashed.column(ROW_HASH).unique()})
            present = self.target.lookup((ROW_HASH,), hashes, after, (ROW_HASH, COPY))
        return numbered(hashed, present)

    def build(self, job: JobId, batch: Batch) -> None:
        """Fills the empty tables with what the query gives at a job."""
        views = batch.views(sum(self._tables[table].main.count(job) for table in self.inputs))
        texts = self._texts(job, batch, views)
        for table in (*self.states.values(), self.target):
            table.apply(batch.appeared(table.spec, texts[table.name], job, views), job)

    def _recompute(self, after: JobId, upto: JobId, batch: Batch) -> None:
        """Runs the query at `upto` and takes the difference from what the tables hold at `after`."""
        texts = self._texts(upto, batch, batch.bulk_views)
        tables = (*self.states.values(), self.target)
        # All are computed before any is applied: a full disk in between would leave them at different jobs.
        changes = [self._difference(table, texts[table.name], after, upto, batch) for table in tables]
        for table, found in zip(tables, changes, strict=True):
            table.apply(found, upto)

    @property
    def furthest(self) -> JobId:
        """The job that all inputs have reached."""
        return min((self._tables[table].through for table in self.inputs), default=self.target.through)

    def skip(self, upto: JobId, batch: Batch) -> None:
        """Goes to a job without those before it, of which one fails: the tables then hold what the query gives there."""
        self._recompute(self.target.through, upto, batch)
        self.target.skip_to(upto)

    def _difference(self, table: StoredTable, text: str, after: JobId, upto: JobId, batch: Batch) -> ChangeSet | None:
        views = batch.bulk_views
        if table.is_empty(after):
            found = batch.appeared(table.spec, text, upto, views)
            return found and replace(found, after=after)
        frame = views.session.sql(difference_text(table.spec, text, views.whole(table, after), upto))
        return ChangeSet.of_files(table.spec, batch.to_files(frame), after, upto)

    def from_scratch(self, views: BatchViews) -> str:
        """The query over the inputs' newest rows."""
        names = {table: views.whole(self._tables[table], self.target.through) for table in self.inputs}
        return plain_sql(self.graph.root, names.__getitem__, self.graph.sensitive)

    def _texts(self, job: JobId, batch: Batch, views: BatchViews) -> dict[str, str]:
        """The query from scratch of the target and of each state, over the inputs at the job.

        Where there are many rows, a state is computed here, once, and what derives from it reads that.
        """
        names = {table: views.whole(self._tables[table], job) for table in self.inputs}
        texts = {}
        states: dict[Aggregate, tuple[Running, str]] = {}
        for node, table in self.states.items():
            form = self.graph.forms[node]
            below = plain_sql(node.input, names.__getitem__, self.graph.sensitive, states)
            text = state_text(node, form, below)
            if views.session is not batch.sessions.small:
                frame = views.session.sql(text)
                folder = batch.to_files(frame)
                view = views.of_frame(views.session.read.schema(frame.schema).parquet(f"file://{folder}"))
                states[node], text = (form, view), f"SELECT * FROM {view}"
            texts[table.name] = text
        text = plain_sql(self.graph.root, names.__getitem__, self.graph.sensitive, states)
        if self._is_bag:
            text = bag_text(self.target.spec, text)
        texts[self.target.name] = text
        return texts


def state_text(node: Aggregate, form: Running, below: str) -> str:
    """The running state from scratch."""
    sums = ", ".join(f"CAST(SUM({item.sql}) AS {item.type}) AS {quoted(item.name)}" for item in form.accumulators)
    if node.keys:
        keys = column_list(node.keys)
        return f"SELECT {keys}, {sums} FROM (SELECT *, 1L AS {WEIGHT} FROM ({below})) GROUP BY {keys}"
    zero = ", ".join(f"COALESCE({quoted(item.name)}, 0) AS {quoted(item.name)}" for item in form.accumulators)
    return f"SELECT 0 AS {GROUP}, {zero} FROM (SELECT {sums} FROM (SELECT *, 1L AS {WEIGHT} FROM ({below})))"


def bag_text(spec: TableSpec, text: str) -> str:
    """The rows with their hash and the number of the copy."""
    plain = StructType([field for field in spec.schema.fields if field.name not in (ROW_HASH, COPY)])
    names = column_list(plain.names)
    return (
        f"SELECT {names}, {ROW_HASH}, CAST(ROW_NUMBER() OVER (PARTITION BY {ROW_HASH} ORDER BY {ROW_HASH}) AS INT) AS {COPY}"
        f" FROM (SELECT {names}, {row_hash(plain)} AS {ROW_HASH} FROM ({text}))"
    )


def difference_text(spec: TableSpec, text: str, stored: str, job: JobId) -> str:
    """What changes the stored rows into those of the query, in one job: rows are compared with that of the same key."""
    same = same_values(
        "n", "o", [(name, name) for name in spec.key], same_types="collate" not in spec.schema.simpleString()
    )
    # Rows of a bag with the same hash and number are the same.
    compared = [] if ROW_HASH in spec.key else [field for field in spec.schema.fields if field.name not in spec.key]
    equal = "".join(f" AND {comparable('n', field)} <=> {comparable('o', field)}" for field in compared)
    outputs = ", ".join(
        f"IF(__sign > 0, n.{quoted(name)}, o.{quoted(name)}) AS {quoted(name)}" for name in spec.columns
    )
    return (
        f"SELECT {outputs}, {job}L AS {JOB}, __sign AS {WEIGHT} FROM (SELECT *, true AS __is FROM ({text})) n"
        f" FULL OUTER JOIN (SELECT *, true AS __was FROM {stored}) o ON {same} {SIGNS}"
        f" WHERE NOT COALESCE(__is AND __was{equal}, false) AND IF(__sign > 0, __is, __was)"
    )


def comparable(side: str, field: StructField) -> str:
    """A column as something that Spark compares: maps are not."""
    column = f"{side}.{quoted(field.name)}"
    return nested_text(column, field.dataType) if "map<" in field.dataType.simpleString() else column
