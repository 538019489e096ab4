"""What a rule may ask of the evaluation it runs in.

One evaluation advances one flow from job `after` to job `upto`:

    delta(node)        the node's changes in (after, upto], each with its own job; None = no change
    spans(node)        the same, perhaps in spanned form (see `Relation`)
    rows(node, keys)   the node's rows at job `after`; with keys at least those that match; None = no rows

All are relations that run lazily inside one Spark execution unless something forces a `settle`.
"""

from __future__ import annotations

from typing import Protocol

from headgate.dataflow.accumulators import Running
from headgate.dataflow.graph import Aggregate, AsOfJoin, Join, Node, Scan
from headgate.dataflow.relation import Keys, Relation


class GraphFacts(Protocol):
    """What a rule may ask of the flow's graph."""

    def type_of(self, node: Node, column: str) -> str:
        """The column's Spark SQL type."""

    def running(self, node: Aggregate) -> Running | None:
        """The node as running sums, or None when its groups are recomputed."""

    def order_sensitive(self, node: Node) -> frozenset[str]:
        """The node's calls whose floating point value depends on the order of rows."""

    def is_read(self, node: Node, column: str) -> bool:
        """Whether anything above the node reads this column of it."""


class Reading(Protocol):
    """What the rows of a node are read from."""

    @property
    def graph(self) -> GraphFacts:
        """The flow's graph, with its types."""

    def rows(self, node: Node, keys: Keys | None, *, untouched: bool | None = None) -> Relation | None:
        """`untouched`: without the rows whose end `spans(node)` tells; None = as it was asked for the node above."""

    def row_keys(
        self, node: Node, rows: Relation, columns: tuple[str, ...], names: tuple[str, ...]
    ) -> tuple[Relation | None, Keys | None]:
        """At least the values that `columns` take in rows of the node just asked for, as a restriction on `names`.

        Settles the rows if nothing less tells; gives them back.
        """

    def is_cheap(self, node: Node) -> bool:
        """Reading all of the node's rows costs no more than looking some up."""

    def scan_rows(self, scan: Scan, keys: Keys | None) -> Relation | None: ...

    def state_rows(self, node: Aggregate, keys: Keys | None) -> Relation | None:
        """Rows of the node's running state at job `after`."""


class Run(Reading, Protocol):
    @property
    def jobs(self) -> int:
        """How many jobs the batch has."""

    def delta(self, node: Node) -> Relation | None: ...

    def spans(self, node: Node) -> Relation | None: ...

    def settle(self, relation: Relation | None, *, weighted: bool = True) -> Relation | None:
        """Computes the relation now and keeps the result for the evaluation; None when it has no rows."""

    def settled_delta(self, node: Node) -> Relation | None:
        """The node's delta, computed once; later calls of `delta` give the same."""

    def settled_spans(self, node: Node) -> Relation | None:
        """The node's spans, computed once; later calls of `spans` give the same."""

    def merged(self, node: Join) -> tuple[Relation | None, Relation | None] | None:
        """Both sides of an inner join, each with its changes and, as job 0, the rows that can meet changes of the other.

        None where the two are to be asked for apart.
        """

    def keys_of(self, relation: Relation, columns: tuple[str, ...], names: tuple[str, ...]) -> Keys:
        """Distinct values of a settled relation's columns, as a restriction on `names`."""

    def delta_keys(self, node: Node, columns: tuple[str, ...], names: tuple[str, ...]) -> Keys:
        """At least the values that `columns` take in the node's delta, as a restriction on `names`."""

    def scan_delta(self, scan: Scan) -> Relation | None: ...

    def keep_state(self, node: Aggregate, changes: Relation) -> None:
        """Settled changes of the node's running state, to be stored with the flow's result."""

    def recomputes(self, below: Node, group: tuple[str, ...]) -> None:
        """Tells that each touched group is computed at each of its jobs, from the rows just asked for."""

    def affects_only_future(self, node: AsOfJoin, moved: Relation) -> bool:
        """Whether each of these changes of the dimension is known to concern no left row of an earlier job."""

    def lookup_missed(self, node: AsOfJoin, missed: Relation) -> None:
        """Raises the error of a lookup that must not miss; `missed` holds the rows, settled."""
