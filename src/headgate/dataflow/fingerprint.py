"""Which parts of several flows' graphs compute the same, whatever their columns are called.

A node is described by its *rows* and, apart from them, by what each of its columns is made of. Rows are decided by scans, filters,
joins and groups; which columns somebody reads of them is another matter. So two flows that select different columns of the same
join share its rows, and could share one result that has the columns of both:

    SELECT s.kind, SUM(b.amount) … FROM b JOIN s …   ─┐
                                                      ├─ rows  inner join(b, s) on 0.small = 1.id
    SELECT b.id, s.name … FROM b bb JOIN s ss …      ─┘

Equal fingerprints mean equal results. The reverse does not hold: `a = 1 AND b = 2` differs from `b = 2 AND a = 1`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from hashlib import blake2b

from headgate.dataflow.expression import Column, Expression, in_parentheses, joined
from headgate.dataflow.graph import (
    Aggregate,
    AggregateCall,
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
    WindowCall,
    walk,
)


@dataclass(frozen=True, slots=True)
class Described:
    """A node's rows and columns without names: inputs are numbered, and a column is the expression that it stands for."""

    rows: str
    columns: Mapping[str, Expression]
    """By the node's own name of a column."""
    places: tuple[int, ...] = (0, 1)
    """Of a join, the numbers of its left and its right side."""

    def over(self, expression: Expression | None) -> Expression:
        """An expression over the node's columns, in terms of what they are made of."""
        return Expression("") if expression is None else expression.over(self.columns)

    def of(self, names: Iterable[str]) -> list[Expression]:
        return [self.columns[name] for name in names]

    def inside(self, place: int) -> dict[str, Expression]:
        """The columns as those of an input of an operator with several."""
        return {
            name: made.over({piece: Column(f"{place}.{piece}") for piece in made.columns})
            for name, made in self.columns.items()
        }

    @property
    def row_fingerprint(self) -> str:
        """Equal for nodes that have the same rows, whichever columns of them they show."""
        return _digest(self.rows)

    @property
    def fingerprint(self) -> str:
        """Equal for nodes that have the same rows with the same columns, in any order and under any name."""
        return _digest(self.rows, *sorted(self.columns.values()))


@dataclass(frozen=True, slots=True)
class Occurrence:
    """A part of a flow."""

    flow: str
    node: Node


def describe(root: Node) -> dict[Node, Described]:
    """Every node of the graph, described."""
    found: dict[Node, Described] = {}
    for node in walk(root):
        found[node] = _described(node, [found[child] for child in node.inputs])
    return found


def row_fingerprint(node: Node) -> str:
    return describe(node)[node].row_fingerprint


def fingerprint(node: Node) -> str:
    return describe(node)[node].fingerprint


def equal_parts(
    flows: Mapping[str, Node], counts: Callable[[Node], bool] = lambda node: True
) -> list[list[Occurrence]]:
    """The parts whose rows several flows have, the largest ones only; what is just a table's rows does not count, nor what `counts`
    refuses.

    A part with equal rows above it in every one of these flows is left out: whoever shares the upper one shares it, too.
    """
    places: dict[str, list[Occurrence]] = defaultdict(list)
    above: dict[str, set[str]] = defaultdict(set)
    for flow, root in flows.items():
        described = describe(root)
        rows = {node: each.row_fingerprint for node, each in described.items()}
        tables = {rows[node] for node in described if isinstance(node, Scan)}
        seen: set[str] = set()
        for node in reversed(described):
            # The uppermost of the nodes with these rows shows what the flow reads of them.
            if rows[node] not in seen and rows[node] not in tables and counts(node):
                places[rows[node]].append(Occurrence(flow, node))
                seen.add(rows[node])
            for child in node.inputs:
                if rows[child] != rows[node]:
                    above[rows[child]].add(rows[node])

    def sharers(part: str) -> set[str]:
        return {occurrence.flow for occurrence in places[part]}

    shared = {part for part, occurrences in places.items() if len(occurrences) > 1}
    return [
        places[part]
        for part in places
        if part in shared and not any(upper in shared and sharers(upper) == sharers(part) for upper in above[part])
    ]


