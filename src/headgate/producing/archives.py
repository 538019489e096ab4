"""Lazy commits that wait in the producer's process until readers demand them, or a flush.

Commit times never go back, and once everything up to an instant was given out, later commits get later times: whoever was told
"that is all up to then" stays right.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pyarrow as pa

from headgate.clock import Clock

_TICK = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True, eq=False)
class Archive:
    """One commit, whole; numbers count the commits from 1."""

    number: int
    commit_at: datetime
    batches: tuple[tuple[str, pa.RecordBatch], ...]
    rows: int
    bytes: int


class Archives:
    """Archives in commit order; safe to use from several threads."""

    def __init__(self, clock: Clock) -> None:
        self.rows = 0
        self.bytes = 0
        self._clock = clock
        self._lock = threading.Lock()
        self._held: deque[Archive] = deque()
        self._added = 0
        self._earliest = datetime.min.replace(tzinfo=UTC)
        """What the next commit is not before."""

    def __len__(self) -> int:
        return len(self._held)

    def add(self, batches: Iterable[tuple[str, pa.RecordBatch]], after: datetime | None = None) -> Archive:
        """Keeps one commit; its time is the clock's, or `after` if that is later."""
        kept = tuple(batches)
        rows = sum(batch.num_rows for _, batch in kept)
        size = sum(batch.nbytes for _, batch in kept)
        with self._lock:
            self._earliest = max(self._clock.now(), self._earliest, after or self._earliest)
            self._added += 1
            archive = Archive(self._added, self._earliest, kept, rows, size)
            self._held.append(archive)
            self.rows += rows
            self.bytes += size
            return archive

    def oldest(self, upto: datetime | None = None) -> Archive | None:
        """The oldest commit if it is not after that instant; None says that no such commit is there, nor will be."""
        with self._lock:
            if self._held and (upto is None or self._held[0].commit_at <= upto):
                return self._held[0]
            now = self._clock.now()
            self._earliest = max(self._earliest, (now if upto is None else min(upto, now)) + _TICK)
            return None

    def drop(self, number: int) -> bool:
        """Forgets the commits up to this number, because the warehouse has them; tells whether there were any."""
        with self._lock:
            before = len(self._held)
            while self._held and self._held[0].number <= number:
                archive = self._held.popleft()
                self.rows -= archive.rows
                self.bytes -= archive.bytes
            return len(self._held) < before
