"""GROUP BY: keys and aggregate calls, and how expressions above them read the result.

    SELECT upper(city) AS c, sum(x) / count(*) … GROUP BY 1
    Project  group = upper(city)  ->  Aggregate keys (group,) calls sum, count  ->  group AS c, sum_1 / count_1

Grouping sets are one input row per set, with the keys outside the set NULL, grouped once with the set's number, as in
Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations, islice

from sqlglot import exp

from headgate.dataflow.expression import Column, Expression, in_parentheses
from headgate.dataflow.graph import Aggregate, AggregateCall, Node, Output, Projection, UnionAll, kept
from headgate.errors import FlowError
from headgate.sql.context import Context
from headgate.sql.expressions import (
    Renderer,
    has_aggregate,
    is_subquery,
    is_windowed,
    outer_columns,
)
from headgate.sql.functions import (
    AGGREGATES,
    GROUPING,
    ORDER_DEPENDENT_AGGREGATES,
    ZERO_WHEN_EMPTY,
    function_name,
    is_aggregate,
)
from headgate.sql.names import canonical, folded
from headgate.sql.scope import NotIncremental

Items = Sequence[tuple[str, exp.Expr | None]]
"""The select list: names and expressions; a column that `*` brought has no expression."""

_NEVER_KEYS = (
    *(exp.Identifier, exp.DataType, exp.Where, exp.Order, exp.WindowSpec, exp.Var),
    *(exp.Star, exp.Literal, exp.Alias),
)


def is_group_by_all(select: exp.Select) -> bool:
    group = select.args.get("group")
    return group is not None and bool(group.args.get("all")) and not group.expressions


def group_expressions(
    select: exp.Select, items: Items, renderer: Renderer
) -> tuple[list[exp.Expr], list[list[int]] | None]:
    """The GROUP BY expressions, ordinals and aliases resolved; for grouping sets also the members of each set."""
    group = select.args.get("group")
    if group is None:
        return [], None
    if is_group_by_all(select):
        return [item for _, item in items if item is not None and not has_aggregate(item)], None
    if group.args.get("totals") or group.args.get("cube") or group.args.get("rollup"):
        raise NotIncremental("GROUP BY … WITH CUBE or ROLLUP is not incremental")
    expressions: list[exp.Expr] = []
    sets: list[list[int]] = [[]]
    plain = True

    def index(node: exp.Expr) -> int:
        resolved = _resolved(node, items, renderer)
        text = canonical(renderer.render(resolved))
        for position, known in enumerate(expressions):
            if canonical(renderer.render(known)) == text:
                return position
        expressions.append(resolved)
        return len(expressions) - 1

    for part in group.expressions:
        choices = _sets(part, index)
        plain = plain and not isinstance(part, (exp.GroupingSets, exp.Cube, exp.Rollup))
        sets = [have + more for have in sets for more in choices]
    trailing = group.args.get("grouping_sets")
    if trailing:
        plain = False
        sets = [more for part in trailing for more in _sets(part, index)]
    return expressions, None if plain else sets


def _sets(node: exp.Expr, index: Callable[[exp.Expr], int]) -> list[list[int]]:
    if isinstance(node, exp.GroupingSets):
        return [item for part in node.expressions for item in _sets(part, index)]
    if isinstance(node, (exp.Cube, exp.Rollup)):
        units = [_members(part, index) for part in node.expressions]
        if isinstance(node, exp.Rollup):
            return [_joined(units[:length]) for length in range(len(units), -1, -1)]
        chosen = [kept for length in range(len(units), -1, -1) for kept in combinations(units, length)]
        return [_joined(kept) for kept in chosen]
    return [_members(node, index)]


def _joined(units: Sequence[list[int]]) -> list[int]:
    return [position for unit in units for position in unit]


def _members(node: exp.Expr, index: Callable[[exp.Expr], int]) -> list[int]:
    if isinstance(node, exp.Tuple):
        return [index(part) for part in node.expressions]
    if isinstance(node, exp.Paren):
        return [index(node.this)]
    return [index(node)]


def _resolved(node: exp.Expr, items: Items, renderer: Renderer) -> exp.Expr:
    """What a GROUP BY element means: an ordinal or an alias stands for its select item."""
    if isinstance(node, exp.Literal) and not node.is_string and node.name.isdigit():
        position = int(node.name)
        if not 1 <= position <= len(items):
            raise FlowError(
                f"GROUP BY {position}: the query has {len(items)} columns", where=renderer.query.location(node)
            )
        item = items[position - 1][1]
        if item is None:
            raise NotIncremental("GROUP BY the position of a column of '*' is not incremental")
        return item
    if not isinstance(node, exp.Column) or len(node.parts) > 1:
        return node
    if renderer.scope.find((node.name,), renderer.query.location(node)) is not None:
        return node
    return next((item for name, item in items if item is not None and folded(name) == folded(node.name)), node)


class Grouping:
    """One Aggregate in the making: collects calls, then says by which columns expressions read it."""

    def __init__(
        self,
        context: Context,
        renderer: Renderer,
        keys: Sequence[exp.Expr],
        sets: list[list[int]] | None,
        carried: Sequence[str],
        *,
        late: bool = False,
    ) -> None:
        self._context = context
        self._renderer = renderer
        self._sets = sets
        self._carried = tuple(carried)
        self._late = late
        self._expressions = [renderer.local(key) for key in keys]
        self._names = [
            item if isinstance(item, Column) and sets is None else context.names.fresh("group")
            for item in self._expressions
        ]
        self._by_text = {canonical(item): name for item, name in zip(self._expressions, self._names, strict=True)}
        self._calls: dict[tuple[str, tuple[str, ...], bool, str | None], AggregateCall] = {}
        self._set_number = context.names.fresh("grouping_set")

    def add_columns(self, columns: Sequence[str]) -> None:
        """Groups by columns of the input besides the keys."""
        for name in columns:
            if name not in self._names:
                self._names.append(name)
                self._expressions.append(Column(name))
                self._by_text.setdefault(canonical(name), name)

    def has_column(self, name: str) -> bool:
        """Whether the groups have the input's column under its own name."""
        return name in self._names

    def prepare(self, node: exp.Expr) -> None:
        """Registers, in the renderer, what the parts of an expression over the groups stand for."""
        if id(node) in self._renderer.replacements:
            return
        if is_subquery(node):
            if isinstance(node, exp.In):
                self.prepare(node.this)
            return
        if isinstance(node, exp.Filter) and is_aggregate(node.this):
            self._replace(node, self._call(node.this, node.expression))
            return
        if isinstance(node, exp.WithinGroup) or (is_aggregate(node) and not is_windowed(node)):
            self._replace(node, self._call(node, None))
            return
        if function_name(node) in GROUPING:
            self._replace(node, self._grouping(node))
            return
        key = self._key(node)
        if key is not None:
            self._replace(node, Column(key))
            return
        if isinstance(node, exp.Column):
            self._ungrouped(node)
            return
        for child in node.iter_expressions():
            self.prepare(child)

    def lower(self, node: Node) -> Node:
        """The Aggregate over the node."""
        if self._sets is None:
            pending = [
                Output(name, item)
                for name, item in zip(self._names, self._expressions, strict=True)
                if not isinstance(item, Column)
            ]
            if pending:
                node = Projection(node, kept(node.columns) + tuple(pending))
            keys = tuple(dict.fromkeys((*self._carried, *self._names)))
        else:
            node = self._expanded(node)
            keys = tuple(dict.fromkeys((*self._carried, *self._names, self._set_number)))
        return _aggregate(node, keys, tuple(self._calls.values()), self._context)

    def _expanded(self, node: Node) -> Node:
        branches: list[Node] = []
        for number, members in enumerate(self._sets or ()):
            keys = tuple(
                Output(name, item if index in members else Expression("IF(false, ", item, ", NULL)"))
                for index, (name, item) in enumerate(zip(self._names, self._expressions, strict=True))
            )
            set_number = Output(self._set_number, Expression(str(number)))
            branches.append(Projection(node, (*kept(node.columns), *keys, set_number)))
        return UnionAll(tuple(branches))

    def _replace(self, node: exp.Expr, rendered: Expression) -> None:
        self._renderer.replacements[id(node)] = rendered

    def _key(self, node: exp.Expr) -> str | None:
        if isinstance(node, _NEVER_KEYS):
            return None
        # A node with more parts than a key's text has letters is no key: so a long chain is not read at each of its parts.
        most = 2 * max(map(len, self._by_text), default=0) + 8
        parts = list(islice(node.walk(), most + 1))
        if len(parts) > most or any(isinstance(part, exp.Window) or is_subquery(part) for part in parts):
            return None
        if has_aggregate(node):
            return None
        try:
            text = self._renderer.render(node)
        except FlowError:
            return None
        return self._by_text.get(canonical(text))

    def _ungrouped(self, node: exp.Column) -> None:
        aliased = self._renderer.aliases.get(folded(node.name)) if len(node.parts) == 1 else None
        if aliased is not None and id(aliased) != id(node):
            self.prepare(aliased)
            self._replace(node, in_parentheses(self._renderer.render(aliased)))
            return
        rendered = self._renderer.render(node)
        if rendered.columns <= set(self._names) | set(self._carried) | outer_columns(rendered):
            return
        raise FlowError(
            f"column '{self._renderer.query.written(node)}' is neither grouped nor inside an aggregate",
            where=self._renderer.query.location(node),
            hint="add it to GROUP BY or aggregate it",
        )

    def _call(self, node: exp.Expr, where: exp.Expr | None) -> Expression:
        function = function_name(node)
        if function is None or function in ORDER_DEPENDENT_AGGREGATES or function not in AGGREGATES:
            raise NotIncremental(f"{function or 'this aggregate'}() depends on the order of rows")
        arguments: list[exp.Expr] = list(node.expressions)
        distinct = len(arguments) == 1 and isinstance(arguments[0], exp.Distinct)
        if distinct:
            arguments = list(arguments[0].expressions)
        if len(arguments) == 1 and isinstance(arguments[0], exp.Star):
            arguments = []
        texts = tuple(self._renderer.local(item) for item in arguments)
        condition = None if where is None else self._renderer.local(where.this)
        key = (function, tuple(canonical(text) for text in texts), distinct, condition and canonical(condition))
        if key not in self._calls:
            name = self._context.names.fresh(function)
            self._calls[key] = AggregateCall(name, function, texts, distinct, condition)
        name = self._calls[key].name
        if self._late and function in ZERO_WHEN_EMPTY:
            return Expression("coalesce(", Column(name), ", 0L)")
        return Column(name)

    def _grouping(self, node: exp.Expr) -> Expression:
        """`grouping(key)` and `grouping_id(…)`: constants of each grouping set."""
        if self._sets is None:
            raise NotIncremental("grouping() without grouping sets")
        asked = [
            [position for position, item in enumerate(self._expressions) if canonical(item) == text]
            for text in (canonical(self._renderer.render(item)) for item in node.expressions)
        ]
        if not all(asked):
            raise FlowError("grouping() takes GROUP BY expressions", where=self._renderer.query.location(node))
        positions = [found[0] for found in asked] or list(range(len(self._names)))
        cases: list[str] = []
        for number, members in enumerate(self._sets):
            bits = 0
            for position in positions:
                bits = bits * 2 + (position not in members)
            cases.append(f"WHEN {number} THEN {bits}")
        target = "TINYINT" if function_name(node) == "grouping" else "BIGINT"
        return Expression("CAST(CASE ", Column(self._set_number), f" {' '.join(cases)} END AS {target})")


def _aggregate(node: Node, keys: tuple[str, ...], calls: tuple[AggregateCall, ...], context: Context) -> Node:
    """The Aggregate; where all calls are DISTINCT over the same arguments, duplicates go first."""
    arguments = {call.arguments for call in calls}
    if not calls or not all(call.distinct and call.where is None for call in calls) or len(arguments) != 1:
        return Aggregate(node, keys, calls)
    node, names = context.joins.with_columns(node, calls[0].arguments, "value")
    distinct = Aggregate(node, tuple(dict.fromkeys((*keys, *names))))
    return Aggregate(
        distinct, keys, tuple(AggregateCall(call.name, call.function, tuple(map(Column, names))) for call in calls)
    )
