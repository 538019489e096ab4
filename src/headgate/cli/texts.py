"""Values and measures as people and programs read them."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal

NULL = "NULL"
_NOT_FINITE = {math.inf: "Infinity", -math.inf: "-Infinity"}
_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")


def plain(value: object) -> object:
    """The value in JSON's types. What these cannot hold exactly is a text: decimals, times, bytes in base64, NaN."""
    match value:
        case float():
            return value if math.isfinite(value) else _NOT_FINITE.get(value, "NaN")
        case None | bool() | int() | str():
            return value
        case datetime() | date() | time():
            return value.isoformat()
        case bytes():
            return base64.b64encode(value).decode()
        case Decimal():
            return format(value, "f")
        case Mapping():
            return {str(name): plain(item) for name, item in value.items()}
        case list() | tuple():
            return [plain(item) for item in value]
        case _:
            return str(value)


def shown(value: object) -> str:
    """The value in one line of a table; what could steer a terminal is spelled out."""
    match value:
        case None:
            return NULL
        case bool():
            return str(value).lower()
        case datetime():
            return value.isoformat(sep=" ")
        case bytes():
            return value.hex()
        case Mapping() | list() | tuple():
            return _printable(json.dumps(plain(value), ensure_ascii=False))
        case _:
            return _printable(str(plain(value)))


def _printable(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode("ascii") for letter in text
    )


def duration_text(seconds: float | None) -> str:
    """A duration in at most two units: `2 h 5 min`, `3.2 s`, `40 ms`."""
    if seconds is None:
        return "–"
    if seconds < 1:
        return f"{round(seconds * 1000)} ms" if seconds > 0 else "0 s"
    if seconds < 60:
        return f"{seconds:.3g} s"
    whole = timedelta(seconds=round(seconds))
    days, hours, minutes = whole.days, whole.seconds // 3600, whole.seconds // 60 % 60
    if days:
        return f"{days} d {hours} h"
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {whole.seconds % 60} s"


def size_text(count: float | None) -> str:
    """A number of bytes: `1.5 GiB`."""
    if count is None:
        return "–"
    place = 0
    while count >= 1024 and place < len(_UNITS) - 1:
        count, place = count / 1024, place + 1
    return f"{count:.0f} {_UNITS[place]}" if place == 0 or count >= 100 else f"{count:.3g} {_UNITS[place]}"


def count_text(count: int, noun: str) -> str:
    """`1 row`, `12,000 rows`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
