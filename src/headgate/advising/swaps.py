"""Orders of a flow's operators that have the same result, in which gainful ones come before what cannot run incrementally.

Two neighbours may be swapped if each works on rows by itself and neither uses what the other makes. Orders that swaps reach are
those that keep every pair which must not be swapped; so a stored result may stand behind any set of operators that has, with each
one, all that must come before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from headgate.advising.costs import CostFragment, Operator
from headgate.advising.cuts import Choice, choose

MaySwap = Callable[[Operator, Operator], bool]
"""Whether the second of two neighbours may come first."""
MOST_OPERATORS = 16
"""In one sequence; longer ones stay as they are written."""


def may_swap(first: Operator, second: Operator) -> bool:
    """Whether two neighbours give the same rows in either order."""
    if first.is_fixed or second.is_fixed or not (first.is_row_wise and second.is_row_wise):
        return False
    return not (first.makes & (second.reads | second.makes) or second.makes & first.reads)


def orders(operators: Sequence[Operator], allowed: MaySwap = may_swap) -> Iterator[tuple[Operator, ...]]:
    """One order for each set of operators that can come first, the order as written among them.

    Costs do not depend on the order within the set, and each operator of it that can be the last one is.
    """
    if len(operators) > MOST_OPERATORS:
        yield tuple(operators)
        return
    count = len(operators)
    before = [
        sum(1 << first for first in range(second) if not allowed(operators[first], operators[second]))
        for second in range(count)
    ]
    seen: set[int] = {0}
    waiting = [0]
    yield tuple(operators)
    while waiting:
        chosen = waiting.pop()
        for last in range(count):
            bit = 1 << last
            if chosen & bit or before[last] & ~chosen:
                continue
            ahead = [operators[each] for each in range(count) if chosen >> each & 1]
            behind = [operators[each] for each in range(count) if not (chosen | bit) >> each & 1]
            yield (*ahead, operators[last], *behind)
            if chosen | bit not in seen:
                seen.add(chosen | bit)
                waiting.append(chosen | bit)


def choose_with_swaps(
    flow: CostFragment, allowed: MaySwap = may_swap, *, shared: float = 1.0, space: float = 0.0
) -> tuple[CostFragment, Choice]:
    """The best cut over all orders that swaps of the trunk's and the branches' operators reach; gives that order, too."""
    best: tuple[CostFragment, Choice] | None = None
    branches = [choose_with_swaps(branch, allowed, shared=shared, space=space)[0] for branch in flow.branches]
    for given in (flow.branches, tuple(branches)):
        for order in orders(flow.operators, allowed):
            found = replace(flow, operators=order, branches=given)
            choice = choose(found, shared=shared, space=space)
            if best is None or choice.gain > best[1].gain:
                best = found, choice
    assert best is not None
    return best
