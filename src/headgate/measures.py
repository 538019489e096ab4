"""Durations, sizes and counts as people read them."""

from __future__ import annotations

_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")


def duration_text(seconds: float | None) -> str:
    """A duration in at most two units: `2 h 5 min`, `3.2 s`, `40 ms`."""
    if seconds is None:
        return "–"
    if seconds < 0.0005:
        return f"{round(seconds * 1e6)} µs" if seconds > 0 else "0 s"
    if seconds < 1:
        return f"{round(seconds * 1000)} ms"
    if seconds < 60:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = ((days, "d"), (hours, "h"), (minutes, "min"), (rest, "s"))
    first = next(place for place, (count, _) in enumerate(parts) if count)
    return " ".join(f"{count} {unit}" for count, unit in parts[first : first + 2] if count)


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
