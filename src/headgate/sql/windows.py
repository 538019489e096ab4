"""Window functions: one Window node per list of partition columns.

Rows that ORDER BY leaves equal are told apart by the full row where the function's result would depend on it. Functions
of a frame's first or last row are rewritten so that this tie-break cannot change which rows the frame holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from headgate.dataflow.expression import Column, Expression, joined
from headgate.dataflow.graph import Node, Window, WindowCall
from headgate.errors import FlowError
from headgate.sql.context import Context
from headgate.sql.expressions import Renderer, own_nodes
from headgate.sql.functions import AGGREGATES, RANK_LIKE, ROW_ORDER, VALUE_OF_FRAME, function_name
from headgate.sql.names import folded
from headgate.sql.scope import NotIncremental

WHOLE = "ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING"
SO_FAR = "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"


@dataclass(frozen=True)
class _Specification:
    partition: tuple[exp.Expr, ...]
    order: tuple[exp.Ordered, ...]
    frame: str | None


def find_windows(nodes: Sequence[exp.Expr]) -> list[exp.Window]:
    """The window calls in these expressions."""
    return [part for node in nodes for part in own_nodes(node) if isinstance(part, exp.Window)]


class WindowLowering:
    """Turns window calls into nodes and registers their columns in the renderer."""

    def __init__(self, context: Context, renderer: Renderer, select: exp.Select, carried: Sequence[str]) -> None:
        self._context = context
        self._renderer = renderer
        self._carried = tuple(carried)
        self._named: dict[str, exp.Window] = {folded(item.name): item for item in select.args.get("windows") or ()}

    def specification_nodes(self, windows: Sequence[exp.Window]) -> list[exp.Expr]:
        """Expressions of named windows in use, which stand outside the calls themselves."""
        return [
            part
            for window in windows
            if (base := self._base(window)) is not None
            for part in [*(base.args.get("partition_by") or ()), *_ordered(base)]
        ]

    def lower(self, node: Node, windows: Sequence[exp.Window]) -> Node:
        grouped: dict[tuple[str, ...], list[WindowCall]] = {}
        for window in windows:
            node, partition, call = self._call(node, window)
            grouped.setdefault(partition, []).append(call)
            self._renderer.replacements[id(window)] = Column(call.name)
        for partition, calls in grouped.items():
            node = Window(node, partition, tuple(calls))
        return node

    def _base(self, window: exp.Window) -> exp.Window | None:
        name = window.args.get("alias")
        if name is None:
            return None
        base = self._named.get(folded(name.name))
        if base is None:
            raise FlowError(
                f"unknown window '{name.name}'",
                where=self._renderer.query.location(window),
                hint="define it: WINDOW name AS (PARTITION BY …)",
            )
        return base

    def _specification(self, window: exp.Window) -> _Specification:
        base = self._base(window)
        partition = list(window.args.get("partition_by") or ())
        order = _ordered(window)
        frame = self._frame(window)
        if base is not None:
            partition = partition or list(base.args.get("partition_by") or ())
            order = order or _ordered(base)
            frame = frame or self._frame(base)
        return _Specification(tuple(partition), tuple(order), frame)

    def _frame(self, window: exp.Window) -> str | None:
        if window.args.get("spec") is None:
            return None
        query = self._renderer.query
        _, last = query.span(window)
        for index in range(last, -1, -1):
            if query.tokens[index].token_type in (TokenType.ROWS, TokenType.RANGE):
                return query.slice(index, last - 1, []).upper()
        raise NotIncremental("this window frame is not incremental")

    def _call(self, node: Node, window: exp.Window) -> tuple[Node, tuple[str, ...], WindowCall]:
        specification = self._specification(window)
        inner, ignore_nulls, condition = _unpacked(window.this)
        function = function_name(inner)
        if function is None or function not in AGGREGATES | RANK_LIKE | ROW_ORDER | VALUE_OF_FRAME:
            raise NotIncremental(f"the window function {function or 'here'}() depends on the order of rows")
        node, partition = self._columns(node, specification.partition)
        partition = tuple(dict.fromkeys(self._carried + partition))
        if not partition:
            raise NotIncremental("a window without PARTITION BY depends on all rows")
        node, text = self._function(node, inner, function, ignore_nulls, condition)
        node, order_columns = self._columns(node, [item.this for item in specification.order])
        order = [
            Expression(Column(name), self._direction(item))
            for name, item in zip(order_columns, specification.order, strict=True)
        ]
        frame, tie_break = specification.frame, False
        if function in VALUE_OF_FRAME:
            partition, order, frame = _of_frame(function, ignore_nulls, partition, order_columns, order, frame)
            tie_break = True
        elif function in ROW_ORDER:
            tie_break = True
        elif function not in RANK_LIKE:
            tie_break = frame is not None and frame.startswith("ROWS") and frame != WHOLE
        name = self._context.names.fresh(function)
        return node, partition, WindowCall(name, text, joined(", ", order) or None, frame, tie_break)

    def _columns(self, node: Node, expressions: Sequence[exp.Expr]) -> tuple[Node, tuple[str, ...]]:
        rendered = [self._renderer.local(item) for item in expressions]
        return self._context.joins.with_columns(node, rendered, "window")

    def _direction(self, item: exp.Ordered) -> str:
        query = self._renderer.query
        (_, inner), (_, last) = query.span(item.this), query.span(item)
        return f" {query.slice(inner + 1, last, [])}" if last > inner else ""

    def _function(
        self, node: Node, call: exp.Expr, function: str, ignore_nulls: str, condition: exp.Expr | None
    ) -> tuple[Node, Expression]:
        arguments: list[str] = []
        for argument in call.expressions:
            if isinstance(argument, exp.Distinct):
                raise NotIncremental("DISTINCT in a window function is not incremental")
            if isinstance(argument, exp.Star):
                arguments.append("*")
                continue
            rendered = self._renderer.local(argument)
            if rendered.columns:
                node, (name,) = self._context.joins.with_columns(node, [rendered], "window")
                arguments.append(Column(name))
            else:
                arguments.append(rendered)
        text = Expression(function, "(", joined(", ", arguments), ")")
        if condition is not None:
            node, (name,) = self._context.joins.with_columns(node, [self._renderer.local(condition)], "window")
            text = Expression(text, " FILTER (WHERE ", Column(name), ")")
        return node, Expression(text, " ", ignore_nulls) if ignore_nulls else text


def _ordered(window: exp.Window) -> list[exp.Ordered]:
    order = window.args.get("order")
    return list(order.expressions) if order is not None else []


def _unpacked(node: exp.Expr) -> tuple[exp.Expr, str, exp.Expr | None]:
    """The called function, its NULL treatment and its FILTER condition."""
    treatment, condition = "", None
    while isinstance(node, (exp.IgnoreNulls, exp.RespectNulls, exp.Filter)):
        if isinstance(node, exp.Filter):
            condition = node.expression.this
        elif isinstance(node, exp.IgnoreNulls):
            treatment = "IGNORE NULLS"
        node = node.this
    arguments = node.expressions
    if len(arguments) == 1 and isinstance(arguments[0], (exp.IgnoreNulls, exp.RespectNulls)):
        treatment = "IGNORE NULLS" if isinstance(arguments[0], exp.IgnoreNulls) else ""
        node.set("expressions", [arguments[0].this])
    return node, treatment, condition


def _of_frame(
    function: str,
    ignore_nulls: str,
    partition: tuple[str, ...],
    order_columns: tuple[str, ...],
    order: list[Expression],
    frame: str | None,
) -> tuple[tuple[str, ...], list[Expression], str]:
    """A frame of rows that holds the same value as the frame of peers that was asked for."""
    if frame is not None and frame.startswith("ROWS"):
        return partition, order, frame
    if not order or (frame is not None and frame == WHOLE.replace("ROWS", "RANGE")):
        return partition, order, WHOLE
    if frame in (None, SO_FAR.replace("ROWS", "RANGE")) and not ignore_nulls:
        if function in ("first", "first_value", "any_value"):
            return partition, order, SO_FAR
        if function in ("last", "last_value"):
            return tuple(dict.fromkeys(partition + order_columns)), [], WHOLE
    raise NotIncremental(f"{function}() over a RANGE frame depends on the order of equal rows")
