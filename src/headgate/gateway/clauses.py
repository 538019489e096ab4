"""What a view's statement says beside its query: names of columns, constraints, properties and a comment.

name [(column | constraint, …)] [COMMENT 'text'] [TBLPROPERTIES (key = value, …) | WITH (key = value, …)] AS query

constraint: CONSTRAINT name EXPECT (condition) [ON VIOLATION FAIL [UPDATE] | DROP [ROW] | WARN]
"""

from __future__ import annotations

from dataclasses import dataclass, field

from sqlglot.tokenizer_core import TokenType

from headgate.dataflow.flow import Action
from headgate.gateway.problems import NOT_SUPPORTED, WireProblem
from headgate.gateway.words import Words

_FORM = "write CONSTRAINT name EXPECT (condition) [ON VIOLATION FAIL | DROP | WARN]"


@dataclass(frozen=True, slots=True)
class Constraint:
    name: str
    condition: str
    """In the client's words."""
    action: Action


@dataclass
class ViewClauses:
    columns: list[str] = field(default_factory=list)
    constraints: list[Constraint] = field(default_factory=list)
    properties: dict[str, str] = field(default_factory=dict)
    comment: str | None = None


def view_clauses(words: Words) -> ViewClauses:
    """The clauses between a view's name and its query, and over AS."""
    found = ViewClauses()
    if words.take("("):
        while True:
            if words.at("CONSTRAINT"):
                found.constraints.append(constraint(words))
            else:
                found.columns.append(words.name("a column's name"))
            if words.take(")"):
                break
            if not words.take(","):
                raise words.error("expected ) or , : columns have their types from the query")
    while not words.take("AS"):
        if words.take("COMMENT"):
            found.comment = words.string("a comment in quotes")
        elif words.take("TBLPROPERTIES") or words.take("WITH"):
            found.properties |= properties(words)
        elif words.at("USING") or words.at("TABLESPACE"):
            raise WireProblem(
                NOT_SUPPORTED,
                f"{words.statement.word(words.index)} is not taken from clients",
                hint="leave it out: storage is the project's",
                at=words.statement.place(words.index),
            )
        else:
            raise words.error("expected AS and a query")
    return found


def constraint(words: Words) -> Constraint:
    """CONSTRAINT name EXPECT (condition) [ON VIOLATION …]."""
    words.expect("CONSTRAINT")
    name = words.name("the constraint's name")
    if not words.take("EXPECT", "("):
        raise words.error("expected EXPECT and a condition in brackets", hint=_FORM)
    first, depth = words.index, 1
    while depth:
        if words.is_at_end:
            raise words.error("expected ) after the condition", hint=_FORM)
        depth += words.at("(") - words.at(")")
        words.index += 1
    statement = words.statement
    condition = statement.text[statement.place(first) : statement.place(words.index - 1)].strip()
    if not condition:
        raise words.error("expected a condition", hint=_FORM)
    return Constraint(name, condition, _action(words))


def _action(words: Words) -> Action:
    if not words.take("ON", "VIOLATION"):
        return "warn"
    if words.take("FAIL"):
        words.take("UPDATE")
        return "fail"
    if words.take("DROP"):
        words.take("ROW")
        return "drop"
    if words.take("WARN"):
        return "warn"
    raise words.error("expected FAIL, DROP or WARN", hint=_FORM)


def properties(words: Words) -> dict[str, str]:
    """(key = value, …): what a flow in a file has as TBLPROPERTIES."""
    found = dict[str, str]()
    words.expect("(")
    while not found or words.take(","):
        key = property_name(words)
        if not words.take("="):
            raise words.error("expected = and a value")
        found[key] = _value(words)
    words.expect(")")
    return found


def property_names(words: Words) -> list[str]:
    """(key, …)."""
    words.expect("(")
    found = [property_name(words)]
    while words.take(","):
        found.append(property_name(words))
    words.expect(")")
    return found


def property_name(words: Words) -> str:
    token = words.token
    is_text = token is not None and token.token_type == TokenType.STRING
    return (words.string() if is_text else ".".join(words.names("a property's name"))).lower()


def _value(words: Words) -> str:
    token = words.token
    if token is not None and token.token_type == TokenType.NUMBER:
        words.index += 1
        return token.text
    if token is not None and token.token_type in (TokenType.STRING, TokenType.HEREDOC_STRING, TokenType.RAW_STRING):
        return words.string()
    return words.name("a value")
