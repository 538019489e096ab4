"""Expressions of a query as PostgreSQL's, each with its type; only those that mean the same on both sides.

What both sides refuse (an overflow, a date that does not exist) may be refused there: the query then goes to Spark, which says so.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    TimestampNTZType,
    TimestampType,
)
from sqlglot import exp

_WHOLE: dict[type[DataType], int] = {ByteType: 3, ShortType: 5, IntegerType: 10, LongType: 20}
"""Whole numbers and the digits that Spark gives them as decimals, from narrow to wide."""
_MOST_DIGITS = 38
_LEAST = str(1 << 31)
"""With a minus it is an int, without one it is not."""
_COMPARED: dict[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.NullSafeEQ: "IS NOT DISTINCT FROM",
}
_COMPUTED: dict[type[exp.Expr], str] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*"}
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_INSTANT = re.compile(r"\d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2}(\.\d{1,6})?", re.ASCII)
_DECIMAL = re.compile(r"(\d+)\.(\d+)", re.ASCII)
_PARTS = {"year": "year", "month": "month", "day": "day", "dayofmonth": "day"}


class NotTranslated(Exception):
    """A part of a query that is left to Spark; the message names it."""


@dataclass(frozen=True, slots=True)
class TypedSql:
    """An expression's text and its type; NULL alone has none."""

    sql: str
    type: DataType
    is_null: bool = False


def said(node: exp.Expr) -> set[str]:
    """The arguments that a node has."""
    return {name for name, value in node.args.items() if value}


def is_float(kind: DataType) -> bool:
    return isinstance(kind, (FloatType, DoubleType))


