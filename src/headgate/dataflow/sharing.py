"""Parts that several flows have and whose changes can be computed once for all of them: inner joins and filters over tables.

    Aggregate by kind     Filter part = 3
            \\               /
             Join b, s        with the columns that either reads

What is above differs from flow to flow, what each flow keeps (running sums, counts of matches) is its own; so a shared part has none
of that in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from headgate.dataflow.expression import Column
from headgate.dataflow.fingerprint import Described, describe, equal_parts
from headgate.dataflow.graph import Filter, Join, Node, Output, Scan, walk

_SAVED_JOINS = 3
"""Joins that have to be saved: the changes of a shared part are a query of their own, for which all who share it wait."""


@dataclass(frozen=True, slots=True)
class PartUse:
    """How a flow uses a shared part: its own node, and by the node's columns those of the part."""

    node: Node
    columns: Mapping[str, str]


@dataclass(frozen=True, eq=False)
class SharedPart:
    root: Node
    """Has the columns that any of the flows reads."""
    uses: Mapping[str, PartUse]
    """By flow."""


def is_worth_sharing(part: SharedPart, flows: int) -> bool:
    """Whether so many flows save more by computing the part once than the further query costs."""
    joins = sum(isinstance(node, Join) for node in walk(part.root))
    return joins * (flows - 1) >= _SAVED_JOINS


def shared_parts(flows: Mapping[str, Node]) -> list[SharedPart]:
    """The largest parts that can be computed once."""
    return [
        _shared({each.flow: each.node for each in occurrences}) for occurrences in equal_parts(flows, _can_be_shared)
    ]


def _can_be_shared(node: Node) -> bool:
    below = walk(node)
    plain = all(isinstance(each, Scan | Filter) or _is_inner(each) for each in below)
    return plain and any(isinstance(each, Join) for each in below)


def _is_inner(node: Node) -> bool:
    return isinstance(node, Join) and node.kind == "inner"


def _shared(nodes: Mapping[str, Node]) -> SharedPart:
    described = {flow: describe(node) for flow, node in nodes.items()}
    first, root = next(iter(nodes.items()))
    names = {str(made): name for name, made in described[first][root].columns.items()}
    missing: dict[str, str] = {}
    for flow, node in nodes.items():
        for name, made in described[flow][node].columns.items():
            if str(made) not in names and str(made) not in missing:
                missing[str(made)] = f"__shared_{len(missing)}_{name}"
    names |= missing
    uses = {
        flow: PartUse(node, {name: names[str(made)] for name, made in described[flow][node].columns.items()})
        for flow, node in nodes.items()
    }
    return SharedPart(_widened(root, missing, described[first]), uses)


def _widened(node: Node, missing: Mapping[str, str], described: Mapping[Node, Described]) -> Node:
    """The node with more columns of its tables; `missing` gives their names by what they are made of."""
    if not missing:
        return node
    if isinstance(node, Scan):
        more = tuple(Output(name, Column(stored)) for stored, name in missing.items())
        return replace(node, outputs=node.outputs + more)
    if not isinstance(node, Join):
        return node.over([_widened(child, missing, described) for child in node.inputs])
    places = described[node].places
    of_side = [
        {made.removeprefix(f"{place}."): name for made, name in missing.items() if made.startswith(f"{place}.")}
        for place in places
    ]
    return node.over([_widened(side, of, described) for side, of in zip(node.inputs, of_side, strict=True)])
