"""Where a table's first rows stand among its events: read at one position of the source, in the log at a later one.

    log        ── changes ── p ── changes ── e: the rows ── changes ──►
    replica    job of e:     rows, then the changes behind p

Jobs before the one that holds e do not exist for the table.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headgate.capture.source import FirstLoad
from headgate.delta.changes import POSITION


@dataclass(frozen=True, slots=True)
class LoadPlace:
    """A table's first rows, as they were at `read_at`, lie in the log at `entered_at`."""

    read_at: int
    entered_at: int

    @staticmethod
    def of(load: FirstLoad | None) -> LoadPlace:
        if load is None or load.read_at is None or load.entered_at is None:
            return _NOWHERE if load is None else _NOT_YET
        return LoadPlace(load.read_at, load.entered_at)

    def positions(self, after: int, upto: int) -> tuple[int, int] | None:
        """Between which positions the events lie of jobs that end at (after, upto]; None before the first rows are there."""
        if after >= self.entered_at:
            return after, upto
        # No transaction has the position of a load, so nothing but the load's rows lies at it.
        return (self.read_at - 1, upto) if upto >= self.entered_at else None

    def in_order(self, events: pa.Table) -> pa.Table:
        """The events, the first rows at the position at which they were read: changes from behind it follow them."""
        positions = events.column(POSITION).to_numpy()
        if self.entered_at == self.read_at or not (positions == self.entered_at).any():
            return events
        place = events.schema.get_field_index(POSITION)
        moved = np.where(positions == self.entered_at, self.read_at, positions)
        return events.set_column(place, events.schema.field(place), pa.array(moved))

    @property
    def ordered_by(self) -> str:
        """The same as an expression of SQL."""
        return f"IF({POSITION} = {self.entered_at}L, {self.read_at}L, {POSITION})"


_NOWHERE = LoadPlace(-1, -1)
_NOT_YET = LoadPlace(1 << 62, 1 << 62)
