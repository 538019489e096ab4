"""One flow taken from job `after` to job `upto`: the rules at work on Spark.

Deltas and the rows that rules look up are small, so they are Arrow tables in the driver that enter Spark as local
relations; a flow without nested aggregates then is one Spark execution. What a rule asks for twice is settled: computed
once, kept, and entered again as a local relation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructType

from headgate.dataflow.graph import Aggregate, AsOfJoin, Join, Node, scans
from headgate.dataflow.relation import Keys, Relation, column_list, netted
from headgate.dataflow.rules.aggregate import Fused, fuse, value_changes
from headgate.delta.changes import BEGINNING, JOB, WEIGHT
from headgate.runtime.evaluation.flow_batch import FlowBatch
from headgate.runtime.evaluation.merging import touched_sides
from headgate.runtime.evaluation.narrow_inputs import NarrowInputs
from headgate.runtime.evaluation.rule_run import RuleRun
from headgate.runtime.evaluation.settled import Settled, distinct_keys, distinct_rows
from headgate.runtime.evaluation.tracing import Values
from headgate.runtime.rows import chains
from headgate.runtime.tables.batch_views import BatchViews

SharedChanges = Callable[[], tuple[Relation, pa.Table] | None]
"""Gives the changes of a part under a flow's own names."""
_FEW_ROWS = 5_000
"""Up to here the driver looks at rows one by one."""


class TooMuchToRead(Exception):
    """The batch should be halved: its groups would be computed from too many rows."""


class Evaluation(RuleRun):
    """The rules for one flow and one batch of jobs, on rows that the driver holds."""

    _inputs: NarrowInputs

    def __init__(
        self, batch: FlowBatch, views: BatchViews, most_rows: int, shared: Mapping[Node, SharedChanges] | None = None
    ) -> None:
        """`shared` has the parts whose changes are computed together with other flows."""
        self._settled = Settled(views)
        inputs = NarrowInputs(batch, views, self._settled)
        super().__init__(batch, inputs)
        self._looked_up = inputs.looked_up
        self._views = views
        self._most_rows = most_rows
        self._shared = shared or {}
        self.state_changes: dict[Aggregate, pa.Table] = {}

    def result(self, *, keyed: bool) -> pa.Table | None:
        """The flow's changes, netted, or None. With a key, a row that changed to itself may be among them."""
        is_computed = keyed and self.graph.running_top not in self._spans
        fused = fuse(self.graph.root, self) if is_computed else None
        if fused is not None:
            return self._fused_result(fused)
        delta = self.delta(self.graph.root)
        if delta is None:
            return None
        settled = self.settle(netted(delta))
        return settled and self._settled.rows_of(settled)

    def _fused_result(self, fused: Fused) -> pa.Table | None:
        """State and result of an aggregate at the top, from one execution."""
        if fused.rows is None:
            return None
        rows, _ = self._views.collect(f"SELECT * FROM {fused.rows.source}")
        rows = chains.group_changes(rows, fused.group, tuple(fused.state_columns), fused.size)
        if rows.num_rows == 0:
            return None
        state = rows.select([*fused.state_columns, JOB, WEIGHT])
        self.state_changes[fused.node] = state.rename_columns([*fused.state_columns.values(), JOB, WEIGHT])
        for flag in fused.kept_flags:
            rows = rows.filter(rows.column(flag))
        return rows.select([*self.graph.root.columns, JOB, WEIGHT]) if rows.num_rows else None

    def settle(self, relation: Relation | None, *, weighted: bool = True) -> Relation | None:
        return self._settled.settle(relation, weighted=weighted)

    def _keys(self, values: list[Values], names: tuple[str, ...]) -> Keys:
        found = [
            self._settled.rows_of(value.relation).select(list(value.columns))
            for value in values
            if value.relation is not None
        ]
        return distinct_keys(found, names)

    def _first_row(self, relation: Relation) -> dict[str, Any]:
        found: dict[str, Any] = self._settled.rows_of(relation).slice(0, 1).to_pylist()[0]
        return found

    def spans(self, node: Node) -> Relation | None:
        if node in self._shared and node not in self._spans:
            found = self._shared[node]()
            self._spans[node] = found and self._settled.know(*found)
        return super().spans(node)

    def part_changes(self, root: Node) -> tuple[pa.Table, StructType, bool] | None:
        """The changes of a part, their types and whether they are spans."""
        spans = self.spans(root)
        if spans is None:
            return None
        rows, schema = self._views.collect(f"SELECT {column_list((*spans.columns, *spans.marks))} FROM {spans.source}")
        return (rows, schema, spans.spanned) if rows.num_rows else None

    def merged(self, node: Join) -> tuple[Relation | None, Relation | None] | None:
        touched = touched_sides(node, self._inputs, self, self._parents)
        if touched is None:
            return None
        # From here on, up to the join, the changes of what is below have rows among them.
        for scan, relation in touched.items():
            self._spans[scan] = relation
        return self.spans(node.left), self.spans(node.right)

    def is_told(self, node: Node) -> bool:
        # Below a shared part nothing is to be asked for.
        return node in self._spans or node in self._shared

    def read_state(self, node: Aggregate) -> None:
        """Takes the changes of an aggregate's state as they are stored."""
        changes = self._views.changes(self._batch.states[node], self._batch.after, self._batch.upto)
        if changes is None or not changes.rows.num_rows:
            self._spans[node] = None
            return
        columns = self._batch.states[node].spec.columns
        self._spans[node] = self.settle(value_changes(node, self.graph.forms[node], Relation(changes.view, columns)))

    def keep_state(self, node: Aggregate, changes: Relation) -> None:
        self.state_changes[node] = self._settled.rows_of(changes)

    def recomputes(self, below: Node, group: tuple[str, ...]) -> None:
        spans = self.settled_spans(below)
        if self.jobs == 1 or spans is None:
            return
        changed = self._settled.rows_of(spans)
        moments = distinct_rows(changed.select([*group, JOB])).num_rows
        groups = distinct_rows(changed.select(list(group))).num_rows if group else 1
        if sum(self._inputs.rows_read(scan) for scan in scans(below)) * moments > self._most_rows * max(1, groups):
            raise TooMuchToRead

    def _earliest_effects(self, node: AsOfJoin, moved: Relation) -> Mapping[int, datetime] | None:
        rows = self._settled.find(moved)
        if rows is None or rows.num_rows > _FEW_ROWS:
            return None
        return _earliest_effects(rows, node, self._attributes(node))


def _earliest_effects(rows: pa.Table, node: AsOfJoin, names: list[str]) -> dict[int, datetime]:
    weights: dict[tuple[int, str, object], int] = {}
    fixed = zip(*(rows.column(name).to_pylist() for name in names), strict=True) if names else iter(lambda: (), None)
    columns = (rows.column(name).to_pylist() for name in (node.start, node.end, JOB, WEIGHT))
    for rest, (start, end, job, weight) in zip(fixed, zip(*columns, strict=True), strict=False):
        for moment, sign in ((start, 1), (end, -1)):
            if moment is not None:
                place = (job, repr(rest), moment)
                weights[place] = weights.get(place, 0) + weight * sign
    effects: dict[int, datetime] = {}
    for (job, _, moment), weight in weights.items():
        if weight:
            effect = moment if isinstance(moment, datetime) else BEGINNING
            effects[job] = min(effect, effects.get(job, effect))
    return effects
