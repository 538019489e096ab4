"""Where a column's values come from, read off the graph."""

from __future__ import annotations

from collections.abc import Iterator

from headgate.dataflow.graph import Join, Node, Scan, UnionAll, Window, walk
from headgate.dataflow.rules.join import companion


def table_column(node: Node, column: str) -> tuple[str, str] | None:
    """The table and column whose stored values this column shows unchanged (or NULL), if there is just one."""
    if isinstance(node, Scan):
        return next(((node.table, output.sql) for output in node.outputs if output.name == column), None)
    below = node.origin(column)
    return None if below is None else table_column(*below)


def value_columns(node: Node, column: str) -> frozenset[tuple[str, str]]:
    """The columns of tables that a column's values are computed from; not those that only decide which rows there are."""
    if isinstance(node, Scan):
        return frozenset((node.table, str(output.sql)) for output in node.outputs if output.name == column)
    made_of = node.made_of(column)
    found = [value_columns(below, name) for below in node.inputs for name in made_of if name in below.columns]
    return frozenset().union(*found)


def input_columns(node: Node, columns: tuple[str, ...]) -> tuple[Node, tuple[str, ...]] | None:
    """The input, and the columns of it, whose values these columns show unchanged, if all are of one input."""
    found = [node.origin(column) for column in columns]
    origins = [origin for origin in found if origin is not None]
    if not origins or len(origins) < len(found) or len({below for below, _ in origins}) > 1:
        return None
    return origins[0][0], tuple(name for _, name in origins)


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
    """Whether any operator that is not part of `node` reads the column (a name is unique within a flow).

    A window may order equal rows by all columns; all columns of a union are taken to be read.
    """
    below = set(walk(node))
    if column in root.columns:
        return True
    above = [other for other in walk(root) if other not in below]
    return any(
        column in other.reads or (isinstance(other, Window | UnionAll) and column in other.inputs[0].columns)
        for other in above
    )
