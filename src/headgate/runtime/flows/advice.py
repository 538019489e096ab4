"""Which results of a flow are worth storing, at the changes and reads that there are."""

from __future__ import annotations

import math
from dataclasses import dataclass

from headgate.advising.costs import NEVER
from headgate.advising.cuts import Cut as PricedCut
from headgate.advising.cuts import choose, cut_at, trunk_cuts
from headgate.advising.swaps import choose_with_swaps
from headgate.dataflow.cutting import Cut
from headgate.dataflow.graph import Scan
from headgate.runtime.flows.operator_costs import OperatorCosts


@dataclass(frozen=True, slots=True)
class OperatorAdvice:
    operator: str
    as_written: float
    """Seconds."""
    incremental: float | None
    """Seconds per job at the update rate; None where it cannot run so."""
    gain: float | None
    """g(V) of a result right behind it; None for one on a parallel branch, which counts with the others."""


@dataclass(frozen=True, slots=True)
class FlowAdvice:
    flow: str
    rows: int
    """That the query as written reads."""
    changed_rows: int
    """Per read."""
    shared: float
    """λ: reads per job."""
    operators: tuple[OperatorAdvice, ...]
    current: tuple[str, ...]
    """Operators behind which results are stored; none means that the flow is recomputed when it is read."""
    best: tuple[str, ...]
    cut: Cut | None
    """The best, as it is stored; None for the whole result."""
    gain: float
    current_gain: float
    as_written: float
    building: float
    """The seconds that building the best takes."""
    reason: str
    swapped: str | None
    """What another order of operators would gain, if it gains more."""
    fixed: str | None
    """Why the whole result has to be stored, if it has."""
    is_measured: bool
    """Whether the seconds as written were measured, up to each operator."""

    @property
    def moves(self) -> bool:
        return self.fixed is None and self.best != self.current

    def __str__(self) -> str:
        rate = 100 * self.changed_rows / max(1, self.rows)
        how = "measured" if self.is_measured else "modelled"
        lines = [
            f"{self.flow}: {self.changed_rows:,} of {self.rows:,} rows change per read ({rate:.2g} %), λ {self.shared:.3g};"
            f" seconds as written are {how}"
        ]
        width = max(len(each.operator) for each in self.operators)
        lines.append(f"  {'operator':<{width}}  as written  incremental  gain")
        for each in self.operators:
            written = f"{each.as_written:.3f} s"
            incremental = "∞" if each.incremental is None else f"{each.incremental:.3f} s"
            gain = "" if each.gain is None else f"{each.gain:.2f}"
            lines.append(f"  {each.operator:<{width}}  {written:>10}  {incremental:>11}  {gain:>4}")
        lines.append(f"  best: {self.reason}")
        if self.swapped is not None:
            lines.append(f"  written in another order: {self.swapped}")
        stored = f"behind {' and '.join(self.current)}" if self.current else "nothing: recomputed when it is read"
        lines.append(f"  stored: {stored}" + (", which is the best" if self.best == self.current else ""))
        if self.fixed is not None:
            lines.append(f"  the whole result stays stored: {self.fixed}")
        return "\n".join(lines)


def advise_flow(
    costs: OperatorCosts, current: Cut | None, shared: float, space: float, fixed: str | None
) -> FlowAdvice:
    """What to store of a flow; `space` is σ."""
    fragment = costs.fragment()
    whole = (costs.names[costs.graph.root],)
    scans = {costs.names[node] for node in costs.names if isinstance(node, Scan)}
    names = {costs.keys[node]: name for node, name in costs.names.items()}
    keys = {name: key for key, name in names.items()}
    in_use = whole if current is None else tuple(names[key] for key in current)
    choice = choose(fragment, shared=shared, space=space)
    # A table is stored already: a result right behind its scan is none.
    best = tuple(name for name in choice.cut.behind if name not in scans)
    order, swapped = choose_with_swaps(fragment, shared=shared, space=space)

    def gain(cut: PricedCut) -> float:
        return cut.gain(fragment.as_written, shared, space)

    gains = {cut.behind[0]: gain(cut) for cut in trunk_cuts(fragment) if cut.behind[0] not in scans}
    return FlowAdvice(
        costs.flow,
        costs.rows,
        costs.changed_rows,
        shared,
        tuple(
            OperatorAdvice(
                each.name,
                each.as_written,
                None if each.incremental == NEVER else each.incremental,
                gains.get(each.name),
            )
            for each in fragment.walk()
        ),
        in_use,
        best,
        None if best == whole else tuple(keys[name] for name in best),
        choice.gain if best else 0.0,
        gain(cut_at(fragment, in_use)) if in_use else 0.0,
        fragment.as_written,
        sum(each.offline for each in fragment.walk() if each.name in best),
        choice.reason,
        f"{' → '.join(each.name for each in order.operators)}: {swapped.reason}"
        if swapped.gain > choice.gain + 1e-9 and math.isfinite(swapped.gain)
        else None,
        fixed,
        costs.is_measured,
    )
