"""One node of a query after another, from PostgreSQL's meaning to Spark's: what sqlglot would leave as it is, or get wrong.

Types are known as far as they can be told; where the meaning depends on a type that is not, the query is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from sqlglot import exp

from headgate.gateway.expression_types import INTEGERS, is_text
from headgate.gateway.parameters import from_text, literal
from headgate.gateway.problems import NOT_SUPPORTED, WireProblem
from headgate.gateway.scoped_columns import TYPES
from headgate.gateway.translating_arrays import ARRAY_RULES
from headgate.gateway.translating_times import TIME_RULES, Zone
from headgate.gateway.translating_values import VALUE_RULES, cut, whole_number
from headgate.gateway.types import ARRAYS, column_of_text

Rule = Callable[[exp.Expr], exp.Expr]

_TRUE, _FALSE = ("t", "true", "y", "yes", "on", "1"), ("f", "false", "n", "no", "off", "0")
_GROUP = re.compile(r"(?<!\\)\((?!\?)")
_UNKNOWN = frozenset(
    getattr(TYPES, name)
    for name in ("USERDEFINED", "INET", "MONEY", "XML", "HSTORE", "TIME", "TIMETZ", "BIT", "NULLABLE", "OBJECT")
    if hasattr(TYPES, name)
)
"""Types that Spark has no counterpart of."""
_ANY_DIGITS = "decimal(38, 18)"
_LONG_SERIES = 10_000


def translated(node: exp.Expr, zone: Zone) -> exp.Expr:
    """The node as Spark has it, of the type that it had; what is below it is translated already."""
    kind, made = type(node), node
    if kind in TIME_RULES:
        made = TIME_RULES[kind](node, zone)
    rule = RULES.get(kind)
    if rule is not None and type(made) is kind:
        made = rule(made)
    if made.type is None:
        made.type = node.type
    return made


def _as_int(node: exp.Expr) -> exp.Expr:
    return exp.cast(node.copy(), "int") if not isinstance(node.parent, exp.Cast) else node


def _ranked(node: exp.Expr) -> exp.Expr:
    """Ranks are bigint."""
    if isinstance(node.this, exp.RowNumber | exp.Rank | exp.DenseRank):
        return exp.cast(node.copy(), "bigint")
    return node


def _replaced(node: exp.Expr) -> exp.Expr:
    """regexp_replace: without the flag g the first match only; \\1 in the replacement is a group of the match."""
    pattern, replacement, flags = node.expression, node.args["replacement"], node.args.get("modifiers")
    given = "" if flags is None else flags.name
    if not (is_text(pattern) and is_text(replacement)) or set(given) - {"g", "i"}:
        raise WireProblem(
            NOT_SUPPORTED,
            "regexp_replace is translated with a pattern and a replacement in quotes, and the flags g and i",
        )
    text, put = pattern.name, replacement.name
    if "g" not in given:
        if _GROUP.search(text) or "\\" in put:
            raise WireProblem(
                NOT_SUPPORTED, "regexp_replace of the first match is translated without groups", hint="add the flag 'g'"
            )
        text, put = f"(?s)^(.*?)(?:{text})", "$1" + _java(put)
    else:
        put = re.sub(r"\\(\d)", r"$\1", _java(put).replace("\\\\", "\\"))
    made = exp.Literal.string(f"(?i){text}" if "i" in given else text)
    return exp.Anonymous(this="REGEXP_REPLACE", expressions=[node.this, made, exp.Literal.string(put)])


def _java(replacement: str) -> str:
    return replacement.replace("\\", "\\\\").replace("$", "\\$")


def _encoded(node: exp.Expr) -> exp.Expr:
    """encode(bytes, form) and decode(text, form)."""
    form = node.args["charset"].name.lower()
    is_encode = isinstance(node, exp.Encode)
    if form == "hex":
        made = exp.Anonymous(this="HEX" if is_encode else "UNHEX", expressions=[node.this])
        return exp.Lower(this=made) if is_encode else made
    if form == "base64":
        return exp.Anonymous(this="BASE64" if is_encode else "UNBASE64", expressions=[node.this])
    raise WireProblem(NOT_SUPPORTED, f"the form {form} is not translated", hint="there are hex and base64")


def _similar(node: exp.Expr) -> exp.Expr:
    raise WireProblem(NOT_SUPPORTED, "SIMILAR TO is not translated", hint="use LIKE, or ~ with a regular expression")


def _cast(node: exp.Expr) -> exp.Expr:
    to, kind = node.args["to"], node.args["to"].this
    text = node.this.name if is_text(node.this) else None
    if kind in (TYPES.JSON, TYPES.JSONB, TYPES.UUID):
        return exp.cast(node.this, "text")
    if kind == TYPES.BOOLEAN and text is not None and text.strip().lower() in _TRUE + _FALSE:
        return exp.Boolean(this=text.strip().lower() in _TRUE)
    if kind == TYPES.VARBINARY and text is not None and text.startswith("\\x"):
        return exp.func("unhex", exp.Literal.string(text[2:]))
    if kind == TYPES.ARRAY and to.expressions:
        if to.expressions[0].this == TYPES.UINT:
            return exp.cast(node.this, "bigint[]")
        if text is not None and text.strip().startswith("{"):
            return _array_of_text(node, text)
    if kind == TYPES.DECIMAL and not to.expressions:
        # PostgreSQL's numeric has any number of digits.
        return exp.cast(node.this, _ANY_DIGITS)
    if kind in INTEGERS:
        return whole_number(node)
    if kind in (TYPES.VARCHAR, TYPES.NVARCHAR, TYPES.CHAR, TYPES.NCHAR):
        return cut(node)
    if kind in _UNKNOWN:
        raise WireProblem(
            "42704",
            f"there is no type {to.sql(dialect='postgres').lower()}",
            hint="for Spark's own types: SET dialect = spark",
        )
    return node


def _array_of_text(node: exp.Expr, text: str) -> exp.Expr:
    """'{1,2}'::int[]."""
    spark = node.args["to"].sql(dialect="spark").lower()
    element = column_of_text("", spark.removeprefix("array<").removesuffix(">")).oid
    try:
        values = from_text(text, ARRAYS.get(element, ARRAYS[25]))
    except ValueError:
        raise WireProblem("22P02", f"malformed array literal: {text[:50]!r}") from None
    node.set("this", literal(values))
    return node


def _table(node: exp.Expr) -> exp.Expr:
    return _series(node) if isinstance(node.this, exp.GenerateSeries) else node


def _values(node: exp.Expr) -> exp.Expr:
    """VALUES (…), whose columns are column1, column2, …"""
    rows, alias = node.expressions, node.args.get("alias")
    if isinstance(node.parent, exp.In | exp.Insert) or (alias is not None and alias.columns):
        return node
    first = rows[0].expressions if isinstance(rows[0], exp.Tuple) else [rows[0]]
    names = [exp.to_identifier(f"column{place}") for place in range(1, len(first) + 1)]
    table = exp.to_identifier("values" if alias is None else alias.name, quoted=True)
    made = exp.Values(expressions=rows, alias=exp.TableAlias(this=table, columns=names))
    return made if isinstance(node.parent, exp.From | exp.Join) else exp.select("*").from_(made)


def _series(node: exp.Expr) -> exp.Expr:
    """generate_series(a, b) in FROM."""
    series = node.this
    alias = node.args.get("alias")
    table = alias.name if alias is not None else "generate_series"
    columns = alias.columns if alias is not None else []
    column = columns[0].name if columns else table
    given = [series.args.get(place) for place in ("start", "end", "step")]
    if len(given) == 3 and given[2] is not None and is_text(given[2]):
        given[2] = exp.Interval(this=given[2])
    sequence = exp.Anonymous(this="SEQUENCE", expressions=[each for each in given if each is not None])
    exploded = exp.Anonymous(this="EXPLODE", expressions=[sequence])
    select = _long_series(given, column) or exp.select(exp.alias_(exploded, column, quoted=True))
    return exp.Subquery(this=select, alias=exp.TableAlias(this=exp.to_identifier(table, quoted=True)))


def _long_series(given: list[exp.Expr | None], column: str) -> exp.Select | None:
    """The numbers of a long series as a range, which Spark can end at any moment: an array's rows come from one row, inside of which
    nothing is ended. None for another series."""
    numbers = [1 if each is None else _number(each) for each in given]
    first, last, step = (*numbers, 1)[:3]
    if first is None or last is None or not step or (last - first) // step < _LONG_SERIES:
        return None
    kind = "int" if max(abs(first), abs(last)) < 2**31 else "bigint"
    bounds = [exp.Literal.number(each) for each in (first, last + (1 if step > 0 else -1), step)]
    numbers_of = exp.Table(this=exp.Anonymous(this="RANGE", expressions=bounds))
    return exp.select(exp.alias_(exp.cast(exp.column("id"), kind), column, quoted=True)).from_(numbers_of)


def _number(node: exp.Expr) -> int | None:
    """The value of a whole number that is written out."""
    if isinstance(node, exp.Neg):
        found = _number(node.this)
        return None if found is None else -found
    return int(node.name) if isinstance(node, exp.Literal) and node.is_int else None


RULES: Mapping[type[exp.Expr], Rule] = {
    **ARRAY_RULES,
    **VALUE_RULES,
    exp.Cast: _cast,
    exp.WidthBucket: _as_int,
    exp.Window: _ranked,
    exp.RegexpReplace: _replaced,
    exp.Encode: _encoded,
    exp.Decode: _encoded,
    exp.SimilarTo: _similar,
    exp.Table: _table,
    exp.Values: _values,
}
