"""Values that a delta's columns can have, found without running anything.

A column is followed down the graph to rows that are there: a table's changes, a settled delta, or rows that were looked up.
What is found may be more than the delta has, never less.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from headgate.dataflow.graph import Aggregate, AsOfJoin, Generate, Join, Node, Scan, UnionAll, Window
from headgate.dataflow.lineage import input_columns, table_column
from headgate.dataflow.relation import Relation
from headgate.dataflow.run import Run
from headgate.runtime.tables.stored import StoredTable

LookedUp = Mapping[Scan, Relation | None]
"""The rows that each scan was last asked for, where they were looked up; None for no rows."""


@dataclass(frozen=True, slots=True)
class Values:
    """Columns of a settled relation; of None there are no values."""

    relation: Relation | None
    columns: tuple[str, ...]


@dataclass(frozen=True)
class Tracer:
    """Follows columns of one evaluation, whose deltas `run` gives."""

    run: Run
    tables: Mapping[str, StoredTable]
    forward: Collection[AsOfJoin]
    """Lookups whose dimension moved only forward in time, so that only the batch's left rows were looked up."""
    met: Mapping[Join, LookedUp]
    """The rows that were looked up when the changes of a join had been told."""

    def values(
        self, node: Node, columns: tuple[str, ...], names: tuple[str, ...]
    ) -> tuple[list[Values], tuple[str, ...]]:
        """At least the values that `columns` take in the node's delta, which is settled if nothing less tells.

        Of columns that only together are not known, one that tells rows well; gives its name.
        """
        traced = self._trace(node, columns)
        if traced is None:
            leading = [place for place, column in enumerate(columns) if self._leads_a_key(node, column)]
            for place in leading:
                traced = self._trace(node, (columns[place],))
                if traced is not None:
                    return traced, (names[place],)
        if traced is None:
            traced = [Values(self.run.settled_spans(node), columns)]
        return traced, names

    def _leads_a_key(self, node: Node, column: str) -> bool:
        """Whether the column shows the first key column of a table, so that few rows share a value."""
        stored = table_column(node, column)
        return stored is not None and self.tables[stored[0]].spec.sort[0] == stored[1]

    def _trace(self, node: Node, columns: tuple[str, ...]) -> list[Values] | None:
        """Values (columns in order) among which the delta's values are, without running anything."""
        spans = self.run.spans(node)
        if spans is None:
            return []
        if spans.settled:
            return [Values(spans, columns)]
        if isinstance(node, UnionAll):
            return _joined([self._trace(branch, columns) for branch in node.branches])
        if isinstance(node, Join | AsOfJoin):
            return self._trace_join(node, columns)
        if isinstance(node, Window) and not all(column in node.partition for column in columns):
            return None
        below = input_columns(node, columns)
        return None if below is None else self._trace(*below)

    def _trace_join(self, node: Join | AsOfJoin, columns: tuple[str, ...]) -> list[Values] | None:
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
    ) -> list[Values] | None:
        """Values of one side of an inner join: those of its changes, and of its rows that the other side's changes met."""
        traced = self._trace(side, columns)
        if self.run.spans(other) is None or traced is None or not isinstance(node, Join):
            return traced
        met = looked_up_values(side, columns, self.met[node])
        return [*traced, met] if met is not None else None


def looked_up_values(node: Node, columns: tuple[str, ...], looked_up: LookedUp) -> Values | None:
    """The columns in the rows that were looked up for the scan that they come from, if that is one scan."""
    if isinstance(node, Scan):
        return Values(looked_up[node], columns) if node in looked_up else None
    below = input_columns(node, columns) if not isinstance(node, Generate | Window | Aggregate) else None
    if below is None or below[0] is not node.inputs[0]:
        return None
    return looked_up_values(*below, looked_up)


def _joined(parts: Sequence[list[Values] | None]) -> list[Values] | None:
    found: list[Values] = []
    for part in parts:
        if part is None:
            return None
        found.extend(part)
    return found
