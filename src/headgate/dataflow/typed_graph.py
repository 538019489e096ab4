"""Types of a graph's columns, as Spark derives them, and the running form of its aggregates."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from headgate.dataflow.accumulators import Running, running
from headgate.dataflow.graph import Aggregate, Filter, Node, Projection
from headgate.dataflow.lineage import all_nodes, is_read_above
from headgate.dataflow.ordered import order_sensitive
from headgate.dataflow.reference import PlainQuery, Tables
from headgate.dataflow.relation import column_list, quoted

ColumnTypes = Mapping[str, str]
Analyse = Callable[[str], Iterable[ColumnTypes]]
"""Gives, for each column of a query, the names and Spark SQL types of the struct that it is, without running it."""


@dataclass(frozen=True, slots=True)
class TypedGraph:
    """A graph with the type of every column of every node; companions included. Implements `GraphFacts`."""

    root: Node
    types: Mapping[Node, ColumnTypes]
    forms: Mapping[Aggregate, Running]
    """The aggregates that are kept as running sums."""
    recomputed: Mapping[Aggregate, str]
    """The others, and the call because of which."""
    sensitive: Mapping[Node, frozenset[str]]
    """The calls whose floating point value depends on the order of rows, where there are some."""

    def type_of(self, node: Node, column: str) -> str:
        return self.types[node][column]

    def running(self, node: Aggregate) -> Running | None:
        return self.forms.get(node)

    @property
    def running_top(self) -> Aggregate | None:
        """The aggregate with running sums of which each group makes at most one row of the query, by itself; None without one."""
        node = self.root
        while isinstance(node, Filter | Projection):
            node = node.input
        return node if isinstance(node, Aggregate) and node in self.forms else None

    def order_sensitive(self, node: Node) -> frozenset[str]:
        return self.sensitive.get(node, frozenset())

    def is_read(self, node: Node, column: str) -> bool:
        return is_read_above(self.root, node, column)

    @property
    def states(self) -> tuple[Aggregate, ...]:
        """The aggregates that have a stored state, in a fixed order."""
        return tuple(self.forms)


def typed(root: Node, tables: Tables, analyse: Analyse) -> TypedGraph:
    """Derives the types by one analysis; `tables` names, for each table, an (empty) relation with its columns."""
    nodes = tuple(all_nodes(root))
    query = PlainQuery(tables, nodes)
    own: dict[Node, str] = {}
    arguments: dict[Aggregate, str] = {}
    for node in nodes:
        # What a node hands on has the type that it has below. All of the root is asked for, so that Spark judges it.
        if columns := [name for name in node.columns if node is root or node.origin(name) is None]:
            own[node] = f"SELECT struct({column_list(columns)}) FROM {query.source(node)}"
        if isinstance(node, Aggregate):
            first = [f"{call.arguments[0]} AS {quoted(call.name)}" for call in node.calls if call.arguments]
            if first:
                arguments[node] = f"SELECT struct({', '.join(first)}) FROM {query.source(node.input)}"
    asked = ", ".join(f"({text})" for text in (*own.values(), *arguments.values()))
    found = iter(analyse(query.text(f"SELECT {asked}")))
    own_types = {node: next(found) for node in own}
    argument_types = {node: next(found) for node in arguments}
    types: dict[Node, ColumnTypes] = {}
    forms: dict[Aggregate, Running] = {}
    recomputed: dict[Aggregate, str] = {}

    def handed_on(node: Node, column: str) -> str:
        origin = node.origin(column)
        assert origin is not None
        return types[origin[0]][origin[1]]

    for node in nodes:
        known = own_types.get(node, {})
        types[node] = {name: known.get(name) or handed_on(node, name) for name in node.columns}
        if isinstance(node, Aggregate):
            form = running(node, argument_types.get(node, {}), types[node])
            if isinstance(form, Running):
                forms[node] = form
            else:
                recomputed[node] = form
    found_sensitive = {node: order_sensitive(node, types[node]) for node in types if node not in forms}
    return TypedGraph(root, types, forms, recomputed, {node: names for node, names in found_sensitive.items() if names})