@dataclass
class Expressions:
    """The expressions of one SELECT."""

    column: Callable[[exp.Column], TypedSql]
    literal: Callable[[exp.Literal], str] | None = None
    """Writes the plain value of a comparison."""
    is_aggregated: bool = False
    """Whether aggregates may stand here."""

    def condition(self, node: exp.Expr) -> str:
        typed = self.value(node)
        if not isinstance(typed.type, BooleanType):
            raise NotTranslated("a condition that is not true or false")
        return typed.sql

    def value(self, node: exp.Expr) -> TypedSql:
        match node:
            case exp.Paren():
                return self.value(node.this)
            case exp.Column():
                return self.column(node)
            case exp.Literal():
                return self._constant(node, node.this)
            case exp.Boolean():
                return TypedSql("TRUE" if node.this else "FALSE", BooleanType())
            case exp.And() | exp.Or():
                word = "AND" if isinstance(node, exp.And) else "OR"
                return _truth(f"({self.condition(node.this)} {word} {self.condition(node.expression)})")
            case exp.Not():
                return _truth(f"(NOT {self.condition(node.this)})")
            case exp.Is():
                if not isinstance(node.expression, exp.Null):
                    raise NotTranslated("IS with something else than NULL")
                return _truth(f"({self.value(node.this).sql} IS NULL)")
            case exp.EQ() | exp.NEQ() | exp.GT() | exp.GTE() | exp.LT() | exp.LTE() | exp.NullSafeEQ():
                left, right = self._pair(node.this, node.expression)
                return _truth(f"({left} {_COMPARED[type(node)]} {right})")
            case exp.Between():
                if said(node) != {"this", "low", "high"}:
                    raise NotTranslated("BETWEEN SYMMETRIC")
                low = self._pair(node.this, node.args["low"])
                high = self._pair(node.this, node.args["high"])
                return _truth(f"({low[0]} >= {low[1]} AND {high[0]} <= {high[1]})")
            case exp.In():
                return self._in(node)
            case exp.Like():
                return self._like(node)
            case exp.Add() | exp.Sub() | exp.Mul():
                return self._computed(node)
            case exp.Neg():
                typed = self.value(node.this)
                _require_number(typed.type)
                if typed.sql == _LEAST:
                    raise NotTranslated(f"the number -{_LEAST}")
                return TypedSql(f"(-{typed.sql})", typed.type)
            case exp.Case():
                return self._case(node)
            case exp.DPipe():
                return self._joined([node.this, node.expression])
            case exp.Cast():
                return self._cast(node)
            case exp.Anonymous():
                return self._function(node)
            case _:
                raise NotTranslated(node.key.upper())

    def _constant(self, node: exp.Literal, text: str) -> TypedSql:
        if node.is_string:
            written = self.literal(node) if self.literal is not None else quoted_text(text)
            return TypedSql(f'({written}::text COLLATE "C")', StringType())
        if text.isascii() and text.isdigit() and len(text) <= 18:
            if self.literal is not None and len(text) <= 9:
                return TypedSql(f"({self.literal(node)}::integer)", IntegerType())
            return TypedSql(text, IntegerType() if int(text) < 1 << 31 else LongType())
        found = _DECIMAL.fullmatch(text)
        if found is None:
            raise NotTranslated(f"the number {text}")
        digits = len((found[1] + found[2]).lstrip("0"))
        scale = len(found[2])
        if max(digits, scale) > _MOST_DIGITS:
            raise NotTranslated(f"the number {text}")
        return TypedSql(f"{text}::numeric", DecimalType(max(digits, scale, 1), scale))

    def _pair(self, left: exp.Expr, right: exp.Expr) -> tuple[str, str]:
        """Two values that can be compared."""
        one, other = self.value(left), self.value(right)
        # A date is compared with the date that a text names.
        if isinstance(one.type, DateType) and _is_date(right):
            other = TypedSql(f"DATE '{right.this}'", DateType())
        elif isinstance(other.type, DateType) and _is_date(left):
            one = TypedSql(f"DATE '{left.this}'", DateType())
        _require_alike(one.type, other.type)
        return one.sql, other.sql

    def _in(self, node: exp.In) -> TypedSql:
        if said(node) != {"this", "expressions"}:
            raise NotTranslated("IN with a query")
        pairs = [self._pair(node.this, each) for each in node.expressions]
        return _truth(f"({pairs[0][0]} IN ({', '.join(right for _, right in pairs)}))")

    def _like(self, node: exp.Like) -> TypedSql:
        pattern = node.expression
        typed = self.value(node.this)
        if not isinstance(pattern, exp.Literal) or not pattern.is_string or not isinstance(typed.type, StringType):
            raise NotTranslated("LIKE of something that is not plain text")
        if "\\" in pattern.this or said(node) != {"this", "expression"}:
            raise NotTranslated("LIKE with escapes")
        return _truth(f"({typed.sql} LIKE {quoted_text(pattern.this)})")

    def _computed(self, node: exp.Expr) -> TypedSql:
        # The type of a decimal follows from the digits of a number that is written out.
        plain = Expressions(self.column, None, self.is_aggregated)
        left, right = plain.value(node.this), plain.value(node.args["expression"])
        kind = _computed_type(type(node), left, right)
        return TypedSql(f"({left.sql} {_COMPUTED[type(node)]} {right.sql})", kind)

    def _case(self, node: exp.Case) -> TypedSql:
        if node.this is not None:
            raise NotTranslated("CASE with a value")
        pieces, values = [], []
        for branch in node.args["ifs"]:
            value = self.value(branch.args["true"])
            values.append(value)
            pieces.append(f"WHEN {self.condition(branch.this)} THEN {value.sql}")
        if node.args.get("default") is not None and not isinstance(node.args["default"], exp.Null):
            value = self.value(node.args["default"])
            values.append(value)
            pieces.append(f"ELSE {value.sql}")
        return TypedSql(f"(CASE {' '.join(pieces)} END)", _one_type(values, "CASE"))

    def _joined(self, parts: list[exp.Expr]) -> TypedSql:
        typed = [self.value(part) for part in parts]
        if not all(isinstance(each.type, StringType) for each in typed):
            raise NotTranslated("joining something that is not text")
        return TypedSql(f"({' || '.join(each.sql for each in typed)})", StringType())

    def _cast(self, node: exp.Cast) -> TypedSql:
        """Dates and instants that are written out: DATE '2024-02-29'."""
        kind, value = node.args["to"].this, node.this
        if isinstance(value, exp.Literal) and value.is_string:
            if kind == exp.DType.DATE and _DATE.fullmatch(value.this):
                return TypedSql(f"DATE '{value.this}'", DateType())
            if kind in (exp.DType.TIMESTAMP, exp.DType.TIMESTAMPTZ, exp.DType.TIMESTAMPLTZ) and (
                _INSTANT.fullmatch(value.this) or _DATE.fullmatch(value.this)
            ):
                return TypedSql(f"TIMESTAMP WITH TIME ZONE '{value.this} UTC'", TimestampType())
        raise NotTranslated("CAST")

    def _function(self, node: exp.Anonymous) -> TypedSql:
        name, arguments = str(node.this).lower(), node.expressions
        if name in ("count", "sum", "min", "max"):
            return self._aggregate(name, arguments)
        if name in ("coalesce", "nullif") and len(arguments) >= 2:
            values = [self.value(each) for each in arguments]
            if name == "nullif" and len(values) > 2:
                raise NotTranslated("NULLIF of several values")
            return TypedSql(f"{name}({', '.join(each.sql for each in values)})", _one_type(values, name.upper()))
        if name == "concat" and arguments:
            return self._joined(arguments)
        if len(arguments) == 1:
            value = self.value(arguments[0])
            if name in ("length", "char_length", "character_length") and isinstance(value.type, StringType):
                return TypedSql(f"length({value.sql})", IntegerType())
            if name in _PARTS and isinstance(value.type, DateType):
                return TypedSql(f"extract({_PARTS[name]} FROM {value.sql})::integer", IntegerType())
            if name == "isnull":
                return _truth(f"({value.sql} IS NULL)")
            if name == "isnotnull":
                return _truth(f"({value.sql} IS NOT NULL)")
        raise NotTranslated(f"the function {name}")

    def _aggregate(self, name: str, arguments: list[exp.Expr]) -> TypedSql:
        if not self.is_aggregated:
            raise NotTranslated(f"{name} in this place")
        if len(arguments) != 1:
            raise NotTranslated(f"{name} of several values")
        argument = arguments[0]
        if name == "count" and isinstance(argument, (exp.Star, exp.Literal)):
            return TypedSql("count(*)", LongType())
        distinct = ""
        if isinstance(argument, exp.Distinct):
            if len(argument.expressions) != 1 or name != "count":
                raise NotTranslated(f"{name} of DISTINCT values")
            distinct, argument = "DISTINCT ", argument.expressions[0]
        value = Expressions(self.column, self.literal).value(argument)
        if name == "count":
            if distinct and is_float(value.type):
                raise NotTranslated("DISTINCT of floating point numbers")
            return TypedSql(f"count({distinct}{value.sql})", LongType())
        if name in ("min", "max"):
            if isinstance(value.type, (BooleanType, BinaryType, FloatType, DoubleType)):
                raise NotTranslated(f"{name} of {value.type.simpleString()}")
            return TypedSql(f"{name}({value.sql})", value.type)
        if type(value.type) in _WHOLE:
            return TypedSql(f"sum({value.sql})::bigint", LongType())
        if isinstance(value.type, DecimalType):
            digits = min(_MOST_DIGITS, value.type.precision + 10)
            return TypedSql(
                f"sum({value.sql})::numeric({digits},{value.type.scale})", DecimalType(digits, value.type.scale)
            )
        raise NotTranslated(f"sum of {value.type.simpleString()}")


