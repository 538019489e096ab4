"""Statements of a flow file: views, streaming tables and their AUTO CDC flows.

    CREATE [OR REFRESH | OR REPLACE] MATERIALIZED VIEW name [COMMENT '…'] [TBLPROPERTIES ('k' = 'v', …)] AS query
    CREATE [OR REFRESH] STREAMING TABLE name
    CREATE FLOW name AS AUTO CDC INTO table FROM [stream(]source.table[)] KEYS (a, …)
        [SEQUENCE BY column] [STORED AS SCD TYPE 1 | 2] [TRACK HISTORY ON (a, …) | ON * EXCEPT (a, …)]

Names keep the user's spelling; they are compared without case. Every mistake is a FlowError with its line.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from sqlglot.tokenizer_core import Token, TokenType

from headgate.config.durations import DURATION_HINT, parse_duration
from headgate.errors import FlowError, Location, Problems, all_problems
from headgate.sql.names import did_you_mean, nearest
from headgate.sql.positions import tokenize

LOOKUP_MISS = "lookup_miss"
TARGET_LAG = "target_lag"
PROPERTIES = {LOOKUP_MISS: ("unknown", "drop", "fail"), TARGET_LAG: None}
"""Known table properties and their values; None stands for a duration."""


@dataclass(frozen=True, slots=True)
class CreateView:
    """`query_where` is the place of the query's first word."""

    name: str
    query_text: str
    where: Location
    query_where: Location
    properties: dict[str, str] = field(default_factory=dict)
    comment: str | None = None


@dataclass(frozen=True, slots=True)
class CreateStreamingTable:
    name: str
    where: Location
    comment: str | None = None


@dataclass(frozen=True, slots=True)
class CreateAutoCdc:
    """`track`: columns whose change makes a version; `track_except`: those whose change does not."""

    flow: str
    target: str
    source: str
    keys: tuple[str, ...]
    text: str
    where: Location
    sequence_by: str | None = None
    scd_type: int = 1
    track: tuple[str, ...] | None = None
    track_except: tuple[str, ...] | None = None


Statement = CreateView | CreateStreamingTable | CreateAutoCdc


def parse_statements(text: str, file: str, first_line: int = 1, problems: Problems | None = None) -> list[Statement]:
    """The statements of a file, in order; those with a mistake are left out where `problems` are collected."""
    tokens = tokenize(text, Location(file, first_line))
    groups: list[list[Token]] = [[]]
    for token in tokens:
        if token.token_type == TokenType.SEMICOLON:
            groups.append([])
        else:
            groups[-1].append(token)
    found: list[Statement] = []
    with all_problems(problems) as wrong:
        for group in groups:
            if group:
                with wrong.collected():
                    found.append(_StatementParser(text, file, first_line, group).parse())
    return found


