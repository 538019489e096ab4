"""Conditions: what can be a join key, what can be pushed below a join."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from sqlglot import exp

from headgate.dataflow.expression import Expression, joined
from headgate.sql.expressions import conjuncts, disjuncts, unwrapped
from headgate.sql.names import canonical


@dataclass(frozen=True, slots=True)
class Predicate:
    """A condition; `equality` holds the sides of `a = b`. `implied`: follows from another one and may be dropped."""

    sql: Expression
    equality: tuple[Expression, Expression] | None = None
    implied: bool = False

    @property
    def columns(self) -> frozenset[str]:
        return self.sql.columns


def predicates(node: exp.Expr | None, render: Callable[[exp.Expr], Expression]) -> list[Predicate]:
    """The conjuncts of a condition, with what its ORs imply for single tables."""
    result: list[Predicate] = []
    for part in conjuncts(node):
        if isinstance(part, exp.Boolean) and part.this:
            continue
        result.append(_predicate(part, render))
        if isinstance(part, exp.Or):
            result.extend(_common(part, render))
    return result


def _predicate(part: exp.Expr, render: Callable[[exp.Expr], Expression]) -> Predicate:
    equality = None
    if isinstance(part, exp.EQ):
        equality = (render(unwrapped(part.this)), render(unwrapped(part.expression)))
    return Predicate(render(part), equality)


def _common(node: exp.Or, render: Callable[[exp.Expr], Expression]) -> list[Predicate]:
    """Conditions that every branch of an OR contains, and per table the OR of what each branch asks of it."""
    branches = [[_predicate(part, render) for part in conjuncts(branch)] for branch in disjuncts(node)]
    texts = [{canonical(item.sql) for item in branch} for branch in branches]
    shared = [
        replace(item, implied=True)
        for item in branches[0]
        if all(canonical(item.sql) in others for others in texts[1:])
    ]
    owners = dict.fromkeys(tuple(sorted(_owners(item.columns))) for branch in branches for item in branch)
    if len(owners) == 1:
        return shared
    for owner in owners:
        if len(owner) != 1:
            continue
        pieces = [[item for item in branch if _owners(item.columns) == set(owner)] for branch in branches]
        if not all(pieces):
            continue
        parts = [joined(" AND ", [Expression("(", item.sql, ")") for item in items]) for items in pieces]
        text = joined(" OR ", [Expression("(", part, ")") for part in parts])
        shared.append(Predicate(text, implied=True))
    return shared


def _owners(columns: frozenset[str]) -> set[str]:
    return {column.split("__")[0] for column in columns}
