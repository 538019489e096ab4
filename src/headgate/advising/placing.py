"""On which platform a stored result is kept: where it is made, or where what follows runs.

    p(V) = (σ c_offline(V at x) + λ (c_view + c(next at y))) / (σ c_offline(V at y) + λ (c_delta + c(next at y)))

x is where V's changes are computed, y where the next operator runs; kept at x, all of V has to be brought over for each run, kept
at y, only its changes. Above 1, y is the better place; when it is full, the next one is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PlaceCost:
    platform: str
    offline: float
    """Loading V there at first."""
    transfer: float
    """Bringing what it needs there for a run: V's changes, or where V stays, all of V."""
    following: float
    """The next operator."""
    is_full: bool = False

    def total(self, shared: float, space: float) -> float:
        return space * self.offline + shared * (self.transfer + self.following)


def placement_rate(stays: PlaceCost, moves: PlaceCost, *, shared: float = 1.0, space: float = 0.0) -> float:
    """p(V): above 1, V is better kept where the next operator runs."""
    return stays.total(shared, space) / moves.total(shared, space)


def place(stays: PlaceCost, others: Sequence[PlaceCost], *, shared: float = 1.0, space: float = 0.0) -> PlaceCost:
    """The best place that is not full: another platform only if its placement rate is above 1."""
    open_places = [each for each in others if not each.is_full]
    best = max(open_places, key=lambda each: placement_rate(stays, each, shared=shared, space=space), default=stays)
    return best if best is not stays and placement_rate(stays, best, shared=shared, space=space) > 1 else stays
