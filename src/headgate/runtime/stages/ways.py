"""The way in which a stage takes a batch.

    narrow      rows are Arrow tables in the driver
    wide        rows are files, which executors read and write; the same rules
    recompute   the query as written, at the batch's last job, and the difference from what the table holds

A wide batch keeps each of its jobs, as a narrow one does; recomputing knows only the last.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Way(StrEnum):
    NARROW = "narrow"
    WIDE = "wide"
    RECOMPUTE = "recompute"


@dataclass(frozen=True, slots=True)
class Choice:
    way: Way
    reason: str


class Ways:
    """Chooses for every batch; used by many threads."""

    def __init__(self, most_rows: int, forced: Way | None = None) -> None:
        """`most_rows` is what the driver may hold; `forced` is taken wherever it is possible."""
        self._most_rows = most_rows
        self.forced = forced

    def choose(self, stage: str, rows: int, *, recomputed_rows: int | None = None) -> Choice:
        """The way for a batch of changed rows.

        `recomputed_rows` are the rows that the query as written would read; None where the stage cannot recompute.
        """
        if self.forced is not None and (self.forced is not Way.RECOMPUTE or recomputed_rows is not None):
            return Choice(self.forced, "limits.way says so")
        if rows < self._most_rows:
            return Choice(Way.NARROW, f"{rows:,} changed rows fit the driver")
        return Choice(Way.WIDE, f"{rows:,} changed rows are more than the driver holds (limits.batch_rows)")
