"""What a text from outside has to be, checked where the text comes in: Unicode scalar values without NUL, of a bounded length.

A lone surrogate has no form in UTF-8, so one that is let in breaks whatever writes or shows the text later, for everyone.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping

from headgate.errors import DefiniteError, Location

LONGEST_TEXT = 1 << 20
"""Characters of one text: a query, a flow file, a project file."""
MOST_NESTED_VALUES = 32
"""Levels of lists and mappings of one value."""

_WRONG = re.compile("[\0\ud800-\udfff]")


def require_text(
    text: str,
    what: str,
    *,
    where: Location | None = None,
    most: int = LONGEST_TEXT,
    error: type[DefiniteError] = DefiniteError,
) -> str:
    """The text itself, or an error that says what is wrong with it and in which line; `what` names the text."""
    if len(text) > most:
        raise error(f"{what} is longer than {most:,} characters", where=where, hint="make it shorter")
    wrong = _WRONG.search(text)
    if wrong is None:
        return text
    found = "a NUL" if wrong[0] == "\0" else f"half of a surrogate pair, U+{ord(wrong[0]):04X}"
    line = text.count("\n", 0, wrong.start())
    place = where if where is None else Location(where.file, (where.line or 1) + line)
    raise error(
        f"{what} holds {found}, at character {wrong.start() + 1:,}",
        where=place,
        hint="remove that character; texts are Unicode as UTF-8 can carry it, without NUL",
    )


def require_texts(value: object, what: str) -> None:
    """Checks every text of a value of lists and mappings, keys too, and how deep they are nested."""
    waiting: list[tuple[object, int]] = [(value, 0)]
    while waiting:
        found, depth = waiting.pop()
        if depth > MOST_NESTED_VALUES:
            raise DefiniteError(
                f"{what} is nested more than {MOST_NESTED_VALUES} levels deep", hint="send plain values"
            )
        if isinstance(found, str):
            require_text(found, what)
        elif isinstance(found, Mapping):
            waiting += [(part, depth + 1) for pair in found.items() for part in pair]
        elif isinstance(found, (list, tuple)):
            waiting += [(part, depth + 1) for part in found]


def ending_text(code: int) -> str:
    """How a process ended, by its code, which is negative if a signal ended it."""
    if code == -signal.SIGKILL:
        return "was killed (SIGKILL), as the system does when memory runs out"
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
