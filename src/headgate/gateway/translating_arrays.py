"""Arrays of PostgreSQL in Spark's words: ANY and ALL, array_agg, and functions whose results differ at the edges."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from sqlglot import exp

from headgate.gateway.expression_types import is_of, is_text
from headgate.gateway.parameters import array_of
from headgate.gateway.problems import NOT_SUPPORTED, WireProblem
from headgate.gateway.scoped_columns import TYPES

ArrayRule = Callable[[exp.Expr], exp.Expr]


def _called(name: str, *arguments: exp.Expr) -> exp.Expr:
    return exp.Anonymous(this=name, expressions=list(arguments))


def _member(node: exp.Expr) -> exp.Expr:
    """x = ANY(array) and x <> ALL(array)."""
    among = node.expression
    if isinstance(among, exp.Anonymous) and among.name.upper() == "ALL" and len(among.expressions) == 1:
        among = exp.All(this=among.expressions[0])
    if not isinstance(among, exp.Any | exp.All):
        return node
    wanted = exp.Any if isinstance(node, exp.EQ) else exp.All
    values = array_of(among.this.unnest())
    if not (isinstance(node, exp.EQ | exp.NEQ) and isinstance(among, wanted)) or isinstance(
        values, exp.Select | exp.SetOperation
    ):
        raise WireProblem(
            NOT_SUPPORTED,
            "ANY and ALL are translated as = ANY (array) and <> ALL (array) only",
            hint="use IN, NOT IN or EXISTS",
        )
    if isinstance(values, exp.Array):
        if not values.expressions:
            return exp.Boolean(this=wanted is exp.All)
        found: exp.Expr = exp.In(this=node.this, expressions=values.expressions)
    else:
        found = _called("ARRAY_CONTAINS", values, node.this)
    return found if wanted is exp.Any else exp.not_(found)


def _contains(node: exp.Expr) -> exp.Expr:
    """a @> b, a <@ b: of arrays."""
    whole, part = node.args["this"], node.expression
    if isinstance(node, exp.ArrayContainedBy):
        whole, part = part, whole
    if not (is_of(whole, (TYPES.ARRAY,)) or is_of(part, (TYPES.ARRAY,))):
        raise WireProblem(NOT_SUPPORTED, "@> and <@ are translated for arrays only")
    return exp.EQ(this=_called("SIZE", _called("ARRAY_EXCEPT", part, whole)), expression=exp.Literal.number(0))


def _length(node: exp.Expr) -> exp.Expr:
    """array_length(a, 1): NULL of an empty array."""
    dimension = node.args.get("expression")
    if dimension is not None and dimension.name != "1":
        raise WireProblem(NOT_SUPPORTED, "arrays have one dimension here")
    return _called("NULLIF", _called("SIZE", node.this), exp.Literal.number(0))


def _position(node: exp.Expr) -> exp.Expr:
    """array_position(a, x): NULL if it is not there."""
    found = _called("ARRAY_POSITION", node.this, node.expression)
    return _called("NULLIF", exp.cast(found, "int"), exp.Literal.number(0))


def _split(node: exp.Expr) -> exp.Expr:
    """string_to_array(text, 'delimiter')."""
    delimiter = node.expression
    if not is_text(delimiter) or not delimiter.name or node.args.get("null") is not None:
        raise WireProblem(
            NOT_SUPPORTED, "string_to_array is translated with a delimiter in quotes, and without a third value"
        )
    pattern = re.escape(delimiter.name)
    return _called("SPLIT", node.this, exp.Literal.string(pattern))


def _collected(node: exp.Expr) -> exp.Expr:
    """array_agg(x [ORDER BY …]) [FILTER (WHERE …)]: with its NULLs, in its order, and NULL of no rows."""
    where, aggregate = None, node
    if isinstance(node, exp.Filter):
        if not isinstance(node.this, exp.ArrayAgg):
            return node
        where, aggregate = node.expression, node.this
    elif isinstance(node.parent, exp.Filter):
        return node  # with its filter
    if isinstance(node.parent, exp.Window):
        raise WireProblem(NOT_SUPPORTED, "array_agg is not translated as a window function")
    value, order = aggregate.this, list[exp.Expr]()
    if isinstance(value, exp.Order):
        value, order = value.this, value.expressions
    is_distinct = isinstance(value, exp.Distinct)
    value = value.expressions[0] if is_distinct else value
    keys = [exp.alias_(each.this, f"k{place}") for place, each in enumerate(order)]
    rows = _called("STRUCT", exp.alias_(value, "x"), *keys)
    found = _called("COLLECT_SET" if is_distinct else "COLLECT_LIST", rows)
    if where is not None:
        found = exp.Filter(this=found, expression=where)
    ordered = _called("ARRAY_SORT", found.copy(), _comparison(order)) if order else found.copy()
    values = _called("TRANSFORM", ordered, _lambda(exp.column("x", "e"), "e"))
    return (
        exp.Case().when(exp.EQ(this=_called("SIZE", found), expression=exp.Literal.number(0)), exp.Null()).else_(values)
    )


def _lambda(body: exp.Expr, *names: str) -> exp.Expr:
    return exp.Lambda(this=body, expressions=[exp.to_identifier(name) for name in names])


def _comparison(order: list[exp.Expr]) -> exp.Expr:
    """(a, b) -> -1, 0 or 1, by every key in turn."""
    case = exp.Case()
    for place, each in enumerate(order):
        left, right = exp.column(f"k{place}", "a"), exp.column(f"k{place}", "b")
        is_down, nulls_first = bool(each.args.get("desc")), bool(each.args.get("nulls_first"))
        first, last = exp.Neg(this=exp.Literal.number(1)), exp.Literal.number(1)
        case = case.when(
            exp.and_(left.copy().is_(exp.Null()), right.copy().is_(exp.Null()).not_()),
            (first if nulls_first else last).copy(),
        )
        case = case.when(
            exp.and_(right.copy().is_(exp.Null()), left.copy().is_(exp.Null()).not_()),
            (last if nulls_first else first).copy(),
        )
        case = case.when(exp.LT(this=left.copy(), expression=right.copy()), (last if is_down else first).copy())
        case = case.when(exp.GT(this=left.copy(), expression=right.copy()), (first if is_down else last).copy())
    return _lambda(case.else_(exp.Literal.number(0)), "a", "b")


def _element(node: exp.Expr) -> exp.Expr:
    """array[n], which is NULL past the ends; array[m:n]."""
    given, index = node.this, node.expressions[0]
    if len(node.expressions) != 1 or is_text(index) or is_of(given, (TYPES.MAP, TYPES.STRUCT)):
        return node
    if not isinstance(index, exp.Slice):
        return _called("GET", given.unnest(), exp.Sub(this=exp.Paren(this=index), expression=exp.Literal.number(1)))
    if index.args.get("step") is not None:
        raise WireProblem(NOT_SUPPORTED, "a part of an array has no steps here")
    one = exp.Literal.number(1)
    low, high = index.args.get("this"), index.args.get("expression")
    begin = one.copy() if low is None else _called("GREATEST", low, one.copy())
    end = _called("SIZE", given.copy()) if high is None else exp.Paren(this=high)
    length = exp.Add(this=exp.Sub(this=end, expression=begin.copy()), expression=one)
    return _called("SLICE", given, begin, _called("GREATEST", length, exp.Literal.number(0)))


def _unnested(node: exp.Expr) -> exp.Expr:
    """unnest(array) in FROM."""
    if not isinstance(node.parent, exp.From | exp.Join):
        return node
    alias = node.args.get("alias")
    if len(node.expressions) != 1 or node.args.get("offset"):
        raise WireProblem(
            NOT_SUPPORTED,
            "UNNEST is translated of one array, without ordinality",
            hint="SET dialect = spark, and use posexplode or arrays_zip",
        )
    table = alias.name if alias is not None else "unnest"
    column = alias.columns[0].name if alias is not None and alias.columns else table
    select = exp.select(exp.alias_(_called("EXPLODE", node.expressions[0]), column, quoted=True))
    return exp.Subquery(this=select, alias=exp.TableAlias(this=exp.to_identifier(table, quoted=True)))


ARRAY_RULES: Mapping[type[exp.Expr], ArrayRule] = {
    exp.EQ: _member,
    exp.NEQ: _member,
    **dict.fromkeys((exp.LT, exp.LTE, exp.GT, exp.GTE, exp.Like, exp.ILike), _member),
    exp.ArrayContainsAll: _contains,
    exp.ArrayContainedBy: _contains,
    exp.ArraySize: _length,
    exp.ArrayPosition: _position,
    exp.StringToArray: _split,
    exp.ArrayAgg: _collected,
    exp.Filter: _collected,
    exp.Unnest: _unnested,
    exp.Bracket: _element,
}
