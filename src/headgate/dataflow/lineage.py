"""Where a column's values come from, read off the graph."""

from __future__ import annotations

import re
from collections.abc import Iterator

from headgate.dataflow.graph import (
    Aggregate,
    AsOfJoin,
    Filter,
    Generate,
    Join,
    Node,
    Projection,
    Repeat,
    Scan,
    UnionAll,
    Window,
    walk,
)
from headgate.dataflow.rules.join import companion
from headgate.dataflow.rules.linear import renaming


def table_column(node: Node, column: str) -> tuple[str, str] | None:
    """The table and column whose stored values this column shows unchanged (or NULL), if there is just one."""
    if isinstance(node, Scan):
        return next(((node.table, output.sql) for output in node.outputs if output.name == column), None)
    if isinstance(node, Projection):
        below = renaming(node).get(column)
        return table_column(node.input, below) if below is not None else None
    if isinstance(node, Filter | Repeat | Generate | Window | Aggregate):
        below_node = node.input
        if isinstance(node, Aggregate) and column not in node.keys:
            return None
        return table_column(below_node, column) if column in below_node.columns else None
    if isinstance(node, Join | AsOfJoin):
        side = node.left if column in node.left.columns else node.right
        return table_column(side, column)
    return None


def all_nodes(root: Node) -> Iterator[Node]:
    """Every node of the graph with the companions of its joins, inputs first, each once."""
    seen: set[Node] = set()

    def visit(top: Node) -> Iterator[Node]:
        for node in walk(top):
            if node in seen:
                continue
            if isinstance(node, Join):
                beside = companion(node)
                if beside is not None and beside not in seen:
                    yield from visit(beside)
            if node not in seen:
                seen.add(node)
                yield node

    yield from visit(root)


def is_read_above(root: Node, node: Node, column: str) -> bool:
    """Whether any operator that is not part of `node` names the column (a name is unique within a flow)."""
    below = set(walk(node))
    if root in below:
        return True
    pattern = re.compile(rf"(?<!\w){re.escape(column)}(?!\w)")
    return any(pattern.search(_texts(other)) for other in walk(root) if other not in below)


def _texts(node: Node) -> str:
    """All expression text of the node itself."""
    parts: list[str] = []
    match node:
        case Filter():
            parts = [node.predicate]
        case Projection():
            parts = [output.sql for output in node.outputs]
        case Generate():
            parts = [node.generator]
        case Repeat():
            parts = [node.times]
        case Join():
            parts = [name for pair in node.keys for name in pair] + [node.residual or ""]
        case AsOfJoin():
            parts = [name for pair in node.keys for name in pair] + [node.at, node.start, node.end]
        case Aggregate():
            parts = list(node.keys)
            for call in node.calls:
                parts += [*call.arguments, call.where or ""]
        case Window():
            parts = list(node.partition)
            for window_call in node.calls:
                parts += [window_call.function, window_call.order_by or "", *node.input.columns]
        case UnionAll():
            parts = list(node.columns)
        case _:
            pass
    return " ".join(parts)
