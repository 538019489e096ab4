"""The operator graph of a flow: frozen data, and what each operator says of its columns.

A node's expressions are Spark SQL over the column names of its inputs. Column names are unique within a
node, and the two sides of a join never share one, so no expression needs a qualifier:

    Scan shop.purchases -> p__purc_id, p__store        Scan shop.lineitems -> l__purc_id, l__qty
              \\                                          /
               Join inner  keys ((p__purc_id, l__purc_id),)
                                |
               Aggregate  keys (p__purc_id,)  sum(l__qty)

Few operators are core; the rest of SQL is composed of them by `headgate.sql`: a right join is a left join with
its sides swapped, a full join a union, INTERSECT and EXCEPT are aggregates, a scalar subquery is a join.

An operator is a class here and a rule in `rules/`, which `rulebook` lists.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import ClassVar, Literal

from headgate.dataflow.expression import Column, Expression
from headgate.dataflow.relation import quoted

JoinKind = Literal["inner", "left", "semi", "anti"]
LookupMiss = Literal["unknown", "drop", "fail", "null"]


@dataclass(frozen=True, slots=True)
class Output:
    """A named expression."""

    name: str
    sql: Expression


def kept(columns: Iterable[str]) -> tuple[Output, ...]:
    """Outputs that are the columns themselves."""
    return tuple(Output(name, Column(name)) for name in columns)


@dataclass(frozen=True, eq=False)
class Node:
    """An operator. Nodes compare and hash by value."""

    _rule: ClassVar[str] = ""

    @cached_property
    def _values(self) -> tuple[object, ...]:
        return tuple(getattr(self, field.name) for field in fields(self))

    @cached_property
    def _hash(self) -> int:
        return hash((type(self), self._values))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, Node)
            and type(self) is type(other)
            and self._hash == other._hash
            and self._values == other._values
        )

    @property
    def rule(self) -> str:
        """How its changes are computed, in words."""
        return self._rule

    @property
    def inputs(self) -> tuple[Node, ...]:
        return ()

    @cached_property
    def columns(self) -> tuple[str, ...]:
        raise TypeError(f"{type(self).__name__} does not name its columns")

    @property
    def reads(self) -> frozenset[str]:
        """The input columns that the operator's own expressions and keys name."""
        return frozenset()

    def origin(self, column: str) -> tuple[Node, str] | None:
        """The input, and the column of it, whose values this column shows unchanged (or NULL), if it is just one."""
        return None

    def made_of(self, column: str) -> frozenset[str]:
        """The input columns that the column's values are computed from; by default it is one that is handed on."""
        return frozenset((column,))

    def narrowed(self, wanted: Collection[str]) -> Node:
        """The operator without those of its own columns that nobody wants; one stays, as rows count all the same."""
        return self

    def over(self, inputs: Sequence[Node]) -> Node:
        """The operator over other inputs with the columns that it reads."""
        return self

    def __str__(self) -> str:
        return type(self).__name__


@dataclass(frozen=True, eq=False)
class Unary(Node):
    """An operator over one input, whose columns it hands on."""

    input: Node

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)

    @cached_property
    def columns(self) -> tuple[str, ...]:
        return self.input.columns

    def origin(self, column: str) -> tuple[Node, str] | None:
        return (self.input, column) if column in self.input.columns else None

    def over(self, inputs: Sequence[Node]) -> Node:
        return replace(self, input=inputs[0])


@dataclass(frozen=True, eq=False)
class Binary(Node):
    """An operator over two inputs: the left one's columns, then the right one's."""

    left: Node
    right: Node

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.left, self.right)

    @cached_property
    def columns(self) -> tuple[str, ...]:
        return self.left.columns + self.right.columns

    def origin(self, column: str) -> tuple[Node, str] | None:
        return (self.left if column in self.left.columns else self.right), column

    def over(self, inputs: Sequence[Node]) -> Node:
        return replace(self, left=inputs[0], right=inputs[1])


@dataclass(frozen=True, eq=False)
class Scan(Node):
    """Rows of a table: a source table (`source.table`) or another flow's result.

    `outputs` maps each output name to the table's own column.
    """

    table: str
    outputs: tuple[Output, ...]

    @cached_property
    def columns(self) -> tuple[str, ...]:
        return tuple(output.name for output in self.outputs)

    @cached_property
    def select_list(self) -> str:
        """The outputs as a query of the table gives them; of rows without columns something else."""
        return ", ".join(f"{quoted(out.sql)} AS {quoted(out.name)}" for out in self.outputs) or "1 AS __one"

    def narrowed(self, wanted: Collection[str]) -> Node:
        return Scan(self.table, _wanted(self.outputs, wanted))

    def __str__(self) -> str:
        return f"scan {self.table} ({', '.join(output.sql for output in self.outputs)})"


@dataclass(frozen=True, eq=False)
class Filter(Unary):
    """Rows for which `predicate` is true."""

    _rule = "linear"
    predicate: Expression

    @property
    def reads(self) -> frozenset[str]:
        return self.predicate.columns

    def __str__(self) -> str:
        return f"filter {self.predicate}"


