"""Numbers and texts of PostgreSQL in Spark's words: where the two round, divide, cut or count otherwise.

A rule that depends on a type refuses an expression whose type cannot be told, unless one form is right for every type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sqlglot import exp

from headgate.gateway.expression_types import FRACTIONS, INTEGERS, is_interval, is_of, is_text, is_unknown
from headgate.gateway.problems import NOT_SUPPORTED, WireProblem
from headgate.gateway.scoped_columns import TYPES

ValueRule = Callable[[exp.Expr], exp.Expr]

_WIDE = (TYPES.BIGINT, TYPES.UBIGINT)
_DOUBLES = (TYPES.DOUBLE, TYPES.FLOAT)
_EXACT = exp.Literal.number(2**53)
"""From here on a double is a whole number."""


def _called(name: str, *arguments: exp.Expr) -> exp.Expr:
    return exp.Anonymous(this=name, expressions=[each.copy() for each in arguments])


def _number(value: int) -> exp.Expr:
    return exp.Literal.number(value)


def constant_of(node: exp.Expr | None) -> int | None:
    """The value of a whole number that is written in the query."""
    inner = None if node is None else node.unnest()
    if isinstance(inner, exp.Neg):
        found = constant_of(inner.this)
        return None if found is None else -found
    return int(inner.name) if isinstance(inner, exp.Literal) and inner.is_int else None


def _require_types(what: str, *nodes: exp.Expr) -> None:
    """Refuses expressions of unknown types; of a column that no table has Spark says so."""
    for node in nodes:
        if is_unknown(node) and not any(each.meta_get("absent") for each in node.find_all(exp.Column)):
            said = node.sql(dialect="postgres")
            raise WireProblem(
                NOT_SUPPORTED,
                f"{what} depends on the type of {said}, which is not known here",
                hint=f"cast it, as in ({said})::int or ({said})::numeric",
            )


def _divided(node: exp.Expr) -> exp.Expr:
    """Whole numbers divide to whole numbers, as wide as they are."""
    left, right = node.args["this"], node.expression
    if is_interval(left) or any(is_of(each, FRACTIONS) for each in (left, right)):
        return node
    _require_types("division", left, right)
    if not all(is_of(each, INTEGERS) or isinstance(each.unnest(), exp.Null) or is_text(each) for each in (left, right)):
        return node
    made = exp.IntDiv(this=left, expression=right)
    return made if is_of(left, _WIDE) or is_of(right, _WIDE) else exp.cast(exp.Paren(this=made), "int")


def _rounded(node: exp.Expr) -> exp.Expr:
    """round(x): of a double to the even neighbour, of a numeric away from zero; round(x, digits) is of numerics."""
    if node.args.get("decimals") is not None:
        return node
    _require_types("round", node.this)
    return _called("RINT", node.this) if is_of(node.this, (*_DOUBLES, *INTEGERS)) else node


def _whole(node: exp.Expr) -> exp.Expr:
    """trunc, ceil and floor: a double of doubles and whole numbers, of numerics a numeric."""
    kind, given = type(node), node.this
    if node.args.get("decimals") is not None:
        raise WireProblem(NOT_SUPPORTED, "trunc with a number of digits is not translated", hint="use round or floor")
    name = "trunc" if kind is exp.Trunc else "ceil" if kind is exp.Ceil else "floor"
    _require_types(name, given)
    if is_of(given, (TYPES.DECIMAL,)):
        if kind is not exp.Trunc:
            return _called(name.upper(), given)
        is_negative = exp.LT(this=given.copy(), expression=_number(0))
        return _called("IF", is_negative, _called("CEIL", given), _called("FLOOR", given))
    if is_of(given, INTEGERS):
        return exp.cast(given, "double precision", dialect="postgres")
    made = exp.cast(given.copy(), "bigint") if kind is exp.Trunc else _called(name.upper(), given)
    small = exp.LT(this=_called("ABS", given), expression=_EXACT.copy())
    return _called("IF", small, exp.cast(made, "double precision", dialect="postgres"), given)


def _logarithm(node: exp.Expr) -> exp.Expr:
    """log(x) has the base 10."""
    return node if node.args.get("expression") is not None else _called("LOG10", node.this)


def whole_number(node: exp.Expr) -> exp.Expr:
    """A cast to a whole number, which rounds: a numeric away from zero, a double to the even neighbour."""
    given, to = node.this, node.args["to"]
    if is_of(given, (TYPES.DECIMAL,)):
        node.set("this", _called("ROUND", given))
    elif is_of(given, _DOUBLES):
        node.set("this", _called("RINT", given))
    elif is_unknown(given):
        kind = _called("TYPEOF", given)
        of_double = exp.cast(_called("RINT", exp.cast(given.copy(), "double precision", dialect="postgres")), to)
        of_decimal = exp.cast(_called("ROUND", exp.cast(given.copy(), "decimal(38, 18)")), to)
        return (
            exp.Case()
            .when(
                exp.In(this=kind.copy(), expressions=[exp.Literal.string(each) for each in ("double", "float")]),
                of_double,
            )
            .when(exp.Like(this=kind.copy(), expression=exp.Literal.string("decimal%")), of_decimal)
            .else_(node.copy())
        )
    return node


def cut(node: exp.Expr) -> exp.Expr:
    """A cast to varchar(n), which cuts, or to char, which keeps one character."""
    to = node.args["to"]
    size, text = to.expressions[0].this if to.expressions else None, exp.cast(node.this, "text")
    if to.this in (TYPES.CHAR, TYPES.NCHAR):
        size = size or _number(1)
        if size.name != "1":
            raise WireProblem(
                NOT_SUPPORTED, "char(n), which pads with blanks, is not translated", hint="use varchar(n), or rpad"
            )
    return text if size is None else _called("LEFT", text, size)


def _side(node: exp.Expr) -> exp.Expr:
    """left(x, n) and right(x, n): below 0 all but so many."""
    given, count = node.args["this"], node.expression
    known = constant_of(count)
    if known is None or known < 0:
        rest = _called(
            "GREATEST", exp.Add(this=_called("LENGTH", given), expression=exp.Paren(this=count.copy())), _number(0)
        )
        count = (
            rest if known is not None else _called("IF", exp.LT(this=count.copy(), expression=_number(0)), rest, count)
        )
    return _called("LEFT" if isinstance(node, exp.Left) else "RIGHT", given, count)


def _substring(node: exp.Expr) -> exp.Expr:
    """substring(x, start, length): what lies before the first character counts for the length, and is nothing."""
    start, length = node.args.get("start"), node.args.get("length")
    if start is None:
        return node
    if is_text(start):
        raise WireProblem(NOT_SUPPORTED, "substring with a pattern is not translated", hint="use regexp_replace")
    first = constant_of(start)
    if first is not None and first >= 1:
        return node
    begin = _called("GREATEST", start, _number(1))
    if length is None:
        return _called("SUBSTRING", node.this, begin)
    end = exp.Add(this=exp.Paren(this=start.copy()), expression=exp.Paren(this=length.copy()))
    rest = exp.Sub(this=end, expression=begin.copy())
    return _called("SUBSTRING", node.this, begin, _called("GREATEST", rest, _number(0)))


VALUE_RULES: Mapping[type[exp.Expr], ValueRule] = {
    exp.Div: _divided,
    exp.Round: _rounded,
    **dict.fromkeys((exp.Trunc, exp.Ceil, exp.Floor), _whole),
    exp.Log: _logarithm,
    **dict.fromkeys((exp.Left, exp.Right), _side),
    exp.Substring: _substring,
}
