"""The elastic queue: a stream log for many writers, whose rows lie in partitions.

    writer ─┐  blocks, each with a random salt            ┌─► partition 1 ─► task
    writer ─┼─► segments of their own    owner: one       ├─► partition 2 ─► task
    writer ─┘  references ─────────────► commit record ───┴─► partition 3 ─► task

The owner gives a transaction its position and commit time in one commit record, which names the blocks of all parts and has
no rows. A transaction whose parts are not all there does not exist. It is the local log in all else: its frames are the
commit records, so a log of either kind opens as the other.

A partition is a range of salts. It decides which task reads a block; a writer knows nothing of it, so that it never waits
for a split or a merge, and nothing is moved by them. Storage is shared, so any executor reads any segment.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Unpack

import pyarrow as pa

from headgate.capture.block_writer import BlockWriter, OpenSegment, Put
from headgate.capture.durable import full_disk_is_named
from headgate.capture.elastic.partitions import Partition, Partitions
from headgate.capture.elastic.policy import PartitionLoad, QueueDecision, QueueObservation, decide, deviation
from headgate.capture.elastic.status import PartitionStatus, QueueStatus
from headgate.capture.events import Committed, Events
from headgate.capture.frames import Block, decode_rows
from headgate.capture.locallog import LocalLog, LogOptions, MakeHeader
from headgate.capture.places import Places, RowsPlace
from headgate.capture.segments import FrameEntry
from headgate.errors import Location, TransactionError

MOST_PARTITIONS = 64
REMEMBERED_BATCHES = 3
DEFAULT_PARTITION_BYTES = 8 << 20
"""What a task reads at once (`places`)."""

Batch = Mapping[int, Mapping[str, Places]]
"""References per partition and table, in order. Partition 0 has what no partition has: files of the owner's large transactions,
and frames of the time before the log was elastic."""


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
        self.partitions = Partitions.read(folder)
        self.decision = QueueDecision("stay", (), "nothing was put yet")
        """What the policy decided last, and why."""
        self._partition_bytes = partition_bytes
        self._most_partitions = most_partitions
        self._consumed = self.trimmed
        self._growth: dict[int, tuple[int, int]] = {}
        """Bytes and transactions per partition behind what was consumed ..."""
        self._taken: deque[dict[int, int]] = deque(maxlen=REMEMBERED_BATCHES)
        """... and the bytes per partition that the last batches took."""
        for entry in self._index:
            self._grow(entry, 1)
        self._open_transactions: dict[str, dict[int, tuple[list[Put], bool]]] = {}
        self._committing = threading.Lock()
        self._keeping = threading.Lock()
        self._own_lock = threading.Lock()
        self._own_segments: list[str] = []
        # The log may hold its own blocks back no longer than the frame that refers to them: they are written at once.
        self._own = BlockWriter(self._open_own, segment_bytes=self._segment_bytes, memory_bytes=0, where=folder)

    # putting

    def put(
        self, rows: Mapping[str, pa.Table], transaction: str, part: int, *, keys: Mapping[str, str] | None = None
    ) -> None:
        """Writes one part of a transaction from this process: rows by table, numbered within the part."""
        self._verify()
        with self._own_lock:
            try:
                for table, found in rows.items():
                    self._own.put(table, found, (keys or {}).get(table))
                puts = self._own.finish(durable=False)
            except BaseException:
                self._own.drop()
                raise
            self._hold(block for _, block in puts)
        self.offer(transaction, part, puts)

    def offer(self, transaction: str, part: int, puts: Sequence[Put], *, synced: bool = False) -> None:
        """A part of a transaction is there: where its writer put it. A part that is put again replaces the one before."""
        with self._lock:
            parts = self._open_transactions.setdefault(transaction, {})
            former, _ = parts.get(part, ([], False))
            parts[part] = list(puts), synced
        self._blocks.release(block.segment for _, block in former)

    def commit(self, transaction: str, parts: int, commit_at: datetime, *, position: int | None = None) -> Committed:
        """Appends a transaction with the parts 0 … parts − 1; readable at once, durable after the log's next `sync`.

        Unless all of them are there it raises, and the transaction stays open.
        """
        with self._lock:
            found = self._open_transactions.get(transaction, {})
            missing = [number for number in range(parts) if number not in found]
            if missing or len(found) > parts:
                raise TransactionError(
                    f"the transaction {transaction} has {len(found)} parts, and {parts} were announced",
                    where=Location(str(self.folder)),
                    hint=f"put part {missing[0]}, or abandon the transaction" if missing else "announce all parts",
                )
            chosen = [found[number] for number in range(parts)]
        with self._committing:
            committed = self.append_blocks(
                self.end + 1 if position is None else position,
                commit_at,
                [puts for puts, _ in chosen],
                synced=all(synced for _, synced in chosen),
            )
        with self._lock:
            del self._open_transactions[transaction]
        return committed

    def abandon(self, transaction: str) -> None:
        """Forgets the parts of a transaction; what they take on the disk goes with their segments."""
        with self._lock:
            parts = self._open_transactions.pop(transaction, {})
        self._blocks.release(block.segment for puts, _ in parts.values() for _, block in puts)

    # reading

    def next_batch(self, after: int, upto: int, keys: tuple[int, int] | tuple[str, str] | None = None) -> Batch:
        """The transactions in (after, upto] by reference: per partition and table where their rows lie, in order.

        With `keys`, blocks whose keys all lie outside of that range, its ends included, are left out.
        """
        self.sync(upto)
        found: dict[int, dict[str, list[RowsPlace]]] = {}
        with self._lock:
            chosen = [entry.header for entry in self._index.between(after, upto)]
            tables = sorted({table for header in chosen for table in (*header.group.rows, *header.files)})
            outside = set() if keys is None else self._outside(after, upto, keys)
            for table in tables:
                for _, place in self._places(table, after, upto):
                    if (place.segment, place.offset) not in outside:
                        found.setdefault(place.partition, {}).setdefault(table, []).append(place)
            files = {table: self._index.files(table, after, upto, self.files_folder) for table in tables}
        self._consume(upto)
        if any(files.values()):
            found.setdefault(0, {}).update({table: found.get(0, {}).get(table, []) for table in files if files[table]})
        return {
            number: {
                table: Places(tuple(places), files[table] if number == 0 else ())
                for table, places in of_partition.items()
            }
            for number, of_partition in found.items()
        }

    def read(self, table: str, after: int, upto: int) -> Events:
        events = super().read(table, after, upto)
        self._consume(upto)
        return events

    def places(self, table: str, after: int, upto: int) -> Places:
        places = super().places(table, after, upto)
        self._consume(upto)
        return places

    def trim(self, upto: int) -> None:
        self._consume(min(upto, self.durable))
        super().trim(upto)
        self.rebalance()

    def forget_after_loss(self) -> None:
        super().forget_after_loss()
        with self._lock:
            self._consumed = min(self._consumed, self._end)
            self._growth.clear()
            for entry in self._index:
                if entry.header.position > self._consumed:
                    self._grow(entry, 1)

    # partitions

    @property
    def consumed(self) -> int:
        """The newest position up to which rows were read."""
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
            f"{self.decision.action}: {self.decision.reason}",
        )

    @property
    def loads(self) -> tuple[PartitionLoad, ...]:
        """What waits in each partition, in the order of their salts."""
        with self._lock:
            return self._loads()

    def split(self, number: int) -> tuple[Partition, Partition]:
        """Cuts a partition in the middle of its salts: later blocks are spread over both halves."""
        with self._lock:
            place = self.partitions.found.index(self.partitions.get(number))
            self.partitions = found = self.partitions.split(number, self.end)
        self._keep_partitions()
        return found.found[place], found.found[place + 1]

    def merge(self, number: int, other: int) -> Partition:
        """Joins two neighbours: later blocks of both go to one partition."""
        with self._lock:
            place = min(self.partitions.found.index(self.partitions.get(each)) for each in (number, other))
            self.partitions = found = self.partitions.merge(number, other, self.end)
        self._keep_partitions()
        return found.found[place]

    def rebalance(self) -> QueueDecision:
        """Splits or merges as the policy says, as often as it does; gives its last decision that changed something."""
        changed: QueueDecision | None = None
        with self._lock:
            for _ in range(self._most_partitions):
                seen = QueueObservation(self._loads(), self._consumed, self._most_partitions, self._partition_bytes)
                self.decision = decide(seen)
                if self.decision.action == "stay":
                    break
                changed = self.decision
                first, *others = changed.partitions
                for other in others:
                    self.partitions = self.partitions.merge(first, other, self.end)
                if not others:
                    self.partitions = self.partitions.split(first, self.end)
        if changed is not None:
            self._keep_partitions()
        return changed or self.decision

    def close(self) -> None:
        super().close()
        with self._own_lock:
            self._own.close()

    # the local log, with rows in blocks

    def _placed(self, make_header: MakeHeader, bodies: Sequence[bytes]) -> tuple[MakeHeader, Sequence[bytes]]:
        """A frame as it is written: its rows go to a block per table, so that it is metadata only."""
        inline = make_header(0).inline
        if not inline:
            return make_header, bodies
        with self._own_lock:
            blocks = {
                table: (self._settled(self._own.put_encoded(content, decode_rows(content))),)
                for table, content in zip(inline, bodies, strict=True)
            }
            written = [block for found in blocks.values() for block in found]
            self._hold(written)
        self._blocks.written(written)
        return lambda durable: replace(make_header(durable), inline={}, blocks=blocks), []

    def _settled(self, block: Block) -> Block:
        return block._replace(partition=self.partitions.of_salt(block.salt).id)

    def _added(self, entry: FrameEntry) -> None:
        self._grow(entry, 1)

    def _append(self, make_header: MakeHeader, bodies: Sequence[bytes]) -> Committed:
        committed = super()._append(make_header, bodies)
        with self._lock:
            too_much = any(size > self._partition_bytes for size, _ in self._growth.values())
        if too_much and len(self.partitions) < self._most_partitions:
            self.rebalance()
        return committed

    def _open_own(self) -> OpenSegment:
        segment = self._blocks.open()
        self._own_segments.append(segment.name)
        return segment

    def _hold(self, blocks: Iterable[Block]) -> None:
        """Keeps blocks until a frame refers to them; of the segments of this process all but the last are sealed then."""
        self._blocks.hold(block.segment for block in blocks)
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

    def _keep_partitions(self) -> None:
        """Outside the lock: nobody waits for it."""
        with self._keeping, full_disk_is_named(self.folder):
            self.partitions.write(self.folder)

    def _consume(self, upto: int) -> None:
        with self._lock:
            if upto <= self._consumed:
                return
            before = {number: size for number, (size, _) in self._growth.items()}
            for entry in self._index.between(max(self._consumed, self._index.trimmed), upto):
                if entry.header.position <= upto:
                    self._grow(entry, -1)
            self._taken.append({number: size - self._growth[number][0] for number, size in before.items()})
            self._growth = {number: growth for number, growth in self._growth.items() if growth[0]}
            self._consumed = min(upto, self._end)

    def _grow(self, entry: FrameEntry, sign: int) -> None:
        seen = set()
        for block in entry.blocks:
            size, transactions = self._growth.get(block.partition, (0, 0))
            if block.partition not in seen:
                seen.add(block.partition)
                transactions += sign * len(entry.header.group.positions)
            self._growth[block.partition] = size + sign * block.length, transactions

    def _outside(self, after: int, upto: int, keys: tuple[int, int] | tuple[str, str]) -> set[tuple[str, int]]:
        """The blocks that have no key of the range."""
        low, high = keys
        return {
            (str(self._blocks.folder / block.segment), block.offset)
            for entry in self._index.between(after, upto)
            for block in entry.blocks
            if type(block.low) is type(low) and type(block.high) is type(high) and _misses(block, low, high)
        }


def _misses(block: Block, low: object, high: object) -> bool:
    return bool(block.high < low or block.low > high)  # type: ignore[operator]