def quoted_text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _truth(sql: str) -> TypedSql:
    return TypedSql(sql, BooleanType())


def _is_date(node: exp.Expr) -> bool:
    return isinstance(node, exp.Literal) and bool(node.is_string) and _DATE.fullmatch(node.this) is not None


def _as_decimal(kind: DataType) -> DecimalType | None:
    if isinstance(kind, DecimalType):
        return kind
    return DecimalType(_WHOLE[type(kind)], 0) if type(kind) in _WHOLE else None


def _require_number(kind: DataType) -> None:
    # A tinyint is wider there, where it would not overflow; floating point numbers are rounded in ways of their own.
    if isinstance(kind, ByteType) or _as_decimal(kind) is None:
        raise NotTranslated(f"computing with {kind.simpleString()}")


def _require_alike(left: DataType, right: DataType) -> None:
    """Types whose values compare on both sides as the values that they are."""
    one, other = _as_decimal(left), _as_decimal(right)
    if one is not None and other is not None:
        whole = max(one.precision - one.scale, other.precision - other.scale)
        if whole + max(one.scale, other.scale) > _MOST_DIGITS:
            raise NotTranslated(f"comparing {left.simpleString()} with {right.simpleString()}")
        return
    if left != right or not isinstance(
        left, (BooleanType, StringType, DateType, TimestampType, TimestampNTZType, DoubleType, FloatType)
    ):
        raise NotTranslated(f"comparing {left.simpleString()} with {right.simpleString()}")


def _one_type(values: list[TypedSql], where: str) -> DataType:
    kinds = {value.type for value in values}
    if len(kinds) != 1:
        raise NotTranslated(f"{where} of several types")
    return kinds.pop()


def _computed_type(operator: type[exp.Expr], left: TypedSql, right: TypedSql) -> DataType:
    _require_number(left.type)
    _require_number(right.type)
    order = list(_WHOLE)
    if type(left.type) in _WHOLE and type(right.type) in _WHOLE:
        return max(left.type, right.type, key=lambda kind: order.index(type(kind)))
    one, other = _decimal_of(left), _decimal_of(right)
    if operator is exp.Mul:
        digits, scale = one.precision + other.precision + 1, one.scale + other.scale
    else:
        scale = max(one.scale, other.scale)
        digits = max(one.precision - one.scale, other.precision - other.scale) + scale + 1
    if digits > _MOST_DIGITS:
        raise NotTranslated("decimals that Spark would round")
    return DecimalType(digits, scale)


def _decimal_of(typed: TypedSql) -> DecimalType:
    """A number that is written out has as many digits as it shows."""
    written = typed.sql.removeprefix("(-").removesuffix(")")
    if written.isdigit():
        return DecimalType(max(1, len(written.lstrip("0"))), 0)
    found = _as_decimal(typed.type)
    assert found is not None
    return found
