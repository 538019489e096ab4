"""Single values in PostgreSQL's text and binary forms: those that `rows` cannot make of a whole column at once."""

from __future__ import annotations

import json
import math
import struct
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np

from headgate.gateway.types import (
    BOOL,
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
    NUMERIC,
    OID,
    TIMESTAMP,
    TIMESTAMPTZ,
    UUID,
)
from headgate.service.plain import to_plain

EPOCH_DAYS = 10_957
"""From 1970-01-01 to 2000-01-01, where PostgreSQL counts from."""
EPOCH_MICROSECONDS = EPOCH_DAYS * 86_400 * 1_000_000
_EPOCH = date(2000, 1, 1)
_INSTANT = datetime(2000, 1, 1)
_DIGITS = 4
_NAN = struct.pack("!hhHh", 0, 0, 0xC000, 0)
_QUOTED = frozenset('{}",\\ \t\n\r\v\f')

Written = Callable[[Any], bytes]


def numeric_binary(value: Decimal) -> bytes:
    """Groups of four decimal digits, the weight of the first one, the sign, and the digits behind the point."""
    if not value.is_finite():
        return _NAN
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, digits))
    if exponent > 0:
        text, exponent = text + "0" * exponent, 0
    scale = -exponent
    text = text.rjust(scale + 1, "0")
    whole, fraction = text[: len(text) - scale], text[len(text) - scale :]
    whole = whole.rjust(-(-len(whole) // _DIGITS) * _DIGITS, "0")
    fraction = fraction.ljust(-(-len(fraction) // _DIGITS) * _DIGITS, "0")
    groups = [int((whole + fraction)[place : place + _DIGITS]) for place in range(0, len(whole + fraction), _DIGITS)]
    weight = len(whole) // _DIGITS - 1
    while groups and groups[0] == 0:
        groups.pop(0)
        weight -= 1
    while groups and groups[-1] == 0:
        groups.pop()
    return struct.pack(
        f"!hhHh{len(groups)}h", len(groups), weight if groups else 0, 0x4000 if sign and groups else 0, scale, *groups
    )


def numeric_text(value: Decimal) -> bytes:
    return format(value, "f").encode()


def json_text(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=to_plain).encode()


def interval_text(value: timedelta) -> bytes:
    """As PostgreSQL's own style has it: 3 days 04:05:06.789."""
    sign = "-" if value < timedelta(0) else ""
    whole = abs(value)
    hours, rest = divmod(whole.seconds, 3600)
    minutes, seconds = divmod(rest, 60)
    days = f"{sign}{whole.days} day{'' if whole.days == 1 and not sign else 's'} " if whole.days else ""
    fraction = f".{whole.microseconds:06}".rstrip("0") if whole.microseconds else ""
    clock = f"{sign}{hours:02}:{minutes:02}:{seconds:02}{fraction}"
    return (days.rstrip() if days and not (whole.seconds or whole.microseconds) else f"{days}{clock}").encode()


def interval_binary(value: timedelta) -> bytes:
    return struct.pack("!qii", value.seconds * 1_000_000 + value.microseconds, value.days, 0)


def date_text(value: date) -> bytes:
    return value.isoformat().encode()


def timestamp_text(value: datetime) -> bytes:
    fraction = f".{value.microsecond:06}".rstrip("0") if value.microsecond else ""
    offset = value.utcoffset()
    zone = "" if offset is None else offset_text(int(offset.total_seconds()))
    return f"{value.replace(tzinfo=None, microsecond=0).isoformat(' ')}{fraction}{zone}".encode()


def offset_text(seconds: int) -> str:
    """An offset from UTC: +02, -03:30."""
    minutes, rest = divmod(abs(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return (
        f"{'-' if seconds < 0 else '+'}{hours:02}"
        + (f":{minutes:02}" if minutes or rest else "")
        + (f":{rest:02}" if rest else "")
    )


def _float_text(value: float) -> bytes:
    if value != value:
        return b"NaN"
    if value in (float("inf"), float("-inf")):
        return b"Infinity" if value > 0 else b"-Infinity"
    return repr(value).removesuffix(".0").encode()


def _single_text(value: float) -> bytes:
    """The shortest digits that mean this number of single precision."""
    return str(np.float32(value)).removesuffix(".0").encode() if math.isfinite(value) else _float_text(value)


def _bytea_text(value: bytes) -> bytes:
    return b"\\x" + value.hex().encode()


def _microseconds(value: datetime) -> int:
    return (value.replace(tzinfo=None) - _INSTANT) // timedelta(microseconds=1)


_TEXTS: Mapping[int, Written] = {
    BOOL: lambda value: b"t" if value else b"f",
    BYTEA: _bytea_text,
    DATE: date_text,
    FLOAT4: _single_text,
    FLOAT8: _float_text,
    INTERVAL: interval_text,
    JSON: json_text,
    NUMERIC: numeric_text,
    TIMESTAMP: timestamp_text,
    TIMESTAMPTZ: timestamp_text,
}
_BINARY: Mapping[int, Written] = {
    BOOL: lambda value: b"\1" if value else b"\0",
    BYTEA: bytes,
    DATE: lambda value: struct.pack("!i", (value - _EPOCH).days),
    FLOAT4: lambda value: struct.pack("!f", value),
    FLOAT8: lambda value: struct.pack("!d", value),
    INT2: lambda value: struct.pack("!h", value),
    INT4: lambda value: struct.pack("!i", value),
    INT8: lambda value: struct.pack("!q", value),
    INTERVAL: interval_binary,
    JSON: json_text,
    NUMERIC: numeric_binary,
    OID: lambda value: struct.pack("!I", value),
    TIMESTAMP: lambda value: struct.pack("!q", _microseconds(value)),
    TIMESTAMPTZ: lambda value: struct.pack("!q", _microseconds(value)),
    UUID: lambda value: uuid.UUID(value).bytes,
}


def writer_of(oid: int, is_binary: bool) -> Written:
    """What writes values of a type; None is for the caller to write."""
    element = ELEMENTS.get(oid)
    if element is not None:
        write = writer_of(element, is_binary)
        return (
            (lambda value: _array_binary(value, element, write))
            if is_binary
            else lambda value: _array_text(value, write)
        )
    found = (_BINARY if is_binary else _TEXTS).get(oid)
    return found or (lambda value: str(value).encode())


def _array_text(values: Sequence[Any], write: Written) -> bytes:
    return b"{" + b",".join(b"NULL" if value is None else _quoted(write(value)) for value in values) + b"}"


def _quoted(written: bytes) -> bytes:
    text = written.decode()
    if text and text.upper() != "NULL" and not _QUOTED.intersection(text):
        return written
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'.encode()


def _array_binary(values: Sequence[Any], element: int, write: Written) -> bytes:
    has_null = any(value is None for value in values)
    head = struct.pack("!iiI", 1 if values else 0, has_null, element)
    if values:
        head += struct.pack("!ii", len(values), 1)
    parts = [
        b"\xff\xff\xff\xff"
        if (body := None if value is None else write(value)) is None
        else struct.pack("!i", len(body)) + body
        for value in values
    ]
    return head + b"".join(parts)
