"""Expressions: the user's text with column references replaced by graph columns.

p.total * 1.2BD  ->  p__total * 1.2BD          r.s.field  ->  r__s.field
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from sqlglot import exp

from headgate.dataflow.expression import Column, Expression, in_parentheses, joined
from headgate.errors import FlowError
from headgate.sql.functions import GENERATORS, context_function, function_name, is_aggregate, is_unit
from headgate.sql.names import folded, quoted
from headgate.sql.positions import Edit, QueryText
from headgate.sql.scope import Environment, NotIncremental, Scope


class OuterColumn(Column):
    """A column that belongs to a query around."""


def outer_columns(expression: Expression) -> frozenset[str]:
    """The columns of an expression that belong to queries around."""
    return frozenset(piece for piece in expression.pieces if isinstance(piece, OuterColumn))


def is_subquery(node: exp.Expr) -> bool:
    """Whether the node is a subquery used as an expression, with its EXISTS or IN around it."""
    if isinstance(node, exp.Exists):
        return True
    if isinstance(node, exp.In):
        return node.args.get("query") is not None
    if isinstance(node, exp.Subquery):
        return not isinstance(node.parent, (exp.From, exp.Join, exp.Lateral))
    return isinstance(node, exp.Query)


def own_nodes(node: exp.Expr) -> Iterator[exp.Expr]:
    """The nodes of an expression, those inside its subqueries left out."""
    waiting = [node]
    while waiting:
        current = waiting.pop()
        yield current
        if not is_subquery(current):
            waiting.extend(current.iter_expressions(reverse=True))
        elif isinstance(current, exp.In):
            waiting.append(current.this)


def conjuncts(node: exp.Expr | None) -> list[exp.Expr]:
    """The parts that AND connects."""
    if node is None:
        return []
    inner = unwrapped(node)
    if isinstance(inner, exp.And):
        return conjuncts(inner.this) + conjuncts(inner.expression)
    return [inner]


def disjuncts(node: exp.Expr) -> list[exp.Expr]:
    """The parts that OR connects."""
    inner = unwrapped(node)
    if isinstance(inner, exp.Or):
        return disjuncts(inner.this) + disjuncts(inner.expression)
    return [inner]


def unwrapped(node: exp.Expr) -> exp.Expr:
    """The node without parentheses around it."""
    while isinstance(node, exp.Paren):
        node = node.this
    return node


@dataclass
class Renderer:
    """Renders the expressions of one query.

    `replacements` holds nodes that stand for a computed column (aggregates, windows, subqueries), by identity;
    `aliases` the select items that later ones may name. `free`: any function may stay, as the text runs as written.
    """

    query: QueryText
    scope: Scope
    environment: Environment
    replacements: dict[int, Expression] = field(default_factory=dict)
    aliases: dict[str, exp.Expr] = field(default_factory=dict)
    free: bool = False

    def render(self, node: exp.Expr) -> Expression:
        """The expression over graph columns; uses of outer columns are not recorded."""
        edits: list[Edit] = []
        self._visit(node, edits)
        return self.query.slice(*self.query.span(node), edits)

    def local(self, node: exp.Expr) -> Expression:
        """The expression, where outer columns make the subquery need more than its conditions."""
        rendered = self.render(node)
        if outer := outer_columns(rendered):
            self.environment.use.columns.update(outer)
            self.environment.use.elsewhere = True
        return rendered

    def _visit(self, node: exp.Expr, edits: list[Edit]) -> None:
        if id(node) in self.replacements:
            edits.append(Edit(*self.query.span(node), self.replacements[id(node)]))
        elif isinstance(node, exp.Not) and id(node.this) in self.replacements:
            negated = Expression("(NOT ", self.replacements[id(node.this)], ")")
            edits.append(Edit(*self.query.span(node), negated))
        elif isinstance(node, exp.Star) or (isinstance(node, exp.Column) and isinstance(node.this, exp.Star)):
            self._visit_star(node, edits)
        elif isinstance(node, exp.Column):
            if not is_unit(node):
                self._visit_column(node, edits)
        else:
            self._check(node)
            for child in node.iter_expressions():
                self._visit(child, edits)

    def _check(self, node: exp.Expr) -> None:
        if isinstance(node, (exp.Placeholder, exp.Parameter)):
            raise FlowError(
                "a parameter marker has no value here", where=self.query.location(node), hint="write the value"
            )
        if self.free:
            return
        if is_subquery(node):
            raise NotIncremental("a subquery stands where it cannot be turned into a join")
        name = context_function(node)
        if name is not None:
            raise NotIncremental(f"{name} depends on when and where it is called", context=True)
        if isinstance(node, exp.Window):
            raise FlowError(
                "a window function is not allowed here",
                where=self.query.location(node),
                hint="use it in the SELECT list or in QUALIFY",
            )
        if is_aggregate(node):
            raise FlowError(
                f"the aggregate {function_name(node)}() is not allowed here",
                where=self.query.location(node),
                hint="use it in the SELECT list or in HAVING",
            )
        if function_name(node) in GENERATORS:
            raise NotIncremental(f"{function_name(node)}() inside an expression")

    def _visit_column(self, node: exp.Column, edits: list[Edit]) -> None:
        identifiers = [part for part in node.parts if isinstance(part, exp.Identifier)]
        parts = tuple(part.name for part in identifiers)
        found = self.scope.find(parts, self.query.location(node))
        if found is None:
            self._visit_alias(node, identifiers, edits)
            return
        name = found.field.column
        domain = self.environment.domain
        is_outer = found.depth and (domain is None or name not in domain.node.columns)
        text: Expression = OuterColumn(name) if is_outer else Column(name)
        if found.parts == len(identifiers) and _names_a_field(node):
            text = Expression(text, " AS ", quoted(identifiers[-1].name))
        first = self.query.identifier_span(identifiers[0])[0]
        last = self.query.identifier_span(identifiers[found.parts - 1])[1]
        edits.append(Edit(first, last, text))

    def _visit_alias(self, node: exp.Column, identifiers: list[exp.Identifier], edits: list[Edit]) -> None:
        aliased = self.aliases.get(folded(identifiers[0].name))
        if aliased is None:
            raise self.scope.unknown(tuple(part.name for part in identifiers), self.query.location(node))
        if not self.free:
            index = self.query.identifier_span(identifiers[0])[0]
            edits.append(Edit(index, index, in_parentheses(self.render(aliased))))

    def _visit_star(self, node: exp.Expr, edits: list[Edit]) -> None:
        call = node.parent
        name = function_name(call) if call is not None else None
        if name == "count" and isinstance(node, exp.Star):
            return
        qualifier = tuple(part.name for part in node.parts[:-1]) if isinstance(node, exp.Column) else ()
        fields = self.scope.star(qualifier)
        if fields is None or name is None:
            raise FlowError("'*' has no meaning here", where=self.query.location(node))
        named = [f" AS {quoted(item.name)}" if name == "struct" else "" for item in fields]
        texts = [Expression(Column(item.column), more) for item, more in zip(fields, named, strict=True)]
        edits.append(Edit(*self.query.span(node), joined(", ", texts)))


def _names_a_field(node: exp.Column) -> bool:
    """Whether Spark names a struct's field by this column, so that replacing it would rename the field."""
    parent = node.parent
    if parent is None:
        return False
    if function_name(parent) == "struct":
        return True
    return isinstance(parent, exp.Tuple) and not isinstance(parent.parent, (exp.In, exp.Binary, exp.GroupingSets))


def has_aggregate(node: exp.Expr) -> bool:
    """Whether the expression calls an aggregate that is not a window function."""
    return any(is_aggregate(part) and not is_windowed(part) for part in own_nodes(node))


def is_windowed(node: exp.Expr) -> bool:
    """Whether an aggregate is called OVER a window."""
    parent = node.parent
    while isinstance(parent, (exp.Filter, exp.IgnoreNulls, exp.RespectNulls, exp.WithinGroup)):
        node, parent = parent, parent.parent
    return isinstance(parent, exp.Window) and parent.this is node


def top_subqueries(nodes: Iterable[exp.Expr]) -> list[exp.Expr]:
    """The outermost subqueries in these expressions."""
    return [part for node in nodes for part in own_nodes(node) if is_subquery(part)]


def is_grouped(select: exp.Select) -> bool:
    """Whether the SELECT aggregates."""
    if select.args.get("group") or select.args.get("having"):
        return True
    return any(has_aggregate(item) for item in select.expressions)
