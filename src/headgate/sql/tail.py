"""The tail of a query, which says how fresh its answer must be, and the statements that say it for a session.

    SELECT … [CURRENCY BOUND 10 MIN | ANY] [DEADLINE 5 SEC] [WHEN STALE SERVE | WAIT | FAIL] [;]
    SET max_staleness = '10m'      SET deadline = 5 SEC      SET when_stale = 'serve'      RESET [max_staleness]

Clauses come in any order and case, each at most once. Words that SQL can read as a name (`SELECT 1 AS deadline`,
`FROM t deadline`) are names: only what stands at the end of the statement, whole, is a tail.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from decimal import Decimal
from typing import Final, Literal, get_args

from sqlglot.tokenizer_core import TokenType

from headgate.config.durations import DURATION_HINT, NUMBER, parse_duration, times
from headgate.config.settings import WhenStale
from headgate.errors import DefiniteError, FlowError, Location
from headgate.sql.positions import QueryText, tokenize

AnyAge = Literal["any"]
ANY: Final[AnyAge] = "any"
"""No bound: the newest complete snapshot, without waiting."""

Value = timedelta | AnyAge | WhenStale

WHEN_STALE: tuple[WhenStale, ...] = get_args(WhenStale)

_CLAUSES = {"max_staleness": "CURRENCY BOUND", "deadline": "DEADLINE", "when_stale": "WHEN STALE"}
_UNITS = {
    **dict.fromkeys(("MS", "MILLISECOND", "MILLISECONDS"), timedelta(milliseconds=1)),
    **dict.fromkeys(("S", "SEC", "SECS", "SECOND", "SECONDS"), timedelta(seconds=1)),
    **dict.fromkeys(("M", "MIN", "MINS", "MINUTE", "MINUTES"), timedelta(minutes=1)),
    **dict.fromkeys(("H", "HOUR", "HOURS"), timedelta(hours=1)),
    **dict.fromkeys(("D", "DAY", "DAYS"), timedelta(days=1)),
}
_NUMBER = re.compile(rf"({NUMBER})([A-Za-z]*)", re.ASCII)
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_UNIT_HINT = "write a number and MS, SEC, MIN, HOUR or DAY, or a text such as '10m'"


@dataclass(frozen=True, slots=True)
class FreshnessClause:
    """What a query or a session says about freshness; None is what it does not say."""

    max_staleness: timedelta | AnyAge | None = None
    deadline: timedelta | None = None
    when_stale: WhenStale | None = None


@dataclass(frozen=True, slots=True)
class SetStatement:
    """`SET name = value`; without a value `RESET name`, without a name `RESET`."""

    name: str | None
    value: Value | None = None

    def applied_to(self, session: FreshnessClause) -> FreshnessClause:
        """What the session says from now on."""
        return FreshnessClause() if self.name is None else _saying(session, {self.name: self.value})


def split_tail(text: str) -> tuple[str, FreshnessClause]:
    """The query without its tail, otherwise as written, and the tail."""
    words = _words(text)
    query, tail = text, FreshnessClause()
    furthest, mistake = 0, None
    for index in range(len(words.items)):
        if not words.is_head(index):
            continue
        clauses = _Clauses(words, index)
        try:
            tail = clauses.all()
        except DefiniteError as error:
            if clauses.index > furthest:
                furthest, mistake = clauses.index, error
            continue
        if index == 0:
            raise words.error(0, "there is no query before the bound", "write SELECT … and then the bound")
        query = text[: words.items[index].start].rstrip()
        break
    # A clause that is broken, given twice or in the middle is a mistake, unless SQL can read its words as names.
    if mistake is not None and not _is_sql(query[: words.items[-1].end]):
        raise mistake
    return query, tail


def parse_setting(text: str) -> SetStatement | None:
    """The statement that sets or resets what a session says; None for any other kind of statement."""
    words = _words(text)
    first = words.upper(0)
    if first == "RESET":
        # The tokenizer may take what follows RESET as one text.
        words = _words(text[: words.items[0].start] + " " * len(first) + text[words.items[0].end :])
        if not words.items:
            return SetStatement(None)
        name = words.setting_name(0)
        words.require_end(1)
        return SetStatement(name)
    if first != "SET":
        return None
    name = words.setting_name(1)
    if words.upper(2) not in ("=", "TO"):
        raise words.error(2, f"SET {name} has no value", f"write SET {name} = {_EXAMPLES[name]}")
    clauses = _Clauses(words, 3)
    value = clauses.value(name)
    words.require_end(clauses.index)
    return SetStatement(name, value)


_EXAMPLES = {"max_staleness": "'10m' or ANY", "deadline": "'5s'", "when_stale": "'serve', 'wait' or 'fail'"}


@dataclass(frozen=True, slots=True)
class _Token:
    text: str
    start: int
    end: int
    content: str | None
    """Of a string."""


@dataclass(frozen=True, slots=True)
class _StatementTokens:
    """A statement's tokens as they are written, without the semicolons at its end."""

    statement: str
    items: tuple[_Token, ...]

    def upper(self, index: int) -> str:
        """The word at an index; nothing for a text, a quoted name, or past the end."""
        item = self.items[index] if index < len(self.items) else None
        return item.text.upper() if item is not None and item.content is None else ""

    def is_head(self, index: int) -> bool:
        word, following = self.upper(index), self.upper(index + 1)
        return word == "DEADLINE" or (word, following) in (("CURRENCY", "BOUND"), ("WHEN", "STALE"))

    def error(self, index: int, what: str, hint: str) -> DefiniteError:
        at = self.items[min(index, len(self.items) - 1)].start if self.items else 0
        return DefiniteError(what, where=Location("query", 1 + self.statement.count("\n", 0, at)), hint=hint)

    def setting_name(self, index: int) -> str:
        written = self.items[index].text if index < len(self.items) else ""
        if written.lower() not in _CLAUSES:
            what = f"{written} cannot be set here" if written else "there is nothing to set"
            raise self.error(index, what, f"what can be set: {', '.join(_CLAUSES)}")
        return written.lower()

    def require_end(self, index: int) -> None:
        if index < len(self.items):
            raise self.error(
                index, f"unexpected {self.items[index].text} after the setting", "write one setting per statement"
            )


