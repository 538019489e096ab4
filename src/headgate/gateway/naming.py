"""The names that PostgreSQL gives to columns that a query does not name."""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

_UNNAMED = "?column?"
WRITTEN_NAME = "written_name"
"""Where a function keeps the name that the query calls it by."""


def name_columns(tree: exp.Expr) -> None:
    """Gives the columns of the answer the names that PostgreSQL gives them."""
    select = tree.find(exp.Select) if isinstance(tree, exp.SetOperation) else tree
    if not isinstance(select, exp.Select):
        return
    named = []
    for each in select.expressions:
        name = _implied_name(each)
        named.append(each if name is None else exp.alias_(each, name, quoted=True, copy=False))
    select.set("expressions", named)


def _implied_name(node: exp.Expr) -> str | None:
    """The name of a column that the query does not name; None for one that it does."""
    written = node.meta_get(WRITTEN_NAME)
    if written is not None and not isinstance(node, exp.Alias | exp.Column):
        return str(written).lower()
    match node:
        case exp.Alias() | exp.Column() | exp.Star() | exp.Aliases():
            return None
        case exp.Cast():
            inner = None if isinstance(node.this.unnest(), exp.Cast) else _implied_name(node.this)
            if isinstance(node.this, exp.Column):
                return node.this.name
            return inner if inner is not None and inner != _UNNAMED else _type_name(node.to)
        case exp.CurrentTimestamp():
            return "now"
        case exp.Interval():
            return "interval"
        case exp.AtTimeZone():
            return "timezone"
        case exp.Bracket():
            return _implied_name(node.this) or node.this.output_name
        case exp.Paren():
            return _implied_name(node.this)
        case exp.Pad():
            return "lpad" if node.args.get("is_left") else "rpad"
        case exp.Trim():
            return {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(str(node.args.get("position") or ""), "btrim")
        case (
            exp.RegexpLike() | exp.RegexpILike() | exp.ArrayContainsAll() | exp.ArrayContainedBy() | exp.ArrayOverlaps()
        ):
            return _UNNAMED
        case exp.JSONExtract() | exp.JSONExtractScalar() | exp.JSONBExtract() | exp.JSONBExtractScalar():
            return _UNNAMED
        case exp.Case():
            return "case"
        case exp.Dot() if isinstance(node.expression, exp.Func):
            return _implied_name(node.expression)
        case exp.Dot():
            return str(node.expression.name)
        case exp.WithinGroup() | exp.Filter() | exp.Window():
            return _implied_name(node.this)
        case exp.Subquery():
            first = node.this.expressions[0] if isinstance(node.this, exp.Select) and node.this.expressions else None
            return _UNNAMED if first is None else _implied_name(first) or first.output_name or _UNNAMED
        case exp.Anonymous():
            return node.name.lower()
        case exp.Func() if not isinstance(node, exp.Connector):
            return _FUNCTION_NAMES.get(type(node)) or node.sql_names()[0].lower()
    return _UNNAMED


_FUNCTION_NAMES: Mapping[type[exp.Expr], str] = {
    exp.GroupConcat: "string_agg",
    exp.ArrayAgg: "array_agg",
    exp.TimestampTrunc: "date_trunc",
    exp.Explode: "unnest",
    exp.Array: "array",
    exp.Extract: "extract",
    exp.CurrentVersion: "version",
    exp.StrPosition: "position",
    exp.ArraySize: "array_length",
    exp.LogicalAnd: "bool_and",
    exp.LogicalOr: "bool_or",
}
_TYPE_NAMES = {
    "boolean": "bool",
    "smallint": "int2",
    "int": "int4",
    "integer": "int4",
    "bigint": "int8",
    "real": "float4",
    "double precision": "float8",
    "decimal": "numeric",
    "char": "bpchar",
    "character": "bpchar",
    "character varying": "varchar",
    "timestamp with time zone": "timestamptz",
}


def _type_name(kind: exp.Expr) -> str:
    """As PostgreSQL calls a type inside: float8, not double precision."""
    written = kind.sql(dialect="postgres").lower().rpartition(".")[2].partition("(")[0].removesuffix("[]").strip()
    return _TYPE_NAMES.get(written, written)
