"""Values that a delta's columns can have, found without running anything.

A column is followed down the graph to rows that the driver has: a table's changes, a settled delta, or rows that were looked up.
What is found may be more than the delta has, never less.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from headgate.dataflow.graph import Aggregate, AsOfJoin, Generate, Join, Node, Scan, UnionAll, Window
from headgate.dataflow.lineage import input_columns, table_column
from headgate.dataflow.relation import Keys
from headgate.dataflow.run import Run
from headgate.runtime.evaluation.inputs import Inputs
from headgate.runtime.evaluation.settled import Settled, distinct_keys


@dataclass(frozen=True)
class Tracer:
    """Follows columns of one evaluation, whose deltas `run` gives."""

    run: Run
    inputs: Inputs
    settled: Settled
    forward: Collection[AsOfJoin]
    """Lookups whose dimension moved only forward in time, so that only the batch's left rows were looked up."""
    met: Mapping[Join, Mapping[Scan, pa.Table]]
    """The rows that were looked up when the changes of a join had been told."""

    def delta_keys(self, node: Node, columns: tuple[str, ...], names: tuple[str, ...]) -> Keys:
        """At least the values that `columns` take in the node's delta, which is settled if nothing less tells."""
        traced = self._trace(node, columns)
        if traced is None:
            leading = [place for place, column in enumerate(columns) if self._leads_a_key(node, column)]
            for place in leading:
                traced = self._trace(node, (columns[place],))
                if traced is not None:
                    columns, names = (columns[place],), (names[place],)
                    break
        if traced is None:
            spans = self.run.settled_spans(node)
            traced = [] if spans is None else [self.settled.rows_of(spans).select(list(columns))]
        if not traced:
            schema = pa.schema([(name, pa.null()) for name in names])
            return Keys(names, schema.empty_table())
        return distinct_keys(traced, names)

    def _leads_a_key(self, node: Node, column: str) -> bool:
        """Whether the column shows the first key column of a table, so that few rows share a value."""
        stored = table_column(node, column)
        return stored is not None and self.inputs.tables[stored[0]].spec.sort[0] == stored[1]

    def _trace(self, node: Node, columns: tuple[str, ...]) -> list[pa.Table] | None:
        """Tables of values (columns in order) among which the delta's values are, without running anything."""
        spans = self.run.spans(node)
        if spans is None:
            return []
        known = self.settled.find(spans) if spans.settled else None
        if known is not None:
            return [known.select(list(columns))]
        if isinstance(node, UnionAll):
            return _joined([self._trace(branch, columns) for branch in node.branches])
        if isinstance(node, Join | AsOfJoin):
            return self._trace_join(node, columns)
        if isinstance(node, Window) and not all(column in node.partition for column in columns):
            return None
        below = input_columns(node, columns)
        return None if below is None else self._trace(*below)

    def _trace_join(self, node: Join | AsOfJoin, columns: tuple[str, ...]) -> list[pa.Table] | None:
        to_right = dict(node.keys)
        to_left = {right: left for left, right in node.keys}
        left = tuple(to_left.get(column, column) for column in columns)
        inner = isinstance(node, Join) and node.kind == "inner"
        if not inner and any(column not in node.left.columns for column in columns):
            return None
        if all(column in to_right for column in left):
            right = tuple(to_right[column] for column in left)
            return _joined([self._trace(node.left, left), self._trace(node.right, right)])
        only_left = self.run.spans(node.right) is None or node in self.forward
        if only_left and all(column in node.left.columns for column in left):
            return self._trace(node.left, left)
        right = tuple(to_right.get(column, column) for column in columns)
        for side, other, names in ((node.left, node.right, left), (node.right, node.left, right)):
            if inner and all(column in side.columns for column in names):
                return self._trace_side(node, side, other, names)
        return None

    def _trace_side(
        self, node: Join | AsOfJoin, side: Node, other: Node, columns: tuple[str, ...]
    ) -> list[pa.Table] | None:
        """Values of one side of an inner join: those of its changes, and of its rows that the other side's changes met."""
        traced = self._trace(side, columns)
        if self.run.spans(other) is None or traced is None or not isinstance(node, Join):
            return traced
        met = looked_up_values(side, columns, self.met[node])
        return [*traced, met] if met is not None else None


def looked_up_values(node: Node, columns: tuple[str, ...], looked_up: Mapping[Scan, pa.Table]) -> pa.Table | None:
    """The columns in the rows that were looked up for the scan that they come from, if that is one scan."""
    if isinstance(node, Scan):
        found = looked_up.get(node)
        return found.select(list(columns)) if found is not None else None
    below = input_columns(node, columns) if not isinstance(node, Generate | Window | Aggregate) else None
    if below is None or below[0] is not node.inputs[0]:
        return None
    return looked_up_values(*below, looked_up)


def _joined(parts: Sequence[list[pa.Table] | None]) -> list[pa.Table] | None:
    found: list[pa.Table] = []
    for part in parts:
        if part is None:
            return None
        found.extend(part)
    return found
