"""Types of a graph's columns, as Spark derives them, and the running form of its aggregates."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from headgate.dataflow.accumulators import Running, running, why_not_running
from headgate.dataflow.graph import Aggregate, Node
from headgate.dataflow.lineage import all_nodes, is_read_above
from headgate.dataflow.ordered import order_sensitive
from headgate.dataflow.reference import plain_sql

ColumnTypes = Mapping[str, str]
Analyse = Callable[[str], ColumnTypes]
"""Gives the column names and Spark SQL types of a query, without running it."""


@dataclass(frozen=True, slots=True)
class TypedGraph:
    """A graph with the type of every column of every node; companions included."""

    root: Node
    types: Mapping[Node, ColumnTypes]
    forms: Mapping[Aggregate, Running]
    """The aggregates that are kept as running sums."""
    recomputed: Mapping[Aggregate, str]
    """The others, and the call because of which."""
    sensitive: Mapping[Node, frozenset[str]]
    """The calls whose floating point value depends on the order of rows, where there are some."""

    def type_of(self, node: Node, column: str) -> str:
        """The column's Spark SQL type."""
        return self.types[node][column]

    def running(self, node: Aggregate) -> Running | None:
        """The node as running sums, or None when its groups are recomputed."""
        return self.forms.get(node)

    def order_sensitive(self, node: Node) -> frozenset[str]:
        """The node's calls whose floating point value depends on the order of rows."""
        return self.sensitive.get(node, frozenset())

    def is_read(self, node: Node, column: str) -> bool:
        """Whether anything above the node reads this column of it."""
        return is_read_above(self.root, node, column)

    @property
    def states(self) -> tuple[Aggregate, ...]:
        """The aggregates that have a stored state, in a fixed order."""
        return tuple(self.forms)


def typed(root: Node, tables: Callable[[str], str], analyse: Analyse) -> TypedGraph:
    """Derives the types; `tables` names, for each table, an (empty) relation with its columns."""
    types: dict[Node, ColumnTypes] = {}
    forms: dict[Aggregate, Running] = {}
    recomputed: dict[Aggregate, str] = {}
    for node in all_nodes(root):
        text = plain_sql(node, tables)
        types[node] = analyse(text)
        if not isinstance(node, Aggregate):
            continue
        below = plain_sql(node.input, tables)
        arguments = {call.name: call.arguments[0] for call in node.calls if call.arguments and call.arguments[0] != "*"}
        argument_types: dict[str, str] = {}
        if arguments:
            outputs = ", ".join(f"{sql} AS a{index}" for index, sql in enumerate(arguments.values()))
            found = analyse(f"SELECT {outputs} FROM ({below})")
            argument_types = dict(zip(arguments, found.values(), strict=True))
        result_types = {call.name: types[node][call.name] for call in node.calls}
        form = running(node, argument_types, result_types)
        if form is not None:
            forms[node] = form
        else:
            recomputed[node] = why_not_running(node, argument_types, result_types) or ""
    found_sensitive = {node: order_sensitive(node, types[node]) for node in types if node not in forms}
    return TypedGraph(root, types, forms, recomputed, {node: names for node, names in found_sensitive.items() if names})
