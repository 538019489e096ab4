"""Constants in SQL text as Python values, where they mean the same whoever reads them."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa
from sqlglot import exp

from headgate.producing.arrangement import Constant, Parameter, Value
from headgate.producing.parameters import MARKER, Place


class NotAConstant(Exception):
    """An expression that Spark has to compute."""


def value_in(node: exp.Expr | None, places: tuple[Place, ...], field: pa.Field) -> Value:
    """The parameter or constant that a node is, for a column; raises `NotAConstant`."""
    if isinstance(node, exp.Placeholder) and node.name.startswith(MARKER):
        return Parameter(places[int(node.name.removeprefix(MARKER))])
    value = _constant(node)
    if isinstance(value, (int, Decimal)) and not isinstance(value, bool) and pa.types.is_floating(field.type):
        value = float(value)
    return Constant(value)


def _constant(node: exp.Expr | None) -> object:
    match node:
        case exp.Paren():
            return _constant(node.this)
        case exp.Null():
            return None
        case exp.Boolean():
            return bool(node.this)
        case exp.HexString():
            return bytes.fromhex(node.name)
        case exp.Literal():
            return node.name if node.is_string else _number(node.name)
        case exp.Neg() if isinstance(node.this, exp.Literal) and not node.this.is_string:
            return -_number(node.this.name)
        case exp.Cast() if isinstance(node.this, exp.Literal) and node.this.is_string:
            return _moment(node.this.name, node.to.this)
    raise NotAConstant


def _number(text: str) -> int | float | Decimal:
    try:
        if text.isdecimal():
            return int(text)
        return float(text) if "e" in text.lower() else Decimal(text)
    except (ValueError, ArithmeticError):
        raise NotAConstant from None


def _moment(text: str, kind: object) -> dt.date:
    """DATE '…' and TIMESTAMP '…'; a time without a zone is UTC's."""
    try:
        if kind is exp.DType.DATE:
            return dt.date.fromisoformat(text)
        if kind is exp.DType.TIMESTAMPNTZ:
            return dt.datetime.fromisoformat(text)
        if kind is exp.DType.TIMESTAMPTZ:
            at = dt.datetime.fromisoformat(text)
            return at.replace(tzinfo=dt.UTC) if at.tzinfo is None else at.astimezone(dt.UTC)
    except ValueError:
        pass
    raise NotAConstant
