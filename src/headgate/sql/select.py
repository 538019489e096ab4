"""One SELECT: FROM and WHERE give its body; grouping, windows and the select list finish it.

body (joins, conditions, unnested subqueries) -> Aggregate -> Filter (HAVING) -> Window -> Filter (QUALIFY) -> Project
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from headgate.dataflow.expression import Column, Expression, joined
from headgate.dataflow.graph import Aggregate, Filter, Generate, Node, Output, Projection, kept
from headgate.errors import FlowError
from headgate.sql.aggregates import Grouping, group_expressions, is_group_by_all
from headgate.sql.context import Body, Context, LateValue
from headgate.sql.expressions import (
    Renderer,
    conjuncts,
    is_grouped,
    is_subquery,
    outer_columns,
    own_nodes,
    top_subqueries,
)
from headgate.sql.functions import GENERATORS, function_name, is_aggregate
from headgate.sql.joins import Inner, Leaf, Tree
from headgate.sql.names import folded, output_name
from headgate.sql.predicates import Predicate, predicates
from headgate.sql.relations import lower_from
from headgate.sql.scope import Environment, Field, Lowered, NotIncremental
from headgate.sql.subqueries import SubqueryLowering
from headgate.sql.windows import WindowLowering, find_windows

_UNSUPPORTED = {
    "pivots": "PIVOT is not incremental",
    "sample": "TABLESAMPLE is not incremental",
    "match": "MATCH_RECOGNIZE is not incremental",
    "limit": "LIMIT keeps only some of the rows",
    "offset": "OFFSET keeps only some of the rows",
    "into": "SELECT INTO is not a query",
    "kind": "SELECT AS is not incremental",
}


@dataclass(frozen=True)
class SelectItem:
    """A column of the select list: an expression, or a column that `*` brought."""

    name: str
    expression: exp.Expr | None = None
    column: str | None = None


class Selects:
    """The steps of a SELECT."""

    def body(self, select: exp.Select, context: Context, environment: Environment) -> Body:
        """FROM and WHERE."""
        for option, reason in _UNSUPPORTED.items():
            if select.args.get(option):
                raise NotIncremental(reason)
        source = lower_from(select, context, environment)
        tree: Tree = source.tree
        carried: tuple[str, ...] = ()
        if environment.domain is not None:
            tree = Inner((tree, Leaf(environment.domain.node)))
            carried = environment.domain.node.columns
        renderer = Renderer(context.query, source.scope, environment)
        where = select.args.get("where")
        plain: list[Predicate] = []
        nested: list[exp.Expr] = []
        for part in conjuncts(where.this if where is not None else None):
            if top_subqueries([part]):
                nested.append(part)
            else:
                plain.extend(predicates(part, renderer.render))
        pulled = [item for item in plain if outer_columns(item.sql)]
        for item in pulled:
            environment.use.columns.update(outer_columns(item.sql))
        node = context.joins.build(tree, [item for item in plain if not outer_columns(item.sql)])
        subqueries = SubqueryLowering(context, environment)
        for part in nested:
            node = subqueries.condition(node, part, renderer)
        return Body(node, renderer, tuple(item for item in pulled if not item.implied), carried)

    def values(self, select: exp.Select, body: Body) -> tuple[Expression, ...]:
        """The select list of a SELECT without grouping, over its body."""
        items = select_items(select, body.renderer)
        if top_subqueries(item.expression for item in items if item.expression is not None):
            raise NotIncremental("a subquery in the SELECT list of a subquery is not incremental")
        return tuple(
            Column(item.column or "") if item.expression is None else body.renderer.local(item.expression)
            for item in items
        )

    def finish(self, select: exp.Select, body: Body, context: Context) -> Lowered:
        """Grouping, windows, select list and DISTINCT over the body."""
        return _Finish(select, body, context).lower()

    def late(self, select: exp.Select, body: Body, context: Context) -> LateValue:
        """The aggregate of a subquery without GROUP BY, grouped by the carried columns."""
        return _Finish(select, body, context).late()


def lower_select(select: exp.Select, context: Context, environment: Environment) -> Lowered:
    """The SELECT as a graph. Conditions on outer columns make it ask for a domain."""
    steps = Selects()
    body = steps.body(select, context, environment)
    if body.pulled:
        environment.use.elsewhere = True
    return steps.finish(select, body, context)


class _Finish:
    def __init__(self, select: exp.Select, body: Body, context: Context) -> None:
        self._select = select
        self._context = context
        self._query = context.query
        self._renderer = body.renderer
        self._environment = body.renderer.environment
        self._carried = body.carried
        self._node = body.node
        self._subqueries = SubqueryLowering(context, self._environment)
        self._items = select_items(select, self._renderer)

    @property
    def _expressions(self) -> list[exp.Expr]:
        return [item.expression for item in self._items if item.expression is not None]

    def lower(self) -> Lowered:
        self._generate()
        having = self._select.args.get("having")
        if is_grouped(self._select):
            grouping = self._group(late=False)
            self._node = grouping.lower(self._node)
            for part in conjuncts(having.this if having is not None else None):
                self._filter(part)
        qualify = self._select.args.get("qualify")
        conditions = conjuncts(qualify.this if qualify is not None else None)
        windows = find_windows([*self._expressions, *conditions])
        subqueries = top_subqueries(self._expressions)
        if subqueries:
            self._node = self._subqueries.attach(self._node, subqueries, self._renderer)
        if windows:
            lowering = WindowLowering(self._context, self._renderer, self._select, self._carried)
            self._node = lowering.lower(self._node, windows)
        for part in conditions:
            self._filter(part)
        return self._project()

    def late(self) -> LateValue:
        if len(self._items) != 1 or find_windows(self._expressions) or top_subqueries(self._expressions):
            raise NotIncremental("this correlated subquery is not incremental")
        having = self._select.args.get("having")
        if having is not None and top_subqueries([having]):
            raise NotIncremental("a subquery in the HAVING of a correlated subquery is not incremental")
        node = self._group(late=True).lower(self._node)
        value = self._renderer.local(self._expressions[0])
        condition = None if having is None else self._renderer.local(having.this)
        simple = all(
            isinstance(part, (exp.Column, exp.Literal, exp.Paren, exp.Mul, exp.Div, exp.Add, exp.Sub, exp.Neg))
            or id(part) in self._renderer.replacements
            for part in _above_calls(self._expressions[0])
        )
        empty_is_null = condition is None and simple and "coalesce(" not in value and bool(value.columns)
        return LateValue(node, value, condition, empty_is_null)

    def _group(self, *, late: bool) -> Grouping:
        keys, sets = group_expressions(
            self._select, [(item.name, item.expression) for item in self._items], self._renderer
        )
        having = self._select.args.get("having")
        qualify = self._select.args.get("qualify")
        clauses = [clause.this for clause in (having, qualify) if clause is not None]
        below = [*keys, *(part for node in [*self._expressions, *clauses] for part in _calls(node))]
        subqueries = top_subqueries(below)
        if subqueries:
            self._node = self._subqueries.attach(self._node, subqueries, self._renderer)
        starred = [item for item in self._items if item.expression is None]
        grouping = Grouping(self._context, self._renderer, keys, sets, self._carried, late=late)
        if starred and is_group_by_all(self._select):
            grouping.add_columns([item.column or "" for item in starred])
        missing = next((item for item in starred if not grouping.has_column(item.column or "")), None)
        if missing is not None:
            raise FlowError(
                f"column '{missing.name}' of '*' is neither grouped nor aggregated",
                where=self._query.location(self._select),
                hint="add it to GROUP BY, or name the columns",
            )
        windows = find_windows([*self._expressions, *clauses])
        named_windows = WindowLowering(self._context, self._renderer, self._select, ()).specification_nodes(windows)
        for node in [*self._expressions, *clauses, *named_windows]:
            grouping.prepare(node)
        return grouping

    def _filter(self, part: exp.Expr) -> None:
        if top_subqueries([part]):
            self._node = self._subqueries.condition(self._node, part, self._renderer)
        else:
            self._node = Filter(self._node, self._renderer.local(part))

    def _generate(self) -> None:
        """`explode(…)` as a select item."""
        found = [item for item in self._items if _generator(item.expression) is not None]
        if not found:
            return
        if len(found) > 1 or is_grouped(self._select) or self._select.args.get("windows"):
            raise NotIncremental("more than one generator in a SELECT")
        item = found[0]
        call = _generator(item.expression)
        assert call is not None
        function = function_name(call) or ""
        names = _generator_names(item, function)
        columns = tuple(self._context.names.fresh("generated", name) for name in names)
        arguments = joined(", ", [self._renderer.local(argument) for argument in call.expressions])
        self._node = Generate(self._node, Expression(function, "(", arguments, ")"), columns, False)
        position = self._items.index(item)
        generated = [SelectItem(name, None, column) for name, column in zip(names, columns, strict=True)]
        self._items = [*self._items[:position], *generated, *self._items[position + 1 :]]

    def _project(self) -> Lowered:
        names, outputs = self._context.names, []
        fields: list[Field] = []
        for item in self._items:
            expression = item.expression
            rendered = Column(item.column or "") if expression is None else self._renderer.local(expression)
            name = names.fresh("out", item.name)
            outputs.append(Output(name, rendered))
            fields.append(Field(item.name, name))
        outputs.extend(kept(self._carried))
        node: Node = Projection(self._node, tuple(outputs))
        if self._select.args.get("distinct") is not None:
            if self._select.args["distinct"].args.get("on") is not None:
                raise NotIncremental("DISTINCT ON is not incremental")
            node = Aggregate(node, node.columns)
        return Lowered(node, tuple(fields), self._carried)


def select_items(select: exp.Select, renderer: Renderer) -> list[SelectItem]:
    """The select list with stars expanded; registers aliases, which later items and clauses may name."""
    items: list[SelectItem] = []
    if select.args.get("exclude"):
        raise NotIncremental("EXCLUDE is not incremental")
    for node in select.expressions:
        star = _star(node)
        if star is not None:
            items.extend(_expanded(node, star, renderer))
            continue
        inner = node.this if isinstance(node, (exp.Alias, exp.Aliases)) else node
        if isinstance(node, exp.Aliases):
            items.append(SelectItem("\n".join(item.name for item in node.expressions), inner))
            continue
        name = node.alias if isinstance(node, exp.Alias) else _implied_name(node, renderer)
        items.append(SelectItem(name, inner))
        if isinstance(node, exp.Alias):
            renderer.aliases.setdefault(folded(name), inner)
    return items


def _star(node: exp.Expr) -> exp.Star | None:
    if isinstance(node, exp.Star):
        return node
    if isinstance(node, exp.Column) and isinstance(node.this, exp.Star):
        return node.this
    return None


def _expanded(node: exp.Expr, star: exp.Star, renderer: Renderer) -> list[SelectItem]:
    where = renderer.query.location(node)
    qualifier = tuple(part.name for part in node.parts[:-1]) if isinstance(node, exp.Column) else ()
    fields = renderer.scope.star(qualifier)
    if fields is None:
        found = renderer.scope.find(qualifier, where)
        if found is not None:
            raise NotIncremental("'struct.*' is not incremental")
        raise renderer.scope.unknown((*qualifier, "*"), where)
    if star.args.get("replace") or star.args.get("rename"):
        raise NotIncremental("'*' with REPLACE or RENAME is not incremental")
    excluded = {folded(item.name) for item in star.args.get("except_") or ()}
    unknown = excluded - {folded(item.name) for item in fields}
    if unknown:
        raise renderer.scope.unknown((sorted(unknown)[0],), where)
    return [SelectItem(item.name, None, item.column) for item in fields if folded(item.name) not in excluded]


def _implied_name(node: exp.Expr, renderer: Renderer) -> str:
    """The name of a column without an alias: a column's own, a cast's column's, else made of the text."""
    inner = node
    while isinstance(inner, exp.Cast) and not isinstance(inner.this, exp.Literal):
        inner = inner.this
    if isinstance(inner, exp.Column):
        return inner.name
    if isinstance(inner, exp.Dot) and isinstance(inner.expression, exp.Identifier):
        return inner.expression.name
    return output_name(renderer.query.written(node))


def _generator(node: exp.Expr | None) -> exp.Expr | None:
    return node if node is not None and function_name(node) in GENERATORS else None


def _generator_names(item: SelectItem, function: str) -> list[str]:
    parent = item.expression.parent if item.expression is not None else None
    if isinstance(parent, exp.Aliases):
        return item.name.split("\n")
    names = list(GENERATORS[function])
    if isinstance(parent, exp.Alias):
        if len(names) != 1:
            raise NotIncremental(f"{function}() with one name for several columns")
        return [item.name]
    if not names:
        raise NotIncremental(f"{function}() without column names")
    return names


def _calls(node: exp.Expr) -> list[exp.Expr]:
    """The arguments of aggregate calls in an expression."""
    return [argument for part in own_nodes(node) if is_aggregate(part) for argument in part.expressions]


def _above_calls(node: exp.Expr) -> list[exp.Expr]:
    if is_aggregate(node) or isinstance(node, (exp.Filter, exp.Identifier)) or is_subquery(node):
        return []
    return [node, *(part for child in node.iter_expressions() for part in _above_calls(child))]
