"""The stream log in one folder, written by one process: the default.

    folder/00000000000000000001.segment   frames, one per transaction; only the last segment is written
    shared/files/*.parquet                rows of large transactions, which frames refer to
    shared/blocks/*.blocks                rows that other writers put there themselves, which frames refer to (`block_segments`)
    folder/spool/                         scratch of open transactions, emptied on opening
    folder/trimmed                        the position up to which everything has been consumed and let go
    folder/mark                           how far the log reaches: written before anybody is told, on the disk before a
                                          database is told
    folder/lost                           acknowledged transactions that it no longer has (`loss`)

`folder` is its owner's, `shared` is every owner's; segments of former owners are read where they are (`log_manifest`).

A transaction's files are on the disk before its frame is written, and a failed write is cut off again. One fsync serves
everyone who waits. `keep` holds a transaction in memory (`unwritten`), and writes it when the next one that is not kept
comes, or when those in memory pass their limit. Only one process may open a log at a time, and it acknowledges nothing
unless `verify` finds that it still owns the warehouse. A log that holds more than its limit tells `on_full`, and far beyond
it appends wait a little (`room`).

A crash can leave a torn frame at the end, which opening cuts off. Acknowledged transactions that are missing, at the end
or elsewhere, are a `loss`: the log goes on behind it, and nobody can read across it until the source has made good.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TypedDict

import numpy as np
import pyarrow as pa

from headgate.capture import frames
from headgate.capture.active_segment import ActiveSegment
from headgate.capture.block_segments import BlockSegments
from headgate.capture.block_writer import OpenSegment, Put
from headgate.capture.durable import full_disk_is_named, replace_checked
from headgate.capture.events import Committed, from_micros, to_micros
from headgate.capture.frame_index import FrameIndex, last_committed
from headgate.capture.frames import Block, Group, Header
from headgate.capture.log_manifest import FormerSegment
from headgate.capture.readable_log import ReadableLog
from headgate.capture.recovery import UNKNOWN, Expected, recover, remove_leftovers
from headgate.capture.room import Room, nobody
from headgate.capture.segments import FrameEntry, SegmentScan, list_segments, rewrite_segment, segment_number
from headgate.capture.unwritten import Lost, Unwritten
from headgate.capture.writing import TransactionWriter, encode_tables
from headgate.errors import CorruptWarehouse, EnvironmentProblem, Location, TransactionError
from headgate.mark import Mark, Reach

DEFAULT_SEGMENT_BYTES = 64 << 20
DEFAULT_TRANSACTION_BYTES = 16 << 20
DEFAULT_UNWRITTEN_BYTES = 256 << 20
_CLOSED = "the log is closed"

MakeHeader = Callable[[int], Header]
"""Makes a frame's header from the position up to which the log is durable."""


class LogOptions(TypedDict, total=False):
    """What a log can be opened with."""

    segment_bytes: int
    transaction_bytes: int
    limit_bytes: int | None
    unwritten_bytes: int
    expected: Expected
    verify: Callable[[], None]
    shared: Path | None
    former: Sequence[SegmentScan]
    begun: Callable[[Sequence[FormerSegment]], None]


