"""Joins: the tree of a FROM clause, turned into Join nodes in an order that needs no avoidable cross join.

    FROM a, b LEFT JOIN c ON …, d WHERE a.x = d.x AND d.y = b.y AND a.z = 1
    inner region {a, (b left c), d}; `a.z = 1` goes to a; then a-d by x, then (a d)-(b c) by y

Conditions sink as deep as they mean the same: into every input of an inner join, into the kept side of an outer one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from headgate.dataflow.expression import Column, Expression, joined
from headgate.dataflow.graph import (
    AsOfJoin,
    Filter,
    Generate,
    Join,
    JoinKind,
    LookupMiss,
    Node,
    Output,
    Projection,
    UnionAll,
    kept,
)
from headgate.sql.names import NameAllocator
from headgate.sql.predicates import Predicate
from headgate.sql.scope import TableCatalog
from headgate.sql.uniqueness import is_unique_on


@dataclass(frozen=True)
class Leaf:
    node: Node


@dataclass(frozen=True)
class Inner:
    children: tuple[Tree, ...]
    predicates: tuple[Predicate, ...] = ()


@dataclass(frozen=True)
class Outer:
    """`kind`: left, full, semi or anti."""

    kind: str
    left: Tree
    right: Tree
    predicates: tuple[Predicate, ...]


@dataclass(frozen=True)
class AsOfLookup:
    left: Tree
    right: Node
    predicates: tuple[Predicate, ...]
    at: Expression
    start: str
    end: str
    miss: LookupMiss
    surrogate_key: str | None


@dataclass(frozen=True)
class Lateral:
    input: Tree
    generator: Expression
    names: tuple[str, ...]
    outer: bool


@dataclass(frozen=True)
class Computed:
    """The input with more columns."""

    input: Tree
    outputs: tuple[Output, ...]


Tree = Leaf | Inner | Outer | AsOfLookup | Lateral | Computed


def tree_columns(tree: Tree) -> frozenset[str]:
    match tree:
        case Leaf():
            return frozenset(tree.node.columns)
        case Inner():
            return frozenset().union(*(tree_columns(child) for child in tree.children))
        case Outer():
            left = tree_columns(tree.left)
            return left if tree.kind in ("semi", "anti") else left | tree_columns(tree.right)
        case AsOfLookup():
            return tree_columns(tree.left) | frozenset(tree.right.columns)
        case Lateral():
            return tree_columns(tree.input) | frozenset(tree.names)
        case Computed():
            return tree_columns(tree.input) | frozenset(output.name for output in tree.outputs)


def extended(node: Node, outputs: Sequence[Output]) -> Node:
    """The node with more columns."""
    if not outputs:
        return node
    return Projection(node, kept(node.columns) + tuple(outputs))


def filtered(node: Node, predicates: Sequence[Predicate]) -> Node:
    """The node with conditions on it; those that follow from others are used, as they make inputs smaller."""
    predicate = _all_of(item.sql for item in predicates)
    return node if predicate is None else Filter(node, predicate)


def _all_of(predicates: Iterable[Expression]) -> Expression | None:
    parts = list(dict.fromkeys(predicates))
    if len(parts) > 1:
        return joined(" AND ", [Expression("(", part, ")") for part in parts])
    return parts[0] if parts else None


class JoinBuilder:
    """Builds the nodes of join trees within one view."""

    def __init__(self, names: NameAllocator, catalog: TableCatalog) -> None:
        self._names = names
        self._catalog = catalog

    def build(self, tree: Tree, predicates: Sequence[Predicate]) -> Node:
        """The tree's rows for which all the predicates hold."""
        match tree:
            case Leaf():
                return filtered(tree.node, predicates)
            case Inner():
                return self._inner(tree, predicates)
            case Outer():
                return self._outer(tree, predicates)
            case AsOfLookup():
                below, above = _within(predicates, tree_columns(tree.left))
                return filtered(self._lookup(tree, self.build(tree.left, below)), above)
            case Lateral():
                below, above = _within(predicates, tree_columns(tree.input))
                node = Generate(self.build(tree.input, below), tree.generator, tree.names, tree.outer)
                return filtered(node, above)
            case Computed():
                below, above = _within(predicates, tree_columns(tree.input))
                return filtered(extended(self.build(tree.input, below), tree.outputs), above)

    def join(self, left: Node, right: Node, kind: JoinKind, predicates: Sequence[Predicate]) -> Node:
        """Joins two nodes: equalities become keys, conditions on the right side alone go below."""
        left_columns, right_columns = frozenset(left.columns), frozenset(right.columns)
        pairs: list[tuple[Expression, Expression]] = []
        on_left: list[Predicate] = []
        on_right: list[Predicate] = []
        residual: list[Expression] = []
        for item in predicates:
            sides = equality_sides(item, left_columns, right_columns)
            if sides is not None:
                pairs.append(sides)
            elif item.columns and item.columns <= right_columns:
                on_right.append(item)
            elif kind in ("inner", "semi") and item.columns <= left_columns:
                on_left.append(item)
            elif not item.implied:
                residual.append(item.sql)
        left, left_keys = self.with_columns(filtered(left, on_left), [pair[0] for pair in pairs])
        right, right_keys = self.with_columns(filtered(right, on_right), [pair[1] for pair in pairs])
        keys = tuple(dict.fromkeys(zip(left_keys, right_keys, strict=True)))
        unique = is_unique_on(right, frozenset(right_keys), self._catalog)
        return Join(left, right, kind, keys, _all_of(residual), at_most_one=unique)

    def with_columns(
        self, node: Node, expressions: Sequence[Expression], prefix: str = "key"
    ) -> tuple[Node, tuple[str, ...]]:
        """The node with a column for each expression, and the names of these columns."""
        outputs: list[Output] = []
        names: list[str] = []
        known: dict[str, str] = {}
        for expression in expressions:
            if isinstance(expression, Column):
                names.append(expression)
                continue
            if expression not in known:
                known[expression] = self._names.fresh(prefix)
                outputs.append(Output(known[expression], expression))
            names.append(known[expression])
        return extended(node, outputs), tuple(names)

    def _inner(self, tree: Inner, predicates: Sequence[Predicate]) -> Node:
        children, conditions = _flattened(tree)
        waiting = [*conditions, *predicates]
        parts: list[Node] = []
        for child in children:
            below, waiting = _within(waiting, tree_columns(child))
            parts.append(self.build(child, below))
        node, rest = parts[0], parts[1:]
        while rest:
            index = self._next(node, rest, waiting)
            part = rest.pop(index)
            usable, waiting = _within(waiting, frozenset(node.columns) | frozenset(part.columns))
            node = self.join(node, part, "inner", usable)
        return filtered(node, [item for item in waiting if not item.implied])

    def _next(self, node: Node, rest: Sequence[Node], waiting: Sequence[Predicate]) -> int:
        joined = frozenset(node.columns)
        for index, part in enumerate(rest):
            if any(equality_sides(item, joined, frozenset(part.columns)) for item in waiting):
                return index
        return 0

    def _outer(self, tree: Outer, predicates: Sequence[Predicate]) -> Node:
        if tree.kind == "full":
            return filtered(self._full(tree), predicates)
        below, above = _within(predicates, tree_columns(tree.left))
        left, right = self.build(tree.left, below), self.build(tree.right, ())
        kind: JoinKind = "left" if tree.kind == "left" else "semi" if tree.kind == "semi" else "anti"
        return filtered(self.join(left, right, kind, tree.predicates), above)

    def _full(self, tree: Outer) -> Node:
        """Left join, and the rows of the right side without a match; Spark gives their NULLs the left side's types."""
        left, right = self.build(tree.left, ()), self.build(tree.right, ())
        matched = self.join(left, right, "left", tree.predicates)
        unmatched = self.join(right, left, "anti", tree.predicates)
        columns = left.columns + right.columns
        nulls = tuple(Output(name, Expression("NULL")) for name in left.columns)
        return UnionAll((Projection(matched, kept(columns)), Projection(unmatched, nulls + kept(right.columns))))

    def _lookup(self, tree: AsOfLookup, left: Node) -> Node:
        pairs = [
            sides
            for item in tree.predicates
            if (sides := equality_sides(item, frozenset(left.columns), frozenset(tree.right.columns))) is not None
        ]
        left, names = self.with_columns(left, [pair[0] for pair in pairs] + [tree.at])
        right, right_keys = self.with_columns(tree.right, [pair[1] for pair in pairs])
        keys = tuple(zip(names[:-1], right_keys, strict=True))
        return AsOfJoin(left, right, keys, names[-1], tree.start, tree.end, tree.miss, tree.surrogate_key)


def equality_sides(
    item: Predicate, left: frozenset[str], right: frozenset[str]
) -> tuple[Expression, Expression] | None:
    """The sides of an equality as (left, right) expressions, None if it does not connect the two."""
    if item.equality is None:
        return None
    one, other = item.equality
    if not one.columns or not other.columns:
        return None
    if one.columns <= left and other.columns <= right:
        return one, other
    if other.columns <= left and one.columns <= right:
        return other, one
    return None


def _within(predicates: Sequence[Predicate], columns: frozenset[str]) -> tuple[list[Predicate], list[Predicate]]:
    """Those that the columns suffice for, and the others; a condition without columns counts as another."""
    inside = [item for item in predicates if item.columns and item.columns <= columns]
    return inside, [item for item in predicates if item not in inside]


def _flattened(tree: Inner) -> tuple[list[Tree], list[Predicate]]:
    children: list[Tree] = []
    conditions = list(tree.predicates)
    for child in tree.children:
        if isinstance(child, Inner):
            inner_children, inner_conditions = _flattened(child)
            children.extend(inner_children)
            conditions.extend(inner_conditions)
        else:
            children.append(child)
    return children, conditions
