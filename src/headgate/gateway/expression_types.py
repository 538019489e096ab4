"""The types of a query's expressions, as far as they can be told from its tables and literals."""

from __future__ import annotations

from collections.abc import Callable, Collection

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.annotate_types import annotate_types

TYPES = exp.DataType.Type
INTEGERS = exp.DataType.INTEGER_TYPES
DATES = (TYPES.DATE, TYPES.DATE32)
LOCAL = (TYPES.TIMESTAMP, TYPES.TIMESTAMPNTZ, TYPES.DATETIME)
"""timestamp without time zone."""
INSTANTS = (TYPES.TIMESTAMPTZ, TYPES.TIMESTAMPLTZ)
"""timestamp with time zone."""
_MATTERS = (
    exp.Div,
    exp.Sub,
    exp.Add,
    exp.TimestampTrunc,
    exp.AtTimeZone,
    exp.Extract,
    exp.ArrayContainsAll,
    exp.ArrayContainedBy,
    exp.Cast,
    exp.Anonymous,
)
"""Expressions whose meaning depends on types."""

ColumnType = Callable[[str, str], str | None]
"""The Spark type of a table's column."""


def typed(
    tree: exp.Expr, column_type: ColumnType, table_name: Callable[[exp.Table], str], *, always: bool = False
) -> exp.Expr:
    """The tree, whose expressions know their types where those can be told; else only if that matters in it."""
    if not always and tree.find(*_MATTERS) is None:
        return tree
    tables = list(tree.find_all(exp.Table))
    for column in tree.find_all(exp.Column):
        kinds = {
            found
            for table in tables
            if (not column.table or column.table in (table.alias_or_name, table.name))
            and (found := column_type(table_name(table), column.name)) is not None
        }
        if len(kinds) == 1:
            column.type = exp.DataType.build(kinds.pop(), dialect="spark")
    try:
        return annotate_types(tree, overwrite_types=False)
    except (SqlglotError, ValueError):
        return tree


def is_of(node: exp.Expr, kinds: Collection[object]) -> bool:
    """Whether an expression's type is known to be one of these."""
    found = node.unnest().type
    return found is not None and found.this in kinds


def is_interval(node: exp.Expr) -> bool:
    inner = node.unnest()
    return isinstance(inner, exp.Interval) or is_of(inner, (TYPES.INTERVAL,))


def is_text(node: exp.Expr) -> bool:
    """Whether it is a text in quotes."""
    return isinstance(node, exp.Literal) and node.is_string
