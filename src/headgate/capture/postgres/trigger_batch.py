"""A batch of audit rows on its way to the stream log: decoded by a worker, appended transaction by transaction.

Audit rows come ordered by transaction, so that a batch is a sequence of chunks; only a transaction at the end of one can
go on in the next. Chunks past the memory limit wait in files of the log's scratch folder.
"""

from __future__ import annotations

import pickle
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa

from headgate.capture.durable import full_disk_is_named
from headgate.capture.events import from_micros
from headgate.capture.postgres.rows import Numbers
from headgate.capture.postgres.trigger_rows import TriggerChanges
from headgate.capture.postgres.trigger_state import first_position
from headgate.capture.streamlog import StreamLog
from headgate.capture.writing import TransactionWriter

Bounds = Mapping[str, Numbers]
"""Per table, where the rows of each transaction begin, and where the last one's end."""


@dataclass(frozen=True, slots=True)
class SnapshotRange:
    """What became visible after one snapshot and up to another."""

    batch: int
    generation: int
    """How often the tables had been read anew when it was planned."""
    after: str
    upto: str
    at: datetime
    """Headgate's clock before the second snapshot was taken: the time of transactions that have none of their own."""
    clock_offset: timedelta


@dataclass(frozen=True, slots=True, eq=False)
class Chunk:
    """Events of some transactions, in order."""

    xids: tuple[int, ...]
    commit_times: tuple[int | None, ...]
    """Per transaction, in microseconds on the source's clock."""
    tables: Mapping[str, pa.RecordBatch]
    transactions: Mapping[str, Numbers]
    """Per table, which of the transactions each row belongs to."""

    @property
    def bytes(self) -> int:
        return sum(rows.nbytes for rows in self.tables.values())


def chunk_of(notes: pa.Table, tables: list[tuple[str, TriggerChanges]]) -> Chunk:
    """The events of audit rows, put together by transaction."""
    xids = notes.column("xid").to_numpy()
    starts = np.flatnonzero(np.diff(xids, prepend=-1))
    numbers = np.searchsorted(starts, np.arange(len(xids)), side="right") - 1
    rows: dict[str, pa.RecordBatch] = {}
    owners: dict[str, Numbers] = {}
    for name in dict.fromkeys(name for name, _ in tables):
        parts = [changes for each, changes in tables if each == name]
        places = np.concatenate([part.notes for part in parts])
        together = pa.concat_batches([part.rows for part in parts])
        if len(parts) > 1:
            order = np.argsort(places, kind="stable")
            places, together = places[order], together.take(pa.array(order))
        rows[name], owners[name] = together, numbers[places]
    times = notes.column("commit_at").take(pa.array(starts)).to_pylist()
    return Chunk(tuple(xids[starts].tolist()), tuple(times), rows, owners)


@dataclass(slots=True, eq=False)
class AuditBatch:
    """The chunks of one range."""

    range: SnapshotRange
    folder: Path
    memory: int
    _chunks: list[Chunk | Path] = field(default_factory=list)
    _bytes: int = 0

    def add(self, chunk: Chunk) -> None:
        self._bytes += chunk.bytes
        if self._bytes <= self.memory:
            self._chunks.append(chunk)
            return
        path = self.folder / f"batch-{self.range.batch}-{secrets.token_hex(4)}"
        with full_disk_is_named(path):
            path.write_bytes(pickle.dumps(chunk, protocol=5))
        self._chunks.append(path)

    def __bool__(self) -> bool:
        return bool(self._chunks)

    def append_to(self, log: StreamLog) -> None:
        """Appends the transactions that the log does not have yet; not yet synced."""
        position, current = first_position(self.range.batch) - 1, -1
        writer: TransactionWriter | None = None
        for chunk in self._loaded():
            bounds = {
                name: np.searchsorted(owners, np.arange(len(chunk.xids) + 1))
                for name, owners in chunk.transactions.items()
            }
            begun, last = int(chunk.xids[0] == current), len(chunk.xids) - 1
            if begun:
                _write(writer, chunk, bounds, 0)
            if begun > last:
                continue
            if writer is not None:
                writer.commit()
            # Those in the middle are whole; the last may go on in the next chunk.
            self._append_whole(log, chunk, bounds, begun, last, position + 1)
            position, current = position + last - begun + 1, chunk.xids[last]
            at = self._time(chunk.commit_times[last], log.end_commit_at)
            writer = log.begin(position, at) if position > log.end else None
            _write(writer, chunk, bounds, last)
        if writer is not None:
            writer.commit()

    def _append_whole(self, log: StreamLog, chunk: Chunk, bounds: Bounds, first: int, last: int, position: int) -> None:
        """Appends the transactions from the first on and before the last, all at once; the first has this position."""
        first += max(0, log.end - position + 1)
        if first >= last:
            return
        position, at = max(position, log.end + 1), log.end_commit_at
        members: list[tuple[int, datetime]] = []
        for offset, stamp in enumerate(chunk.commit_times[first:last]):
            at = self._time(stamp, at)
            members.append((position + offset, at))
        ends = {name: bound[first : last + 1] for name, bound in bounds.items()}
        tables = {
            name: pa.Table.from_batches([rows.slice(ends[name][0], ends[name][-1] - ends[name][0])])
            for name, rows in chunk.tables.items()
            if ends[name][-1] > ends[name][0]
        }
        log.append_group(members, tables, {name: np.diff(ends[name]).tolist() for name in tables})

    def forget(self) -> None:
        """Removes the files; the batch is in the log."""
        for chunk in self._chunks:
            if isinstance(chunk, Path):
                chunk.unlink(missing_ok=True)

    def _time(self, stamp: int | None, before: datetime | None) -> datetime:
        at = self.range.at if stamp is None else from_micros(stamp) - self.range.clock_offset
        return at if before is None else max(at, before)

    def _loaded(self) -> Iterator[Chunk]:
        for chunk in self._chunks:
            if isinstance(chunk, Path):
                loaded = pickle.loads(chunk.read_bytes())
                assert isinstance(loaded, Chunk)
                yield loaded
            else:
                yield chunk


def _write(writer: TransactionWriter | None, chunk: Chunk, bounds: Bounds, number: int) -> None:
    """Writes a transaction's rows in a chunk, if it is to be written."""
    if writer is not None:
        for name, rows in chunk.tables.items():
            first, last = bounds[name][number : number + 2]
            writer.write(name, rows.slice(first, last - first))
