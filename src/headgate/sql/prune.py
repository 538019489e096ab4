"""Tidies a graph: columns that nobody reads go, and renaming Projects merge into what is below them.

A node that two others share keeps the columns that either needs, and stays one node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from headgate.dataflow.graph import (
    Aggregate,
    AggregateCall,
    AsOfJoin,
    Filter,
    Generate,
    Join,
    Node,
    Output,
    Projection,
    Repeat,
    Scan,
    UnionAll,
    Window,
    walk,
)
from headgate.sql.names import is_simple, substituted, words


def pruned(root: Node) -> Node:
    """The same rows and columns from a smaller graph."""
    order = list(walk(root))
    needed: dict[Node, set[str]] = {node: set() for node in order}
    needed[root] = set(root.columns)
    for node in reversed(order):
        for child, columns in _needs(node, needed[node]):
            needed[child] |= columns & set(child.columns)
    built: dict[Node, Node] = {}
    for node in order:
        built[node] = _rebuilt(node, needed[node], built)
    return _merged(built[root])


def _needs(node: Node, wanted: set[str]) -> list[tuple[Node, set[str]]]:
    match node:
        case Filter():
            return [(node.input, wanted | words(node.predicate))]
        case Projection():
            return [(node.input, _used(output.sql for output in _kept(node.outputs, wanted)))]
        case Generate():
            return [(node.input, wanted | words(node.generator))]
        case Repeat():
            return [(node.input, wanted | words(node.times))]
        case UnionAll():
            return [(branch, {*_kept_names(node, wanted)}) for branch in node.branches]
        case Join():
            used = wanted | words(node.residual or "")
            left = used | {pair[0] for pair in node.keys}
            return [(node.left, left), (node.right, used | {pair[1] for pair in node.keys})]
        case AsOfJoin():
            left = wanted | {node.at} | {pair[0] for pair in node.keys}
            right = wanted | {node.start, node.end} | {pair[1] for pair in node.keys}
            return [(node.left, left), (node.right, right)]
        case Aggregate():
            used = set(node.keys)
            for call in _kept_calls(node, wanted):
                used |= _used(call.arguments) | words(call.where or "")
            return [(node.input, used)]
        case Window():
            used = wanted | set(node.partition)
            for window_call in node.calls:
                if window_call.name in wanted:
                    used |= words(window_call.function) | words(window_call.order_by or "")
            return [(node.input, used)]
        case _:
            return []


def _used(texts: Iterable[str]) -> set[str]:
    result: set[str] = set()
    for text in texts:
        result |= words(text)
    return result


# A node of which no column is read keeps one: its rows count all the same (`count(*)`, EXISTS, a cross join).


def _kept(outputs: tuple[Output, ...], needed: set[str]) -> tuple[Output, ...]:
    return tuple(output for output in outputs if output.name in needed) or outputs[:1]


def _kept_names(node: UnionAll, needed: set[str]) -> tuple[str, ...]:
    return tuple(name for name in node.columns if name in needed) or node.columns[:1]


def _kept_calls(node: Aggregate, needed: set[str]) -> tuple[AggregateCall, ...]:
    calls = tuple(call for call in node.calls if call.name in needed)
    return calls or (() if node.keys else node.calls[:1])


def _rebuilt(node: Node, needed: set[str], built: dict[Node, Node]) -> Node:
    match node:
        case Scan():
            return Scan(node.table, _kept(node.outputs, needed))
        case Filter() | Repeat() | Generate():
            return replace(node, input=built[node.input])
        case Projection():
            return Projection(built[node.input], _kept(node.outputs, needed))
        case UnionAll():
            return UnionAll(_aligned(node, needed, built))
        case Join():
            return replace(node, left=built[node.left], right=built[node.right])
        case AsOfJoin():
            left, right = built[node.left], built[node.right]
            surrogate_key = node.surrogate_key if node.surrogate_key in right.columns else None
            return replace(node, left=left, right=right, surrogate_key=surrogate_key)
        case Aggregate():
            return Aggregate(built[node.input], node.keys, _kept_calls(node, needed))
        case Window():
            window_calls = tuple(call for call in node.calls if call.name in needed)
            below = built[node.input]
            return Window(below, node.partition, window_calls) if window_calls else below
        case _:
            return node


def _aligned(node: UnionAll, needed: set[str], built: dict[Node, Node]) -> tuple[Node, ...]:
    """The branches with the same columns: a branch that is used elsewhere may have more."""
    branches = [built[branch] for branch in node.branches]
    wanted = _kept_names(node, needed)
    return tuple(
        branch if branch.columns == wanted else Projection(branch, tuple(Output(name, name) for name in wanted))
        for branch in branches
    )


def _merged(root: Node) -> Node:
    """Projects of single consumers merged where one of the two only renames."""
    uses = Counter(child for node in walk(root) for child in node.inputs)
    done: dict[Node, Node] = {}
    for node in walk(root):
        changed = _with_inputs(node, done)
        if isinstance(changed, Projection) and isinstance(node, Projection):
            changed = _merged_project(changed, single=uses[node.input] == 1)
        done[node] = changed
    return done[root]


def _with_inputs(node: Node, done: dict[Node, Node]) -> Node:
    match node:
        case Filter() | Repeat() | Generate() | Projection() | Aggregate() | Window():
            return replace(node, input=done[node.input])
        case UnionAll():
            return UnionAll(tuple(done[branch] for branch in node.branches))
        case Join() | AsOfJoin():
            return replace(node, left=done[node.left], right=done[node.right])
        case _:
            return node


def _merged_project(node: Projection, *, single: bool) -> Node:
    below = node.input
    if node.columns == below.columns and all(output.name == output.sql for output in node.outputs):
        return below
    renames = all(is_simple(output.sql) for output in node.outputs)
    if isinstance(below, Scan) and renames:
        own = {output.name: output.sql for output in below.outputs}
        if all(output.sql in own for output in node.outputs):
            return Scan(below.table, tuple(Output(output.name, own[output.sql]) for output in node.outputs))
    if single and isinstance(below, Projection):
        texts = {output.name: output.sql for output in below.outputs}
        if renames and all(output.sql in texts for output in node.outputs):
            outputs = tuple(Output(output.name, texts[output.sql]) for output in node.outputs)
            return _merged_project(Projection(below.input, outputs), single=False)
        if all(is_simple(text) for text in texts.values()):
            outputs = tuple(Output(output.name, substituted(output.sql, texts)) for output in node.outputs)
            return Projection(below.input, outputs)
    return node
