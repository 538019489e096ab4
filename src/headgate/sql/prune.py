"""Tidies a graph: columns that nobody reads go, and renaming Projects merge into what is below them.

A node that two others share keeps the columns that either needs, and stays one node.
"""

from __future__ import annotations

from collections.abc import Sequence

from headgate.dataflow.expression import Column
from headgate.dataflow.graph import Node, Output, Projection, Scan, UnionAll, kept, uses, walk


def pruned(root: Node) -> Node:
    """The same rows and columns from a smaller graph."""
    order = walk(root)
    needed: dict[Node, set[str]] = {node: set() for node in order}
    needed[root] = set(root.columns)
    narrowed: dict[Node, Node] = {}
    for node in reversed(order):
        wanted = needed[node]
        narrowed[node] = node.narrowed(wanted)
        read = narrowed[node].reads
        if isinstance(node, UnionAll):
            read = frozenset(_union_columns(node, wanted))
        for child in node.inputs:
            needed[child].update(read.intersection(child.columns))
        for origin in (narrowed[node].origin(column) for column in wanted):
            if origin is not None:
                needed[origin[0]].add(origin[1])
    built: dict[Node, Node] = {}
    for node in order:
        inputs = [built[child] for child in node.inputs]
        if isinstance(node, UnionAll):
            inputs = _aligned(inputs, _union_columns(node, needed[node]))
        built[node] = narrowed[node].over(inputs)
    return _merged(built[root])


def _union_columns(node: UnionAll, wanted: set[str]) -> tuple[str, ...]:
    return tuple(name for name in node.columns if name in wanted) or node.columns[:1]


def _aligned(branches: Sequence[Node], columns: tuple[str, ...]) -> list[Node]:
    """The branches with the same columns: a branch that is used elsewhere may have more."""
    return [branch if branch.columns == columns else Projection(branch, kept(columns)) for branch in branches]


def _merged(root: Node) -> Node:
    """Projects of single consumers merged where one of the two only renames."""
    counts = uses(root)
    done: dict[Node, Node] = {}
    for node in walk(root):
        changed = node.over([done[child] for child in node.inputs])
        if isinstance(changed, Projection) and isinstance(node, Projection):
            changed = _merged_project(changed, single=counts[node.input] == 1)
        done[node] = changed
    return done[root]


def _merged_project(node: Projection, *, single: bool) -> Node:
    below = node.input
    if node.columns == below.columns and all(output.name == output.sql for output in node.outputs):
        return below
    renames = all(isinstance(output.sql, Column) for output in node.outputs)
    if isinstance(below, Scan) and renames:
        own = {output.name: output.sql for output in below.outputs}
        return Scan(below.table, tuple(Output(output.name, own[output.sql]) for output in node.outputs))
    if single and isinstance(below, Projection):
        texts = {output.name: output.sql for output in below.outputs}
        outputs = tuple(Output(output.name, output.sql.over(texts)) for output in node.outputs)
        if renames:
            return _merged_project(Projection(below.input, outputs), single=False)
        if all(isinstance(text, Column) for text in texts.values()):
            return Projection(below.input, outputs)
    return node
