"""An elastic queue at one moment, for those who look after it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """One partition: its range of salts, and what waits in it behind the position that consumers stand at."""

    id: int
    low: int
    high: int
    bytes: int
    transactions: int


@dataclass(frozen=True, slots=True)
class QueueStatus:
    """The partitions in the order of their salts."""

    partitions: tuple[PartitionStatus, ...]
    consumed: int
    """The position up to which every table was read ..."""
    end: int
    """... and that of the last transaction."""
    deviation: float
    """How unevenly what waits is spread: the mean absolute deviation of the partitions, in percent of their mean."""
    reason: str
    """What the policy decided last, and why."""
    last_change: str | None
    """The last split or merge since the queue was opened, and why."""
