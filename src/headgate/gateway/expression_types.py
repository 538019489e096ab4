"""The types of a query's expressions as PostgreSQL has them, as far as they can be told from its tables and literals."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from sqlglot import exp
from sqlglot.dialects.postgres import Postgres
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.annotate_types import annotate_types
from sqlglot.optimizer.scope import traverse_scope

from headgate.gateway.scoped_columns import TYPES, ColumnType, ScopedColumns

INTEGERS = exp.DataType.INTEGER_TYPES
FRACTIONS = (TYPES.DECIMAL, TYPES.DOUBLE, TYPES.FLOAT)
DATES = (TYPES.DATE, TYPES.DATE32)
LOCAL = (TYPES.TIMESTAMP, TYPES.TIMESTAMPNTZ, TYPES.DATETIME)
"""timestamp without time zone."""
INSTANTS = (TYPES.TIMESTAMPTZ, TYPES.TIMESTAMPLTZ)
"""timestamp with time zone."""
_MATTERS = (
    exp.Div,
    exp.Sub,
    exp.Add,
    exp.Round,
    exp.Trunc,
    exp.Ceil,
    exp.Floor,
    exp.TimestampTrunc,
    exp.AtTimeZone,
    exp.Extract,
    exp.ArrayContainsAll,
    exp.ArrayContainedBy,
    exp.Bracket,
    exp.GenerateSeries,
    exp.Cast,
    exp.Anonymous,
)
"""Expressions whose meaning depends on types."""
_INT_MOST, _BIGINT_MOST = 2**31 - 1, 2**63 - 1


def typed(
    tree: exp.Expr, column_type: ColumnType, table_name: Callable[[exp.Table], str], *, always: bool = False
) -> exp.Expr:
    """The tree, whose expressions know their types where those can be told; else only if that matters in it."""
    if not always and tree.find(*_MATTERS) is None:
        return tree
    columns = ScopedColumns(column_type, table_name, _annotated)
    try:
        for scope in traverse_scope(tree):
            for column in scope.find_all(exp.Column):
                if column.type is None or column.type.this == TYPES.UNKNOWN:
                    found = columns.find(scope, column)
                    column.type = found or TYPES.UNKNOWN
                    if found is None and columns.is_absent(scope):
                        column.meta["absent"] = True
            _annotated(scope.expression)
        return _annotated(tree)
    except (SqlglotError, ValueError):
        return tree


def _annotated(node: exp.Expr) -> exp.Expr:
    return annotate_types(node, expression_metadata=_METADATA, dialect="postgres", overwrite_types=False)


def is_of(node: exp.Expr, kinds: Collection[object]) -> bool:
    """Whether an expression's type is known to be one of these."""
    found = node.unnest().type
    return found is not None and found.this in kinds


def is_unknown(node: exp.Expr) -> bool:
    """Whether nothing is known of an expression's type; that of a NULL or a text in quotes is what its place needs."""
    inner = node.unnest()
    found = inner.type
    return not (isinstance(inner, exp.Null) or is_text(inner)) and (found is None or found.this == TYPES.UNKNOWN)


def is_interval(node: exp.Expr) -> bool:
    inner = node.unnest()
    return isinstance(inner, exp.Interval) or is_of(inner, (TYPES.INTERVAL,))


def is_text(node: exp.Expr) -> bool:
    """Whether it is a text in quotes."""
    return isinstance(node, exp.Literal) and node.is_string


def _of_literal(node: exp.Expr) -> Any:
    if node.is_string:
        return TYPES.VARCHAR
    if not node.is_int:
        return TYPES.DECIMAL
    size = abs(int(node.name))
    return TYPES.INT if size <= _INT_MOST else TYPES.BIGINT if size <= _BIGINT_MOST else TYPES.DECIMAL


def _of_sum(node: exp.Expr) -> Any:
    given = node.this.expressions[0] if isinstance(node.this, exp.Distinct) else node.this
    if is_of(given, (TYPES.BIGINT,)):
        return TYPES.DECIMAL
    return TYPES.BIGINT if is_of(given, INTEGERS) else given.type


def _of_average(node: exp.Expr) -> Any:
    return TYPES.DOUBLE if is_of(node.this, (TYPES.DOUBLE, TYPES.FLOAT)) else TYPES.DECIMAL


