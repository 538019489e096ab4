"""Parameters of statements: PostgreSQL's text and binary forms to values, and values to SQL."""

from __future__ import annotations

import re
import struct
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any

from sqlglot import exp

from headgate.gateway.problems import INVALID_BINARY, INVALID_TEXT, NOT_SUPPORTED, WireProblem
from headgate.gateway.types import (
    BOOL,
    BPCHAR,
    BYTEA,
    DATE,
    ELEMENTS,
    FLOAT4,
    FLOAT8,
    INT2,
    INT4,
    INT8,
    INTERVAL,
    JSON,
    JSONB,
    NAME,
    NAMES,
    NUMERIC,
    OID,
    TEXT,
    TIMESTAMP,
    TIMESTAMPTZ,
    UNKNOWN,
    UUID,
    VARCHAR,
)

_TEXTS = frozenset((0, TEXT, VARCHAR, BPCHAR, NAME, UNKNOWN, JSON, UUID))
_INTEGERS = frozenset((INT2, INT4, INT8, OID))
_TRUE = frozenset(("t", "true", "y", "yes", "on", "1"))
_FALSE = frozenset(("f", "false", "n", "no", "off", "0"))
_EPOCH = datetime(2000, 1, 1)
_MOST_DIGITS = 38


class Typed(str):
    """A text that is to be of a Spark type."""

    __slots__ = ("kind",)
    kind: str

    @staticmethod
    def of(text: str, kind: str) -> Typed:
        made = Typed(text)
        made.kind = kind
        return made


@dataclass(frozen=True, slots=True)
class NullOf:
    """A value of a type that is not known yet."""

    oid: int


_SPARK_TYPES = {
    BOOL: "boolean",
    BYTEA: "binary",
    INT2: "smallint",
    INT4: "int",
    INT8: "bigint",
    OID: "bigint",
    FLOAT4: "float",
    FLOAT8: "double",
    NUMERIC: "decimal(38, 18)",
    DATE: "date",
    TIMESTAMP: "timestamp_ntz",
    TIMESTAMPTZ: "timestamp",
}


def decode(body: bytes | None, oid: int, is_binary: bool) -> Any:
    """A parameter's value."""
    if body is None:
        return None
    try:
        if is_binary:
            return _from_binary(body, oid)
        text = body.decode()
        if "\0" in text:
            raise ValueError
        return from_text(text, oid)
    except (ValueError, struct.error, InvalidOperation, IndexError, OverflowError):
        shown = NAMES.get(oid, str(oid))
        if is_binary:
            raise WireProblem(INVALID_BINARY, f"a parameter is not in the binary form of {shown}") from None
        raise WireProblem(
            INVALID_TEXT, f"invalid input for type {shown}: {body[:50].decode(errors='replace')!r}"
        ) from None


def from_text(text: str, oid: int) -> Any:
    """A value in PostgreSQL's text form."""
    if oid in ELEMENTS:
        return _array(text, ELEMENTS[oid])
    if oid in _TEXTS or oid == JSONB:
        return text
    plain = text.strip()
    if oid in _INTEGERS:
        return int(plain)
    if oid == NUMERIC:
        return Decimal(plain)
    if oid in (FLOAT4, FLOAT8):
        return float(plain)
    if oid == BOOL:
        if plain.lower() in _TRUE | _FALSE:
            return plain.lower() in _TRUE
        raise ValueError
    if oid == BYTEA:
        return bytes.fromhex(plain.removeprefix("\\x")) if plain.startswith("\\x") else text.encode()
    if oid == DATE:
        return date.fromisoformat(plain)
    if oid in (TIMESTAMP, TIMESTAMPTZ):
        datetime.fromisoformat(plain)
        return Typed.of(plain, "TIMESTAMP" if oid == TIMESTAMPTZ else "TIMESTAMP_NTZ")
    if oid == INTERVAL:
        return Typed.of(plain, "INTERVAL")
    raise _unknown(oid)


def _unknown(oid: int) -> WireProblem:
    return WireProblem(
        NOT_SUPPORTED, f"parameters of the type with OID {oid} are not supported", hint="send it as text and cast it"
    )


def _instant(body: bytes) -> datetime:
    return _EPOCH + timedelta(microseconds=struct.unpack("!q", body)[0])


def _numeric(body: bytes) -> Decimal:
    count, weight, sign, scale = struct.unpack_from("!hhHh", body)
    if sign == 0xC000:
        return Decimal("NaN")
    groups = struct.unpack_from(f"!{count}h", body, 8)
    value = sum((Decimal(group).scaleb(4 * (weight - place)) for place, group in enumerate(groups)), Decimal(0))
    value = value.quantize(Decimal(1).scaleb(-scale)) if scale <= _MOST_DIGITS else value
    return -value if sign == 0x4000 else value


