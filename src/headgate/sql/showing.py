"""Statements that tell of the warehouse itself. Each has rows, as a query has.

SHOW TABLES | SHOW FLOWS
DESCRIBE | DESC [TABLE] [EXTENDED] table
EXPLAIN query            what answering it takes, and Spark's plan
EXPLAIN FLOW flow        how a flow is kept
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from headgate.errors import DefiniteError, Location
from headgate.sql.positions import tokenize

_WHERE = Location("query")
_FIRST = ("SHOW", "DESCRIBE", "DESC", "EXPLAIN")
_FIRST_WORD = re.compile(r"(?:\s|--[^\r\n]*[\r\n]|/\*.*?\*/)*(\w+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Show:
    what: Literal["tables", "flows"]


@dataclass(frozen=True, slots=True)
class Describe:
    table: str
    is_extended: bool = False


@dataclass(frozen=True, slots=True)
class ExplainQuery:
    text: str


@dataclass(frozen=True, slots=True)
class ExplainFlow:
    flow: str


Showing = Show | Describe | ExplainQuery | ExplainFlow


def parse_showing(text: str) -> Showing | None:
    """The statement; None for any other kind of statement."""
    first = _FIRST_WORD.match(text)
    if first is None or first[1].upper() not in _FIRST:
        return None
    # The tokenizer takes what follows some of these words as one text.
    rest = " " * first.end() + text[first.end() :]
    tokens = [token for token in tokenize(rest, _WHERE) if rest[token.start : token.end + 1] != ";"]
    words = [first[1].upper(), *(rest[token.start : token.end + 1].upper() for token in tokens)]
    names = ["", *(token.text for token in tokens)]
    match words[0]:
        case "SHOW":
            if words[1:] == ["TABLES"]:
                return Show("tables")
            if words[1:] == ["FLOWS"]:
                return Show("flows")
            raise DefiniteError("there is nothing else to show", where=_WHERE, hint="write SHOW TABLES or SHOW FLOWS")
        case "EXPLAIN" if words[1:2] == ["FLOW"] and len(words) > 2:
            return ExplainFlow("".join(names[2:]))
        case "EXPLAIN":
            if not tokens:
                raise DefiniteError(
                    "EXPLAIN has no query", where=_WHERE, hint="write EXPLAIN SELECT … or EXPLAIN FLOW flow"
                )
            return ExplainQuery(text[tokens[0].start :])
    at = 1
    if words[at : at + 1] == ["TABLE"] and len(words) > at + 1:
        at += 1
    is_extended = words[at : at + 1] == ["EXTENDED"] and len(words) > at + 1
    # A table's name has one part, or two.
    parts = names[at + is_extended :]
    if len(parts) not in (1, 3) or (len(parts) == 3 and parts[1] != "."):
        raise DefiniteError("DESCRIBE names no table", where=_WHERE, hint="write DESCRIBE [EXTENDED] table")
    return Describe("".join(parts), is_extended)
