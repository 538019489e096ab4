"""Reads the short statements that sqlglot does not: a statement's words, one after another."""

from __future__ import annotations

from sqlglot.tokenizer_core import Token, TokenType

from headgate.gateway.problems import SYNTAX, WireProblem
from headgate.gateway.statements import Statement


class Words:
    """The words of a statement from a place on."""

    def __init__(self, statement: Statement, index: int = 0) -> None:
        self.statement = statement
        self.index = index

    @property
    def is_at_end(self) -> bool:
        return self.index >= len(self.statement.tokens)

    @property
    def token(self) -> Token | None:
        return None if self.is_at_end else self.statement.tokens[self.index]

    def at(self, *words: str) -> bool:
        return all(self.statement.word(self.index + place) == word for place, word in enumerate(words))

    def take(self, *words: str) -> bool:
        """Whether these words come next; then they are behind."""
        if not self.at(*words):
            return False
        self.index += len(words)
        return True

    def expect(self, *words: str) -> None:
        if not self.take(*words):
            raise self.error(f"expected {' '.join(words)}")

    def skip_to(self, word: str) -> None:
        """Passes over everything up to a word, and over the word."""
        while not self.take(word):
            if self.is_at_end:
                raise self.error(f"expected {word}")
            self.index += 1

    def name(self, what: str = "a name") -> str:
        """An identifier; unquoted ones are in small letters."""
        token = self.token
        if token is None or token.token_type in (TokenType.STRING, TokenType.NUMBER) or not token.text:
            raise self.error(f"expected {what}")
        if token.token_type != TokenType.IDENTIFIER and not token.text.replace("_", "a").replace("$", "a").isalnum():
            raise self.error(f"expected {what}")
        self.index += 1
        return token.text if token.token_type == TokenType.IDENTIFIER else token.text.lower()

    def names(self, what: str = "a name") -> tuple[str, ...]:
        """A name of several parts."""
        found = [self.name(what)]
        while self.take("."):
            found.append(self.name(what))
        return tuple(found)

    def string(self, what: str = "a text in quotes") -> str:
        token = self.token
        if token is None or token.token_type not in (TokenType.STRING, TokenType.HEREDOC_STRING, TokenType.RAW_STRING):
            raise self.error(f"expected {what}")
        self.index += 1
        return token.text

    def number(self) -> int:
        sign = -1 if self.take("-") else 1
        token = self.token
        if token is None or not (token.text.isascii() and token.text.isdigit()):
            raise self.error("expected a whole number")
        self.index += 1
        return sign * int(token.text)

    def end(self) -> None:
        if not self.is_at_end:
            raise self.error("expected the end of the statement")

    def error(self, what: str, hint: str | None = None) -> WireProblem:
        token = self.token
        if token is None:
            return WireProblem(SYNTAX, f"{what} at end of input", at=len(self.statement.text), hint=hint)
        written = self.statement.text[token.start - self.statement.begins : token.end + 1 - self.statement.begins]
        return WireProblem(SYNTAX, f'{what} at or near "{written}"', at=self.statement.place(self.index), hint=hint)
