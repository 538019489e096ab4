"""Subqueries in expressions: each becomes a join.

    EXISTS, IN           semi join       scalar              left join with the subquery's one row per correlation key
    NOT EXISTS, NOT IN   anti join       under OR, in lists  a mark: left join with the distinct keys, matched or not

Conditions that compare a column around with one inside become join keys. Where the two are connected in another way,
the subquery is first joined with its domain: the distinct values of the outer columns that it uses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from headgate.dataflow.expression import Column, Expression
from headgate.dataflow.graph import Aggregate, AggregateCall, Filter, JoinKind, Node, Output, Projection
from headgate.errors import FlowError
from headgate.sql.context import Body, Context, LateValue
from headgate.sql.expressions import Renderer, is_grouped, outer_columns, top_subqueries, unwrapped
from headgate.sql.joins import equality_sides, extended
from headgate.sql.predicates import Predicate
from headgate.sql.scope import Environment, Lowered, NotIncremental, OuterUse
from headgate.sql.uniqueness import is_unique_on

_NULL_REJECTING = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE)
_ARITHMETIC = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Neg, exp.Paren)


@dataclass(frozen=True)
class _Unnested:
    """A subquery's rows, its values, and the conditions that connect them to the query around."""

    node: Node
    values: tuple[Expression, ...]
    conditions: tuple[Predicate, ...]


