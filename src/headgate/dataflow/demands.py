"""Which lookups a flow can ask for: the rules run once without data, and what they ask is written down.

Nothing is cheap and everything has changed, so every lookup that any batch can ask for appears.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa

from headgate.dataflow.graph import Aggregate, AsOfJoin, Join, Node, Scan
from headgate.dataflow.lineage import table_column
from headgate.dataflow.relation import Keys, Relation
from headgate.dataflow.rulebook import RULES
from headgate.dataflow.typed_graph import TypedGraph
from headgate.delta.changes import COMMIT_AT


@dataclass(frozen=True, slots=True)
class Demand:
    """Rows of a table by some of its columns."""

    table: str
    by: tuple[str, ...]
    columns: frozenset[str]
    """The columns that are read."""


def demands(graph: TypedGraph) -> frozenset[Demand]:
    recording = _Recording(graph)
    recording.delta(graph.root)
    return frozenset(recording.found)


class _Recording:
    """Implements `Run` on no data."""

    jobs = 2

    def __init__(self, graph: TypedGraph) -> None:
        self.graph = graph
        self.found: set[Demand] = set()

    def delta(self, node: Node) -> Relation | None:
        return RULES[type(node)].delta(node, self)

    def settled_delta(self, node: Node) -> Relation | None:
        return self.settle(self.delta(node))

    def spans(self, node: Node) -> Relation | None:
        return self.delta(node)

    def settled_spans(self, node: Node) -> Relation | None:
        return self.settled_delta(node)

    def rows(self, node: Node, keys: Keys | None, *, untouched: bool | None = None) -> Relation | None:
        return RULES[type(node)].rows(node, self, keys)

    def settle(self, relation: Relation | None, *, weighted: bool = True) -> Relation | None:
        return relation and replace(relation, rows=1)

    def merged(self, node: Join) -> tuple[Relation | None, Relation | None] | None:
        return None

    def keys_of(self, relation: Relation, columns: tuple[str, ...], names: tuple[str, ...]) -> Keys:
        return _any_keys(names)

    def delta_keys(self, node: Node, columns: tuple[str, ...], names: tuple[str, ...]) -> Keys:
        return _any_keys(names)

    def row_keys(
        self, node: Node, rows: Relation, columns: tuple[str, ...], names: tuple[str, ...]
    ) -> tuple[Relation | None, Keys | None]:
        return rows, _any_keys(names)

    def is_cheap(self, node: Node) -> bool:
        return False

    def scan_delta(self, scan: Scan) -> Relation | None:
        return Relation(f"`{scan.table}`", scan.columns, 1)

    def scan_rows(self, scan: Scan, keys: Keys | None) -> Relation | None:
        names = {output.name: output.sql for output in scan.outputs}
        if keys is not None and keys.columns:
            by = tuple(dict.fromkeys(names[column] for column in keys.columns))
            self.found.add(Demand(scan.table, by, frozenset(names.values())))
        return Relation(f"`{scan.table}`", scan.columns)

    def state_rows(self, node: Aggregate, keys: Keys | None) -> Relation | None:
        return Relation("`state`", node.columns)

    def keep_state(self, node: Aggregate, changes: Relation) -> None:
        pass

    def recomputes(self, below: Node, group: tuple[str, ...]) -> None:
        pass

    def affects_only_future(self, node: AsOfJoin, moved: Relation) -> bool:
        stored = table_column(node.left, node.at)
        return stored is not None and stored[1] == COMMIT_AT

    def lookup_missed(self, node: AsOfJoin, missed: Relation) -> None:
        pass


def _any_keys(names: tuple[str, ...]) -> Keys:
    return Keys(names, pa.table({f"k{index}": pa.nulls(1) for index in range(len(names))}))
