"""A graph as one plain Spark SQL query: the result from scratch, without state and without jobs.

This is what a full recomputation runs, and what Spark derives a graph's types from. The query is what the rules say of
each node's rows, where nothing is stored but the tables and, perhaps, the states of aggregates. A node that several others
read is one common table expression.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

from headgate.dataflow.accumulators import Running
from headgate.dataflow.graph import Aggregate, Node, Scan, uses, walk
from headgate.dataflow.relation import Keys, Relation, select
from headgate.dataflow.rulebook import RULES

Tables = Callable[[str], str]
"""Gives the SQL relation to read for each scanned table."""


States = Mapping[Aggregate, tuple[Running, str]]
"""Aggregates whose running state is known: its form and the SQL relation that has it."""


def plain_sql(
    node: Node,
    tables: Tables,
    sensitive: Mapping[Node, frozenset[str]] = MappingProxyType({}),
    states: States = MappingProxyType({}),
) -> str:
    """The query. `sensitive` names the calls whose values are to be the same in whatever order rows come."""
    counts = uses(node)
    shared = [each for each in walk(node) if counts[each] > 1 and not isinstance(each, Scan)]
    query = PlainQuery(tables, shared, sensitive, states)
    return query.text(f"SELECT * FROM {query.source(node)}")


class PlainQuery:
    """Implements `Reading`, and what a rule asks of its graph, where only the tables are stored and Spark derives the types."""

    def __init__(
        self,
        tables: Tables,
        shared: Iterable[Node],
        sensitive: Mapping[Node, frozenset[str]] = MappingProxyType({}),
        states: States = MappingProxyType({}),
    ) -> None:
        """Of the shared nodes, each comes after those that it reads."""
        self._tables = tables
        self._sensitive = sensitive
        self._states = states
        self._names: dict[Node, str] = {}
        self._definitions: list[str] = []
        for number, node in enumerate(shared):
            source = self.source(node)
            self._names[node] = f"__shared_{number}"
            self._definitions.append(f"__shared_{number} AS {source}")

    def source(self, node: Node) -> str:
        """The node's rows, as they can stand behind FROM in `text`."""
        found = self.rows(node, None)
        assert found is not None
        return found.source

    def text(self, query: str) -> str:
        """A query over sources."""
        return f"WITH {', '.join(self._definitions)} {query}" if self._definitions else query

    def rows(self, node: Node, keys: Keys | None, *, untouched: bool | None = None) -> Relation | None:
        if node in self._names:
            return Relation(self._names[node], node.columns)
        return RULES[type(node)].rows(node, self, None)

    def scan_rows(self, scan: Scan, keys: Keys | None) -> Relation | None:
        return select(f"SELECT {scan.select_list} FROM {self._tables(scan.table)}", scan.columns)

    def is_cheap(self, node: Node) -> bool:
        return True

    def row_keys(
        self, node: Node, rows: Relation, columns: tuple[str, ...], names: tuple[str, ...]
    ) -> tuple[Relation | None, Keys | None]:
        return rows, None

    def state_rows(self, node: Aggregate, keys: Keys | None) -> Relation | None:
        return Relation(self._states[node][1], node.columns)

    @property
    def graph(self) -> PlainQuery:
        return self

    def type_of(self, node: Node, column: str) -> str:
        return ""

    def running(self, node: Aggregate) -> Running | None:
        return self._states[node][0] if node in self._states else None

    def order_sensitive(self, node: Node) -> frozenset[str]:
        return self._sensitive.get(node, frozenset())

    def is_read(self, node: Node, column: str) -> bool:
        return True
