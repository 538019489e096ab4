"""A materialized view: its inputs' changes in, its own and its running states' changes out.

Changes go through the incremental rules, on rows in the driver (narrow) or in files (wide). To recompute is to run the query as
written on the inputs' snapshot and to compare the result with what the table has, as also when the view is built; that gives one
snapshot, so jobs are recomputed one by one. A narrow batch whose groups would be computed from too many rows is halved.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial

import pyarrow as pa
from pyspark.sql.types import StructType

from headgate.dataflow.accumulators import GROUP, Running
from headgate.dataflow.alignment import Restriction
from headgate.dataflow.flow import Expectation
from headgate.dataflow.graph import Aggregate, Node, scanned_tables
from headgate.dataflow.reference import plain_sql
from headgate.dataflow.relation import Relation, column_list, quoted
from headgate.dataflow.sharing import SharedPart, is_worth_sharing
from headgate.dataflow.typed_graph import TypedGraph
from headgate.delta.changes import COPY, JOB, NO_JOB, ROW_HASH, WEIGHT, JobId
from headgate.ranges.range_map import Ranges
from headgate.runtime.evaluation.evaluation import Evaluation, SharedChanges, TooMuchToRead
from headgate.runtime.evaluation.flow_batch import FlowBatch
from headgate.runtime.evaluation.wide import WideEvaluation
from headgate.runtime.rows.copies import numbered, row_hash
from headgate.runtime.stages.batch import Batch
from headgate.runtime.stages.differences import difference_text
from headgate.runtime.stages.expectations import require_expected
from headgate.runtime.stages.ways import Way
from headgate.runtime.tables.batch_views import BatchViews
from headgate.runtime.tables.stored import StoredTable
from headgate.warehouse.changes import ChangeSet, TooManyRows
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
        expectations: Sequence[Expectation] = (),
    ) -> None:
        self.flow = flow
        self._failing = tuple(each for each in expectations if each.action == "fail")
        self.graph = graph
        self.target = target
        self.states = states
        self._tables = tables
        self._newest_commit_at = newest_commit_at
        self._is_bag = ROW_HASH in target.spec.key
        self.inputs = scanned_tables(graph.root)
        self.whole_states: Mapping[Aggregate, StoredTable] = {}
        """States in whose groups rows of all ranges meet: stages of their own keep them, and they are read like inputs."""
        self.aligned: frozenset[str] = frozenset()
        """Tables of which a range is read for a range of the target; of others, all ranges."""
        self.alignment: Restriction | None = None
        self.one_range: str | None = None
        """Why the target has one range only, if it has."""

    def read_whole(self, states: Mapping[Aggregate, StoredTable]) -> None:
        """Leaves these states to stages of their own."""
        self.whole_states = states
        self.states = {node: table for node, table in self.states.items() if node not in states}
        self.inputs = (*scanned_tables(self.graph.root), *(table.name for table in states.values()))

    def table(self, name: str) -> StoredTable:
        """An input."""
        return self._tables[name]

    def within(self, ranges: Ranges) -> ViewStage:
        """The stage for some ranges of its target."""
        if ranges == self.target.ranges:
            return self
        tables = {
            name: self._tables[name].within(ranges) if name in self.aligned else self._tables[name]
            for name in self.inputs
        }
        states = {node: table.within(ranges) for node, table in self.states.items()}
        target = self.target.within(ranges)
        part = ViewStage(self.flow, self.graph, target, states, tables, self._newest_commit_at, self._failing)
        part.read_whole(self.whole_states)
        return part

    @property
    def name(self) -> str:
        return self.target.name

    def advance(self, upto: JobId, batch: Batch) -> None:
        if self.target.missing:
            self.skip(upto, batch)
            return
        after = self.target.through
        # Where an input has no rows for some of the jobs, neither has the view.
        self.target.skip_to(max((self._tables[table].skipped_to(after) for table in self.inputs), default=NO_JOB))
        found = [self._tables[table].changes(after, upto) for table in self.inputs]
        changes = [change for change in found if change is not None and change.rows]
        if not changes:
            self._apply({}, None, upto)
            return
        rows = sum(change.rows for change in changes)
        # Whoever reads the tables now reads the changes beside them.
        whole = sum(self._tables[table].count(upto) for table in self.inputs) + rows
        way = batch.factory.ways.choose(self.name, rows, recomputed_rows=whole, jobs=upto - after).way
        began = time.monotonic()
        if way is Way.RECOMPUTE:
            for job in range(after + 1, upto + 1):
                self._recompute(JobId(job - 1), JobId(job), batch)
            seconds = batch.share * (time.monotonic() - began) / (upto - after)
            batch.factory.ways.took(self.name, way, whole, seconds, scanned=whole)
            return
        if way is Way.NARROW:
            try:
                self._narrowly(after, upto, rows, batch)
            except TooManyRows as error:
                way = batch.factory.ways.widen(self.name, error.rows)
                widened = time.monotonic()
                self._widely(after, upto, rows, batch)
                # To begin narrow took both.
                seconds = batch.share * (time.monotonic() - began)
                batch.factory.ways.took(self.name, Way.NARROW, rows, seconds, scanned=whole)
                began = widened
        else:
            self._widely(after, upto, rows, batch)
        batch.factory.ways.took(self.name, way, rows, batch.share * (time.monotonic() - began), scanned=whole)

    def _narrowly(self, after: JobId, upto: JobId, rows: int, batch: Batch) -> None:
        shared = self._shared(after, upto, rows, batch)
        evaluation = Evaluation(self._flow_batch(after, upto), batch.views(rows), batch.factory.many_rows, shared)
        for node in self.whole_states:
            evaluation.read_state(node)
        try:
            result = self._narrow_result(evaluation, after, batch)
        except TooMuchToRead:
            self.advance(JobId((after + upto) // 2), batch)
            self.advance(upto, batch)
            return
        changes = None if result is None else ChangeSet.of_table(self.target.spec, result, after, upto)
        require_expected(self.flow, self._failing, changes, batch)
        states = {
            node: ChangeSet.of_table(self.states[node].spec, table, after, upto)
            for node, table in evaluation.state_changes.items()
        }
        self._apply(states, changes, upto)

    def _narrow_result(self, evaluation: Evaluation, after: JobId, batch: Batch) -> pa.Table | None:
        result = evaluation.result(keyed=not self._is_bag)
        return self._expanded(result, after, batch) if result is not None and self._is_bag else result

    def _shared(self, after: JobId, upto: JobId, rows: int, batch: Batch) -> dict[Node, SharedChanges]:
        """By node the parts that are worth computing together with the flows that run alongside."""
        views = batch.views(rows)
        if views.session is not batch.factory.sessions.small:
            return {}
        found: dict[Node, SharedChanges] = {}
        for part in batch.parts:
            flows = part.uses.keys() & set(batch.alongside)
            if self.name in flows and is_worth_sharing(part, len(flows)):
                found[part.uses[self.name].node] = partial(self._part, part, len(flows), after, upto, views, batch)
        return found

    def _part(
        self, part: SharedPart, flows: int, after: JobId, upto: JobId, views: BatchViews, batch: Batch
    ) -> tuple[Relation, pa.Table] | None:
        tables = tuple(self._tables[name] for name in scanned_tables(part.root))

        def compute(root: Node) -> tuple[pa.Table, StructType, bool] | None:
            plain = replace(self._flow_batch(after, upto), graph=TypedGraph(root, {}, {}, {}, {}), states={})
            return Evaluation(plain, views, batch.factory.many_rows).part_changes(root)

        place = (id(views.session), tables, after, upto)
        found = batch.factory.shared_parts.ask(part, views.another(), place, flows, compute)
        return None if found is None else found.used(part.uses[self.name])

    def _widely(self, after: JobId, upto: JobId, rows: int, batch: Batch) -> None:
        evaluation = WideEvaluation(self._flow_batch(after, upto), batch.bulk_views, batch, rows)
        for node in self.whole_states:
            evaluation.read_state(node)
        changes = self._wide_result(evaluation)
        require_expected(self.flow, self._failing, changes, batch)
        self._apply(evaluation.state_changes, changes, upto)

    def _wide_result(self, evaluation: WideEvaluation) -> ChangeSet | None:
        return evaluation.result(self.target)

    def _flow_batch(self, after: JobId, upto: JobId) -> FlowBatch:
        states = {**self.states, **self.whole_states}
        return FlowBatch(self.flow, self.graph, self._tables, states, self._newest_commit_at, after, upto)

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
        try:
            found = self._appeared(job, batch, views)
        except TooManyRows:
            found = self._appeared(job, batch, batch.bulk_views)
        require_expected(self.flow, self._failing, found[self.target], batch)
        for table, changes in found.items():
            table.apply(changes, job)

    def _appeared(self, job: JobId, batch: Batch, views: BatchViews) -> dict[StoredTable, ChangeSet | None]:
        """By table, the target last, what the query gives at a job."""
        texts = self._texts(job, batch, views)
        tables = (*self.states.values(), self.target)
        return {table: batch.appeared(table.spec, texts[table.name], job, views) for table in tables}

    def _recompute(self, after: JobId, upto: JobId, batch: Batch) -> None:
        """Runs the query at `upto` and takes the difference from what the tables hold at `after`."""
        top = self._top
        texts = self._texts(upto, batch, batch.bulk_views, top)
        # All are computed before any is applied: a full disk in between would leave them at different jobs.
        states = {
            node: self._difference(table, texts[table.name], after, upto, batch) for node, table in self.states.items()
        }
        if top is None:
            changes = self._difference(self.target, texts[self.target.name], after, upto, batch)
        else:
            changes = self._derived(top, states[top], after, upto, batch)
        require_expected(self.flow, self._failing, changes, batch)
        self._apply(states, changes, upto)

    @property
    def _top(self) -> Aggregate | None:
        """The state that the target derives from group by group."""
        top = None if self._is_bag else self.graph.running_top
        return top if top in self.states else None

    def _derived(
        self, top: Aggregate, state: ChangeSet | None, after: JobId, upto: JobId, batch: Batch
    ) -> ChangeSet | None:
        """The target's changes from those of its topmost state."""
        if state is None or not state.rows:
            return None
        evaluation = WideEvaluation(self._flow_batch(after, upto), batch.bulk_views, batch, state.rows)
        evaluation.know_state(top, state)
        return evaluation.result(self.target)

    @property
    def furthest(self) -> JobId:
        """The job that all inputs have reached."""
        return min((self._tables[table].through for table in self.inputs), default=self.target.through)

    def skip(self, upto: JobId, batch: Batch) -> None:
        """Goes to a job without those before it, of which one fails: the tables then hold what the query gives there.

        Ranges that are missing come back so.
        """
        known, is_missing = self.target.through, bool(self.target.missing)
        for table in self.states.values():
            table.stand()
        self._recompute(self.target.stand(), upto, batch)
        if not is_missing:
            self.target.skip_to(upto, known)
            return
        for table in (*self.states.values(), self.target):
            table.came_back(upto)

    def _difference(self, table: StoredTable, text: str, after: JobId, upto: JobId, batch: Batch) -> ChangeSet | None:
        views = batch.bulk_views
        if table.is_empty(after):
            found = batch.appeared(table.spec, text, upto, views)
            return found and replace(found, after=after)
        return batch.made(table.spec, difference_text(table.spec, text, views.whole(table, after), upto), after, upto)

    def from_scratch(self, views: BatchViews) -> str:
        """The query over the inputs' newest rows."""
        return plain_sql(self.graph.root, self._whole_inputs(self.target.through, views), self.graph.sensitive)

    def _whole_inputs(self, job: JobId, views: BatchViews) -> Callable[[str], str]:
        """By table a view of its rows at the job."""
        return {table: views.whole(self._tables[table], job) for table in self.inputs}.__getitem__

    def _texts(self, job: JobId, batch: Batch, views: BatchViews, top: Aggregate | None = None) -> dict[str, str]:
        """The query from scratch of the target and of each state, over the inputs at the job; not of what derives from `top`.

        Where there are many rows, a state is computed here, once, and what derives from it reads that.
        """
        tables = self._whole_inputs(job, views)
        texts = {}
        states = self._states_read(job, views)
        for node, table in self.states.items():
            form = self.graph.forms[node]
            below = plain_sql(node.input, tables, self.graph.sensitive, states)
            text = state_text(node, form, below)
            if node is not top and views.session is not batch.factory.sessions.small:
                frame = views.sql(text)
                folder = batch.to_files(frame)
                view = views.of_frame(views.session.read.schema(frame.schema).parquet(f"file://{folder}"))
                states[node], text = (form, view), f"SELECT * FROM {view}"
            texts[table.name] = text
        if top is not None:
            return texts
        text = plain_sql(self.graph.root, tables, self.graph.sensitive, states)
        if self._is_bag:
            text = bag_text(self.target.spec, text)
        texts[self.target.name] = text
        return texts

    def _states_read(self, job: JobId, views: BatchViews) -> dict[Aggregate, tuple[Running, str]]:
        """The states that other stages keep, as relations."""
        return {node: (self.graph.forms[node], views.whole(table, job)) for node, table in self.whole_states.items()}


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
