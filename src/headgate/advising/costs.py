"""What the operators of a flow cost, as a table: as written, incrementally at an update rate, and what keeping their result costs.

operator   as written   incremental         online                 offline
u          c(u_org)     c(u_inc), or ∞      bringing V up to date  building V, its space
                                            and reading it
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

NEVER = math.inf
"""The incremental cost of what cannot run incrementally."""


@dataclass(frozen=True, slots=True)
class Operator:
    """One row of the table; costs are in seconds, or any one unit."""

    name: str
    as_written: float
    incremental: float = NEVER
    online: float = 0.0
    """Of a result kept right behind it."""
    offline: float = 0.0
    reads: frozenset[str] = frozenset()
    """Columns that it uses."""
    makes: frozenset[str] = frozenset()
    """Columns that it adds or replaces."""
    is_row_wise: bool = False
    """Whether it decides and computes for each row by itself: a filter, a projection, a lookup by a unique key."""
    is_fixed: bool = False
    """Whether nothing may be moved past it: LIMIT, windows over other rows, functions of context."""


@dataclass(frozen=True)
class CostFragment:
    """Operators in sequence, behind branches that run in parallel and meet in the first of them."""

    operators: tuple[Operator, ...]
    branches: tuple[CostFragment, ...] = ()

    @cached_property
    def as_written(self) -> float:
        """Branches cost as much as the longest one."""
        longest = max((branch.as_written for branch in self.branches), default=0.0)
        return longest + sum(operator.as_written for operator in self.operators)

    @cached_property
    def incremental(self) -> float:
        longest = max((branch.incremental for branch in self.branches), default=0.0)
        return longest + sum(operator.incremental for operator in self.operators)

    def walk(self) -> Iterator[Operator]:
        for branch in self.branches:
            yield from branch.walk()
        yield from self.operators
