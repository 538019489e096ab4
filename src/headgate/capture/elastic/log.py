"""The elastic queue: a stream log for many writers, whose rows lie in partitions.

    writer ─┐  blocks, each with a random salt            ┌─► partition 1 ─► task
    writer ─┼─► segments of their own    owner: one       ├─► partition 2 ─► task
    writer ─┘  references ─────────────► commit record ───┴─► partition 3 ─► task

The owner gives a transaction its position and commit time in one commit record, which names the blocks of all parts and has
no rows. A transaction whose parts are not all there does not exist. It is the local log in all else: its frames are the
commit records, so a log of either kind opens as the other.

A partition is a range of salts. It decides which task reads a block; a writer knows nothing of it, so that it never waits
for a split or a merge, and nothing is moved by them. Storage is shared, so any executor reads any segment.

What waits is what came behind the position that the consumers stand at: that of the table that was read least far, of those
with rows behind it.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Unpack

import pyarrow.compute as pc

from headgate.capture.block_writer import BlockWriter, OpenSegment
from headgate.capture.durable import full_disk_is_named
from headgate.capture.elastic.partitions import Partitions
from headgate.capture.elastic.policy import PartitionLoad, QueueDecision, QueueObservation, decide, deviation
from headgate.capture.events import Committed, Events
from headgate.capture.frames import Block
from headgate.capture.locallog import LocalLog, LogOptions, MakeHeader
from headgate.capture.places import Places
from headgate.capture.queue_status import PartitionStatus, QueueStatus
from headgate.capture.segments import FrameEntry

_LOGGER = logging.getLogger(__name__)
MOST_PARTITIONS = 64
REMEMBERED_BATCHES = 3
DEFAULT_PARTITION_BYTES = 8 << 20
"""What one task reads (`places`)."""


class ElasticLog(LocalLog):
    """Implements `StreamLog`; safe to use from several threads."""

    def __init__(
        self,
        folder: Path,
        *,
        partition_bytes: int = DEFAULT_PARTITION_BYTES,
        most_partitions: int = MOST_PARTITIONS,
        **options: Unpack[LogOptions],
    ) -> None:
        super().__init__(folder, **options)
        used = max((block.partition for entry in self._index for block in entry.blocks), default=0)
        self.partitions = Partitions.read(folder, used)
        self.decision = QueueDecision("stay", (), "nothing was put yet")
        """What the policy decided last, and why ..."""
        self.last_change: QueueDecision | None = None
        """... and the last decision, or command, that changed the partitions."""
        self._has_news = False
        """Whether the partitions are others than those in their file."""
        self._partition_bytes = partition_bytes
        self._most_partitions = most_partitions
        self._consumed = self.trimmed
        self._read_upto: dict[str, int] = {}
        """Up to where each table was read, if it was, ..."""
        self._rows_upto: dict[str, int] = {}
        """... and the newest position with rows of it."""
        self._growth: dict[int, tuple[int, int]] = {}
        """Bytes and transactions per partition behind what was consumed ..."""
        self._taken: deque[dict[int, int]] = deque(maxlen=REMEMBERED_BATCHES)
        """... and the bytes per partition that the last batches took."""
        self._is_due = False
        """Whether the policy may decide otherwise than it did: a partition has passed its size, or has more although some was
        read."""
        for entry in self._index:
            self._added(entry)
        self._keeping = threading.Lock()
        self._own_lock = threading.Lock()
        self._own_segments: list[str] = []
        # The log may hold its own blocks back no longer than the frame that refers to them: they are written at once.
        self._own = BlockWriter(self._open_own, segment_bytes=self._segment_bytes, memory_bytes=0, where=folder)

    # reading

    def read(self, table: str, after: int, upto: int, keep: pc.Expression | None = None) -> Events:
        events = super().read(table, after, upto, keep)
        with self._lock:
            self._read(table, upto)
        return events

    def next_batch(self, table: str, after: int, upto: int) -> Places:
        batch = super().next_batch(table, after, upto)
        with self._lock:
            self._read(table, upto)
        return batch

    def trim(self, upto: int) -> None:
        with self._lock:
            self._read_all(min(upto, self._durable))
        super().trim(upto)
        self.rebalance()
        self._write_partitions()

    def forget_after_loss(self) -> None:
        super().forget_after_loss()
        with self._lock:
            self._consumed = min(self._consumed, self._end)
            self._read_upto = {table: min(upto, self._end) for table, upto in self._read_upto.items()}
            self._growth.clear()
            self._rows_upto.clear()
            for entry in self._index:
                if entry.header.position > self._consumed:
                    self._added(entry)

    # partitions

    @property
    def consumed(self) -> int:
        """The position up to which every table was read."""
        return self._consumed

    @property
    def queue(self) -> QueueStatus:
        """The partitions, what waits in each, and what the policy decided last."""
        loads = self.loads
        return QueueStatus(
            tuple(
                PartitionStatus(
                    each.partition.id, each.partition.low, each.partition.high, each.bytes, each.transactions
                )
                for each in loads
            ),
            self._consumed,
            self.end,
            deviation([load.bytes for load in loads]),
            str(self.decision),
            None if self.last_change is None else str(self.last_change),
        )

    @property
    def loads(self) -> tuple[PartitionLoad, ...]:
        """What waits in each partition, in the order of their salts."""
        with self._lock:
            return self._loads()

    def split(self, number: int) -> QueueStatus:
        """Cuts a partition in the middle of its salts: later blocks are spread over both halves."""
        with self._lock:
            self._change(QueueDecision("split", (number,), f"partition {number}, by command"))
        self._write_partitions()
        return self.queue

    def merge(self, number: int, other: int) -> QueueStatus:
        """Joins two neighbours: later blocks of both go to one partition."""
        with self._lock:
            self._change(QueueDecision("merge", (number, other), f"partitions {number} and {other}, by command"))
        self._write_partitions()
        return self.queue

    def rebalance(self) -> None:
        """Splits or merges as the policy says, as often as it does. Writes nothing, so that whoever appends does not wait."""
        with self._lock:
            self._is_due = False
            for _ in range(self._most_partitions):
                seen = QueueObservation(self._loads(), self._consumed, self._most_partitions, self._partition_bytes)
                self.decision = decide(seen)
                if self.decision.action == "stay":
                    break
                self._change(self.decision)

    def close(self) -> None:
        super().close()
        self._write_partitions()
        with self._own_lock:
            self._own.close()

    # the local log, with rows in blocks

    def _placed(self, make_header: MakeHeader, bodies: Sequence[bytes]) -> tuple[MakeHeader, Sequence[bytes]]:
        """A frame as it is written: its rows go to a block per table, so that it is metadata only."""
        if not bodies:
            return make_header, bodies
        inline = make_header(0).inline
        with self._own_lock:
            blocks = {
                table: (self._settled(self._own.put_encoded(content, inline[table].rows), 0, 0),)
                for table, content in zip(inline, bodies, strict=True)
            }
            written = [block for found in blocks.values() for block in found]
            self._hold_own(written)
        self._blocks.written(written)
        return lambda durable: replace(make_header(durable), inline={}, blocks=blocks), []

    def _settled(self, block: Block, part: int, base: int) -> Block:
        return block._replace(part=part, base=base, partition=self.partitions.of_salt(block.salt).id)

    def _added(self, entry: FrameEntry) -> None:
        for table in (*entry.header.group.rows, *entry.header.files):
            self._rows_upto[table] = entry.header.position
        self._grow(entry, 1)

    def _append(self, make_header: MakeHeader, bodies: Sequence[bytes]) -> Committed:
        committed = super()._append(make_header, bodies)
        if self._is_due and len(self.partitions) < self._most_partitions:
            self.rebalance()
        return committed

    def _open_own(self) -> OpenSegment:
        segment = self._blocks.open()
        self._own_segments.append(segment.name)
        return segment

    def _hold_own(self, blocks: Collection[Block]) -> None:
        """Keeps blocks until a frame refers to them; of the segments of this process all but the last are sealed then."""
        self._blocks.hold(blocks)
        *former, last = self._own_segments or [""]
        if former:
            self._own_segments = [last]
            self.seal_segments(former)

    def _loads(self) -> tuple[PartitionLoad, ...]:
        return tuple(
            PartitionLoad(
                each,
                *self._growth.get(each.id, (0, 0)),
                max((taken.get(each.id, 0) for taken in self._taken), default=0),
            )
            for each in self.partitions.found
        )

    def _change(self, change: QueueDecision) -> None:
        first, *others = change.partitions
        if others:
            self.partitions = self.partitions.merge(first, others[0], self.end)
        else:
            self.partitions = self.partitions.split(first, self.end)
        self.last_change, self._has_news = change, True
        _LOGGER.info("partitions of %s changed to %s: %s", self.folder, len(self.partitions), change)

    def _write_partitions(self) -> None:
        """Nobody who appends waits for it; what a crash loses is made again by the policy."""
        with self._keeping:
            if self._has_news:
                self._has_news = False
                with full_disk_is_named(self.folder):
                    self.partitions.write(self.folder)

    def _read(self, table: str, upto: int) -> None:
        """A table was read up to a position."""
        self._read_upto[table] = max(upto, self._read_upto.get(table, 0))
        behind = [
            read for name, last in self._rows_upto.items() if (read := self._read_upto.get(name, self._consumed)) < last
        ]
        self._consume(min(behind, default=self._end))

    def _read_all(self, upto: int) -> None:
        """Every table was read up to a position."""
        self._read_upto = {table: max(upto, self._read_upto.get(table, 0)) for table in self._rows_upto}
        self._consume(upto)

    def _consume(self, upto: int) -> None:
        if upto <= self._consumed:
            return
        before = {number: size for number, (size, _) in self._growth.items()}
        for entry in self._index.between(max(self._consumed, self._index.trimmed), upto):
            if entry.header.position <= upto:
                self._grow(entry, -1)
        self._taken.append({number: size - self._growth[number][0] for number, size in before.items()})
        self._growth = {number: growth for number, growth in self._growth.items() if growth[0]}
        self._consumed = min(upto, self._end)
        self._is_due = any(size > self._partition_bytes for size, _ in self._growth.values())

    def _grow(self, entry: FrameEntry, sign: int) -> None:
        seen = set()
        for block in entry.blocks:
            size, transactions = self._growth.get(block.partition, (0, 0))
            if block.partition not in seen:
                seen.add(block.partition)
                transactions += sign * len(entry.header.group.positions)
            self._growth[block.partition] = size + sign * block.length, transactions
            self._is_due = self._is_due or size <= self._partition_bytes < size + sign * block.length