def _words(text: str) -> _StatementTokens:
    items: dict[int, _Token] = {}
    for token in tokenize(text, Location("query")):
        # A number with a type letter (5S, 5D) comes as several tokens of one place.
        content = token.text if token.token_type == TokenType.STRING else None
        items.setdefault(token.start, _Token(text[token.start : token.end + 1], token.start, token.end + 1, content))
    found = list(items.values())
    while found and found[-1].text == ";":
        found.pop()
    return _StatementTokens(text, tuple(found))


class _Clauses:
    """Reads clauses from an index on; a DefiniteError where there is something else."""

    def __init__(self, words: _StatementTokens, index: int) -> None:
        self._words = words
        self.index = index

    def all(self) -> FreshnessClause:
        """The clauses up to the end of the statement."""
        found: dict[str, Value | None] = {}
        while self.index < len(self._words.items):
            name, at = self._head(), self.index
            self.index += len(_CLAUSES[name].split())
            value = self.value(name)
            if name in found:
                raise self._words.error(at, f"{_CLAUSES[name]} is given twice", "each clause stands once")
            found[name] = value
        return _saying(FreshnessClause(), found)

    def _head(self) -> str:
        for name, clause in _CLAUSES.items():
            parts = clause.split()
            if all(self._words.upper(self.index + place) == part for place, part in enumerate(parts)):
                return name
        written = self._words.items[self.index].text
        hint = f"{', '.join(_CLAUSES.values())} stand at the end of the statement, after everything else"
        raise self._words.error(self.index, f"unexpected {written} after a freshness clause", hint)

    def value(self, name: str) -> Value:
        if name == "when_stale":
            return self._when_stale()
        if name == "max_staleness" and (self._words.upper(self.index) or self._content().upper()) == "ANY":
            self.index += 1
            return ANY
        return self._duration(name)

    def _content(self) -> str:
        items = self._words.items
        return (items[self.index].content or "") if self.index < len(items) else ""

    def _when_stale(self) -> WhenStale:
        written = self._words.upper(self.index) or self._content()
        for choice in WHEN_STALE:
            if written.lower() == choice:
                self.index += 1
                return choice
        what = f"{written} is nothing to do when stale" if written else "what to do when stale is not said"
        raise self._words.error(self.index, what, "write SERVE, WAIT or FAIL")

    def _duration(self, name: str) -> timedelta:
        at, written = self.index, self._words.upper(self.index)
        content = self._content()
        self.index += 1
        if content:
            try:
                return parse_duration(content)
            except ValueError as error:
                raise self._words.error(at, str(error), DURATION_HINT) from None
        if written == "-":
            raise self._words.error(at, "a duration is not negative", _UNIT_HINT)
        number = _NUMBER.fullmatch(written)
        if number is None:
            raise self._words.error(
                at, f"{_CLAUSES[name]} needs a duration" + (f", not {written}" if written else ""), _UNIT_HINT
            )
        unit = number[2]
        if not unit and self._words.upper(self.index) in _UNITS:
            unit = self._words.upper(self.index)
            self.index += 1
        if not unit and Decimal(number[1]) == 0:
            return timedelta(0)
        if unit not in _UNITS:
            following = unit or self._words.upper(self.index)
            unknown = following if _WORD.fullmatch(following) and not self._words.is_head(self.index) else ""
            what = f"{unknown} is not a unit of time" if unknown else f"the duration {written} has no unit"
            raise self._words.error(at, what, _UNIT_HINT)
        return self._times(number[1], _UNITS[unit], at)

    def _times(self, number: str, unit: timedelta, at: int) -> timedelta:
        try:
            return times(number, unit)
        except ValueError as error:
            raise self._words.error(at, str(error), _UNIT_HINT) from None


def _saying(tail: FreshnessClause, values: Mapping[str, Value | None]) -> FreshnessClause:
    return replace(tail, **values)  # type: ignore[arg-type]  # `_Clauses.value` gives each name a value of its type


def _is_sql(query: str) -> bool:
    try:
        QueryText(query, Location("query")).parse()
    except FlowError:
        return False
    return True
