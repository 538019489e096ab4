"""The operator graph of a flow: frozen data, no behaviour beyond naming its columns.

A node's expressions are Spark SQL text over the column names of its inputs. Column names are unique within a
node, and the two sides of a join never share one, so no expression needs a qualifier:

    Scan shop.purchases -> p__purc_id, p__store        Scan shop.lineitems -> l__purc_id, l__qty
              \\                                          /
               Join inner  keys ((p__purc_id, l__purc_id),)
                                |
               Aggregate  keys (p__purc_id,)  sum(l__qty)

Few operators are core; the rest of SQL is composed of them by `headgate.sql`: a right join is a left join with
its sides swapped, a full join a union, INTERSECT and EXCEPT are aggregates, a scalar subquery is a join.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

JoinKind = Literal["inner", "left", "semi", "anti"]
LookupMiss = Literal["unknown", "drop", "fail", "null"]


@dataclass(frozen=True, slots=True)
class Output:
    """A named expression."""

    name: str
    sql: str


class Node:
    """An operator. Nodes compare and hash by value."""

    __slots__ = ()

    @property
    def columns(self) -> tuple[str, ...]:
        raise TypeError(f"{type(self).__name__} does not name its columns")

    @property
    def inputs(self) -> tuple[Node, ...]:
        return ()


@dataclass(frozen=True, slots=True)
class Scan(Node):
    """Rows of a table: a source table (`source.table`) or another flow's result.

    `outputs` maps each output name to the table's own column name (not an expression).
    """

    table: str
    outputs: tuple[Output, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(output.name for output in self.outputs)


@dataclass(frozen=True, slots=True)
class Filter(Node):
    """Rows for which `predicate` is true."""

    input: Node
    predicate: str

    @property
    def columns(self) -> tuple[str, ...]:
        return self.input.columns

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)


@dataclass(frozen=True, slots=True)
class Projection(Node):
    """One output row per input row; exactly these columns."""

    input: Node
    outputs: tuple[Output, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(output.name for output in self.outputs)

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)


@dataclass(frozen=True, slots=True)
class Generate(Node):
    """`LATERAL VIEW [OUTER] generator AS names`: the input's columns and the generator's."""

    input: Node
    generator: str
    names: tuple[str, ...]
    outer: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        return self.input.columns + self.names

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)


@dataclass(frozen=True, slots=True)
class Repeat(Node):
    """Each row `times` times (an expression; below one: dropped). INTERSECT ALL and EXCEPT ALL need it."""

    input: Node
    times: str

    @property
    def columns(self) -> tuple[str, ...]:
        return self.input.columns

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)


@dataclass(frozen=True, slots=True)
class UnionAll(Node):
    """All rows of all inputs; every input has the same column names in the same order (types: Spark coerces)."""

    branches: tuple[Node, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return self.branches[0].columns

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.branches


@dataclass(frozen=True, slots=True)
class Join(Node):
    """Equality on `keys` (pairs of a left and a right column; NULL never matches) and `residual` on top.

    `keys` may be empty (a cross join, or only a residual). Columns: left's then right's for inner and left, left's for
    semi and anti. `at_most_one`: every left row has at most one match, because the right side is unique on its keys.
    """

    left: Node
    right: Node
    kind: JoinKind
    keys: tuple[tuple[str, str], ...]
    residual: str | None = None
    at_most_one: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        if self.kind in ("semi", "anti"):
            return self.left.columns
        return self.left.columns + self.right.columns

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.left, self.right)


@dataclass(frozen=True, slots=True)
class AsOfJoin(Node):
    """Looks up, for each left row, the version that was valid at `at` (a left column).

    `right` yields the dimension's versions, `start` and `end` its validity columns (`end` NULL = still valid):
    start <= at < end. `miss` says what becomes of a left row without a version: `unknown` keeps it with
    NULLs, except that `surrogate_key` (a right column, if the flow reads it) is -1; `null` keeps it with NULLs (a LEFT JOIN);
    `drop` drops it; `fail` makes the job fail.
    """

    left: Node
    right: Node
    keys: tuple[tuple[str, str], ...]
    at: str
    start: str
    end: str
    miss: LookupMiss = "unknown"
    surrogate_key: str | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        return self.left.columns + self.right.columns

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.left, self.right)


@dataclass(frozen=True, slots=True)
class AggregateCall:
    """One aggregate: `function(arguments)`, e.g. ("sum", ("l__qty * l__price",)); `count(*)` has no argument.

    `where` is its FILTER clause.
    """

    name: str
    function: str
    arguments: tuple[str, ...] = ()
    distinct: bool = False
    where: str | None = None


@dataclass(frozen=True, slots=True)
class Aggregate(Node):
    """Groups by `keys` (input columns; NULLs form a group). Without keys: one row, also for no input.

    Without calls it is DISTINCT over its keys.
    """

    input: Node
    keys: tuple[str, ...]
    calls: tuple[AggregateCall, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        return self.keys + tuple(call.name for call in self.calls)

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)


@dataclass(frozen=True, slots=True)
class WindowCall:
    """`function OVER (PARTITION BY <node's> ORDER BY order_by frame)`.

    `tie_break`: rows that `order_by` leaves equal are ordered by the full row, so that the result is a function of the data
    (row_number, lag, lead, first, last, ntile, ROWS frames); rank-like functions and RANGE frames must not have it.
    """

    name: str
    function: str
    order_by: str | None = None
    frame: str | None = None
    tie_break: bool = False


@dataclass(frozen=True, slots=True)
class Window(Node):
    """The input's columns and one per call, computed within each partition. `partition` is never empty."""

    input: Node
    partition: tuple[str, ...]
    calls: tuple[WindowCall, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return self.input.columns + tuple(call.name for call in self.calls)

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)


@dataclass(frozen=True, slots=True)
class Fragment:
    """What is not incremental: `sql` runs as written when a job is read, over the named incremental results.

    In `sql` every input stands as a table with its name. `reasons` say, for `explain`, why it is not incremental.
    `context`: the result depends on the time, on chance or on the user, not only on the inputs.
    """

    sql: str
    inputs: tuple[tuple[str, Node], ...]
    reasons: tuple[str, ...]
    context: bool = False


def walk(node: Node) -> Iterator[Node]:
    """The node and everything below it, inputs first, shared nodes once."""
    seen: set[Node] = set()

    def visit(current: Node) -> Iterator[Node]:
        if current in seen:
            return
        seen.add(current)
        for child in current.inputs:
            yield from visit(child)
        yield current

    yield from visit(node)


def scanned_tables(node: Node) -> tuple[str, ...]:
    """The tables that the graph reads, in the order of their first use."""
    return tuple(dict.fromkeys(part.table for part in walk(node) if isinstance(part, Scan)))
