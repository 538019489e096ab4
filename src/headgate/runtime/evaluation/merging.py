"""An inner join of two tables that both changed, as one join of what is touched on either side.

    Δ(R ⋈ S) = (ΔR + R₀) ⋈ (ΔS + S₀)   without the pairs R₀ ⋈ S₀

R₀ are the rows from before that can meet a change of S, with job 0 and weight 1, and S₀ those that can meet a change of R. A side
may be more than a table: joins with tables that did not change, filters and projections then see changes and rows in one pass,
where the equation of `rules/join` takes each of them twice. One side has to be known by the join's keys, so that R₀ ⋈ S₀ has no
more pairs than rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Protocol

from headgate.dataflow.graph import Filter, Join, Node, Projection, Scan
from headgate.dataflow.lineage import input_columns
from headgate.dataflow.relation import Keys, Relation
from headgate.runtime.evaluation.narrow_inputs import NarrowInputs
from headgate.runtime.evaluation.settled import distinct_keys
from headgate.runtime.spark.threads import DaemonThreads

_LOOKING = DaemonThreads("lookup")


class MergeFacts(Protocol):
    """What is known about the graph of an evaluation."""

    def spans(self, node: Node) -> Relation | None:
        """The node's changes."""

    def is_told(self, node: Node) -> bool:
        """Whether somebody has the node's changes already."""


Side = tuple[Scan, tuple[str, ...]]
"""A table that a side is linear in, and the columns of it that the join compares."""


def touched_sides(
    node: Join, inputs: NarrowInputs, known: MergeFacts, parents: Mapping[Node, int]
) -> dict[Scan, Relation] | None:
    """Of the tables that the two sides are linear in, changes and rows; None where the join cannot be merged.

    `parents` tells how many operators read a node: one that is read elsewhere must not have rows among its changes.
    """
    left = _side(node.left, tuple(pair[0] for pair in node.keys), known, parents)
    right = _side(node.right, tuple(pair[1] for pair in node.keys), known, parents) if left is not None else None
    if left is None or right is None or not any(map(inputs.is_key, (left, right))):
        return None
    changes = {scan: inputs.plain_changes(scan) for scan, _ in (left, right)}
    wanted: dict[Scan, Keys] = {}
    for (scan, columns), (other, compared) in ((left, right), (right, left)):
        met = changes[other]
        if met is None:
            return None
        wanted[scan] = distinct_keys([met.select(list(compared))], columns)
    # Side by side: files are read and decoded outside of Python's lock.
    looking = {scan: _LOOKING.submit(partial(inputs.touched, scan, keys)) for scan, keys in wanted.items()}
    found = {scan: relation for scan, future in looking.items() if (relation := future.result()) is not None}
    return found if len(found) == len(wanted) else None


def _side(node: Node, columns: tuple[str, ...], known: MergeFacts, parents: Mapping[Node, int]) -> Side | None:
    while not isinstance(node, Scan):
        if parents[node] != 1 or known.is_told(node) or not _is_linear(node, columns, known):
            return None
        below = (node.left, columns) if isinstance(node, Join) else input_columns(node, columns)
        if below is None:
            return None
        node, columns = below
    stored = {output.name: output.sql for output in node.outputs}
    is_alone = parents[node] == 1 and not known.is_told(node)
    return (node, tuple(stored[column] for column in columns)) if columns and is_alone else None


def _is_linear(node: Node, columns: tuple[str, ...], known: MergeFacts) -> bool:
    if isinstance(node, Join):
        # With a residual, the counts of matches of an outer join are kept beside it.
        plain = node.kind == "inner" or node.residual is None or node.at_most_one
        return plain and set(columns) <= set(node.left.columns) and known.spans(node.right) is None
    return isinstance(node, Filter | Projection)
