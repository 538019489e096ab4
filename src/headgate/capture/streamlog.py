"""The stream log: a source's captured transactions, durable, whole and in position order.

    folder/00000000000000000001.segment   frames, one per transaction; only the last segment is written
    folder/files/*.parquet                rows of large transactions, which frames refer to
    folder/spool/                         scratch of open transactions, emptied on opening
    folder/trimmed                        the position up to which everything has been consumed and let go
    folder/mark                           how far the log reaches: written before anybody is told, on the disk before a
                                          database is told
    folder/lost                           acknowledged transactions that it no longer has (`loss`)

A transaction is appended whole or not at all: its files are on the disk before its frame is written, and a failed
write is cut off again. `append` returns once it is durable; `begin` … `commit` makes it readable at once and `sync`
makes it durable, one fsync serving everyone who waits. `keep` holds a transaction in memory (`unwritten`): readable at
once, written by `sync`, before the next one that is not kept, or when those in memory pass their limit. Only one
process may open a log at a time. A log that holds more than its limit tells `on_full`, and far beyond it appends wait a
little (`room`).

A crash can leave a torn frame at the end, which opening cuts off. Acknowledged transactions that are missing, at the end
or elsewhere, are a `loss`: the log goes on behind it, and nobody can read across it until the source has made good.
"""

from __future__ import annotations

import json
import os
import threading
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from itertools import pairwise, takewhile
from pathlib import Path

import numpy as np
import pyarrow as pa

from headgate.capture import frames
from headgate.capture.durable import full_disk_is_named, replace_checked, sync_folder, write_all
from headgate.capture.events import Committed, EventFile, Events, Size, from_micros, to_micros
from headgate.capture.frames import Group, Header
from headgate.capture.loss import Loss, Losses
from headgate.capture.places import Place, Places, Stamps, read_rows
from headgate.capture.reading import concatenate_events, stamp_of, stamps_of
from headgate.capture.recovery import UNKNOWN, Expected, recover, remove_leftovers
from headgate.capture.room import Room
from headgate.capture.segments import SEGMENT_MAGIC, FrameEntry, list_segments, rewrite_segment, segment_path
from headgate.capture.unwritten import Lost, Unwritten, UnwrittenTail
from headgate.capture.writing import TransactionWriter, encode_tables
from headgate.errors import CorruptWarehouse, EnvironmentProblem, Location, TransactionError
from headgate.mark import Mark, Reach

DEFAULT_SEGMENT_BYTES = 64 << 20
DEFAULT_TRANSACTION_BYTES = 16 << 20
DEFAULT_UNWRITTEN_BYTES = 256 << 20
_CLOSED = "the log is closed"


