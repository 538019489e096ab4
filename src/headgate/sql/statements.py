"""Statements of a flow file: views, streaming tables and their AUTO CDC flows.

    CREATE [OR REFRESH | OR REPLACE] MATERIALIZED VIEW name [(constraint, …)] [COMMENT '…'] [TBLPROPERTIES ('k' = 'v', …)] AS query
    CREATE [OR REFRESH] STREAMING TABLE name [(constraint, …)]
    CREATE FLOW name AS AUTO CDC INTO table FROM [stream(]source.table[)] KEYS (a, …)
        [SEQUENCE BY column] [STORED AS SCD TYPE 1 | 2] [TRACK HISTORY ON (a, …) | ON * EXCEPT (a, …)]

    constraint: CONSTRAINT name EXPECT (condition) [ON VIOLATION FAIL [UPDATE] | DROP [ROW] | WARN]

Names keep the user's spelling; they are compared without case. Every mistake is a FlowError with its line.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from sqlglot.tokenizer_core import Token, TokenType

from headgate.config.durations import DURATION_HINT, parse_duration
from headgate.dataflow.flow import Action, Expectation
from headgate.dataflow.relation import quoted
from headgate.errors import FlowError, Location, Problems, all_problems
from headgate.sql.expectations import COUNTED, check_expectation, counting_query, kept_query
from headgate.sql.names import did_you_mean, nearest
from headgate.sql.positions import tokenize

LOOKUP_MISS = "lookup_miss"
TARGET_LAG = "target_lag"
PLACE = "place"
INDEXES = "indexes"
ADVISE = "advise"
RANGES = "ranges"
RANGE_COLUMN = "range_column"
_MOST_RANGES = 1_000
_DECLARED = Location("flow")
PROPERTIES: dict[str, tuple[str, ...] | None] = {
    LOOKUP_MISS: ("unknown", "drop", "fail"),
    TARGET_LAG: None,
    PLACE: (),
    INDEXES: (),
    ADVISE: ("auto", "never"),
    RANGES: (),
    RANGE_COLUMN: (),
}
"""Known table properties and their values; None stands for a duration, an empty tuple for any text."""


@dataclass(frozen=True, slots=True)
class CreateView:
    """`query_where` is the place of the query's first word."""

    name: str
    query_text: str
    where: Location
    query_where: Location
    properties: dict[str, str] = field(default_factory=dict)
    comment: str | None = None
    expectations: tuple[Expectation, ...] = ()


@dataclass(frozen=True, slots=True)
class CreateStreamingTable:
    name: str
    where: Location
    comment: str | None = None
    expectations: tuple[Expectation, ...] = ()


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