_BINARY: Mapping[int, Callable[[bytes], Any]] = {
    BOOL: lambda body: struct.unpack("!?", body)[0],
    BYTEA: bytes,
    DATE: lambda body: (_EPOCH + timedelta(days=struct.unpack("!i", body)[0])).date(),
    FLOAT4: lambda body: struct.unpack("!f", body)[0],
    FLOAT8: lambda body: struct.unpack("!d", body)[0],
    INT2: lambda body: struct.unpack("!h", body)[0],
    INT4: lambda body: struct.unpack("!i", body)[0],
    INT8: lambda body: struct.unpack("!q", body)[0],
    OID: lambda body: struct.unpack("!I", body)[0],
    NUMERIC: _numeric,
    TIMESTAMP: lambda body: Typed.of(_instant(body).isoformat(" "), "TIMESTAMP_NTZ"),
    TIMESTAMPTZ: lambda body: Typed.of(f"{_instant(body).isoformat(' ')}+00:00", "TIMESTAMP"),
    JSONB: lambda body: body[1:].decode(),
    UUID: lambda body: str(uuid.UUID(bytes=body)),
}


def _from_binary(body: bytes, oid: int) -> Any:
    if oid in ELEMENTS:
        return _array_from_binary(body)
    found = _BINARY.get(oid)
    if found is not None:
        return found(body)
    if oid in _TEXTS:
        return body.decode()
    raise _unknown(oid)


def _array_from_binary(body: bytes) -> list[Any]:
    dimensions, _, element = struct.unpack_from("!iiI", body)
    if dimensions == 0:
        return []
    if dimensions != 1:
        raise WireProblem(NOT_SUPPORTED, "arrays of several dimensions are not supported as parameters")
    (count,) = struct.unpack_from("!i", body, 12)
    offset, values = 20, list[Any]()
    for _ in range(count):
        (length,) = struct.unpack_from("!i", body, offset)
        offset += 4
        if length < 0:
            values.append(None)
            continue
        part = body[offset : offset + length]
        if len(part) != length:
            raise ValueError
        values.append(_from_binary(part, element))
        offset += length
    return values


_ITEM = re.compile(r'\s*(?:"((?:[^"\\]|\\.)*)"|([^,{}"]*))\s*(,|$)')


def _array(text: str, element: int) -> list[Any]:
    inner = text.strip()
    if not (inner.startswith("{") and inner.endswith("}")):
        raise ValueError
    inner = inner[1:-1]
    if not inner.strip():
        return []
    values, position = [], 0
    while True:
        found = _ITEM.match(inner, position)
        if found is None:
            raise ValueError
        quoted, plain, end = found.groups()
        if quoted is not None:
            values.append(from_text(re.sub(r"\\(.)", r"\1", quoted), element))
        else:
            values.append(None if plain.strip().upper() == "NULL" else from_text(plain.strip(), element))
        if not end:
            return values
        position = found.end()


def literal(value: Any) -> exp.Expr:
    """A value as SQL."""
    match value:
        case None:
            return exp.Null()
        case NullOf():
            element = ELEMENTS.get(value.oid)
            kind = _SPARK_TYPES.get(value.oid if element is None else element, "string")
            return exp.cast(exp.Null(), kind if element is None else f"array<{kind}>", dialect="spark")
        case bool():
            return exp.Boolean(this=value)
        case Typed():
            if value.kind == "INTERVAL":
                return exp.Interval(this=exp.Literal.string(str(value)))
            return exp.cast(exp.Literal.string(str(value)), value.kind, dialect="spark")
        case int():
            number = exp.Literal.number(abs(value))
            return exp.Neg(this=number) if value < 0 else number
        case float():
            return exp.cast(exp.Literal.string(repr(value)), "double")
        case Decimal():
            return _decimal(value)
        case date():
            return exp.cast(exp.Literal.string(value.isoformat()), "date")
        case bytes():
            return exp.func("unhex", exp.Literal.string(value.hex()))
        case list():
            return exp.Array(expressions=[literal(item) for item in value])
    return exp.Literal.string(str(value))


def _decimal(value: Decimal) -> exp.Expr:
    if not value.is_finite():
        raise WireProblem(NOT_SUPPORTED, f"a numeric cannot be {value}", hint="send it as double precision")
    digits, exponent = value.as_tuple().digits, value.as_tuple().exponent
    assert isinstance(exponent, int)
    scale = max(0, -exponent)
    precision = max(len(digits) + max(0, exponent), scale, 1)
    if precision > _MOST_DIGITS:
        raise WireProblem("22003", f"a numeric parameter has more than {_MOST_DIGITS} digits")
    return exp.cast(exp.Literal.string(format(value, "f")), f"decimal({precision}, {scale})")


def array_of(node: exp.Expr) -> exp.Expr:
    """A text that stands for an array, such as '{a,b}', as an array."""
    if isinstance(node, exp.Literal) and node.is_string and node.name.startswith("{"):
        return literal(from_text(node.name, 1009))
    return node
