"""Which columns a node's rows are unique on."""

from __future__ import annotations

from headgate.dataflow.graph import (
    Aggregate,
    AsOfJoin,
    Filter,
    Join,
    Node,
    Projection,
    Scan,
    Window,
)
from headgate.delta.changes import START_AT, SURROGATE_KEY
from headgate.sql.names import folded
from headgate.sql.scope import TableCatalog

Keys = frozenset[frozenset[str]]
NO_KEYS: Keys = frozenset()


def unique_keys(node: Node, catalog: TableCatalog) -> Keys:
    """Sets of columns on which no two rows of the node agree; the empty set means at most one row."""
    match node:
        case Scan():
            return _scan_keys(node, catalog)
        case Filter() | Window():
            return unique_keys(node.input, catalog)
        case Projection():
            names: dict[str, str] = {}
            for output in node.outputs:
                names.setdefault(output.sql, output.name)
            return frozenset(
                frozenset(names[column] for column in key)
                for key in unique_keys(node.input, catalog)
                if all(column in names for column in key)
            )
        case Aggregate():
            keys = frozenset(node.keys)
            return frozenset((keys,)) | frozenset(key for key in unique_keys(node.input, catalog) if key <= keys)
        case AsOfJoin():
            return unique_keys(node.left, catalog)
        case Join():
            return _join_keys(node, catalog)
        case _:
            return NO_KEYS


def is_unique_on(node: Node, columns: frozenset[str], catalog: TableCatalog) -> bool:
    """Whether rows that agree on these columns are one row."""
    return any(key <= columns for key in unique_keys(node, catalog))


def _scan_keys(node: Scan, catalog: TableCatalog) -> Keys:
    key = catalog.key(node.table)
    candidates: list[tuple[str, ...]] = []
    if catalog.is_versioned(node.table):
        candidates.append((SURROGATE_KEY,))
        if key:
            candidates.append((*key, START_AT))
    elif key:
        candidates.append(key)
    names = {folded(output.sql): output.name for output in node.outputs}
    return frozenset(
        frozenset(names[folded(column)] for column in candidate)
        for candidate in candidates
        if all(folded(column) in names for column in candidate)
    )


def _join_keys(node: Join, catalog: TableCatalog) -> Keys:
    left = unique_keys(node.left, catalog)
    if node.kind in ("semi", "anti") or node.at_most_one:
        return left
    right = unique_keys(node.right, catalog)
    both = frozenset(one | other for one in left for other in right)
    if node.kind == "inner" and any(key <= frozenset(pair[0] for pair in node.keys) for key in left):
        return both | right
    return both
