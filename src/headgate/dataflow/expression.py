"""Expressions of a graph: Spark SQL text that knows which columns it reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


class Expression(str):
    """Spark SQL over the columns of an operator's inputs, put together of text and other expressions.

    An expression equals its text, which is all that is shown or stored of it. `pieces` are the text, cut where it names a
    column: these pieces are `Column`s.
    """

    pieces: tuple[str, ...]

    def __new__(cls, *parts: str) -> Expression:
        pieces = tuple(piece for part in parts for piece in (part.pieces if isinstance(part, Expression) else (part,)))
        if len(pieces) == 1 and isinstance(pieces[0], Column):
            return pieces[0]
        made = super().__new__(cls, "".join(pieces))
        made.pieces = pieces
        return made

    @property
    def columns(self) -> frozenset[str]:
        """The columns that the expression reads."""
        return frozenset(piece for piece in self.pieces if isinstance(piece, Column))

    def over(self, columns: Mapping[str, str]) -> Expression:
        """The expression with other expressions in the place of columns."""
        return Expression(*(columns.get(piece, piece) if isinstance(piece, Column) else piece for piece in self.pieces))


class Column(Expression):
    """A column, by its name in the graph."""

    def __new__(cls, name: str) -> Column:
        made = str.__new__(cls, name)
        made.pieces = (made,)
        return made


def joined(separator: str, parts: Iterable[str]) -> Expression:
    """The parts with a text between them."""
    return Expression(*[piece for part in parts for piece in (separator, part)][1:])


def in_parentheses(expression: Expression) -> Expression:
    """The expression where any other may stand beside it; a column needs no parentheses."""
    return expression if isinstance(expression, Column) else Expression("(", expression, ")")
