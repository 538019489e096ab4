"""One flow taken from job `after` to job `upto`: the rules at work on Spark.

Deltas and the rows that rules look up are small, so they are Arrow tables in the driver that enter Spark as local
relations; a flow without nested aggregates then is one Spark execution. What a rule asks for twice is settled: computed
once, kept, and entered again as a local relation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime

import pyarrow as pa

from headgate.dataflow.graph import Aggregate, AsOfJoin, Join, Node, Scan, scanned_tables, scans, uses
from headgate.dataflow.lineage import table_column
from headgate.dataflow.relation import Keys, Relation, as_changes, netted
from headgate.dataflow.rulebook import RULES
from headgate.dataflow.rules.aggregate import Fused, fuse
from headgate.dataflow.typed_graph import TypedGraph
from headgate.delta.changes import BEGINNING, COMMIT_AT, JOB, WEIGHT, JobId
from headgate.errors import FlowFailed
from headgate.runtime.evaluation.inputs import Inputs
from headgate.runtime.evaluation.settled import Settled, distinct_keys
from headgate.runtime.evaluation.tracing import Tracer, looked_up_values
from headgate.runtime.rows import chains
from headgate.runtime.tables.stored import BatchViews, StoredTable

_FEW_ROWS = 5_000
"""Up to here the driver looks at rows one by one."""


class TooMuchToRead(Exception):
    """The batch should be halved: its groups would be computed from too many rows."""


class Evaluation:
    """Implements `headgate.dataflow.run.Run` for one flow and one batch of jobs."""

    def __init__(
        self,
        flow: str,
        graph: TypedGraph,
        tables: Mapping[str, StoredTable],
        states: Mapping[Aggregate, StoredTable],
        views: BatchViews,
        after: JobId,
        upto: JobId,
        newest_commit_at: Callable[[JobId], datetime | None],
        most_rows: int,
    ) -> None:
        self._flow = flow
        self.graph = graph
        self._settled = Settled(views)
        self._inputs = Inputs(tables, states, views, self._settled, after, upto)
        self._views = views
        self._newest_commit_at = newest_commit_at
        self._most_rows = most_rows
        self._deltas: dict[Node, Relation | None] = {}
        self._spans: dict[Node, Relation | None] = {}
        self._untouched = False
        """Whether the rows being asked for are those that stay through the batch."""
        self._parents = uses(graph.root)
        self._forward: set[AsOfJoin] = set()
        """Lookups whose dimension moved only forward in time, so that only the batch's left rows were looked up."""
        self._met: dict[Join, dict[Scan, pa.Table]] = {}
        """The rows that were looked up when the changes of a join had been told."""
        self.state_changes: dict[Aggregate, pa.Table] = {}

    def result(self, *, keyed: bool) -> pa.Table | None:
        """The flow's changes, netted, or None. With a key, a row that changed to itself may be among them."""
        fused = fuse(self.graph.root, self) if keyed else None
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

    def delta(self, node: Node) -> Relation | None:
        if node not in self._deltas:
            spans = self.spans(node)
            if isinstance(node, Scan):
                self._deltas[node] = self._inputs.changes(node)
            else:
                self._deltas[node] = spans and as_changes(spans)
        return self._deltas[node]

    def spans(self, node: Node) -> Relation | None:
        if node not in self._spans:
            untouched, self._untouched = self._untouched, False
            spans = RULES[type(node)].delta(node, self)
            self._untouched = untouched
            if isinstance(node, Join):
                self._met[node] = dict(self._inputs.looked_up)
            if spans is not None and self._parents[node] > 1:
                spans = self.settle(spans)
            self._spans[node] = spans
        return self._spans[node]

    def settled_delta(self, node: Node) -> Relation | None:
        self.settled_spans(node)
        return self.delta(node)

    def settled_spans(self, node: Node) -> Relation | None:
        spans = self.spans(node)
        if spans is not None and not spans.settled:
            spans = self._spans[node] = self.settle(spans)
            self._deltas.pop(node, None)
        return spans

    def rows(self, node: Node, keys: Keys | None, *, untouched: bool | None = None) -> Relation | None:
        before = self._untouched
        wanted = before if untouched is None else untouched
        spans = self.spans(node) if wanted else None
        self._untouched = spans is not None and spans.spanned
        try:
            return RULES[type(node)].rows(node, self, keys)
        finally:
            self._untouched = before

    def settle(self, relation: Relation | None, *, weighted: bool = True) -> Relation | None:
        return self._settled.settle(relation, weighted=weighted)

    def keys_of(self, relation: Relation, columns: tuple[str, ...], names: tuple[str, ...]) -> Keys:
        return distinct_keys([self._settled.rows_of(relation).select(list(columns))], names)

    def delta_keys(self, node: Node, columns: tuple[str, ...], names: tuple[str, ...]) -> Keys:
        tracer = Tracer(self, self._inputs, self._settled, self._forward, self._met)
        return tracer.delta_keys(node, columns, names)

    def row_keys(
        self, node: Node, rows: Relation, columns: tuple[str, ...], names: tuple[str, ...]
    ) -> tuple[Relation | None, Keys | None]:
        found = looked_up_values(node, columns, self._inputs.looked_up)
        if found is not None:
            return rows, distinct_keys([found], names)
        settled = self.settle(rows, weighted=False)
        return settled, self.keys_of(settled, columns, names) if settled is not None else None

    def is_cheap(self, node: Node) -> bool:
        return self._inputs.are_small(node)

    def scan_delta(self, scan: Scan) -> Relation | None:
        return self._inputs.spans(scan)

    def scan_rows(self, scan: Scan, keys: Keys | None) -> Relation | None:
        return self._inputs.rows(scan, keys, untouched=self._untouched)

    def state_rows(self, node: Aggregate, keys: Keys | None) -> Relation | None:
        return self._inputs.state_rows(node, keys)

    def keep_state(self, node: Aggregate, changes: Relation) -> None:
        self.state_changes[node] = self._settled.rows_of(changes)

    def recomputes(self, below: Node, group: tuple[str, ...]) -> None:
        spans = self.settled_spans(below)
        if self._inputs.upto - self._inputs.after == 1 or spans is None:
            return
        changed = self._settled.rows_of(spans)
        moments = distinct_keys([changed.select([*group, JOB])], (*group, JOB)).values.num_rows
        groups = distinct_keys([changed.select(list(group))], group).values.num_rows if group else 1
        if sum(self._inputs.rows_read(scan) for scan in scans(below)) * moments > self._most_rows * max(1, groups):
            raise TooMuchToRead

    def affects_only_future(self, node: AsOfJoin, moved: Relation) -> bool:
        stored = table_column(node.left, node.at)
        rows = self._settled.find(moved)
        if stored is None or stored[1] != COMMIT_AT or rows is None or rows.num_rows > _FEW_ROWS:
            return False
        for job, effect in _earliest_effects(rows, node, self.graph.is_read(node, node.end)).items():
            before = self._newest_commit_at(JobId(job - 1))
            if before is not None and before >= effect:
                return False
        self._forward.add(node)
        return True

    def lookup_missed(self, node: AsOfJoin, missed: Relation) -> None:
        row = self._settled.rows_of(missed).slice(0, 1).to_pylist()[0]
        keys = {left: row[left] for left, _ in node.keys}
        shown = ", ".join(f"{name.split('__', 1)[-1]} = {value!r}" for name, value in keys.items())
        dimension = next(iter(scanned_tables(node.right)), "the dimension")
        raise FlowFailed(
            f"flow {self._flow}: no version of {dimension} was valid for {shown} at {row[node.at]}, job {row[JOB]}",
            hint="load the dimension first, or set lookup_miss to 'unknown' or 'drop' in the view's TBLPROPERTIES",
        )


def _earliest_effects(rows: pa.Table, node: AsOfJoin, end_is_read: bool) -> dict[int, datetime]:
    """Per job the first moment at which what is valid differs: equal versions that came and went with other ends cancel."""
    weights: dict[tuple[int, str, object], int] = {}
    names = [name for name in node.right.columns if end_is_read or name not in (node.start, node.end)]
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
