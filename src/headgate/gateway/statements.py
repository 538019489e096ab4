"""Statements of a client's text, one after another, with their words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sqlglot.dialects.postgres import Postgres
from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import Token, TokenType

from headgate.gateway.problems import SYNTAX, WireProblem
from headgate.text import require_text

_MOST_TOKENS = 100_000


class _Tokenizer(Postgres.Tokenizer):
    # Else what follows a word such as FETCH or RESET would be one text.
    COMMANDS: ClassVar[set[TokenType]] = set()


class _WholeWords(Postgres):
    Tokenizer = _Tokenizer


_POSTGRES = _WholeWords()


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement as it was sent."""

    text: str
    begins: int
    """Its place in what was sent."""
    tokens: tuple[Token, ...]

    def word(self, index: int) -> str:
        """The word at an index in capitals; nothing for a text, a quoted name, or past the end."""
        token = self.tokens[index] if index < len(self.tokens) else None
        if token is None or token.token_type in (TokenType.STRING, TokenType.IDENTIFIER):
            return ""
        return token.text.upper()

    def starts_with(self, *words: str) -> bool:
        return all(self.word(place) == word for place, word in enumerate(words))

    def place(self, index: int) -> int:
        """Where the token begins in the statement's text."""
        token = self.tokens[min(index, len(self.tokens) - 1)]
        return token.start - self.begins

    def since(self, index: int) -> str:
        """The text from a token on."""
        return self.text[self.place(index) :] if index < len(self.tokens) else ""


def split(text: str) -> tuple[Statement, ...]:
    """The statements of a text, without empty ones."""
    require_text(text, "the statement")
    try:
        tokens = list(_POSTGRES.tokenize(text))
    except TokenError as error:
        what = "its end is missing" if error.__cause__ else str(error).splitlines()[0]
        raise WireProblem(SYNTAX, f"cannot read this SQL: {what}", hint="close every quote and comment") from None
    if len(tokens) > _MOST_TOKENS:
        raise WireProblem("54001", f"the text has more than {_MOST_TOKENS:,} words")
    found, held = [], list[Token]()
    for token in [*tokens, None]:
        if token is not None and token.token_type != TokenType.SEMICOLON:
            held.append(token)
        elif held:
            begins = held[0].start
            found.append(Statement(text[begins : held[-1].end + 1], begins, tuple(held)))
            held = []
    return tuple(found)
