"""When partitions of an elastic queue split and merge: a pure function, with the reason.

split    what came into a partition since the position that its consumers stand at passes `partition_bytes`
merge    two neighbours together have less of that than a quarter of it, and had no more in any of the last three batches
         that were read: a queue that was just read is empty, which tells nothing, and in is slower than out

Neither is done to a partition of which nothing has been read yet since it was made: all that waits lies with
its parent, so its own growth tells nothing about how it will be read.

The balance is the mean absolute percentage deviation of what readers have to take: 0 when all have the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from headgate.capture.elastic.partitions import Partition

MERGE_SHARE = 0.25


@dataclass(frozen=True, slots=True)
class PartitionLoad:
    """What waits in a partition: put after the position that its consumers stand at."""

    partition: Partition
    bytes: int
    transactions: int
    taken: int = 0
    """The most bytes that one of the last batches took of it."""

    @property
    def recent(self) -> int:
        return max(self.bytes, self.taken)


@dataclass(frozen=True, slots=True)
class QueueObservation:
    """The partitions in the order of their salts."""

    loads: Sequence[PartitionLoad]
    consumed: int
    """The position up to which every table was read."""
    most: int
    """How many partitions there may be."""
    partition_bytes: int


@dataclass(frozen=True, slots=True)
class QueueDecision:
    action: Literal["split", "merge", "stay"]
    partitions: tuple[int, ...]
    reason: str

    def __str__(self) -> str:
        return f"{self.action}: {self.reason}"


def decide(seen: QueueObservation) -> QueueDecision:
    """What to do next; it is asked again after that."""
    most = max(seen.loads, key=lambda load: load.bytes)
    if most.bytes > seen.partition_bytes:
        name = f"partition {most.partition.id} has {most.bytes:,} bytes waiting"
        if not most.partition.can_split or len(seen.loads) >= seen.most:
            return QueueDecision("stay", (), f"{name}, but there are {len(seen.loads)} partitions, the most allowed")
        if not _was_read(most, seen):
            return QueueDecision("stay", (), f"{name}, but nothing put since it was made has been read yet")
        return QueueDecision("split", (most.partition.id,), f"{name}, more than {seen.partition_bytes:,}")
    limit = int(seen.partition_bytes * MERGE_SHARE)
    for left, right in zip(seen.loads, seen.loads[1:], strict=False):
        both = left.recent + right.recent
        if both < limit and _was_read(left, seen) and _was_read(right, seen):
            ids = (left.partition.id, right.partition.id)
            return QueueDecision(
                "merge", ids, f"partitions {ids[0]} and {ids[1]} have {both:,} bytes a batch, less than {limit:,}"
            )
    return QueueDecision("stay", (), f"{len(seen.loads)} partitions fit what waits")


def deviation(loads: Sequence[float]) -> float:
    """The mean absolute deviation from the mean, in percent of it."""
    mean = sum(loads) / len(loads) if loads else 0.0
    return 100 * sum(abs(load - mean) for load in loads) / (len(loads) * mean) if mean else 0.0


def _was_read(load: PartitionLoad, seen: QueueObservation) -> bool:
    return load.partition.since == 0 or seen.consumed > load.partition.since
