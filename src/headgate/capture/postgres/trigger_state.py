"""What capture by trigger must remember across a crash beside the stream log, in one small file.

A batch is written here before any of its transactions is appended, so that one that was appended in part is read again
between the same two snapshots.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headgate.capture.postgres.known_tables import KnownTable

_TRANSACTIONS = 1 << 28
"""More than one batch ever has."""


def first_position(batch: int) -> int:
    """The position of the first transaction of a batch."""
    return batch * _TRANSACTIONS + 1


def last_position(batch: int) -> int:
    """No transaction of the batch is behind this position, and all of the next one are."""
    return (batch + 1) * _TRANSACTIONS


def batch_at(position: int) -> int:
    """The batch that a position belongs to."""
    return max(position - 1, 0) // _TRANSACTIONS


@dataclass(frozen=True, slots=True)
class TriggerState:
    """How far capture has got: everything visible in the snapshot `upto` is in the stream log once the batch is."""

    token: str
    """What the audit table was created with: another one has another history."""
    timeline: int
    batch: int
    after: str
    upto: str
    acknowledged: int
    """The source had let go of the changes up to this batch at least."""
    loading: tuple[str, ...]
    """Tables whose first load is this batch."""
    tables: Mapping[str, KnownTable]
    begun: int | None = None
    """Where the stream log ended before this batch, or part of it; it had all batches before."""
