"""What the operators of a flow cost, in seconds: as measured where something was, else shared among them by a model.

Measured are the query as written up to an operator (`measure`), and the batches of every result that was stored once, in each
way (`stages/ways`); both are kept over restarts under the result's name. An operator's own cost is what it adds to its inputs'.
The model shares seconds by work: the rows that an operator takes, times how much its kind does with a row.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping

from headgate.advising.costs import CostFragment, Operator
from headgate.dataflow.cutting import cut_places, operator_key
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
    scanned_tables,
    walk,
)
from headgate.dataflow.reference import plain_sql
from headgate.dataflow.typed_graph import TypedGraph
from headgate.runtime.stages.ways import Way, Ways, expected
from headgate.runtime.tables.batch_views import BatchViews
from headgate.runtime.tables.stored import StoredTable

WORK: Mapping[type[Node], float] = {
    Scan: 1.0,
    Filter: 0.3,
    Projection: 0.3,
    Generate: 0.5,
    Repeat: 0.2,
    UnionAll: 0.1,
    Join: 3.0,
    AsOfJoin: 3.0,
    Aggregate: 3.0,
    Window: 5.0,
}
"""How much work an operator does with a row, in proportion."""
_BUILDING = 2.0
"""What building a result costs over running its query: the rows are written."""


class OperatorCosts:
    """The costs of one flow's operators at so many changed rows."""

    def __init__(
        self, flow: str, graph: TypedGraph, stored: Callable[[str], StoredTable], ways: Ways, changed_rows: int
    ) -> None:
        self.flow = flow
        self.graph = graph
        self._stored = stored
        self._ways = ways
        self.changed_rows = max(1, changed_rows)
        self._tables = {name: _count(stored(name)) for name in scanned_tables(graph.root)}
        self.rows = sum(self._tables.values())
        """That the query as written reads."""
        self._nodes = walk(graph.root)
        self._places = frozenset(cut_places(graph.root))
        self.keys = {node: operator_key(node) for node in self._nodes}
        self.names = _names(self._nodes)
        self._counts: dict[Node, float] = {}
        self._work: dict[Node, float] = {}
        for node in self._nodes:
            own = WORK.get(type(node), 1.0) * max(1.0, sum(map(self._count, node.inputs)) or self._count(node))
            self._work[node] = own + sum(self._work[child] for child in node.inputs)
        self.as_written = self._shared(self._measured_as_written, self._modelled_as_written())
        """The seconds of the query up to each operator."""
        self.incremental = self._shared(self._measured_incremental, self._modelled_incremental())
        """The seconds of bringing a result right behind each operator up to date."""

    def table_of(self, node: Node) -> str:
        """The name of the result right behind an operator."""
        return self.flow if node is self.graph.root else f"{self.flow}.__kept_{self.keys[node]}"

    @property
    def is_measured(self) -> bool:
        """Whether the query as written was measured up to each operator."""
        return all(self._measured_as_written(node) is not None for node in self._nodes)

    def measure(self, views: BatchViews) -> None:
        """Runs the query as written up to each operator, twice each; its rows go nowhere."""
        tables = {name: views.whole(self._stored(name), self._stored(name).level) for name in self._tables}
        for node in self._nodes:
            text = plain_sql(node, tables.__getitem__, self.graph.sensitive)
            # The first run compiles.
            seconds = min(_run(views, text) for _ in range(2))
            self._ways.took(self._written_name(node), Way.RECOMPUTE, self.rows, seconds, scanned=self.rows)

    def fragment(self) -> CostFragment:
        return self._fragment(self.graph.root)

    def _fragment(self, node: Node) -> CostFragment:
        below = [self._fragment(child) for child in node.inputs]
        operator = self._operator(node)
        if len(below) == 1:
            return CostFragment((*below[0].operators, operator), below[0].branches)
        return CostFragment((operator,), tuple(below))

    def _operator(self, node: Node) -> Operator:
        written = self.as_written[node] - max((self.as_written[child] for child in node.inputs), default=0.0)
        name, is_row_wise = self.names[node], isinstance(node, Filter | Projection)
        if isinstance(node, Scan):
            # The table is stored: reading it is what a result right behind it would cost.
            return Operator(name, written, 0.0, written)
        added = self.incremental[node] - max((self.incremental[child] for child in node.inputs), default=0.0)
        online = self._reading(node) if node in self._places else math.inf
        offline = _BUILDING * self.as_written[node]
        return Operator(
            name, max(0.0, written), max(0.0, added), online, offline, node.reads, _makes(node), is_row_wise
        )

    def _reading(self, node: Node) -> float:
        """What it takes to read a result: at least as long as the quickest of the tables, at most as long as making it."""
        scans = [each for each in self._nodes if isinstance(each, Scan)]
        per_row = sum(self.as_written[each] for each in scans) / max(1, self.rows)
        quickest = min((self.as_written[each] for each in scans), default=0.0)
        return min(self.as_written[node], max(quickest, per_row * self._count(node)))

    def _count(self, node: Node) -> float:
        """Rows that an operator gives: known of tables and of results that are stored."""
        if node not in self._counts:
            self._counts[node] = self._known_count(node)
        return self._counts[node]

    def _known_count(self, node: Node) -> float:
        if isinstance(node, Scan):
            return float(self._tables[node.table])
        try:
            return float(_count(self._stored(self.table_of(node))))
        except KeyError:
            below = [self._count(child) for child in node.inputs]
            return sum(below) if isinstance(node, UnionAll) else max(below, default=0.0)

    # seconds

    def _written_name(self, node: Node) -> str:
        return f"{self.table_of(node)} as written"

    def _measured_as_written(self, node: Node) -> float | None:
        return self._ways.average(self._written_name(node), Way.RECOMPUTE, self.rows)

    def _modelled_as_written(self) -> float:
        return self._ways.expected(self.flow, self.rows, self.changed_rows)[Way.RECOMPUTE]

    def _measured_incremental(self, node: Node) -> float | None:
        if isinstance(node, Scan):
            return None
        found = [
            seconds
            for way in Way
            if (seconds := self._ways.measured(self.table_of(node), way, self.rows, self.changed_rows)) is not None
        ]
        return min(found) if found else None

    def _modelled_incremental(self) -> float:
        """Of the whole result, by another one that was stored if there was one."""
        root = self.graph.root
        for node in reversed(self._nodes[:-1]):
            if (found := self._measured_incremental(node)) is not None:
                return found * self._work[root] / self._work[node]
        return min(expected(way, self.rows).seconds(self.changed_rows) for way in (Way.NARROW, Way.WIDE))

    def _shared(self, measured: Callable[[Node], float | None], whole: float) -> dict[Node, float]:
        """Seconds up to each operator: as measured, else its part of the whole by work; never less than up to its inputs."""
        found: dict[Node, float] = {}
        total = measured(self.graph.root)
        for node in self._nodes:
            known = measured(node)
            part = (whole if total is None else total) * self._work[node] / self._work[self.graph.root]
            found[node] = max([part if known is None else known, *(found[child] for child in node.inputs)])
        return found


def _run(views: BatchViews, text: str) -> float:
    """The seconds of a query whose rows go nowhere."""
    began = time.monotonic()
    views.sql(text).write.format("noop").mode("overwrite").save()
    return time.monotonic() - began


def _makes(node: Node) -> frozenset[str]:
    """Columns that are others, or gone, behind an operator."""
    if not isinstance(node, Projection):
        return frozenset()
    changed = {out.name for out in node.outputs if out.name != out.sql}
    return frozenset(changed | (set(node.input.columns) - set(node.columns)))


def _count(table: StoredTable) -> int:
    return table.count(table.level)


def _names(nodes: tuple[Node, ...]) -> dict[Node, str]:
    """What each operator is called in advice: its kind, with a number from the second one on."""
    seen: dict[str, int] = {}
    found = {}
    for node in nodes:
        name = f"scan of {node.table}" if isinstance(node, Scan) else type(node).__name__.lower()
        seen[name] = seen.get(name, 0) + 1
        found[node] = name if seen[name] == 1 else f"{name} {seen[name]}"
    return found
