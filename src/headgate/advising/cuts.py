"""Where a flow is cut by a stored result V: what is before V runs incrementally, what is behind it as written.

    g(V) = (λ (c(F_org) − c(F_V)) − σ Σ c_offline(V)) / c(F_org)        c(F_V) has c_online(V) of each V inside

There is one V on the trunk, or one on each branch that is worth one: branches that run in parallel cost their maximum. λ counts
the flows and queries that share V, σ makes space comparable with time. Nothing gained: the flow is recomputed.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import product

from headgate.advising.costs import CostFragment


@dataclass(frozen=True, slots=True)
class Cut:
    """Results that are kept, by the names of the operators right behind which they are, and what the flow then costs."""

    behind: tuple[str, ...]
    cost: float
    offline: float

    def gain(self, as_written: float, shared: float, space: float) -> float:
        """g(V); nothing is gained over a flow that costs nothing."""
        if as_written <= 0 or not math.isfinite(self.cost):
            return -math.inf
        return (shared * (as_written - self.cost) - space * self.offline) / as_written


def all_cuts(flow: CostFragment) -> list[Cut]:
    """Every way to cut the flow, the one without a cut first."""
    found = []
    for branches in product(*(all_cuts(branch) for branch in flow.branches)):
        found.append(_behind_branches(flow, branches))
    return found + list(trunk_cuts(flow))


def cut_at(flow: CostFragment, behind: Collection[str]) -> Cut:
    """The cut behind these operators, of each branch at most one in sequence."""
    on_trunk = next((cut for cut in trunk_cuts(flow) if cut.behind[0] in behind), None)
    return on_trunk or _behind_branches(flow, [cut_at(branch, behind) for branch in flow.branches])


def useful_cuts(flow: CostFragment) -> list[Cut]:
    """Those of all cuts that no other one beats in both cost and offline cost; one of them has the greatest gain.

    For the longest branch's cost T, each branch takes what is cheapest offline among what costs at most T.
    """
    options = [useful_cuts(branch) for branch in flow.branches]
    found = []
    for most in {cut.cost for each in options for cut in each} or {0.0}:
        chosen = [
            min((cut for cut in each if cut.cost <= most), key=lambda cut: (cut.offline, cut.cost), default=None)
            for each in options
        ]
        if all(cut is not None for cut in chosen):
            found.append(_behind_branches(flow, [cut for cut in chosen if cut is not None]))
    return _best(found + list(trunk_cuts(flow)))


def _behind_branches(flow: CostFragment, branches: Sequence[Cut]) -> Cut:
    longest = max((cut.cost for cut in branches), default=0.0)
    return Cut(
        tuple(name for cut in branches for name in cut.behind),
        longest + sum(operator.as_written for operator in flow.operators),
        sum(cut.offline for cut in branches),
    )


def trunk_cuts(flow: CostFragment) -> Iterable[Cut]:
    """The cuts behind the trunk's operators; none behind the first that cannot run incrementally."""
    spent = max((branch.incremental for branch in flow.branches), default=0.0)
    left = sum(operator.as_written for operator in flow.operators)
    for operator in flow.operators:
        spent += operator.incremental
        left -= operator.as_written
        if not math.isfinite(spent):
            return
        yield Cut((operator.name,), spent + operator.online + left, operator.offline)


def _best(cuts: Iterable[Cut]) -> list[Cut]:
    kept: list[Cut] = []
    for cut in sorted(cuts, key=lambda cut: (cut.cost, cut.offline, len(cut.behind))):
        if not kept or cut.offline < kept[-1].offline:
            kept.append(cut)
    return kept


@dataclass(frozen=True, slots=True)
class Choice:
    """The cut with the greatest gain, and why; without a result behind an operator, the flow is recomputed."""

    cut: Cut
    gain: float
    reason: str


def choose(flow: CostFragment, *, shared: float = 1.0, space: float = 0.0) -> Choice:
    """The best cut; `shared` is λ, `space` is σ."""
    written = Cut((), flow.as_written, 0.0)
    cuts = [cut for cut in useful_cuts(flow) if cut.behind]
    best = max(cuts, key=lambda cut: cut.gain(flow.as_written, shared, space), default=written)
    gain = best.gain(flow.as_written, shared, space)
    if not best.behind or gain <= 0:
        why = (
            "no stored result takes less" if not best.behind else f"behind {' and '.join(best.behind)} gains {gain:.2f}"
        )
        return Choice(written, 0.0, f"recomputed: {why}")
    return Choice(
        best,
        gain,
        f"kept behind {' and '.join(best.behind)}: gains {gain:.2f}, {best.cost:.3g} instead of {flow.as_written:.3g}",
    )