@dataclass(frozen=True, eq=False)
class Projection(Unary):
    """One output row per input row; exactly these columns."""

    _rule = "linear"
    outputs: tuple[Output, ...]

    @cached_property
    def columns(self) -> tuple[str, ...]:
        return tuple(output.name for output in self.outputs)

    @property
    def reads(self) -> frozenset[str]:
        return _columns(output.sql for output in self.outputs)

    @cached_property
    def renames(self) -> dict[str, str]:
        """Output name to input column, for the outputs that are plain columns."""
        return {output.name: output.sql for output in self.outputs if isinstance(output.sql, Column)}

    def origin(self, column: str) -> tuple[Node, str] | None:
        return (self.input, self.renames[column]) if column in self.renames else None

    def made_of(self, column: str) -> frozenset[str]:
        return _columns(output.sql for output in self.outputs if output.name == column)

    def narrowed(self, wanted: Collection[str]) -> Node:
        return Projection(self.input, _wanted(self.outputs, wanted))

    def __str__(self) -> str:
        shown = [out.name if out.sql == out.name else f"{out.sql} AS {out.name}" for out in self.outputs]
        return f"project {', '.join(shown)}"


@dataclass(frozen=True, eq=False)
class Generate(Unary):
    """`LATERAL VIEW [OUTER] generator AS names`: the input's columns and the generator's."""

    _rule = "linear"
    generator: Expression
    names: tuple[str, ...]
    outer: bool = False

    @cached_property
    def columns(self) -> tuple[str, ...]:
        return self.input.columns + self.names

    @property
    def reads(self) -> frozenset[str]:
        return self.generator.columns

    def made_of(self, column: str) -> frozenset[str]:
        return self.generator.columns if column in self.names else frozenset((column,))

    def __str__(self) -> str:
        return f"generate {self.generator}"


@dataclass(frozen=True, eq=False)
class Repeat(Unary):
    """Each row `times` times (an expression; below one: dropped). INTERSECT ALL and EXCEPT ALL need it."""

    _rule = "linear"
    times: Expression

    @property
    def reads(self) -> frozenset[str]:
        return self.times.columns

    def __str__(self) -> str:
        return f"repeat {self.times}"


@dataclass(frozen=True, eq=False)
class UnionAll(Node):
    """All rows of all inputs; every input has the same column names in the same order (types: Spark coerces)."""

    _rule = "linear"
    branches: tuple[Node, ...]

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.branches

    @cached_property
    def columns(self) -> tuple[str, ...]:
        return self.branches[0].columns

    def over(self, inputs: Sequence[Node]) -> Node:
        return UnionAll(tuple(inputs))

    def __str__(self) -> str:
        return "union all"


@dataclass(frozen=True, eq=False)
class Join(Binary):
    """Equality on `keys` (pairs of a left and a right column; NULL never matches) and `residual` on top.

    `keys` may be empty (a cross join, or only a residual). Columns: left's then right's for inner and left, left's for
    semi and anti. `at_most_one`: every left row has at most one match, because the right side is unique on its keys.
    """

    kind: JoinKind
    keys: tuple[tuple[str, str], ...]
    residual: Expression | None = None
    at_most_one: bool = False

    @cached_property
    def columns(self) -> tuple[str, ...]:
        return self.left.columns if self.kind in ("semi", "anti") else self.left.columns + self.right.columns

    @property
    def reads(self) -> frozenset[str]:
        return _columns([self.residual]).union(*self.keys)

    @property
    def rule(self) -> str:
        return "bilinear" if self.kind == "inner" or self.at_most_one else "bilinear with match counts"

    def __str__(self) -> str:
        on = [f"{left} = {right}" for left, right in self.keys] + ([self.residual] if self.residual else [])
        return f"{self.kind} join on {' AND '.join(on) or 'true'}"


@dataclass(frozen=True, eq=False)
class AsOfJoin(Binary):
    """Looks up, for each left row, the version that was valid at `at` (a left column).

    `right` yields the dimension's versions, `start` and `end` its validity columns (`end` NULL = still valid):
    start <= at < end. `miss` says what becomes of a left row without a version: `unknown` keeps it with
    NULLs, except that `surrogate_key` (a right column, if the flow reads it) is -1; `null` keeps it with NULLs (a LEFT JOIN);
    `drop` drops it; `fail` makes the job fail.
    """

    _rule = "bilinear over time"
    keys: tuple[tuple[str, str], ...]
    at: str
    start: str
    end: str
    miss: LookupMiss = "unknown"
    surrogate_key: str | None = None

    @property
    def reads(self) -> frozenset[str]:
        return frozenset((self.at, self.start, self.end)).union(*self.keys)

    def over(self, inputs: Sequence[Node]) -> Node:
        left, right = inputs
        surrogate_key = self.surrogate_key if self.surrogate_key in right.columns else None
        return replace(self, left=left, right=right, surrogate_key=surrogate_key)

    def __str__(self) -> str:
        on = " AND ".join(f"{left} = {right}" for left, right in self.keys)
        return f"lookup as of {self.at} on {on}, a miss: {self.miss}"