class SubqueryLowering:
    """Unnests the subqueries of one query."""

    def __init__(self, context: Context, environment: Environment) -> None:
        self._context = context
        self._environment = environment

    def condition(self, node: Node, part: exp.Expr, renderer: Renderer) -> Node:
        """The rows of the node for which a condition with subqueries holds."""
        positive = unwrapped(part)
        negated = False
        while isinstance(positive, exp.Not):
            positive, negated = unwrapped(positive.this), not negated
        if isinstance(positive, exp.Exists):
            return self._exists(node, positive, renderer, "anti" if negated else "semi")
        if isinstance(positive, exp.In) and positive.args.get("query") is not None:
            node = self._inside_operand(node, positive, renderer)
            if negated:
                return self._not_in(node, positive, renderer)
            return self._in(node, positive, renderer)
        node = self.attach(node, top_subqueries([part]), renderer, within=part)
        return Filter(node, renderer.local(part))

    def attach(
        self, node: Node, subqueries: Sequence[exp.Expr], renderer: Renderer, within: exp.Expr | None = None
    ) -> Node:
        """The node with a column for each subquery, registered in the renderer in its place."""
        for subquery in subqueries:
            if id(subquery) in renderer.replacements:
                continue
            if isinstance(subquery, exp.Exists):
                node, rendered = self._exists_mark(node, subquery, renderer)
            elif isinstance(subquery, exp.In):
                node = self._inside_operand(node, subquery, renderer)
                node, rendered = self._in_mark(node, subquery, renderer, _is_positive(subquery, within), within is None)
            else:
                node, rendered = self._scalar(node, subquery, renderer, _rejects_null(subquery, within))
            renderer.replacements[id(subquery)] = rendered
        return node

    def _inside_operand(self, node: Node, subquery: exp.In, renderer: Renderer) -> Node:
        inner = top_subqueries([subquery.this])
        return self.attach(node, inner, renderer) if inner else node

    def _exists(self, node: Node, subquery: exp.Exists, renderer: Renderer, kind: JoinKind) -> Node:
        opened = self._open(node, subquery.this, renderer, exists=True)
        return self._context.joins.join(node, opened.node, kind, opened.conditions)

    def _in(self, node: Node, subquery: exp.In, renderer: Renderer) -> Node:
        operands = self._operands(subquery, renderer)
        opened = self._open(node, subquery.args["query"], renderer)
        equalities = self._equalities(operands, opened.values, subquery)
        return self._context.joins.join(node, opened.node, "semi", (*opened.conditions, *equalities))

    def _not_in(self, node: Node, subquery: exp.In, renderer: Renderer) -> Node:
        operands = self._operands(subquery, renderer)
        opened = self._open(node, subquery.args["query"], renderer)
        equalities = self._equalities(operands, opened.values, subquery)
        if opened.conditions or len(operands) > 1:
            residuals = [
                Predicate(Expression(item.sql, " OR (", one, ") IS NULL OR (", other, ") IS NULL"))
                for item, one, other in zip(equalities, operands, opened.values, strict=True)
            ]
            return self._context.joins.join(node, opened.node, "anti", (*opened.conditions, *residuals))
        rows, known = self._fresh("rows"), self._fresh("known")
        totals: Node = Aggregate(
            opened.node, (), (AggregateCall(rows, "count"), AggregateCall(known, "count", (opened.values[0],)))
        )
        empty, null = self._fresh("is_empty"), self._fresh("has_null")
        is_empty, has_null = Expression(rows, " = 0"), Expression(rows, " > ", known)
        facts = Projection(totals, (Output(empty, is_empty), Output(null, has_null)))
        joined = self._context.joins.join(node, facts, "inner", ())
        kept = Filter(joined, Expression(empty, " OR (NOT ", null, " AND (", operands[0], ") IS NOT NULL)"))
        return self._context.joins.join(kept, opened.node, "anti", equalities)

    def _fresh(self, *parts: str) -> Column:
        return Column(self._context.names.fresh(*parts))

    def _operands(self, subquery: exp.In, renderer: Renderer) -> list[Expression]:
        operand = unwrapped(subquery.this)
        parts = operand.expressions if isinstance(operand, exp.Tuple) else [operand]
        return [renderer.local(part) for part in parts]

    def _equalities(
        self, operands: Sequence[Expression], values: Sequence[Expression], subquery: exp.In
    ) -> list[Predicate]:
        if len(operands) != len(values):
            raise FlowError(
                f"IN compares {len(operands)} with {len(values)} columns",
                where=self._context.query.location(subquery),
            )
        return [_equal(one, other) for one, other in zip(operands, values, strict=True)]

    def _exists_mark(self, node: Node, subquery: exp.Exists, renderer: Renderer) -> tuple[Node, Expression]:
        opened = self._open(node, subquery.this, renderer, exists=True, keyed=True)
        node, flag = self._marked(node, opened, ())
        return node, Expression("(", flag, " IS NOT NULL)")

    def _in_mark(
        self, node: Node, subquery: exp.In, renderer: Renderer, positive: bool, value: bool
    ) -> tuple[Node, Expression]:
        """`positive`: unknown counts as false; `value`: it is shown, where Spark shows false for unknown."""
        operands = self._operands(subquery, renderer)
        opened = self._open(node, subquery.args["query"], renderer, keyed=True)
        equalities = self._equalities(operands, opened.values, subquery)
        marked, flag = self._marked(node, opened, equalities)
        negated = _is_negated(subquery)
        if positive or (value and not negated):
            return marked, Expression("(", flag, " IS NOT NULL)")
        if len(operands) > 1:
            raise NotIncremental("IN with several columns inside an expression is not incremental")
        rows, known = self._fresh("rows"), self._fresh("known")
        inner, keys, conditions = self._keyed(node, opened)
        counts = (AggregateCall(rows, "count"), AggregateCall(known, "count", (opened.values[0],)))
        totals, conditions = self._apart(Aggregate(inner, keys, counts), keys, conditions)
        marked = self._context.joins.join(marked, totals, "left", conditions)
        sql = Expression(
            *("(CASE WHEN ", flag, " IS NOT NULL THEN true WHEN coalesce(", rows, ", 0L) = 0 THEN false "),
            *("WHEN (", operands[0], ") IS NULL OR ", rows, " > ", known, " THEN NULL ELSE false END)"),
        )
        return marked, Expression("coalesce(", sql, ", true)") if value else sql

    def _marked(self, node: Node, opened: _Unnested, equalities: Sequence[Predicate]) -> tuple[Node, Column]:
        """The node left-joined with the distinct keys of the subquery's rows."""
        inner, keys, conditions = self._keyed(
            node, _Unnested(opened.node, opened.values, (*opened.conditions, *equalities))
        )
        flag = self._fresh("matched")
        distinct: Node
        if keys:
            distinct, conditions = self._apart(Aggregate(inner, keys), keys, conditions)
            distinct = extended(distinct, (Output(flag, Expression("true")),))
        else:
            rows = self._fresh("rows")
            distinct = Filter(Aggregate(inner, (), (AggregateCall(rows, "count"),)), Expression(rows, " > 0"))
            distinct = Projection(distinct, (Output(flag, Expression("true")),))
        return self._context.joins.join(node, distinct, "left", conditions), flag

    def _keyed(self, node: Node, opened: _Unnested) -> tuple[Node, tuple[str, ...], list[Predicate]]:
        """The subquery's rows with its join keys as columns, and the conditions over these columns."""
        outer, own = frozenset(node.columns), frozenset(opened.node.columns)
        inner = opened.node
        keys: list[str] = []
        conditions: list[Predicate] = []
        for item in opened.conditions:
            sides = equality_sides(item, outer, own)
            if sides is None:
                conditions.append(item)
                keys.extend(name for name in item.columns if name in own)
                continue
            inner, (name,) = self._context.joins.with_columns(inner, [sides[1]])
            keys.append(name)
            conditions.append(_equal(sides[0], Column(name)))
        return inner, tuple(dict.fromkeys(keys)), conditions

    def _apart(self, node: Node, keys: Sequence[str], conditions: Sequence[Predicate]) -> tuple[Node, list[Predicate]]:
        """The node with its key columns renamed, so that it can be joined beside the same rows once more."""
        names = {key: self._fresh(key) for key in keys}
        renamed = Projection(node, tuple(Output(names.get(name, name), Column(name)) for name in node.columns))
        return renamed, [_over(item, names) for item in conditions]

    def _scalar(
        self, node: Node, subquery: exp.Expr, renderer: Renderer, rejects_null: bool
    ) -> tuple[Node, Expression]:
        late = self._open_late(node, subquery, renderer)
        if late is not None:
            value, connections = late
            kind: JoinKind = "inner" if not connections or (rejects_null and value.empty_is_null) else "left"
            joined = self._context.joins.join(node, value.node, kind, connections)
            if value.condition is not None:
                return joined, Expression("IF(", value.condition, ", ", value.value, ", NULL)")
            return joined, Expression("(", value.value, ")")
        opened = self._open(node, subquery, renderer, keyed=True)
        if len(opened.values) != 1:
            raise FlowError(
                f"a scalar subquery has one column, not {len(opened.values)}",
                where=self._context.query.location(subquery),
            )
        inner, keys, conditions = self._keyed(node, opened)
        inner, (value_column,) = self._context.joins.with_columns(inner, [opened.values[0]], "value")
        kind = "inner" if rejects_null or _is_one_row(inner) else "left"
        if is_unique_on(inner, frozenset(keys), self._context.catalog):
            return self._context.joins.join(node, inner, kind, conditions), Column(value_column)
        rows, single = self._fresh("rows"), self._fresh("value")
        calls = (AggregateCall(rows, "count"), AggregateCall(single, "max", (Column(value_column),)))
        joined = self._context.joins.join(node, Aggregate(inner, keys, calls), kind if keys else "inner", conditions)
        failure = "raise_error('a scalar subquery returned more than one row')"
        return joined, Expression("IF(", rows, f" > 1, {failure}, ", single, ")")

    def _open(
        self, node: Node, subquery: exp.Expr, renderer: Renderer, *, exists: bool = False, keyed: bool = False
    ) -> _Unnested:
        """The subquery's rows. `keyed`: every connecting condition must be an equality."""
        query = _plain(subquery, exists=exists)
        use = OuterUse()
        environment = Environment(self._environment.tables, renderer.scope, None, use)
        if isinstance(query, exp.Select) and not query.args.get("with_") and not _is_shaped(query):
            if exists and is_grouped(query) and not query.args.get("group"):
                raise NotIncremental("EXISTS over an aggregate without GROUP BY is not incremental")
            opened = self._open_select(query, environment, exists=exists, keyed=keyed)
        else:
            lowered = self._context.lower(query, environment)
            opened = None if use.columns else _Unnested(lowered.node, _columns(lowered), ())
        if opened is None or use.elsewhere:
            return self._through_domain(node, query, renderer, use)
        self._check_available(node, use)
        return opened

    def _open_select(
        self, query: exp.Select, environment: Environment, *, exists: bool, keyed: bool
    ) -> _Unnested | None:
        """Connects a SELECT by the conditions of its WHERE; None where they do not suffice."""
        steps = self._context.steps
        body = steps.body(query, self._context, environment)
        inner, conditions, all_equal = self._connected(body.node, body.pulled)
        if not is_grouped(query):
            if keyed and not all_equal:
                return None
            values = () if exists else steps.values(query, Body(inner, body.renderer))
            return _Unnested(inner, values, conditions)
        if not all_equal or (body.pulled and not query.args.get("group")):
            return None
        lowered = steps.finish(query, Body(inner, body.renderer, (), _inner_keys(conditions)), self._context)
        return _Unnested(lowered.node, _columns(lowered), conditions)

    def _open_late(
        self, node: Node, subquery: exp.Expr, renderer: Renderer
    ) -> tuple[LateValue, tuple[Predicate, ...]] | None:
        """An aggregate without GROUP BY, whose value is computed after the join; None for any other.

        A value that cannot be computed (a division by the count of an empty table) then fails only where a row asks for it.
        """
        query = _plain(subquery, exists=False)
        if not isinstance(query, exp.Select) or query.args.get("with_") or _is_shaped(query):
            return None
        if not is_grouped(query) or query.args.get("group"):
            return None
        use, steps = OuterUse(), self._context.steps
        environment = Environment(self._environment.tables, renderer.scope, None, use)
        body = steps.body(query, self._context, environment)
        inner, conditions, all_equal = self._connected(body.node, body.pulled)
        late = steps.late(query, Body(inner, body.renderer, (), _inner_keys(conditions)), self._context)
        if all_equal and not use.elsewhere:
            self._check_available(node, use)
            return late, conditions
        domain, mapping = self._domain(node, use)
        environment = Environment(
            self._environment.tables, renderer.scope.renamed(mapping), Lowered(domain, ()), OuterUse()
        )
        body = steps.body(query, self._context, environment)
        return steps.late(query, body, self._context), self._domain_conditions(mapping)

    def _connected(self, inner: Node, pulled: Sequence[Predicate]) -> tuple[Node, tuple[Predicate, ...], bool]:
        """The inner rows with the inner sides of equalities as columns; whether there are only equalities."""
        foreign = frozenset(name for item in pulled for name in outer_columns(item.sql))
        own = frozenset(inner.columns)
        conditions: list[Predicate] = []
        all_equal = True
        for item in pulled:
            sides = equality_sides(item, foreign, own)
            if sides is None:
                all_equal = False
                conditions.append(item)
                continue
            inner, (name,) = self._context.joins.with_columns(inner, [sides[1]])
            conditions.append(_equal(sides[0], Column(name)))
        return inner, tuple(conditions), all_equal

    def _check_available(self, node: Node, use: OuterUse) -> None:
        """Outer columns that the query around does not hold belong to a query further out."""
        missing = use.columns - set(node.columns)
        if not missing:
            return
        if self._environment.outer is None:
            raise NotIncremental("a subquery uses a column that the query around has grouped away")
        self._environment.use.columns.update(missing)
        self._environment.use.elsewhere = True

    def _through_domain(self, node: Node, query: exp.Expr, renderer: Renderer, use: OuterUse) -> _Unnested:
        domain, mapping = self._domain(node, use)
        environment = Environment(
            self._environment.tables, renderer.scope.renamed(mapping), Lowered(domain, ()), OuterUse()
        )
        lowered = self._context.lower(query, environment)
        return _Unnested(lowered.node, _columns(lowered), self._domain_conditions(mapping))

    def _domain(self, node: Node, use: OuterUse) -> tuple[Node, dict[str, Column]]:
        self._check_available(node, use)
        mapping = {name: self._fresh("domain", name) for name in sorted(use.columns)}
        renamed = Projection(node, tuple(Output(new, Column(old)) for old, new in mapping.items()))
        return Aggregate(renamed, renamed.columns), mapping

    def _domain_conditions(self, mapping: dict[str, Column]) -> tuple[Predicate, ...]:
        """Equality that also holds between NULLs: the hashes are the keys, the values decide."""
        result: list[Predicate] = []
        for old, new in mapping.items():
            one = Column(old)
            result.append(_equal(Expression("xxhash64(", one, ")"), Expression("xxhash64(", new, ")")))
            result.append(Predicate(Expression(one, " <=> ", new)))
        return tuple(result)