def _described(node: Node, inputs: list[Described]) -> Described:
    match node:
        case Scan():
            return Described(f"scan {node.table}", {out.name: Column(out.sql) for out in node.outputs})
        case Projection():
            (below,) = inputs
            return Described(below.rows, {out.name: in_parentheses(below.over(out.sql)) for out in node.outputs})
        case Filter():
            (below,) = inputs
            return Described(_text("filter", below.over(node.predicate), below.rows), below.columns)
        case Repeat():
            (below,) = inputs
            return Described(_text("repeat", below.over(node.times), below.rows), below.columns)
        case Generate():
            (below,) = inputs
            generator = below.over(node.generator)
            rows = _text("outer generate" if node.outer else "generate", generator, below.rows)
            made = {name: _made(f"generated {place}", rows) for place, name in enumerate(node.names)}
            return Described(rows, {**below.columns, **made})
        case Aggregate():
            (below,) = inputs
            keys = below.of(node.keys)
            rows = _text("groups", *sorted(keys), below.rows) if keys else _text("one group", below.rows)
            calls = {call.name: _aggregated(call, below, rows) for call in node.calls}
            return Described(rows, {**dict(zip(node.keys, keys, strict=True)), **calls})
        case Window():
            (below,) = inputs
            windows = {call.name: _windowed(call, node, below) for call in node.calls}
            return Described(below.rows, {**below.columns, **windows})
        case UnionAll():
            branches = [below.inside(place) for place, below in enumerate(inputs)]
            united = {
                name: Expression("union(", joined(", ", [columns[name] for columns in branches]), ")")
                for name in node.columns
            }
            return Described(_text("union", *(below.rows for below in inputs)), united)
        case Join():
            return _joined(node, *inputs)
        case AsOfJoin():
            return _looked_up(node, *inputs)
        case _:
            raise TypeError(f"{type(node).__name__} has no fingerprint")


def _joined(node: Join, left: Described, right: Described) -> Described:
    # The sides of an inner join are ordered by what they are.
    swapped = node.kind == "inner" and right.rows < left.rows
    sides = (left.inside(int(swapped)), right.inside(int(not swapped)))
    columns = {**sides[0], **sides[1]}
    keys = sorted(" = ".join(sorted((sides[0][one], sides[1][other]))) for one, other in node.keys)
    residual = "" if node.residual is None else node.residual.over(columns)
    below = (right.rows, left.rows) if swapped else (left.rows, right.rows)
    rows = _text(f"{node.kind} join", *keys, residual, *below)
    return Described(rows, {name: columns[name] for name in node.columns}, (int(swapped), int(not swapped)))


def _looked_up(node: AsOfJoin, left: Described, right: Described) -> Described:
    columns = {**left.inside(0), **right.inside(1)}
    keys = sorted(f"{columns[one]} = {columns[other]}" for one, other in node.keys)
    times = [columns[name] for name in (node.at, node.start, node.end)]
    if node.surrogate_key is not None:
        columns[node.surrogate_key] = Expression("surrogate(", columns[node.surrogate_key], ")")
    rows = _text(f"lookup {node.miss}", *keys, *times, left.rows, right.rows)
    return Described(rows, {name: columns[name] for name in node.columns})


def _aggregated(call: AggregateCall, below: Described, rows: str) -> Expression:
    # Sums of floating point numbers depend on the order of rows, which all of their columns decide.
    parts = [call.function, str(call.distinct), *map(below.over, call.arguments), below.over(call.where)]
    return _made("aggregate", *parts, rows, *sorted(below.columns.values()))


def _windowed(call: WindowCall, node: Window, below: Described) -> Expression:
    partition = sorted(below.of(node.partition))
    order = sorted(below.columns.values()) if call.tie_break else []
    parts = [below.over(call.function), below.over(call.order_by), call.frame or "", str(call.tie_break)]
    return _made("window", *parts, *partition, *order, below.rows)


def _made(kind: str, *parts: str) -> Expression:
    """A column that an operator makes: it can be named only together with everything that it is made of."""
    return Column(f"{kind} {_digest(kind, *parts)}")


def _text(operator: str, *parts: str) -> str:
    return f"{operator} {_digest(operator, *parts)}"


def _digest(*parts: str) -> str:
    told = blake2b(digest_size=16)
    for part in parts:
        encoded = part.encode()
        told.update(len(encoded).to_bytes(8, "little"))
        told.update(encoded)
    return told.hexdigest()