@dataclass(frozen=True, slots=True)
class AggregateCall:
    """One aggregate: `function(arguments)`, e.g. ("sum", ("l__qty * l__price",)); `count(*)` has no argument.

    `where` is its FILTER clause.
    """

    name: str
    function: str
    arguments: tuple[Expression, ...] = ()
    distinct: bool = False
    where: Expression | None = None


@dataclass(frozen=True, eq=False)
class Aggregate(Unary):
    """Groups by `keys` (input columns; NULLs form a group). Without keys: one row, also for no input.

    Without calls it is DISTINCT over its keys.
    """

    _rule = "running sums"
    keys: tuple[str, ...]
    calls: tuple[AggregateCall, ...] = ()

    @cached_property
    def columns(self) -> tuple[str, ...]:
        return self.keys + tuple(call.name for call in self.calls)

    @property
    def reads(self) -> frozenset[str]:
        return _columns(part for call in self.calls for part in (*call.arguments, call.where)).union(self.keys)

    def origin(self, column: str) -> tuple[Node, str] | None:
        return (self.input, column) if column in self.keys else None

    def made_of(self, column: str) -> frozenset[str]:
        calls = [call for call in self.calls if call.name == column]
        return (
            _columns(part for call in calls for part in (*call.arguments, call.where))
            if calls
            else frozenset((column,))
        )

    def narrowed(self, wanted: Collection[str]) -> Node:
        calls = tuple(call for call in self.calls if call.name in wanted)
        return replace(self, calls=calls or (() if self.keys else self.calls[:1]))

    def __str__(self) -> str:
        calls = ", ".join(f"{call.function}({', '.join(call.arguments) or '*'})" for call in self.calls)
        by = f"by {', '.join(self.keys)}" if self.keys else "over all rows"
        return f"{'aggregate ' + calls if calls else 'distinct'} {by}"


@dataclass(frozen=True, slots=True)
class WindowCall:
    """`function OVER (PARTITION BY <node's> ORDER BY order_by frame)`.

    `tie_break`: rows that `order_by` leaves equal are ordered by the full row, so that the result is a function of the data
    (row_number, lag, lead, first, last, ntile, ROWS frames); rank-like functions and RANGE frames must not have it.
    """

    name: str
    function: Expression
    order_by: Expression | None = None
    frame: str | None = None
    tie_break: bool = False


@dataclass(frozen=True, eq=False)
class Window(Unary):
    """The input's columns and one per call, computed within each partition. `partition` is never empty."""

    _rule = "touched partitions recomputed"
    partition: tuple[str, ...]
    calls: tuple[WindowCall, ...]

    @cached_property
    def columns(self) -> tuple[str, ...]:
        return self.input.columns + tuple(call.name for call in self.calls)

    @property
    def reads(self) -> frozenset[str]:
        return _columns(part for call in self.calls for part in (call.function, call.order_by)).union(self.partition)

    def made_of(self, column: str) -> frozenset[str]:
        calls = [call for call in self.calls if call.name == column]
        parts = _columns(part for call in calls for part in (call.function, call.order_by))
        return parts.union(self.partition) if calls else frozenset((column,))

    def narrowed(self, wanted: Collection[str]) -> Node:
        return replace(self, calls=tuple(call for call in self.calls if call.name in wanted))

    def over(self, inputs: Sequence[Node]) -> Node:
        return replace(self, input=inputs[0]) if self.calls else inputs[0]

    def __str__(self) -> str:
        return f"window {', '.join(call.function for call in self.calls)} by {', '.join(self.partition)}"


def _wanted(outputs: tuple[Output, ...], wanted: Collection[str]) -> tuple[Output, ...]:
    return tuple(output for output in outputs if output.name in wanted) or outputs[:1]


def _columns(expressions: Iterable[Expression | None]) -> frozenset[str]:
    return frozenset(name for each in expressions if each is not None for name in each.columns)


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


def walk(node: Node) -> tuple[Node, ...]:
    """The node and everything below it, inputs first, shared nodes once."""
    found: dict[Node, None] = {}

    def visit(current: Node) -> None:
        if current not in found:
            for child in current.inputs:
                visit(child)
            found[current] = None

    visit(node)
    return tuple(found)


def uses(root: Node) -> Counter[Node]:
    """How often each node is the input of another."""
    return Counter(child for node in walk(root) for child in node.inputs)


def scans(node: Node) -> tuple[Scan, ...]:
    return tuple(part for part in walk(node) if isinstance(part, Scan))


def scanned_tables(node: Node) -> tuple[str, ...]:
    """The tables that the graph reads, in the order of their first use."""
    return tuple(dict.fromkeys(scan.table for scan in scans(node)))
