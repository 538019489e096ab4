"""Queries that only pick columns of one table's rows by values: such rows can be read without planning anything.

    SELECT ticket, revenue AS r FROM store_sales WHERE ticket IN (7, 9) AND item_sk = 3

Columns as they are, and equality of a column with whole numbers and plain texts: nothing that has to be evaluated. Whether the
table has such columns, and of which types, is for the reader to see; whatever else a query says, Spark says what it means.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sqlglot import exp

from headgate.sql.names import folded

Value = int | str


@dataclass(frozen=True, slots=True)
class Picks:
    """What a query picks; names are folded, but for those that the answer's columns get."""

    columns: tuple[tuple[str, str], ...] | None
    """Each column and its name in the answer; None is what `*` stands for."""
    conditions: tuple[tuple[str, tuple[Value, ...]], ...]
    """Each column and the values of which it has to equal one; a row is picked when all hold."""


class _Other(Exception):
    """The query is of another kind."""


def picks_of(tree: exp.Expr, text: str) -> Picks | None:
    """What the query picks; None for a query of another kind."""
    # Escapes in texts are Spark's to read.
    if not isinstance(tree, exp.Select) or "\\" in text or _said(tree) != {"expressions", "from_", "where"}:
        return None
    table = tree.args["from_"].this
    if not isinstance(table, exp.Table) or not _said(table) <= {"this", "db", "alias"}:
        return None
    alias = table.args.get("alias")
    if alias is not None and _said(alias) != {"this"}:
        return None
    called = folded(table.alias_or_name)
    try:
        conditions = tuple(_condition(node, called) for node in _all_of(tree.args["where"].this))
        if len(tree.expressions) == 1 and isinstance(tree.expressions[0], exp.Star) and not _said(tree.expressions[0]):
            return Picks(None, conditions)
        return Picks(tuple(_output(node, called) for node in tree.expressions), conditions)
    except _Other:
        return None


def _said(node: exp.Expr) -> set[str]:
    return {name for name, value in node.args.items() if value}


def _all_of(node: exp.Expr) -> Iterator[exp.Expr]:
    if isinstance(node, exp.Paren):
        yield from _all_of(node.this)
    elif isinstance(node, exp.And):
        yield from _all_of(node.this)
        yield from _all_of(node.expression)
    else:
        yield node


def _condition(node: exp.Expr, table: str) -> tuple[str, tuple[Value, ...]]:
    if isinstance(node, exp.In) and _said(node) == {"this", "expressions"}:
        return _column(node.this, table), tuple(_value(each) for each in node.expressions)
    if isinstance(node, exp.EQ):
        sides = (node.this, node.expression) if isinstance(node.this, exp.Column) else (node.expression, node.this)
        return _column(sides[0], table), (_value(sides[1]),)
    raise _Other


def _output(node: exp.Expr, table: str) -> tuple[str, str]:
    inner = node.this if isinstance(node, exp.Alias) else node
    return _column(inner, table), node.alias if isinstance(node, exp.Alias) else inner.name


def _column(node: exp.Expr, table: str) -> str:
    if not isinstance(node, exp.Column) or not isinstance(node.this, exp.Identifier):
        raise _Other
    if not _said(node) <= {"this", "table"} or folded(node.table or table) != table:
        raise _Other
    return folded(node.name)


def _value(node: exp.Expr) -> Value:
    sign, inner = (-1, node.this) if isinstance(node, exp.Neg) else (1, node)
    if not isinstance(inner, exp.Literal):
        raise _Other
    if inner.is_string and sign == 1:
        return str(inner.this)
    if inner.is_string or not (inner.this.isascii() and inner.this.isdigit()):
        raise _Other
    return sign * int(inner.this)
