"""What the parts of the lowering share while one view is lowered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from sqlglot import exp

from headgate.dataflow.expression import Expression
from headgate.dataflow.graph import LookupMiss, Node
from headgate.sql.expressions import Renderer
from headgate.sql.joins import JoinBuilder
from headgate.sql.names import NameAllocator
from headgate.sql.positions import QueryText
from headgate.sql.predicates import Predicate
from headgate.sql.scope import Environment, Lowered, TableCatalog


@dataclass(frozen=True)
class Body:
    """FROM and WHERE of a SELECT; `pulled`: conditions that connect it to the query around."""

    node: Node
    renderer: Renderer
    pulled: tuple[Predicate, ...] = ()
    carried: tuple[str, ...] = ()
    """Columns to keep through grouping and projection, because the query around joins by them."""


@dataclass(frozen=True)
class LateValue:
    """A one-row aggregate subquery before its value is computed, so that an empty group still has one."""

    node: Node
    value: Expression
    condition: Expression | None
    empty_is_null: bool


class SelectSteps(Protocol):
    """The steps of lowering a SELECT, which unnesting takes apart."""

    def body(self, select: exp.Select, context: Context, environment: Environment) -> Body:
        """FROM and WHERE."""

    def values(self, select: exp.Select, body: Body) -> tuple[Expression, ...]:
        """The select list of a SELECT without grouping, over its body."""

    def finish(self, select: exp.Select, body: Body, context: Context) -> Lowered:
        """Grouping, windows, select list and DISTINCT over the body."""

    def late(self, select: exp.Select, body: Body, context: Context) -> LateValue:
        """The aggregate of a subquery without GROUP BY, grouped by the carried columns."""


@dataclass(frozen=True)
class Context:
    """The view's text, its catalog, its names, and how a nested query is lowered."""

    query: QueryText
    catalog: TableCatalog
    names: NameAllocator
    joins: JoinBuilder
    lookup_miss: LookupMiss
    steps: SelectSteps
    lower: Callable[[exp.Expr, Environment], Lowered]
