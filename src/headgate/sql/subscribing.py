"""The statement that follows a table.

    SUBSCRIBE [TO] table [AS OF job | AS OF 'position'] [CURRENCY BOUND 10 SEC | ANY] [;]

Without AS OF the table's rows come first. A job, or the position that an earlier subscription gave, says what the reader has
already: only later changes come.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from sqlglot.tokenizer_core import TokenType

from headgate.errors import DefiniteError, Location
from headgate.sql.positions import tokenize
from headgate.sql.tail import AnyAge, split_tail

_FORM = "write SUBSCRIBE TO table [AS OF job] [CURRENCY BOUND 10 SEC]"


@dataclass(frozen=True, slots=True)
class Subscribe:
    """What is followed, from where on, and how fresh it is to be kept."""

    table: str
    as_of: str | None = None
    max_staleness: timedelta | AnyAge | None = None


def parse_subscribe(text: str) -> Subscribe | None:
    """The statement; None for any other kind of statement."""
    if "subscribe" not in text.lower():
        return None
    where = Location("query")
    tokens = tokenize(text, where)
    if not tokens or text[tokens[0].start : tokens[0].end + 1].upper() != "SUBSCRIBE":
        return None
    statement, tail = split_tail(text)
    if tail.deadline is not None or tail.when_stale is not None:
        raise DefiniteError(
            "a subscription has no deadline", where=where, hint="CURRENCY BOUND says how fresh it is kept"
        )
    words = [token for token in tokenize(statement, where) if token.token_type != TokenType.SEMICOLON]
    written = [statement[token.start : token.end + 1] for token in words]
    at = 2 if written[1:2] and written[1].upper() == "TO" else 1
    name: list[str] = []
    while at < len(words):
        name.append(words[at].text)
        at += 1
        if at >= len(words) or written[at] != ".":
            break
        at += 1
    if not name:
        raise DefiniteError("SUBSCRIBE names no table", where=where, hint=_FORM)
    as_of = None
    if [word.upper() for word in written[at : at + 2]] == ["AS", "OF"] and at + 2 < len(words):
        as_of = words[at + 2].text
        at += 3
    if at < len(words):
        raise DefiniteError(f"unexpected {written[at]} in SUBSCRIBE", where=where, hint=_FORM)
    return Subscribe(".".join(name), as_of, tail.max_staleness)