class _StatementParser:
    def __init__(self, text: str, file: str, first_line: int, tokens: list[Token]) -> None:
        self._text = text
        self._file = file
        self._first_line = first_line
        self._tokens = tokens
        self._index = 0

    def parse(self) -> Statement:
        self._expect(
            "CREATE", "a statement begins with CREATE MATERIALIZED VIEW, CREATE STREAMING TABLE or CREATE FLOW"
        )
        if self._take("OR") and not (self._take("REFRESH") or self._take("REPLACE")):
            raise self._error("expected REFRESH or REPLACE")
        if self._take("MATERIALIZED"):
            self._expect("VIEW")
            return self._view()
        if self._take("STREAMING"):
            self._expect("TABLE")
            return self._streaming_table()
        if self._take("FLOW"):
            return self._auto_cdc()
        raise self._error("expected MATERIALIZED VIEW, STREAMING TABLE or FLOW")

    def _view(self) -> CreateView:
        name = self._name("the view's name")
        comment: str | None = None
        properties: dict[str, str] = {}
        while not self._take("AS"):
            if self._take("COMMENT"):
                comment = self._string("a comment")
            elif self._take("TBLPROPERTIES"):
                properties = self._properties()
            else:
                raise self._error("expected COMMENT, TBLPROPERTIES or AS and a query")
        if self._index >= len(self._tokens):
            raise self._error("expected a query")
        first, last = self._tokens[self._index], self._tokens[-1]
        query = self._text[first.start : last.end + 1]
        return CreateView(name, query, self._start(), self._place(first), properties, comment)

    def _streaming_table(self) -> CreateStreamingTable:
        name = self._name("the table's name")
        comment = self._string("a comment") if self._take("COMMENT") else None
        self._end("a streaming table has a name only; its columns come from its flow")
        return CreateStreamingTable(name, self._start(), comment)

    def _auto_cdc(self) -> CreateAutoCdc:
        flow = self._name("the flow's name")
        for word in ("AS", "AUTO", "CDC", "INTO"):
            self._expect(word, "write CREATE FLOW name AS AUTO CDC INTO table FROM source.table KEYS (…)")
        target = self._name("the target table")
        self._expect("FROM")
        source = self._source()
        self._expect("KEYS")
        keys = self._names("KEYS")
        sequence_by: str | None = None
        scd_type = 1
        track: tuple[str, ...] | None = None
        track_except: tuple[str, ...] | None = None
        seen: set[str] = set()
        while self._index < len(self._tokens):
            word = self._tokens[self._index].text.upper()
            if word in seen:
                raise self._error(f"{word} is given twice", hint="each clause stands once")
            seen.add(word)
            if self._take("SEQUENCE"):
                self._expect("BY")
                sequence_by = self._name("a column")
            elif self._take("STORED"):
                for part in ("AS", "SCD", "TYPE"):
                    self._expect(part, "write STORED AS SCD TYPE 1 or 2")
                scd_type = self._scd_type()
            elif self._take("TRACK"):
                self._expect("HISTORY")
                self._expect("ON")
                if self._take("*"):
                    self._expect("EXCEPT")
                    track_except = self._names("EXCEPT")
                else:
                    track = self._names("TRACK HISTORY ON")
            else:
                raise self._error("expected SEQUENCE BY, STORED AS SCD TYPE or TRACK HISTORY ON")
        if scd_type == 1 and (track is not None or track_except is not None):
            raise FlowError(
                f"flow '{flow}' tracks history but stores none", where=self._start(), hint="add STORED AS SCD TYPE 2"
            )
        text = self._text[self._tokens[0].start : self._tokens[-1].end + 1]
        return CreateAutoCdc(
            flow, target, source, keys, text, self._start(), sequence_by, scd_type, track, track_except
        )

    def _scd_type(self) -> int:
        token = self._peek()
        if token is None or token.text not in ("1", "2"):
            raise self._error("expected SCD TYPE 1 or 2")
        self._index += 1
        return int(token.text)

    def _source(self) -> str:
        following = self._tokens[self._index + 1] if self._index + 1 < len(self._tokens) else None
        wrapped = self._at("STREAM") and following is not None and following.token_type == TokenType.L_PAREN
        if wrapped:
            self._index += 2
        parts = [self._name("the source table, source.table")]
        while self._take("."):
            parts.append(self._name("the source table, source.table"))
        if wrapped:
            self._expect(")")
        if len(parts) != 2:
            raise self._error(f"'{'.'.join(parts)}' is not a source table", hint="name it as source.table")
        return ".".join(parts)

    def _properties(self) -> dict[str, str]:
        self._expect("(")
        result: dict[str, str] = {}
        while True:
            key = self._property_key()
            self._take("=")
            value = self._string("the property's value")
            if key.lower() not in PROPERTIES:
                raise self._error(f"unknown property '{key}'", hint="known: " + ", ".join(sorted(PROPERTIES)))
            known = PROPERTIES[key.lower()]
            if known is None:
                try:
                    parse_duration(value)
                except ValueError as error:
                    raise self._error(f"'{key}': {error}", hint=DURATION_HINT) from None
            elif value.lower() not in known:
                raise self._error(f"'{value}' is no value of '{key}'", hint="one of: " + ", ".join(known))
            result[key.lower()] = value.lower()
            if self._take(")"):
                return result
            self._expect(",")

    def _property_key(self) -> str:
        token = self._peek()
        if token is not None and token.token_type == TokenType.STRING:
            return self._string("the property's name")
        key = self._name("the property's name")
        while self._take("."):
            key += "." + self._name("the property's name")
        return key

    def _names(self, after: str) -> tuple[str, ...]:
        self._expect("(", f"write {after} (column, …)")
        names = [self._name("a column")]
        while self._take(","):
            names.append(self._name("a column"))
        self._expect(")")
        return tuple(names)

    def _name(self, what: str) -> str:
        token = self._peek()
        if token is None or not (
            token.token_type in (TokenType.VAR, TokenType.IDENTIFIER) or token.text.replace("_", "a").isalnum()
        ):
            raise self._error(f"expected {what}")
        if token.token_type in (TokenType.STRING, TokenType.NUMBER):
            raise self._error(f"expected {what}", hint="write the name without quotes, or in backquotes")
        self._index += 1
        return token.text

    def _string(self, what: str) -> str:
        token = self._peek()
        if token is None or token.token_type != TokenType.STRING:
            raise self._error(f"expected {what} in quotes")
        self._index += 1
        return token.text

    def _end(self, hint: str) -> None:
        if self._index < len(self._tokens):
            raise self._error("expected the end of the statement", hint=hint)

    def _peek(self) -> Token | None:
        return self._tokens[self._index] if self._index < len(self._tokens) else None

    def _at(self, word: str) -> bool:
        token = self._peek()
        return token is not None and token.token_type != TokenType.STRING and token.text.upper() == word

    def _take(self, word: str) -> bool:
        if not self._at(word):
            return False
        self._index += 1
        return True

    def _expect(self, word: str, hint: str | None = None) -> None:
        if not self._take(word):
            raise self._error(f"expected {word}", hint=hint)

    def _line(self, token: Token) -> int:
        return self._first_line + self._text.count("\n", 0, token.start)

    def _start(self) -> Location:
        return Location(self._file, self._line(self._tokens[0]))

    def _error(self, what: str, hint: str | None = None) -> FlowError:
        token = self._peek()
        if token is None:
            return FlowError(f"{what}, found the end of the statement", where=self._place(self._tokens[-1]), hint=hint)
        near = self._text[token.start : token.end + 1]
        words = ("MATERIALIZED", "STREAMING", "FLOW", "VIEW", "TABLE", "AS", "SEQUENCE", "STORED", "TRACK", "KEYS")
        if hint is None and near.upper() not in words:
            hint = did_you_mean(near, words) if nearest(near, words) else None
        return FlowError(f"{what}, found '{near}'", where=self._place(token), hint=hint)

    def _place(self, token: Token) -> Location:
        return Location(self._file, self._first_line).within(self._text, token.start)
