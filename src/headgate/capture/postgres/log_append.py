"""Appends transactions of the log method to a stream log: many small ones at a time, large ones part by part.

A position in the stream log is where the transaction's commit record begins in the WAL, plus an offset that is 0 until
the source's history begins anew (a restored backup): then positions still grow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from operator import itemgetter

import numpy as np
import pyarrow as pa

from headgate.capture.events import from_micros, to_micros
from headgate.capture.postgres.log_tables import DecodedTransaction
from headgate.capture.postgres.pgoutput_transactions import Batches
from headgate.capture.streamlog import StreamLog
from headgate.capture.writing import TransactionWriter
from headgate.delta.events import SEQUENCE


class LogAppender:
    """Receives transactions and puts them into the log; durable after the log's next `sync`."""

    def __init__(self, log: StreamLog, *, offset: int, clock_offset: Callable[[], int]) -> None:
        """`clock_offset` is the source's clock minus headgate's, in microseconds, as it is known by then."""
        self._log = log
        self._offset = offset
        self._clock_offset = clock_offset
        self._writer: TransactionWriter | None = None
        self._last = self._log_time()

    def transaction(self, lsn: int, commit_at: int) -> tuple[int, int] | None:
        position = lsn + self._offset
        if position <= self._log.end:
            return None
        self._last = max(self._last, commit_at - self._clock_offset())
        return position, self._last

    def take(self, transactions: Sequence[DecodedTransaction], batches: Batches) -> None:
        tables = {
            name: _concatenate([batch for _, batch in parts])
            for name, parts in groupby(sorted(batches, key=itemgetter(0)), key=itemgetter(0))
        }
        firsts = np.array([transaction.first for transaction in transactions], dtype=np.int64)
        counts = {}
        for name, rows in tables.items():
            sequences = rows.column(SEQUENCE).to_numpy()
            starts = np.searchsorted(sequences, 2 * firsts - 1)
            counts[name] = np.diff(starts, append=len(sequences)).tolist()
            owners = np.repeat(firsts, counts[name])
            tables[name] = _with_sequences(rows, sequences - 2 * owners + 1)
        members = [(transaction.position, from_micros(transaction.commit_at)) for transaction in transactions]
        self._log.append_group(members, tables, counts)

    def take_part(self, transaction: DecodedTransaction, batches: Batches) -> None:
        if self._writer is None:
            self._writer = self._log.begin(transaction.position, from_micros(transaction.commit_at))
        for name, batch in batches:
            sequences = batch.column(SEQUENCE).to_numpy() - 2 * transaction.first + 1
            self._writer.write(name, _with_sequences(pa.Table.from_batches([batch]), sequences))

    def finish(self, transaction: DecodedTransaction) -> None:
        assert self._writer is not None
        self._writer.commit()
        self._writer = None

    def abandon(self) -> None:
        """Drops the parts of a transaction that did not become whole."""
        if self._writer is not None:
            self._writer.abort()
            self._writer = None
        self._last = self._log_time()

    def _log_time(self) -> int:
        end = self._log.end_commit_at
        return -(1 << 62) if end is None else to_micros(end)


def _concatenate(batches: Sequence[pa.RecordBatch]) -> pa.Table:
    """One table; rows from before a column was added have NULL in it."""
    tables = [pa.Table.from_batches([batch]) for batch in batches]
    return pa.concat_tables(tables, promote_options="default").combine_chunks()


def _with_sequences(rows: pa.Table, sequences: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> pa.Table:
    place = rows.schema.get_field_index(SEQUENCE)
    return rows.set_column(place, rows.schema.field(place), pa.array(sequences))
