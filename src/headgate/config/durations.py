"""Durations and sizes as people write them: `10m`, `1h30m`, `250ms`, `0.3s`; `64MiB`.

A duration always has a unit, the largest first and each at most once; a size may be a plain number of bytes.
"""

from __future__ import annotations

import re
from datetime import timedelta
from decimal import Decimal

_UNITS = {
    "d": timedelta(days=1),
    "h": timedelta(hours=1),
    "m": timedelta(minutes=1),
    "s": timedelta(seconds=1),
    "ms": timedelta(milliseconds=1),
    "us": timedelta(microseconds=1),
}
NUMBER = r"\d{1,30}(?:\.\d{0,30})?|\.\d{1,30}"
_DURATION = re.compile("".join(rf"(?:(?P<{unit}>{NUMBER})\s*{unit}\s*)?" for unit in _UNITS), re.ASCII)

_SIZES = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_SIZE = re.compile(r"(\d{1,30})\s*([A-Za-z]*)", re.ASCII)

DURATION_HINT = "write a number with its unit: 250ms, 0.5s, 30s, 10m, 1h30m, 2d"
SIZE_HINT = "write bytes as a whole number or with a unit: 1048576, 512KiB, 64MiB, 2GiB"


def parse_duration(value: object) -> timedelta:
    """A duration from its text; a `timedelta` that is not negative passes. Raises `ValueError` with a reason."""
    if isinstance(value, timedelta):
        if value < timedelta(0):
            raise ValueError(f"a duration is not negative: {value}")
        return value
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError(f"{value!r} is not a duration")
    if not isinstance(value, str):
        raise ValueError(f"the duration {value!r} has no unit")
    match = _DURATION.fullmatch(value.strip())
    if match is None or not any(match.groups()):
        raise ValueError(f"{value!r} is not a duration")
    parts = (times(count, _UNITS[unit]) for unit, count in match.groupdict().items() if count)
    try:
        return sum(parts, timedelta(0))
    except OverflowError:
        raise ValueError(f"the duration {value!r} is too long") from None


def times(number: str, unit: timedelta) -> timedelta:
    """So many units, to the microsecond. Raises `ValueError` with a reason."""
    microseconds = Decimal(number) * (unit // timedelta(microseconds=1))
    if microseconds != microseconds.to_integral_value():
        raise ValueError(f"{number} is finer than a microsecond")
    try:
        return timedelta(microseconds=int(microseconds))
    except OverflowError:
        raise ValueError(f"the duration {number} is too long") from None


def format_duration(value: timedelta) -> str:
    """The shortest text that `parse_duration` reads as the same duration."""
    rest, parts = value, []
    for unit, size in _UNITS.items():
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


def parse_size(value: object) -> int:
    """A number of bytes from a number or text. Raises `ValueError` with a reason."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str):
        match = _SIZE.fullmatch(value.strip())
        if match is not None and match[2] in _SIZES:
            return int(match[1]) * _SIZES[match[2]]
    raise ValueError(f"{value!r} is not a size")
