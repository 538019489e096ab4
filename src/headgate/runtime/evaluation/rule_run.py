"""What the runs of the rules have in common: which form of a node is asked for, and that each delta is computed once."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from headgate.dataflow.graph import Aggregate, AsOfJoin, Join, Node, Scan, scanned_tables, uses
from headgate.dataflow.lineage import table_column
from headgate.dataflow.relation import Keys, Relation, as_changes
from headgate.dataflow.rulebook import RULES
from headgate.dataflow.run import Run
from headgate.dataflow.typed_graph import TypedGraph
from headgate.delta.changes import COMMIT_AT, JOB, JobId
from headgate.errors import FlowFailed
from headgate.runtime.evaluation.flow_batch import FlowBatch
from headgate.runtime.evaluation.inputs import Inputs
from headgate.runtime.evaluation.tracing import LookedUp, Tracer, Values, looked_up_values


class RuleRun(Run):
    """The part of a run that does not depend on where rows are."""

    def __init__(self, batch: FlowBatch, inputs: Inputs) -> None:
        self._batch = batch
        self._inputs = inputs
        self._deltas: dict[Node, Relation | None] = {}
        self._spans: dict[Node, Relation | None] = {}
        self._untouched = False
        """Whether the rows being asked for are those that stay through the batch."""
        self._parents = uses(batch.graph.root)
        self._forward: set[AsOfJoin] = set()
        """Lookups whose dimension moved only forward in time, so that only the batch's left rows were looked up."""
        self._looked_up: LookedUp = {}
        self._met: dict[Join, LookedUp] = {}
        """The rows that were looked up when the changes of a join had been told."""

    @property
    def graph(self) -> TypedGraph:
        return self._batch.graph

    @property
    def jobs(self) -> int:
        return self._batch.jobs

    def scan_delta(self, scan: Scan) -> Relation | None:
        return self._inputs.spans(scan)

    def scan_rows(self, scan: Scan, keys: Keys | None) -> Relation | None:
        return self._inputs.rows(scan, keys, untouched=self._untouched)

    def state_rows(self, node: Aggregate, keys: Keys | None) -> Relation | None:
        return self._inputs.state_rows(node, keys)

    def is_cheap(self, node: Node) -> bool:
        return self._inputs.are_read_whole(node)

    @abstractmethod
    def _keys(self, values: list[Values], names: tuple[str, ...]) -> Keys:
        """All of the values, as a restriction on `names`."""

    @abstractmethod
    def _first_row(self, relation: Relation) -> dict[str, Any]:
        """One row of a settled relation."""

    @abstractmethod
    def _earliest_effects(self, node: AsOfJoin, moved: Relation) -> Mapping[int, datetime] | None:
        """Per job the first moment at which what is valid differs, if that is known without running the relation.

        Equal versions that came and went with other ends cancel.
        """

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
                self._met[node] = dict(self._looked_up)
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

    def merged(self, node: Join) -> tuple[Relation | None, Relation | None] | None:
        return None

    def keys_of(self, relation: Relation, columns: tuple[str, ...], names: tuple[str, ...]) -> Keys:
        return self._keys([Values(relation, columns)], names)

    def delta_keys(self, node: Node, columns: tuple[str, ...], names: tuple[str, ...]) -> Keys:
        return self._keys(*Tracer(self, self._batch.tables, self._forward, self._met).values(node, columns, names))

    def row_keys(
        self, node: Node, rows: Relation, columns: tuple[str, ...], names: tuple[str, ...]
    ) -> tuple[Relation | None, Keys | None]:
        found = looked_up_values(node, columns, self._looked_up)
        if found is not None:
            return rows, self._keys([found], names)
        settled = self.settle(rows, weighted=False)
        return settled, self.keys_of(settled, columns, names) if settled is not None else None

    def affects_only_future(self, node: AsOfJoin, moved: Relation) -> bool:
        stored = table_column(node.left, node.at)
        effects = self._earliest_effects(node, moved) if stored is not None and stored[1] == COMMIT_AT else None
        if effects is None:
            return False
        for job, effect in effects.items():
            before = self._batch.newest_commit_at(JobId(job - 1))
            if before is not None and before >= effect:
                return False
        self._forward.add(node)
        return True

    def _attributes(self, node: AsOfJoin) -> list[str]:
        """The columns that tell versions apart, for those who see what is valid at a moment."""
        end_is_read = self.graph.is_read(node, node.end)
        return [name for name in node.right.columns if end_is_read or name not in (node.start, node.end)]

    def lookup_missed(self, node: AsOfJoin, missed: Relation) -> None:
        row = self._first_row(missed)
        keys = {left: row[left] for left, _ in node.keys}
        shown = ", ".join(f"{name.split('__', 1)[-1]} = {value!r}" for name, value in keys.items())
        dimension = next(iter(scanned_tables(node.right)), "the dimension")
        raise FlowFailed(
            f"flow {self._batch.flow}: no version of {dimension} was valid for {shown} at {row[node.at]}, job {row[JOB]}",
            hint="load the dimension first, or set lookup_miss to 'unknown' or 'drop' in the view's TBLPROPERTIES",
        )
