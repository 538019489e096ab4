"""Strings, quoted names and comments as Spark's own lexer reads them.

A query is judged by what the parser sees and run by Spark. Where the two disagree on what is a comment or a string, code
could hide from the judge (`/* /*+ */ code */` is a comment for one and code for the other), so such a text is refused.

    SELECT 'a' /* b */ , `c`
    code   |-|          |-|    literals
               |-----|         comment
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from sqlglot.tokenizer_core import Token

from headgate.errors import Location
from headgate.sql.positions import SyntaxProblem

_PIECES = re.compile(
    r"""
    (?P<raw>[rR](?:'[^']*'|"[^"]*"))
  | (?P<literal>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*"|`(?:[^`]|``)*`)
  | (?P<line>--[^\r\n]*)
  | (?P<hint>/\*\+[\w\s(),.]*\*/)
  | (?P<block>/\*(?!\+).*?\*/)
  | (?P<space>\s+)
  | (?P<word>\w+)
  | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_QUOTES = "'\"`"

Span = tuple[int, int]


def require_one_reading(text: str, tokens: Sequence[Token], where: Location) -> None:
    """Refuses a text whose strings, names and comments Spark would find at other places than the tokens say."""
    seen = bytearray(len(text))
    for token in tokens:
        seen[token.start : token.end + 1] = b"\1" * (token.end + 1 - token.start)
    literals: list[Span] = []
    for piece in _PIECES.finditer(text):
        start, end = piece.span()
        match piece.lastgroup:
            case "space":
                continue
            case "line" | "block":
                if any(seen[start:end]) or _is_ambiguous(piece):
                    raise _unclear(text, start, where)
            case kind:
                if not all(seen[start:end]):
                    raise _unclear(text, start, where)
                if kind in ("raw", "literal"):
                    literals.append((start + (kind == "raw"), end))
    theirs = [span for token in tokens if (span := _literal(text, token)) is not None]
    if _joined(literals) != _joined(theirs):
        start = next((ours[0] for ours, other in zip(literals, theirs, strict=False) if ours != other), 0)
        raise _unclear(text, start, where)


def _is_ambiguous(comment: re.Match[str]) -> bool:
    """Nested comments, and line comments that Spark continues on the next line."""
    if comment.lastgroup == "block":
        return "/*" in comment[0][2:]
    return comment[0].endswith("\\")


def _literal(text: str, token: Token) -> Span | None:
    """Where the token's quoted part lies; None for a token without one. Hints have no quotes."""
    written = text[token.start : token.end + 1]
    quote = next((place for place, letter in enumerate(written) if letter in _QUOTES), None)
    return None if quote is None else (token.start + quote, token.end + 1)


def _joined(spans: Sequence[Span]) -> list[Span]:
    """Spans in order; those that touch ('it''s' can be one or two) as one."""
    joined: list[Span] = []
    for start, end in spans:
        if joined and joined[-1][1] == start:
            joined[-1] = (joined[-1][0], end)
        else:
            joined.append((start, end))
    return joined


def _unclear(text: str, start: int, where: Location) -> SyntaxProblem:
    return SyntaxProblem(
        "a comment, quote or hint here can be read in two ways",
        where=where.within(text, start),
        hint="write comments that hold no other comment and do not end with a backslash, and close every quote",
    )
