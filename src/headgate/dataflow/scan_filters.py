"""Filters above scans: which changes of a table a flow can see at all.

    Δ(σ(R)) = σ(ΔR)        Δ(σ(R ⋈ S)) = Δ(σ(R) ⋈ S)   where the condition is one on R

A change that the filter drops changes nothing for the flow, as long as everything between is read by nothing else. So the filters of
all flows over a table can be evaluated by one query over its changes, before any flow looks rows up.
"""

from __future__ import annotations

from headgate.dataflow.expression import Expression
from headgate.dataflow.graph import Filter, Join, Node, Projection, Scan, uses, walk
from headgate.dataflow.relation import quoted


def scan_filters(root: Node) -> dict[Scan, Expression]:
    """Of the scans whose rows all meet a filter, its condition over the table's own columns."""
    readers = uses(root)
    found: dict[Scan, Expression] = {}
    for node in walk(root):
        if isinstance(node, Filter) and node.predicate.columns:
            place = _filtered(node, readers)
            if place is not None:
                scan, names = place
                stored = {output.name: Expression(quoted(output.sql)) for output in scan.outputs}
                condition = node.predicate.over({column: stored[name] for column, name in names.items()})
                before = found.get(scan)
                found[scan] = condition if before is None else Expression("(", before, ") AND (", condition, ")")
    return found


def _filtered(node: Filter, readers: dict[Node, int]) -> tuple[Scan, dict[str, str]] | None:
    """The scan that has all columns of the condition, and their names there."""
    below: Node = node.input
    names = {column: column for column in node.predicate.columns}
    while readers[below] == 1:
        if isinstance(below, Scan):
            return below, names
        if not isinstance(below, Filter | Projection) and not (isinstance(below, Join) and below.kind == "inner"):
            return None
        origins = {column: below.origin(name) for column, name in names.items()}
        inputs = {origin[0] for origin in origins.values() if origin is not None}
        if None in origins.values() or len(inputs) != 1:
            return None
        names = {column: origin[1] for column, origin in origins.items() if origin is not None}
        below = inputs.pop()
    return None
