"""Prepared statements and portals of a connection; PREPARE, EXECUTE and DEALLOCATE."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal

from headgate.gateway.answers import Done, Followed, Result, RowCursor
from headgate.gateway.problems import DUPLICATE_STATEMENT, SYNTAX, UNKNOWN_STATEMENT, WireProblem
from headgate.gateway.queries import Made
from headgate.gateway.statements import Statement, split
from headgate.gateway.words import Words

_MOST_PREPARED = 10_000

Begin = Callable[[Statement, Sequence[object]], Result | Made]
"""What a statement with parameters comes to, or the work that it takes."""


@dataclass(frozen=True, slots=True)
class PreparedStatement:
    """A statement that was parsed; `oids` are the types of its parameters that are known, 0 for others."""

    text: str
    statement: Statement | None
    oids: tuple[int, ...] = ()


@dataclass
class Portal:
    """A statement with its parameters, and how far its rows were taken."""

    prepared: PreparedStatement
    values: tuple[object, ...] = ()
    formats: tuple[int, ...] = ()
    result: Result | None = None
    cursor: RowCursor | None = None
    has_hold: bool = False
    """Whether it outlives its transaction."""

    def close(self) -> None:
        if isinstance(self.result, Followed):
            self.result.close()


class PreparedStatements:
    """Those of a connection, by name; the empty name is the statement that the next one replaces."""

    def __init__(self, check: Callable[[Statement], None], begin: Begin) -> None:
        """`check` raises mistakes in a statement's syntax."""
        self._check = check
        self._begin = begin
        self._known: dict[str, PreparedStatement] = {}

    def add(self, name: str, text: str, oids: Sequence[int] = ()) -> None:
        """Reads a text of one statement; a mistake in its syntax is told."""
        if name and name in self._known:
            raise WireProblem(DUPLICATE_STATEMENT, f'prepared statement "{name}" already exists')
        if len(self._known) >= _MOST_PREPARED:
            raise WireProblem(
                "53400", f"the connection has {_MOST_PREPARED:,} prepared statements", hint="close some: DEALLOCATE ALL"
            )
        found = split(text)
        if len(found) > 1:
            raise WireProblem(SYNTAX, "cannot insert multiple commands into a prepared statement")
        statement = found[0] if found else None
        if statement is not None:
            self._check(statement)
        self._known[name] = PreparedStatement(text, statement, tuple(oids))

    def find(self, name: str) -> PreparedStatement:
        found = self._known.get(name)
        if found is None:
            raise WireProblem(UNKNOWN_STATEMENT, f'prepared statement "{name}" does not exist')
        return found

    def close(self, name: str) -> None:
        """Without a statement of this name nothing happens."""
        self._known.pop(name, None)

    def clear(self) -> None:
        self._known.clear()

    def prepare(self, statement: Statement) -> Done:
        """PREPARE name [(types)] AS statement."""
        words = Words(statement, 1)
        name = words.name("a statement's name")
        if words.take("("):
            words.skip_to(")")
        words.expect("AS")
        self.add(name, statement.since(words.index))
        return Done("PREPARE")

    def execute(self, statement: Statement) -> Result | Made:
        """EXECUTE name [(literals)]."""
        words = Words(statement, 1)
        prepared = self.find(words.name("a statement's name"))
        if prepared.statement is None:
            return Done("EXECUTE")
        return self._begin(prepared.statement, _arguments(words) if not words.is_at_end else ())

    def named_by(self, statement: Statement) -> Statement | None:
        """The statement that an EXECUTE names."""
        found = self._known.get(Words(statement, 1).name("a statement's name"))
        return None if found is None else found.statement

    def deallocate(self, statement: Statement) -> Done:
        words = Words(statement, 1)
        words.take("PREPARE")
        if words.take("ALL"):
            self.clear()
            return Done("DEALLOCATE ALL")
        name = words.name()
        words.end()
        self.find(name)
        self.close(name)
        return Done("DEALLOCATE")


def _arguments(words: Words) -> tuple[object, ...]:
    """The literals of EXECUTE name (…)."""
    words.expect("(")
    values: list[object] = []
    while not words.take(")"):
        token = words.token
        if token is None:
            raise words.error("expected )")
        if words.take("NULL"):
            values.append(None)
        elif words.take("TRUE") or words.take("FALSE"):
            values.append(token.text.upper() == "TRUE")
        elif token.text == "-" or token.token_type.name == "NUMBER":
            values.append(_number(words))
        else:
            values.append(words.string("a literal"))
        words.take(",")
    return tuple(values)


def _number(words: Words) -> int | Decimal:
    sign = -1 if words.take("-") else 1
    token = words.token
    if token is None or token.token_type.name != "NUMBER":
        raise words.error("expected a number")
    words.index += 1
    return sign * (int(token.text) if token.text.isdigit() else Decimal(token.text))
