"""The rows of a producer's open transaction: event rows by table, in memory while they are few, then in scratch files.

Rows of a call that failed are left out when it commits: they are known by their sequence numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from headgate.capture.shape import Shape
from headgate.capture.spool import Spool
from headgate.delta.events import SEQUENCE


class OpenTransaction:
    """`sequence` is the number of the next row."""

    def __init__(self, folder: Path, memory_bytes: int) -> None:
        self._folder = folder
        self._limit = memory_bytes
        self._spool = Spool(folder, memory_bytes)
        self._is_drained = False
        self._dropped: list[range] = []
        self.sequence = 0

    def __len__(self) -> int:
        return self.sequence - sum(map(len, self._dropped))

    def add(self, table: str, shape: Shape, columns: Sequence[pa.Array], ops: np.ndarray) -> None:
        """Adds event rows of a table from its checked columns."""
        if len(ops) == 0:
            return
        if self._is_drained:
            self.rows_of(table)
        self._spool.add(table, shape.events(columns, ops, self.sequence))
        self.sequence += len(ops)

    def take_back(self, first: int) -> None:
        """Leaves out the rows from this sequence number on."""
        if first < self.sequence:
            self._dropped.append(range(first, self.sequence))

    def batches(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Every batch with its table."""
        self._is_drained = True
        for table, batch in self._spool.drain():
            if not self._dropped or not self._is_dropped(batch):
                yield table, batch

    def rows_of(self, table: str) -> list[pa.RecordBatch]:
        """The batches of one table."""
        # What was drained takes no more rows, so they move to a new spool.
        kept = Spool(self._folder, self._limit)
        found: list[pa.RecordBatch] = []
        for name, batch in self.batches():
            kept.add(name, batch)
            if name == table:
                found.append(batch)
        self._spool.close()
        self._spool, self._is_drained = kept, False
        return found

    def clear(self) -> None:
        """Drops everything."""
        self._spool.close()
        self._spool = Spool(self._folder, self._limit)
        self._is_drained = False
        self._dropped.clear()
        self.sequence = 0

    def _is_dropped(self, batch: pa.RecordBatch) -> bool:
        first = batch.column(SEQUENCE)[0].as_py()
        return any(first in dropped for dropped in self._dropped)
