"""Where to cut rows that are sorted by a whole-number column, so that tasks get about equally many, without a look at the rows.

Known from statistics are pieces: so many rows between two values. Within a piece, rows are taken to lie evenly.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class RowsBetween(NamedTuple):
    """So many rows whose values lie between these two, both included."""

    low: int
    high: int
    rows: int


def borders(pieces: Sequence[RowsBetween], parts: int) -> list[int]:
    """The least value of every part but the first, ascending; fewer where there are not enough values."""
    if not pieces or parts < 2:
        return []
    lows, ends = (np.array([each[place] + place for each in pieces], dtype=np.float64) for place in (0, 1))
    densities = np.array([piece.rows / (piece.high - piece.low + 1) for piece in pieces])
    points, places = np.unique(np.concatenate([lows, ends]), return_inverse=True)
    steps = np.zeros(len(points))
    np.add.at(steps, places, np.concatenate([densities, -densities]))
    rows = np.concatenate([[0.0], np.cumsum(np.cumsum(steps)[:-1] * np.diff(points))])
    wanted = rows[-1] * np.arange(1, parts) / parts
    found = {int(value) for value in np.interp(wanted, rows, points)}
    least = min(piece.low for piece in pieces)
    return sorted(value for value in found if value > least)


def part_text(column: str, found: Sequence[int]) -> str:
    """The number of the part that a row belongs to, as Spark SQL; `column` is its value."""

    def between(first: int, last: int) -> str:
        if first == last:
            return str(first)
        middle = (first + last + 1) // 2
        return f"IF({column} < {found[middle - 1]}L, {between(first, middle - 1)}, {between(middle, last)})"

    return between(0, len(found))
