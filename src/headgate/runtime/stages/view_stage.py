"""A materialized view: its inputs' changes in, its own and its running states' changes out.

Small changes go through the incremental rules; a batch whose groups would be computed from too many rows is halved. When a
job brings more than the driver should hold, or when the view is built, its query runs as written on the inputs' snapshot
and the result is compared with what the table has. That gives one snapshot, so such jobs go one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime

import pyarrow as pa
from pyspark.sql.types import StructType

from headgate.dataflow.accumulators import GROUP, Running
from headgate.dataflow.graph import Aggregate, scanned_tables
from headgate.dataflow.reference import plain_sql
from headgate.dataflow.relation import column_list, quoted
from headgate.dataflow.typed_graph import TypedGraph
from headgate.delta.changes import COPY, JOB, NO_JOB, ROW_HASH, WEIGHT, JobId
from headgate.runtime.evaluation.evaluation import Evaluation, TooMuchToRead
from headgate.runtime.rows.copies import numbered, row_hash
from headgate.runtime.stages.batch import Batch
from headgate.runtime.tables.stored import BatchViews, StoredTable
from headgate.warehouse.changes import ChangeSet
from headgate.warehouse.spec import TableSpec

FIRST_LOAD_ROWS = 10_000
"""From here on an empty view is filled by its query rather than by the rules."""


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
        is_first_load = rows >= FIRST_LOAD_ROWS and self.target.is_empty(after)
        if rows < batch.many_rows and not (is_first_load and upto - after == 1):
            self._increment(after, upto, rows, batch)
        elif upto - after == 1:
            self._recompute(after, upto, batch)
        else:
            self._halve(after, upto, batch)

    def _halve(self, after: JobId, upto: JobId, batch: Batch) -> None:
        self.advance(JobId((after + upto) // 2), batch)
        self.advance(upto, batch)

    def _increment(self, after: JobId, upto: JobId, rows: int, batch: Batch) -> None:
        views = batch.views(rows)
        evaluation = Evaluation(
            self.flow,
            self.graph,
            self._tables,
            self.states,
            views,
            after,
            upto,
            self._newest_commit_at,
            batch.many_rows,
        )
        try:
            result = evaluation.result(keyed=not self._is_bag)
        except TooMuchToRead:
            self._halve(after, upto, batch)
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
        texts = self._texts(job, views)
        for table in (*self.states.values(), self.target):
            table.apply(batch.appeared(table.spec, texts[table.name], job, views), job)

    def _recompute(self, after: JobId, upto: JobId, batch: Batch) -> None:
        """Runs the query at `upto` and takes the difference from what the tables hold at `after`."""
        texts = self._texts(upto, batch.bulk_views)
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
        names = column_list(table.spec.columns)
        frame = views.session.sql(
            f"SELECT {names}, CAST({upto} AS BIGINT) AS {JOB}, SUM({WEIGHT}) AS {WEIGHT} FROM"
            f" (SELECT {names}, 1L AS {WEIGHT} FROM ({text})"
            f" UNION ALL SELECT {names}, -1L AS {WEIGHT} FROM {views.whole(table, after)})"
            f" GROUP BY {names} HAVING SUM({WEIGHT}) <> 0"
        )
        return ChangeSet.of_files(table.spec, batch.to_files(frame), after, upto)

    def from_scratch(self, views: BatchViews) -> str:
        """The query over the inputs' newest rows."""
        names = {table: views.whole(self._tables[table], self.target.through) for table in self.inputs}
        return plain_sql(self.graph.root, names.__getitem__, self.graph.sensitive)

    def _texts(self, job: JobId, views: BatchViews) -> dict[str, str]:
        """The query from scratch of the target and of each state, over the inputs at the job."""
        names = {table: views.whole(self._tables[table], job) for table in self.inputs}
        texts = {}
        for node, table in self.states.items():
            below = plain_sql(node.input, names.__getitem__, self.graph.sensitive)
            texts[table.name] = state_text(node, self.graph.forms[node], below)
        text = plain_sql(self.graph.root, names.__getitem__, self.graph.sensitive)
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
