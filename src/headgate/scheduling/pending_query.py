"""A query on its way to its snapshot: what it needs, and what was done for it so far."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from headgate.delta.changes import BEGINNING, NO_JOB, JobId
from headgate.ranges.key_set import KeySet
from headgate.scheduling.bound import Bound
from headgate.scheduling.cutter import CutResult
from headgate.scheduling.partial import LoadedPart
from headgate.scheduling.policy import Need


@dataclass
class PendingQuery:
    """A query on its way to its snapshot."""

    tables: tuple[str, ...]
    sources: frozenset[str]
    bound: Bound
    floor: JobId
    """The session has seen this job: it does not go back behind it."""
    arrived_at: datetime
    began: float
    is_cancelled: Callable[[], bool]
    number: int
    keys: Mapping[str, KeySet] = field(default_factory=dict)
    """The keys that are read of tables with ranges; of others all."""
    capture: float = 0.0
    queue: float = 0.0
    spark: float = 0.0
    rows: int = 0
    jobs: int = 0
    decision: str = ""
    closed: CutResult | None = None
    shared_cut: bool = False
    missed: str | None = None
    left_out: LoadedPart | None = None
    """What it reads where some ranges of its tables are not loaded in time, and which those are."""
    begins: JobId = NO_JOB
    """Before this job its source tables have no rows."""
    notes: list[str] = field(default_factory=list)
    """What the receipt tells beside the figures."""
    brought: dict[str, int] = field(default_factory=dict)
    """By table how many of its ranges were brought forward."""

    def begin_anew(self) -> None:
        """Forgets what an earlier try to make its tables fresh did not reach."""
        self.missed = self.left_out = None

    @property
    def deadline(self) -> float | None:
        """When waiting ends, on the monotonic clock."""
        if self.bound.deadline is None or self.bound.when_stale == "wait":
            return None
        return self.began + self.bound.deadline.total_seconds()

    @property
    def least(self) -> JobId:
        """The earliest job that can answer it."""
        return max(self.floor, self.begins)

    @property
    def need(self) -> Need:
        since = self.bound.since(self.arrived_at) or BEGINNING
        return Need(self.number, self.sources, since, self.bound.deadline_at(self.arrived_at), frozenset(self.tables))