def _inner_keys(conditions: Sequence[Predicate]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(item.equality[1] for item in conditions if item.equality is not None))


def _columns(lowered: Lowered) -> tuple[Expression, ...]:
    return tuple(Column(item.column) for item in lowered.fields)


def _equal(one: Expression, other: Expression) -> Predicate:
    return Predicate(Expression("(", one, ") = (", other, ")"), (one, other))


def _over(item: Predicate, names: dict[str, Column]) -> Predicate:
    """The condition over renamed columns."""
    equality = None if item.equality is None else (item.equality[0].over(names), item.equality[1].over(names))
    return Predicate(item.sql.over(names), equality)


def _plain(subquery: exp.Expr, *, exists: bool) -> exp.Expr:
    """The query inside parentheses; for EXISTS a LIMIT of at least one row changes nothing."""
    query = subquery
    while isinstance(query, exp.Subquery) and not query.args.get("limit"):
        query = query.this
    if exists and isinstance(query, exp.Select):
        limit = query.args.get("limit")
        count = limit.expression if limit is not None else None
        if isinstance(count, exp.Literal) and count.name.isdigit() and int(count.name) > 0:
            query.set("limit", None)
    return query


def _is_shaped(query: exp.Select) -> bool:
    """Whether rows are chosen or numbered in the SELECT itself, so that conditions cannot leave it."""
    return bool(
        (query.args.get("distinct") and query.args["distinct"].args.get("on"))
        or query.args.get("qualify")
        or query.args.get("limit")
        or query.args.get("offset")
        or any(isinstance(part, exp.Window) for item in query.expressions for part in item.walk())
    )


def _is_positive(subquery: exp.Expr, within: exp.Expr | None) -> bool:
    """Whether unknown counts as false: only AND and OR stand above, up to a condition."""
    if within is None:
        return False
    current: exp.Expr | None = subquery
    while current is not None and current is not within:
        current = current.parent
        if current is not None and not isinstance(current, (exp.And, exp.Or, exp.Paren)):
            return False
    return current is not None


def _is_negated(subquery: exp.Expr) -> bool:
    parent = subquery.parent
    while isinstance(parent, exp.Paren):
        parent = parent.parent
    return isinstance(parent, exp.Not)


def _rejects_null(subquery: exp.Expr, within: exp.Expr | None) -> bool:
    """Whether a NULL in place of the subquery makes the condition not true."""
    if within is None:
        return False
    current: exp.Expr | None = subquery
    while current is not None and current is not within:
        current = current.parent
        if current is within:
            break
        if not isinstance(current, _ARITHMETIC):
            return False
    return isinstance(current, _NULL_REJECTING)


def _is_one_row(node: Node) -> bool:
    while isinstance(node, Projection):
        node = node.input
    return isinstance(node, Aggregate) and not node.keys
