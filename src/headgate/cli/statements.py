"""Text that is typed or piped, cut into statements at semicolons; those inside quotes and comments do not count."""

from __future__ import annotations

import re

_PIECES = re.compile(
    r"""'(?:[^'\\]|\\.|'')*(?:'|\Z)|"(?:[^"\\]|\\.)*(?:"|\Z)|`(?:[^`]|``)*(?:`|\Z)|--[^\n]*|/\*.*?(?:\*/|\Z)|(?P<end>;)""",
    re.DOTALL,
)
_COMMENTS = re.compile(r"--[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)


def split(text: str) -> tuple[list[str], str]:
    """The finished statements, without their semicolons, and what is left over. Comments alone are no statement."""
    statements, begin = [], 0
    for piece in _PIECES.finditer(text):
        if piece["end"]:
            statements.append(text[begin : piece.start()].strip())
            begin = piece.end()
    return [each for each in statements if _says_something(each)], text[begin:].strip()


def is_finished(text: str) -> bool:
    """Whether what was typed is to be run: statements that have ended, a command of the shell, or nothing at all."""
    if text.lstrip().startswith("\\"):
        return True
    return not _says_something(split(text)[1])


def _says_something(text: str) -> bool:
    return bool(_COMMENTS.sub("", text).strip())