@dataclass(frozen=True, slots=True)
class ViewText:
    """A view as a program or client declares it: its query, and what a statement says beside it."""

    query: str
    expectations: tuple[Expectation, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    comment: str | None = None

    @classmethod
    def of(cls, text: str) -> Self:
        """Of the query alone, or of a whole CREATE MATERIALIZED VIEW."""
        if not is_statement(text):
            return cls(text)
        tokens = tokenize(text, _DECLARED)
        while tokens[-1].token_type == TokenType.SEMICOLON:
            tokens.pop()
        parser = _StatementParser(text, "flow", 1, tokens)
        view = parser.parse()
        if not isinstance(view, CreateView):
            raise FlowError("expected CREATE MATERIALIZED VIEW", where=view.where)
        return cls(parser.query, view.expectations, view.properties, view.comment)

    def written(self, name: str) -> str:
        """The query if there is nothing else, or the statement of a view of this name."""
        if not (self.expectations or self.properties or self.comment):
            return self.query
        parts = [f"CREATE MATERIALIZED VIEW {quoted(name)}"]
        if self.expectations:
            constraints = [
                f"CONSTRAINT {quoted(each.name)} EXPECT ({each.condition}) ON VIOLATION {each.action.upper()}"
                for each in self.expectations
            ]
            parts.append(f"({', '.join(constraints)})")
        if self.comment:
            parts.append(f"COMMENT {_text_literal(self.comment)}")
        if self.properties:
            pairs = [f"{_text_literal(key)} = {_text_literal(value)}" for key, value in self.properties.items()]
            parts.append(f"TBLPROPERTIES ({', '.join(pairs)})")
        return f"{' '.join(parts)} AS\n{self.query}"


def is_statement(text: str, where: Location = _DECLARED) -> bool:
    """Whether a view is declared by a statement of its own, and not by its query."""
    tokens = tokenize(text, where)
    return bool(tokens) and tokens[0].text.upper() == "CREATE"


def _text_literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


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
                    found += _StatementParser(text, file, first_line, group).parse_all()
    return found


class _StatementParser:
    def __init__(self, text: str, file: str, first_line: int, tokens: list[Token]) -> None:
        self._text = text
        self._file = file
        self._first_line = first_line
        self._tokens = tokens
        self._index = 0
        self.query = ""
        """Of a view, as written."""

    def parse_all(self) -> list[Statement]:
        """The statement and, if it has constraints, the view that counts what violates them."""
        found = self.parse()
        if isinstance(found, CreateAutoCdc) or not found.expectations:
            return [found]
        query, properties = None, {}
        if isinstance(found, CreateView):
            properties = {name: value for name, value in found.properties.items() if name == TARGET_LAG}
            if any(each.action == "drop" for each in found.expectations):
                query = self.query
        text = counting_query(found.name, query, found.expectations)
        place = found.expectations[0].where
        return [found, CreateView(f"{found.name}{COUNTED}", text, found.where, place, properties)]

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
        expectations = self._expectations()
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
        self.query = self._text[first.start : last.end + 1]
        query, place = kept_query(self.query, self._place(first), expectations)
        return CreateView(name, query, self._start(), place, properties, comment, expectations)

    def _streaming_table(self) -> CreateStreamingTable:
        name = self._name("the table's name")
        expectations = self._expectations()
        for each in expectations:
            if each.action != "warn":
                raise FlowError(
                    f"constraint {each.name}: a streaming table keeps the history of its source, and only counts violations",
                    where=each.where,
                    hint="write ON VIOLATION WARN, or put the constraint on a view over the table",
                )
        comment = self._string("a comment") if self._take("COMMENT") else None
        self._end("a streaming table has a name and constraints; its columns come from its flow")
        return CreateStreamingTable(name, self._start(), comment, expectations)

    def _expectations(self) -> tuple[Expectation, ...]:
        """The constraints behind a name, in brackets."""
        found: list[Expectation] = []
        if not self._take("("):
            return ()
        while True:
            found.append(self._expectation())
            if any(each.name.lower() == found[-1].name.lower() for each in found[:-1]):
                raise FlowError(f"there are two constraints {found[-1].name}", where=found[-1].where)
            if self._take(")"):
                return tuple(found)
            self._expect(",")

    def _expectation(self) -> Expectation:
        form = "write CONSTRAINT name EXPECT (condition) [ON VIOLATION FAIL | DROP | WARN]"
        self._expect("CONSTRAINT", f"columns come from the query; {form}")
        name = self._name("the constraint's name")
        self._expect("EXPECT", form)
        self._expect("(", form)
        first, depth = self._index, 1
        while depth:
            if self._index >= len(self._tokens):
                raise self._error("expected ) after the condition", hint=form)
            depth += self._at("(") - self._at(")")
            self._index += 1
        if self._index - first == 1:
            raise self._error("expected a condition", hint=form)
        condition = self._text[self._tokens[first].start : self._tokens[self._index - 2].end + 1]
        found = Expectation(name, condition, self._violation(form), self._place(self._tokens[first]))
        check_expectation(found)
        return found

    def _violation(self, form: str) -> Action:
        if not self._take("ON"):
            return "warn"
        self._expect("VIOLATION", form)
        if self._take("FAIL"):
            self._take("UPDATE")
            return "fail"
        if self._take("DROP"):
            self._take("ROW")
            return "drop"
        self._expect("WARN", form)
        return "warn"

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
            elif key.lower() == RANGES and not (value.isdecimal() and 1 <= int(value) <= _MOST_RANGES):
                raise self._error(
                    f"'{value}' is not a number of ranges", hint=f"give a whole number from 1 to {_MOST_RANGES}"
                )
            elif known and value.lower() not in known:
                raise self._error(f"'{value}' is not a value of '{key}'", hint="one of: " + ", ".join(known))
            result[key.lower()] = value.lower()
            if self._take(")"):
                if (RANGES in result) != (RANGE_COLUMN in result):
                    raise self._error(
                        f"'{RANGES}' and '{RANGE_COLUMN}' go together",
                        hint=f"write TBLPROPERTIES ('{RANGES}' = '10', '{RANGE_COLUMN}' = 'a column of the key')",
                    )
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
