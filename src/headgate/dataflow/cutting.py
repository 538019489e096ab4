"""A graph cut by stored results: those are kept incrementally, what is behind them is one query that runs as written when read.

    scan a ── filter ── V │ join ── aggregate        the query reads V as __kept_<key>
    scan b ───────────────┘                          and what it needs of b as __input_2

Without a stored result the whole query runs as written, over the tables.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping

from headgate.dataflow.graph import AsOfJoin, Fragment, Node, Scan, kept, walk
from headgate.dataflow.reference import plain_sql
from headgate.dataflow.relation import column_list
from headgate.dataflow.typed_graph import TypedGraph

Cut = tuple[str, ...]
"""The keys of the operators right behind which results are stored; empty where none is."""


def operator_key(node: Node) -> str:
    """Equal for operators that compute the same of the same tables, also of several flows and after a restart."""
    return hashlib.sha256(repr(node).encode()).hexdigest()[:16]


def cut_places(root: Node) -> Iterator[Node]:
    """The operators behind which a result may be stored, inputs first; the last one has the whole result.

    A table is stored already. What must fail a job may not stand behind a stored result: nobody would run it.
    """
    failing = [node for node in walk(root) if isinstance(node, AsOfJoin) and node.miss == "fail"]
    if failing:
        yield root
        return
    for node in walk(root):
        if node is root or (not isinstance(node, Scan) and node.columns):
            yield node


def find_places(root: Node, cut: Cut) -> tuple[Node, ...] | None:
    """The operators of a cut; None if the graph has not all of them, or one is the whole result or below another."""
    wanted = set(cut)
    found = tuple(node for node in cut_places(root) if node is not root and operator_key(node) in wanted)
    if len(found) != len(wanted) or any(below in walk(node)[:-1] for node in found for below in found):
        return None
    return found


def cut_behind(graph: TypedGraph, outputs: tuple[str, ...], stored: Collection[Node], reason: str) -> Fragment:
    """The graph's query behind these results, and what it reads."""
    inputs: list[tuple[str, Node]] = []
    made: dict[Node, Node] = {}

    def rest(node: Node) -> Node:
        if node not in made:
            if node in stored or isinstance(node, Scan):
                # A stored result has the same name in every cut that has it.
                name = f"__kept_{operator_key(node)}" if node in stored else f"__input_{len(inputs) + 1}"
                inputs.append((name, node))
                made[node] = Scan(name, kept(node.columns))
            else:
                made[node] = node.over([rest(child) for child in node.inputs])
        return made[node]

    root = rest(graph.root)
    sensitive: Mapping[Node, frozenset[str]] = {
        made[node]: names for node, names in graph.sensitive.items() if node in made
    }
    sql = f"SELECT {column_list(outputs)} FROM ({plain_sql(root, lambda table: table, sensitive)})"
    return Fragment(sql, tuple(inputs), (reason,))
