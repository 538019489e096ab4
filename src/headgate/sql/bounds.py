"""How long and how deep SQL may be: parsers, here and in Spark, recurse once per level and would run out of stack.

Every text passes these bounds before it is parsed (tokens, levels of brackets) and after (the depth of its tree), so that whatever
walks the tree may recurse.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from headgate.errors import FlowError, Location

MOST_TOKENS = 50_000
"""Words, values and signs of one text."""
MOST_LEVELS = 50
"""Brackets, types (array<…>), CASEs and prefixes (NOT, -) within each other."""
MOST_CHAINED = 1_000
"""Levels of the tree: operators in a chain (a + b + c, a AND b, UNION) make one each."""

_FRAMES = 5_000
_OPENING = frozenset((TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE, TokenType.CASE))
_CLOSING = frozenset((TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE, TokenType.END))
_PREFIXES = frozenset((TokenType.NOT, TokenType.DASH, TokenType.PLUS, TokenType.TILDE))
_TYPES = frozenset((TokenType.ARRAY, TokenType.MAP, TokenType.STRUCT))

# The parser takes up to sixty frames of Python for one level. Frames of Python functions take no stack of the thread.
sys.setrecursionlimit(max(sys.getrecursionlimit(), _FRAMES))


def require_bounded_tokens(tokens: list[Token], text: str, where: Location) -> list[Token]:
    """The tokens themselves, if there are not too many and not too many levels."""
    if len(tokens) > MOST_TOKENS:
        raise FlowError(
            f"the SQL text has {len(tokens):,} tokens, and {MOST_TOKENS:,} are the most",
            where=where,
            hint="put long lists of values into a table and join it",
        )
    level = types = prefixes = 0
    before: TokenType | None = None
    for token in tokens:
        kind = token.token_type
        prefixes = prefixes + 1 if kind in _PREFIXES else 0
        types += (kind == TokenType.LT and before in _TYPES) - (kind == TokenType.GT and types > 0)
        level += (kind in _OPENING) - (kind in _CLOSING and level > 0)
        before = kind
        if level + types + prefixes > MOST_LEVELS:
            raise _too_deep(where.within(text, token.start))
    return tokens


def require_bounded_depth(tree: exp.Expr, where: Location) -> None:
    """Refuses a tree that is deeper than what walks it can follow."""
    level, depth = [tree], 0
    while level:
        depth += 1
        if depth > MOST_CHAINED:
            raise FlowError(
                f"the SQL text chains or nests more than {MOST_CHAINED:,} operators",
                where=where,
                hint="write long chains of OR as IN (…), of UNION ALL as VALUES, or divide the query",
            )
        level = [child for node in level for child in node.iter_expressions()]


@contextmanager
def bounded_recursion(where: Location) -> Iterator[None]:
    """Tells what recurses too deeply nevertheless as what it is."""
    try:
        yield
    except RecursionError:
        raise _too_deep(where) from None


def _too_deep(where: Location) -> FlowError:
    return FlowError(
        f"the SQL text is nested more than {MOST_LEVELS} levels deep",
        where=where,
        hint="write it with fewer levels, for example with WITH",
    )