def _of_rounded(node: exp.Expr) -> Any:
    """round, trunc, ceil and floor: numeric of numeric, else double."""
    if is_of(node.this, (*INTEGERS, TYPES.DOUBLE, TYPES.FLOAT)):
        return TYPES.DOUBLE
    return TYPES.DECIMAL if is_of(node.this, (TYPES.DECIMAL,)) else TYPES.UNKNOWN


def _of_power(node: exp.Expr) -> Any:
    return TYPES.DECIMAL if any(is_of(each, (TYPES.DECIMAL,)) for each in node.iter_expressions()) else TYPES.DOUBLE


def _of_quotient(node: exp.Expr) -> Any:
    left, right = node.args["this"], node.expression
    if is_interval(left):
        return TYPES.INTERVAL
    if is_unknown(left) or is_unknown(right):
        return TYPES.UNKNOWN
    return _wider(left, right)


def _wider(left: exp.Expr, right: exp.Expr) -> Any:
    for kind in (TYPES.DOUBLE, TYPES.FLOAT, TYPES.DECIMAL, TYPES.BIGINT):
        if is_of(left, (kind,)) or is_of(right, (kind,)):
            return TYPES.DOUBLE if kind == TYPES.FLOAT else kind
    return TYPES.INT if is_of(left, INTEGERS) or is_of(right, INTEGERS) else TYPES.UNKNOWN


def _of_shift(node: exp.Expr) -> Any:
    """a + b and a - b."""
    left, right = node.args["this"], node.expression
    for when, other in ((left, right), (right, left)):
        if is_of(when, DATES):
            if is_of(other, DATES):
                return TYPES.INT
            return TYPES.TIMESTAMP if is_interval(other) else TYPES.DATE
        if is_of(when, (*LOCAL, *INSTANTS)):
            return TYPES.INTERVAL if is_of(other, (*LOCAL, *INSTANTS, *DATES)) else when.unnest().type
    if is_interval(left) and is_interval(right):
        return TYPES.INTERVAL
    return TYPES.UNKNOWN if is_unknown(left) or is_unknown(right) else _wider(left, right)


def _of_truncated(node: exp.Expr) -> Any:
    given = node.args["this"]
    return TYPES.TIMESTAMP if is_of(given, LOCAL) else TYPES.TIMESTAMPTZ


def _of_series(node: exp.Expr) -> Any:
    start, end = node.args["start"], node.args["end"]
    if is_of(start, DATES):
        return TYPES.TIMESTAMPTZ
    if is_of(start, (*LOCAL, *INSTANTS)):
        return start.unnest().type
    return TYPES.UNKNOWN if is_unknown(start) or is_unknown(end) else _wider(start, end)


def _of_zoned(node: exp.Expr) -> Any:
    given = node.args["this"]
    return TYPES.TIMESTAMPTZ if is_of(given, LOCAL) else TYPES.TIMESTAMP if is_of(given, INSTANTS) else TYPES.UNKNOWN


def _rule(kind_of: Callable[[exp.Expr], Any]) -> dict[str, Any]:
    return {"annotator": lambda annotator, node: annotator._set_type(node, kind_of(node))}


_METADATA: dict[type[exp.Expr], dict[str, Any]] = {
    **Postgres.EXPRESSION_METADATA,
    exp.Literal: _rule(_of_literal),
    exp.Sum: _rule(_of_sum),
    exp.Avg: _rule(_of_average),
    **dict.fromkeys((exp.Round, exp.Trunc, exp.Ceil, exp.Floor), _rule(_of_rounded)),
    exp.Pow: _rule(_of_power),
    exp.Div: _rule(_of_quotient),
    **dict.fromkeys((exp.Add, exp.Sub), _rule(_of_shift)),
    exp.TimestampTrunc: _rule(_of_truncated),
    exp.AtTimeZone: _rule(_of_zoned),
    **dict.fromkeys((exp.GenerateSeries, exp.ExplodingGenerateSeries), _rule(_of_series)),
    exp.Count: {"returns": TYPES.BIGINT},
    exp.ArraySize: {"returns": TYPES.INT},
    exp.Extract: {"returns": TYPES.DECIMAL},
    exp.JSONExtractScalar: {"returns": TYPES.TEXT},
    exp.JSONExtract: {"returns": TYPES.JSON},
    exp.CurrentTimestamp: {"returns": TYPES.TIMESTAMPTZ},
    exp.UnixToTime: {"returns": TYPES.TIMESTAMPTZ},
}
"""sqlglot's, but for what PostgreSQL has otherwise."""