class LocalLog(ReadableLog):
    """Implements `StreamLog`; safe to use from several threads."""

    def __init__(
        self,
        folder: Path,
        *,
        segment_bytes: int = DEFAULT_SEGMENT_BYTES,
        transaction_bytes: int = DEFAULT_TRANSACTION_BYTES,
        limit_bytes: int | None = None,
        unwritten_bytes: int = DEFAULT_UNWRITTEN_BYTES,
        expected: Expected = UNKNOWN,
        verify: Callable[[], None] = nobody,
        shared: Path | None = None,
        former: Sequence[SegmentScan] = (),
        begun: Callable[[Sequence[FormerSegment]], None] = lambda _: None,
    ) -> None:
        """`verify` raises when this process no longer owns the warehouse.

        `former` are the segments of former owners; `begun` hears which of them the log goes on with, before anything is removed.
        """
        shared = shared or folder
        files, spool, blocks_folder = shared / "files", folder / "spool", shared / "blocks"
        try:
            for part in (folder, files, spool):
                part.mkdir(parents=True, exist_ok=True)
        except PermissionError as error:
            raise EnvironmentProblem(
                "the folder of the stream log cannot be written", where=Location(str(folder)), hint=str(error)
            ) from None
        found = recover(folder, files, blocks_folder, expected, former)
        begun(found.former)
        index = FrameIndex(folder, found.entries, found.trimmed, blocks_folder)
        room = Room(sum(entry.bytes for entry in found.entries), limit_bytes)
        super().__init__(folder, files, BlockSegments(blocks_folder, found.entries), index, found.losses, room, verify)
        self._former = found.former
        self._superseded: dict[int, tuple[Path, ...]] = {}
        """Segments of which a later version counts, by number."""
        self.transaction_bytes = transaction_bytes
        self.unwritten_bytes = unwritten_bytes
        self._segment_bytes = segment_bytes
        self._sync_lock = threading.Lock()
        self._writing_out = threading.RLock()
        self._broken: str | None = None
        self._active = ActiveSegment(folder, found.active, found.size, found.descriptor)
        last = self._index.last
        self._end_commit_at = found.trimmed_at if last is None else last.header.commit_at
        self._end = self._durable = found.end
        with full_disk_is_named(folder):
            self._mark = Mark(folder / "mark", self._reach())
        self.lost: Lost | None = self._tail.lost(self._end)
        """What was kept in memory when the last owner crashed."""
        remove_leftovers(folder, files, spool, list(self._index), found.active)

    @property
    def end(self) -> int:
        """The position of the last transaction, durable or not; 0 before the first."""
        last = self._tail.last
        return self._end if last is None else last.position

    @property
    def durable(self) -> int:
        """The position up to which every transaction is on the disk."""
        return self._durable

    @property
    def end_commit_at(self) -> datetime | None:
        """When the last transaction committed; None before the first."""
        with self._lock:
            last = self._last_commit_at()
        return None if last is None else from_micros(last)

    def begin(self, position: int, commit_at: datetime, *, initial: bool = False) -> TransactionWriter:
        """A writer for the transaction that comes next; nothing is in the log before its `commit`."""
        self._verify()
        return TransactionWriter(
            position=position,
            commit_at=to_micros(commit_at),
            initial=initial,
            folder=self.files_folder,
            limit=self.transaction_bytes,
            append=self._append,
        )

    def keep(self, position: int, commit_at: datetime, tables: Mapping[str, pa.Table]) -> Committed:
        """Appends a transaction in memory: readable at once, durable after the log's next `sync`."""
        self._verify()
        found = Unwritten.of(position, to_micros(commit_at), tables)
        with self._lock:
            self._require_usable()
            self._require_order(found.group)
            self._tail.add(found)
            too_much = self._tail.bytes > self.unwritten_bytes
        if too_much:
            self._write_out()
        return last_committed(found.header())

    def append_group(
        self,
        transactions: Sequence[tuple[int, datetime]],
        tables: Mapping[str, pa.Table],
        counts: Mapping[str, Sequence[int]],
    ) -> None:
        """Appends several small transactions at once; readable at once, durable after the log's next `sync`.

        Each is a position and a commit time. A table has the rows of all, `counts` of each, in that order.
        """
        self._verify()
        group = Group(
            np.array([position for position, _ in transactions], dtype=np.int64),
            np.array([to_micros(at) for _, at in transactions], dtype=np.int64),
            {table: np.array(each, dtype=np.int64) for table, each in counts.items()},
        )
        inline, bodies = encode_tables(tables)
        self._append(lambda durable: Header(group, False, durable, inline, {}), bodies)

    def open_segment(self) -> OpenSegment:
        """A new segment of blocks for one writer, which may be another process."""
        self._verify()
        return self._blocks.open()

    def reserve_segment(self) -> Path:
        """The path of such a segment, for a writer that makes the file itself."""
        self._verify()
        return self._blocks.reserve()

    def seal_segments(self, names: Collection[str]) -> None:
        """Says that nobody adds to these segments any more."""
        self._blocks.seal(names, self.trimmed)

    def hold_blocks(self, puts: Sequence[Put]) -> None:
        """Keeps what a writer put, whatever becomes of the writer, until it is committed or released."""
        self._verify()
        blocks = [block for _, block in puts]
        self._blocks.require(blocks)
        self._blocks.hold(blocks)

    def release_blocks(self, puts: Sequence[Put]) -> None:
        """Says that these blocks will not be committed, unless they are already."""
        self._blocks.release([block for _, block in puts], self.trimmed)

    def append_blocks(
        self,
        position: int,
        commit_at: datetime,
        parts: Sequence[Sequence[Put]],
        *,
        initial: bool = False,
        synced: bool = False,
    ) -> Committed:
        """Appends a transaction whose rows its writers have put into segments, part after part.

        Readable at once, durable after the log's next `sync`; the blocks may be `synced` already: then the commit is about to
        be, which verifies the owner.
        """
        if not synced:
            self._verify()
        given = [block for part in parts for _, block in part]
        self._blocks.require(given)
        if not synced:
            self._blocks.written(given)
        blocks = self._numbered(parts)
        rows = {table: sum(block.rows for block in found) for table, found in blocks.items()}
        group = Group.of_one(position, to_micros(commit_at), rows)
        return self._append(lambda durable: Header(group, initial, durable, {}, {}, blocks), [])

    def _numbered(self, parts: Sequence[Sequence[Put]]) -> dict[str, tuple[Block, ...]]:
        """The blocks by table; the sequence numbers of a part follow those of the part before."""
        base = 0
        found: dict[str, list[Block]] = {}
        for number, part in enumerate(parts):
            for table, block in part:
                found.setdefault(table, []).append(self._settled(block, number, base))
            base += max((block.span for _, block in part), default=0)
        return {table: tuple(blocks) for table, blocks in found.items()}

    def _settled(self, block: Block, part: int, base: int) -> Block:
        """A block of a part, with the partition that has it."""
        return block._replace(part=part, base=base)

    def append(
        self, position: int, commit_at: datetime, tables: Mapping[str, pa.Table], *, initial: bool = False
    ) -> Committed:
        """Appends a whole transaction; returns once it is durable."""
        with self.begin(position, commit_at, initial=initial) as writer:
            for table, rows in tables.items():
                writer.write(table, rows)
            committed = writer.commit()
        self.sync(position)
        return committed

    def sync(self, upto: int | None = None) -> None:
        """Returns once every transaction up to this position (default: the end) is on the disk."""
        with self._as_owner():
            self._sync(upto)
        self._verify()

    def _sync(self, upto: int | None) -> None:
        if upto is None or upto > self._end:
            self._write_out()
        with self._sync_lock:
            with self._lock:
                self._require_usable()
                target = self._end
                if not self._active.is_open or self._durable >= (target if upto is None else upto):
                    return
                descriptor, reach = self._active.duplicate(), self._reach()
            try:
                with full_disk_is_named(self.folder):
                    self._blocks.sync()
                    os.fsync(descriptor)
                    self._mark.write(reach)
            except Exception as error:
                self._broken = f"writing to the disk failed: {error}"
                raise
            finally:
                os.close(descriptor)
            with self._lock:
                self._durable = max(self._durable, target)

    def flush_mark(self) -> None:
        """Returns once it is on the disk, too, how far the log reaches: for sources that let go of what they are told of."""
        with self._sync_lock, full_disk_is_named(self.folder):
            self._mark.flush()

    def trim(self, upto: int) -> None:
        """Lets go of transactions up to this position: their files at once, segments when all of them may go."""
        with self._lock, self._as_owner():
            self._require_usable()
            gone = self._index.upto(min(upto, self._durable))
            if not gone:
                return
            last = gone[-1].header
            content = json.dumps({"position": last.position, "commit_at": last.commit_at}).encode()
            with full_disk_is_named(self.folder):
                replace_checked(self.folder / "trimmed", content)
            self._verify()
            if self._losses.settled != self._losses.trim(last.position).settled:
                self._note(self._losses.trim(last.position))
            self._index.trim(last.position)
            for entry in gone:
                for name in entry.file_names:
                    (self.files_folder / name).unlink(missing_ok=True)
            kept = {entry.segment for entry in self._index} | {self._newest_segment}
            for segment in dict.fromkeys(entry.segment for entry in gone):
                if segment not in kept:
                    # What it was before would count again.
                    for path in (*self._superseded.pop(segment_number(segment), ()), segment):
                        path.unlink(missing_ok=True)
        self._blocks.trim(gone, last.position, self._verify)
        self._room.give_back(sum(entry.bytes for entry in gone))

    # what was lost

    def settle_loss(self, *, found_again: bool = False) -> None:
        """The source has made good for what was lost; or everything of it is here again."""
        with self._sync_lock, self._lock:
            if self.loss is not None:
                for segment in {entry.segment for entry in self._damaged}:
                    self._rewrite(segment)
                self._room.give_back(sum(entry.bytes for entry in self._damaged))
                self._damaged.clear()
                self._note(replace(self._losses, open=None) if found_again else self._losses.settle())

    def go_on_without_lost(self) -> None:
        """Settles a loss that nothing makes good for.

        It takes a position of its own, so that the next job is another one than those before it.
        """
        self.sync()
        with self._sync_lock, self._lock:
            self._end = self._durable = self._end + 1
            self._mark.reset(self._reach())
        self.settle_loss()

    def forget_after_loss(self) -> None:
        """Ends where the loss begins, because the source has all that follows: it is to be appended once more.

        The loss is settled by whoever has done that.
        """
        with self._sync_lock, self._lock:
            assert self.loss is not None
            after = self.loss.after
            self._room.give_back(sum(entry.bytes for entry in self._index if entry.header.position > after))
            self._index.set(self._index.upto(after))
            for segment in [*(each.path for each in self._former), *list_segments(self.folder)]:
                self._rewrite(segment)
            self._end = self._durable = after
            self._end_commit_at = None if self._index.last is None else self._index.last.header.commit_at
            # Behind what is there nothing was acknowledged that the source does not have.
            self._mark.reset(self._reach())

    def _rewrite(self, segment: Path) -> None:
        """Goes on with the frames of a segment alone that count."""
        others = [entry for entry in self._index if entry.segment != segment]
        target, places = rewrite_segment(
            segment, [entry for entry in self._index if entry.segment == segment], self.folder
        )
        self._index.set([*others, *places])
        number = segment_number(segment)
        self._superseded[number] = (*self._superseded.get(number, ()), segment)
        is_last = segment == self._newest_segment
        self._former = tuple(each for each in self._former if each.path != segment)
        if is_last:
            self._active.go_on_with(target)
            self._mark.reset(self._reach())

    @property
    def _newest_segment(self) -> Path | None:
        """The segment that the mark tells of."""
        return self._former[-1].path if self._active.path is None and self._former else self._active.path

    def _reach(self) -> Reach:
        if self._active.path is None and self._former:
            return Reach(segment_number(self._former[-1].path), self._former[-1].bytes, self._end)
        return Reach(self._active.number, self._active.size, self._end)

    def close(self) -> None:
        """Makes everything durable and closes the files; a former owner may close as well."""
        self._verify = nobody
        self.release_writers()
        if self._broken == _CLOSED:
            return
        try:
            if self._broken is None:
                self.sync()
                self.flush_mark()
                self._tail.close()
        finally:
            with self._lock:
                self._active.close()
                self._mark.close()
                self._broken = _CLOSED

    def _append(self, make_header: MakeHeader, bodies: Sequence[bytes]) -> Committed:
        """Writes a frame, whose header is made from the durable position; gives its last transaction."""
        with self._as_owner():
            if self._tail.first is not None:
                self._write_out()
            self._room.wait()
            entry = self._write_frame(*self._placed(make_header, bodies))
            self._room.take(entry.bytes)
        return last_committed(entry.header)

    def _write_out(self) -> None:
        """Writes what is only in memory, in order; no fsync."""
        with self._writing_out:
            while (first := self._tail.first) is not None:
                inline, bodies = encode_tables(first.rows)
                placed = self._placed(partial(first.header, inline=inline), bodies)
                entry = self._write_frame(*placed, is_kept=True)
                self._room.take(entry.bytes)

    def _placed(self, make_header: MakeHeader, bodies: Sequence[bytes]) -> tuple[MakeHeader, Sequence[bytes]]:
        """A frame as it is written: with its rows inside."""
        return make_header, bodies

    def _write_frame(self, make_header: MakeHeader, bodies: Sequence[bytes], *, is_kept: bool = False) -> FrameEntry:
        with self._lock:
            self._require_usable()
            header = make_header(self._durable_frame)
            if not is_kept:
                self._require_order(header.group)
            if self._active.is_full(self._segment_bytes):
                self._begin_segment(header.first)
                # The segment before was synced: the first frame of the new one tells whether it is there.
                header = make_header(self._durable_frame)
            head = frames.encode_header(header)
            start = self._active.write([head, *bodies])
            assert self._active.path is not None
            entry = FrameEntry(header, self._active.path, start, start + len(head), self._active.size)
            self._index.add(entry)
            self._blocks.note(entry)
            self._added(entry)
            self._end, self._end_commit_at = header.position, header.commit_at
            if is_kept:
                self._tail.remove_first()
            return entry

    def _added(self, entry: FrameEntry) -> None:
        """A frame is in the log; the lock is held."""

    def _begin_segment(self, position: int) -> None:
        """A segment is on the disk before the next one begins."""
        with full_disk_is_named(self.folder):
            if self._active.is_open:
                self._blocks.sync()
                self._active.sync()
                self._mark.write(self._reach())
                self._durable = self._end
            self._active.begin(position)

    @property
    def _durable_frame(self) -> int:
        """The position of the last frame that is known to be on the disk."""
        return min(self._durable, self._index.end)

    def _require_usable(self) -> None:
        if self._broken is not None:
            raise CorruptWarehouse(
                f"the stream log is closed to writes: {self._broken}",
                where=Location(str(self.folder)),
                hint="open the warehouse again; what was acknowledged is kept",
            )

    def _require_order(self, group: Group) -> None:
        positions = [self.end, *group.positions.tolist()]
        for before, position in pairwise(positions):
            if position <= before:
                raise TransactionError(
                    f"position {position} does not follow {before}", where=Location(str(self.folder))
                )
        last = self._last_commit_at()
        times = group.commit_at.tolist() if last is None else [last, *group.commit_at.tolist()]
        for before, commit_at in pairwise(times):
            if commit_at < before:
                raise TransactionError(
                    f"the commit time {from_micros(commit_at)} is before its predecessor's {from_micros(before)}",
                    where=Location(str(self.folder)),
                )

    def _last_commit_at(self) -> int | None:
        last = self._tail.last
        return self._end_commit_at if last is None else last.commit_at