class StreamLog:
    """One source's log; safe to use from several threads."""

    def __init__(
        self,
        folder: Path,
        *,
        segment_bytes: int = DEFAULT_SEGMENT_BYTES,
        transaction_bytes: int = DEFAULT_TRANSACTION_BYTES,
        limit_bytes: int | None = None,
        unwritten_bytes: int = DEFAULT_UNWRITTEN_BYTES,
        expected: Expected = UNKNOWN,
    ) -> None:
        self.folder = folder
        self.transaction_bytes = transaction_bytes
        self.unwritten_bytes = unwritten_bytes
        self._tail = UnwrittenTail(folder / "unwritten")
        self._writing_out = threading.RLock()
        self._segment_bytes = segment_bytes
        self._lock = threading.Lock()
        self._sync_lock = threading.Lock()
        self._broken: str | None = None
        try:
            for part in (folder, self.files_folder, self.spool_folder):
                part.mkdir(parents=True, exist_ok=True)
        except PermissionError as error:
            raise EnvironmentProblem(
                "the folder of the stream log cannot be written", where=Location(str(folder)), hint=str(error)
            ) from None
        found = recover(folder, self.files_folder, expected)
        self._active, self._size, self._descriptor = found.active, found.size, found.descriptor
        self._trimmed, self._end_commit_at = found.trimmed, found.trimmed_at
        self._entries = found.entries
        self._positions = [entry.header.position for entry in self._entries]
        if self._entries:
            self._end_commit_at = self._entries[-1].header.commit_at
        self._end = self._durable = found.end
        self._losses = found.losses
        self._damaged: list[FrameEntry] = []
        """Frames whose rows turned out to be unreadable."""
        with full_disk_is_named(folder):
            self._mark = Mark(folder / "mark", self._reach())
        self.lost: Lost | None = self._tail.lost(self._end)
        """What was kept in memory when the last owner crashed."""
        remove_leftovers(folder, self.files_folder, self.spool_folder, self._entries, self._active)
        self._room = Room(sum(entry.bytes for entry in self._entries), limit_bytes)

    @property
    def files_folder(self) -> Path:
        return self.folder / "files"

    @property
    def spool_folder(self) -> Path:
        return self.folder / "spool"

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
    def trimmed(self) -> int:
        """The position up to which transactions have been let go."""
        return self._trimmed

    @property
    def loss(self) -> Loss | None:
        """Acknowledged transactions that the log no longer has, and that nobody has made good for."""
        return self._losses.open

    @property
    def end_commit_at(self) -> datetime | None:
        """When the last transaction committed; None before the first."""
        with self._lock:
            last = self._last_commit_at()
        return None if last is None else from_micros(last)

    @property
    def held_bytes(self) -> int:
        """The size of everything that has not been let go."""
        return self._room.held

    @property
    def limit_bytes(self) -> int | None:
        """What that should not pass."""
        return self._room.limit

    @limit_bytes.setter
    def limit_bytes(self, limit: int | None) -> None:
        self._room.change(limit)

    @property
    def over_limit(self) -> bool:
        """Whether that is more than the log should hold: its consumer ought to go forward."""
        return self._room.over_limit

    def on_full(self, hear: Callable[[], None]) -> None:
        """Calls `hear` whenever the log has passed its limit, and again if trimming did not bring it below.

        It is called by a thread that appends, with no lock of the log held, and must return at once.
        """
        self._room.on_full = hear

    def release_writers(self) -> None:
        """Lets waiting and later appends go on at once, because the log is about to be closed."""
        self._room.release_writers()

    def begin(self, position: int, commit_at: datetime, *, initial: bool = False) -> TransactionWriter:
        """A writer for the transaction that comes next; nothing is in the log before its `commit`."""
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
        found = Unwritten.of(position, to_micros(commit_at), tables)
        with self._lock:
            self._require_usable()
            self._require_order(found.group)
            self._tail.add(found)
            too_much = self._tail.bytes > self.unwritten_bytes
        if too_much:
            self._write_out()
        return _committed(found.header(), position - 1, position)[0]

    def append_group(
        self,
        transactions: Sequence[tuple[int, datetime]],
        tables: Mapping[str, pa.Table],
        counts: Mapping[str, Sequence[int]],
    ) -> None:
        """Appends several small transactions at once; readable at once, durable after the log's next `sync`.

        Each is a position and a commit time. A table has the rows of all, `counts` of each, in that order.
        """
        group = Group(
            np.array([position for position, _ in transactions], dtype=np.int64),
            np.array([to_micros(at) for _, at in transactions], dtype=np.int64),
            {table: np.array(each, dtype=np.int64) for table, each in counts.items()},
        )
        inline, bodies = encode_tables(tables)
        self._append(lambda durable: Header(group, False, durable, inline, {}), bodies)

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
        if upto is None or upto > self._end:
            self._write_out()
        with self._sync_lock:
            with self._lock:
                self._require_usable()
                target = self._end
                if self._descriptor is None or self._durable >= (target if upto is None else upto):
                    return
                descriptor, reach = os.dup(self._descriptor), self._reach()
            try:
                with full_disk_is_named(self.folder):
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

    def size(self, table: str, after: int, upto: int) -> Size:
        """How many events of the table the transactions in (after, upto] have; reads none of them."""
        with self._lock:
            headers = self._headers(after, upto)
        inline = sum(
            int(h.group.rows[table][h.group.part(after, upto)].sum()) for h in headers if table in h.group.rows
        )
        return Size(inline, sum(side.rows for header in headers for side in header.files.get(table, ())))

    def read(self, table: str, after: int, upto: int) -> Events:
        """The table's events of the transactions in (after, upto], in order."""
        with self._lock:
            chosen = self._places(table, after, upto)
            files = self._files_of(table, after, upto)
            unwritten = [each for each in self._tail.between(after, upto) if table in each.rows]
            descriptors = {segment: os.open(segment, os.O_RDONLY) for segment in {place.segment for _, place in chosen}}
        parts: list[tuple[Stamps, pa.Table]] = []
        size = sum(file.bytes for file in files)
        try:
            for entry, place in chosen:
                try:
                    rows = read_rows(place, descriptors[place.segment])
                except frames.BadFrame as error:
                    raise self._lose(entry, str(error)).error() from None
                parts.append((place.stamps, rows))
                size += place.inline.length * rows.num_rows // place.inline.rows
        finally:
            for descriptor in descriptors.values():
                os.close(descriptor)
        for each in unwritten:
            parts.append((stamps_of(each.header(), table, slice(0, 1)), each.rows[table]))
            size += each.rows[table].nbytes
        events = concatenate_events(table, parts)
        count = (0 if events is None else events.num_rows) + sum(file.rows for file in files)
        return Events(events, files, count, size)

    def places(self, table: str, after: int, upto: int) -> Places:
        """Where the table's events of the transactions in (after, upto] lie; what is in memory alone is written first."""
        self.sync(upto)
        with self._lock:
            chosen = self._places(table, after, upto)
            return Places(tuple(place for _, place in chosen), self._files_of(table, after, upto))

    def transactions(self, after: int, upto: int) -> tuple[Committed, ...]:
        """The transactions in (after, upto], in order."""
        with self._lock:
            chosen = self._headers(after, upto)
        return tuple(found for header in chosen for found in _committed(header, after, upto))

    def rows_held(self, after: int, upto: int) -> int:
        """How many rows the transactions in (after, upto] have, but for those that were let go."""
        with self._lock:
            after = max(after, self._trimmed)
            chosen = self._headers(after, upto) if after < upto else []
        return sum(sum(found.rows.values()) for header in chosen for found in _committed(header, after, upto))

    def trim(self, upto: int) -> None:
        """Lets go of transactions up to this position: their files at once, segments when all of them may go."""
        with self._lock:
            self._require_usable()
            count = bisect_right(self._positions, min(upto, self._durable))
            if count == 0:
                return
            gone, last = self._entries[:count], self._entries[count - 1].header
            content = json.dumps({"position": last.position, "commit_at": last.commit_at}).encode()
            with full_disk_is_named(self.folder):
                replace_checked(self.folder / "trimmed", content)
            self._trimmed = last.position
            if self._losses.settled != self._losses.trim(last.position).settled:
                self._note(self._losses.trim(last.position))
            self._entries, self._positions = self._entries[count:], self._positions[count:]
            for entry in gone:
                for name in entry.file_names:
                    (self.files_folder / name).unlink(missing_ok=True)
            kept = {entry.segment for entry in self._entries} | {self._active}
            for segment in dict.fromkeys(entry.segment for entry in gone):
                if segment not in kept:
                    segment.unlink(missing_ok=True)
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
            self._room.give_back(sum(entry.bytes for entry in self._entries if entry.header.position > after))
            self._entries = [entry for entry in self._entries if entry.header.position <= after]
            for segment in list_segments(self.folder):
                self._rewrite(segment)
            self._positions = [entry.header.position for entry in self._entries]
            self._end = self._durable = after
            self._end_commit_at = self._entries[-1].header.commit_at if self._entries else None
            # Behind what is there nothing was acknowledged that the source does not have.
            self._mark.reset(self._reach())

    def _lose(self, entry: FrameEntry, why: str) -> Loss:
        """Notes that a frame's rows cannot be read."""
        what = f"damaged at byte {entry.start}: {why}"
        found = Loss(entry.header.first - 1, entry.header.position, what, str(entry.segment))
        with self._lock:
            self._note(self._losses.with_loss(found))
            if entry in self._entries:
                place = self._entries.index(entry)
                self._damaged.append(self._entries.pop(place))
                del self._positions[place]
        return found

    def lose_file(self, file: str, why: str) -> Loss:
        """Notes that a file of a large transaction cannot be read."""
        with self._lock:
            entry = next(entry for entry in self._entries if Path(file).name in entry.file_names)
        return self._lose(entry, f"{file}: {why}")

    def _rewrite(self, segment: Path) -> None:
        """Leaves in a segment the frames alone that count."""
        others = [entry for entry in self._entries if entry.segment != segment]
        places = rewrite_segment(segment, [entry for entry in self._entries if entry.segment == segment])
        self._entries = sorted([*others, *places], key=lambda entry: entry.header.position)
        if segment == self._active and self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = os.open(segment, os.O_WRONLY | os.O_APPEND)
            self._size = os.fstat(self._descriptor).st_size
            self._mark.reset(self._reach())

    def _note(self, losses: Losses) -> None:
        with full_disk_is_named(self.folder):
            losses.write(self.folder)
        self._losses = losses

    def _reach(self) -> Reach:
        return Reach(0 if self._active is None else int(self._active.stem), self._size, self._end)

    def close(self) -> None:
        """Makes everything durable and closes the files."""
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
                if self._descriptor is not None:
                    os.close(self._descriptor)
                    self._descriptor = None
                self._mark.close()
                self._broken = _CLOSED

    def _append(self, make_header: Callable[[int], Header], bodies: Sequence[bytes]) -> Committed:
        """Writes a frame, whose header is made from the durable position; gives its last transaction."""
        self._write_out()
        self._room.wait()
        entry = self._write_frame(make_header, bodies)
        self._room.take(entry.bytes)
        return _committed(entry.header, entry.header.position - 1, entry.header.position)[0]

    def _write_out(self) -> None:
        """Writes what is only in memory, in order; no fsync."""
        with self._writing_out:
            while (first := self._tail.first) is not None:
                inline, bodies = encode_tables(first.rows)
                entry = self._write_frame(partial(first.header, inline=inline), bodies, is_kept=True)
                self._room.take(entry.bytes)

    def _write_frame(
        self, make_header: Callable[[int], Header], bodies: Sequence[bytes], *, is_kept: bool = False
    ) -> FrameEntry:
        with self._lock:
            self._require_usable()
            header = make_header(self._durable_frame)
            if not is_kept:
                self._require_order(header.group)
            descriptor, segment = self._writable_segment(header.first)
            if header.durable != self._durable_frame:
                # The segment before was synced: the first frame of the new one tells whether it is there.
                header = make_header(self._durable_frame)
            start, head = self._size, frames.encode_header(header)
            try:
                with full_disk_is_named(segment):
                    write_all(descriptor, [head, *bodies])
            except BaseException:
                os.ftruncate(descriptor, start)
                raise
            self._size = start + len(head) + header.body_bytes
            entry = FrameEntry(header, segment, start, start + len(head), self._size)
            self._entries.append(entry)
            self._positions.append(header.position)
            self._end, self._end_commit_at = header.position, header.commit_at
            if is_kept:
                self._tail.remove_first()
            return entry

    @property
    def _durable_frame(self) -> int:
        """The position of the last frame that is known to be on the disk."""
        return min(self._durable, self._positions[-1] if self._positions else self._trimmed)

    def _require_usable(self) -> None:
        if self._broken is not None:
            raise CorruptWarehouse(
                f"the stream log takes nothing more: {self._broken}",
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

    def _headers(self, after: int, upto: int) -> list[Header]:
        written = [entry.header for entry in self._range(after, upto)]
        return written + [each.header() for each in self._tail.between(after, upto)]

    def _range(self, after: int, upto: int) -> list[FrameEntry]:
        if after < self._trimmed:
            raise CorruptWarehouse(
                f"the stream log begins after position {self._trimmed}, asked was for everything after {after}",
                where=Location(str(self.folder)),
            )
        chosen = self._entries[bisect_right(self._positions, after) :]
        return list(takewhile(lambda entry: entry.header.first <= upto, chosen))

    def _places(self, table: str, after: int, upto: int) -> list[tuple[FrameEntry, Place]]:
        """The frames with rows of the table."""
        if self.loss is not None and self.loss.overlaps(after, upto):
            raise self.loss.error()
        found = []
        for entry in self._range(after, upto):
            inline = entry.header.inline.get(table)
            if inline is None:
                continue
            part = entry.header.group.part(after, upto)
            stamps = stamps_of(entry.header, table, part)
            if stamps.counts.any():
                first = int(entry.header.group.rows[table][: part.start].sum())
                found.append((entry, Place(str(entry.segment), entry.body + inline.offset, inline, first, stamps)))
        return found

    def _files_of(self, table: str, after: int, upto: int) -> tuple[EventFile, ...]:
        return tuple(
            EventFile(
                str(self.files_folder / side.name), entry.header.position, stamp_of(entry.header), side.rows, side.bytes
            )
            for entry in self._range(after, upto)
            for side in entry.header.files.get(table, ())
        )

    def _writable_segment(self, position: int) -> tuple[int, Path]:
        """The segment for the next frame; begins a new one when the last is full."""
        if self._descriptor is not None and self._active is not None and self._size < self._segment_bytes:
            return self._descriptor, self._active
        path = segment_path(self.folder, position)
        with full_disk_is_named(path):
            if self._descriptor is not None:
                os.fsync(self._descriptor)
                self._mark.write(self._reach())
                self._durable = self._end
            descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o600)
            try:
                write_all(descriptor, [SEGMENT_MAGIC])
                sync_folder(self.folder)
            except BaseException:
                os.close(descriptor)
                path.unlink()
                raise
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._descriptor, self._active, self._size = descriptor, path, len(SEGMENT_MAGIC)
        return descriptor, path


def _committed(header: Header, after: int, upto: int) -> list[Committed]:
    """The frame's transactions in (after, upto]."""
    group = header.group
    files = {name: sum(side.rows for side in sides) for name, sides in header.files.items()}
    found = []
    for place in range(*group.part(after, upto).indices(len(group.positions))):
        rows = {name: int(counts[place]) for name, counts in group.rows.items() if counts[place]}
        at = from_micros(int(group.commit_at[place]))
        found.append(Committed(int(group.positions[place]), at, header.initial, rows | files))
    return found
