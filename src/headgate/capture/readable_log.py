"""Reading a stream log by position: its frames, the files they refer to, and the transactions that are in memory alone; and how
much all of that is."""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from headgate.capture import frames
from headgate.capture.block_segments import SUFFIX as BLOCKS
from headgate.capture.block_segments import BlockSegments
from headgate.capture.durable import full_disk_is_named
from headgate.capture.events import Committed, Events, Size
from headgate.capture.frame_index import FrameIndex, committed_of
from headgate.capture.frames import Header
from headgate.capture.loss import Loss, Losses
from headgate.capture.places import Places, RowsPlace, Stamps, read_rows
from headgate.capture.queue_status import QueueStatus
from headgate.capture.reading import concatenate_events, stamps_of
from headgate.capture.room import Room
from headgate.capture.segments import FrameEntry
from headgate.capture.unwritten import UnwrittenTail
from headgate.errors import DefiniteError


class ReadableLog(ABC):
    """The half of a log that reads; safe to use from several threads, also while the other half writes."""

    def __init__(
        self,
        folder: Path,
        files_folder: Path,
        blocks: BlockSegments,
        index: FrameIndex,
        losses: Losses,
        room: Room,
        verify: Callable[[], None],
    ) -> None:
        self.folder = folder
        self.files_folder = files_folder
        """Where the files of large transactions lie."""
        self._blocks = blocks
        self._index = index
        self._losses = losses
        self._room = room
        self._verify = verify
        self._tail = UnwrittenTail(folder / "unwritten")
        self._lock = threading.Lock()
        self._damaged: list[FrameEntry] = []
        """Frames whose rows turned out to be unreadable."""

    @property
    def spool_folder(self) -> Path:
        return self.folder / "spool"

    @property
    def trimmed(self) -> int:
        """The position up to which transactions have been let go."""
        return self._index.trimmed

    @property
    def loss(self) -> Loss | None:
        """Acknowledged transactions that the log no longer has, and that nobody has made good for."""
        return self._losses.open

    @property
    def held_bytes(self) -> int:
        """The size of everything that has not been let go."""
        return self._room.held

    def bytes_after(self, position: int) -> int:
        """Of these, what the transactions after a position take."""
        with self._lock:
            return self._index.bytes_after(position) + self._tail.bytes_after(position)

    @property
    def memory_bytes(self) -> int:
        """Of these, what is in memory alone."""
        return self._tail.bytes

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

    @property
    def queue(self) -> QueueStatus | None:
        """None: the log has no partitions."""
        return None

    def split(self, number: int) -> QueueStatus:
        raise self._without_partitions()

    def merge(self, number: int, other: int) -> QueueStatus:
        raise self._without_partitions()

    def _without_partitions(self) -> DefiniteError:
        return DefiniteError(
            "the stream log has no partitions",
            hint="set `stream: elastic` for the source, and open the warehouse again",
        )

    @abstractmethod
    def sync(self, upto: int | None = None) -> None:
        """Returns once every transaction up to this position (default: the end) is on the disk."""

    def size(self, table: str, after: int, upto: int) -> Size:
        """How many events of the table the transactions in (after, upto] have; reads none of them."""
        with self._lock:
            headers = self._headers(after, upto)
        inline = sum(
            int(h.group.rows[table][h.group.part(after, upto)].sum()) for h in headers if table in h.group.rows
        )
        return Size(inline, sum(side.rows for header in headers for side in header.files.get(table, ())))

    def read(self, table: str, after: int, upto: int, keep: pc.Expression | None = None) -> Events:
        """The table's events of the transactions in (after, upto], in order; of rows in segments only those to `keep`."""
        with self._lock, self._as_owner():
            chosen = self._places(table, after, upto)
            files = self._index.files(table, after, upto, self.files_folder)
            unwritten = [each for each in self._tail.between(after, upto) if table in each.rows]
            descriptors: dict[str, int | str] = {
                segment: _open(segment) for segment in {place.segment for _, place in chosen}
            }
        parts: list[tuple[Stamps, pa.Table]] = []
        size = sum(file.bytes for file in files)
        try:
            for entry, place in chosen:
                try:
                    if isinstance(descriptor := descriptors[place.segment], str):
                        raise frames.BadFrame(descriptor)
                    rows = read_rows(place, descriptor)
                except frames.BadFrame as error:
                    raise self._lose(entry, str(error), place).error() from None
                parts.append((place.stamps, rows))
                size += place.inline.length * rows.num_rows // place.inline.rows
        finally:
            for descriptor in descriptors.values():
                if isinstance(descriptor, int):
                    os.close(descriptor)
        for each in unwritten:
            parts.append((stamps_of(each.header(), table, slice(0, 1)), each.rows[table]))
            size += each.rows[table].nbytes
        events = concatenate_events(table, parts, keep)
        count = (0 if events is None else events.num_rows) + sum(file.rows for file in files)
        return Events(events, files, count, size)

    def next_batch(self, table: str, after: int, upto: int) -> Places:
        """Where the table's events of the transactions in (after, upto] lie; what is in memory alone is written first."""
        self.sync(upto)
        with self._lock:
            chosen = self._places(table, after, upto)
            return Places(tuple(place for _, place in chosen), self._index.files(table, after, upto, self.files_folder))

    def transactions(self, after: int, upto: int) -> tuple[Committed, ...]:
        """The transactions in (after, upto], in order."""
        with self._lock:
            chosen = self._headers(after, upto)
        return tuple(found for header in chosen for found in committed_of(header, after, upto))

    def rows_held(self, after: int, upto: int) -> int:
        """How many rows the transactions in (after, upto] have, but for those that were let go."""
        with self._lock:
            after = max(after, self._index.trimmed)
            chosen = self._headers(after, upto) if after < upto else []
        inline = sum(int(rows[h.group.part(after, upto)].sum()) for h in chosen for rows in h.group.rows.values())
        return inline + sum(side.rows for header in chosen for sides in header.files.values() for side in sides)

    def _lose(self, entry: FrameEntry, why: str, place: RowsPlace | None = None) -> Loss:
        """Notes that a frame's rows cannot be read."""
        is_block = place is not None and place.segment != str(entry.segment)
        start, segment = (place.offset, place.segment) if place and is_block else (entry.start, str(entry.segment))
        what = f"damaged at byte {start}: {why}"
        found = Loss(entry.header.first - 1, entry.header.position, what, segment)
        with self._lock:
            self._note(self._losses.with_loss(found))
            if entry in self._index:
                self._index.remove(entry)
                self._damaged.append(entry)
        return found

    def lose_file(self, file: str, why: str) -> Loss:
        """Notes that a file of a large transaction cannot be read."""
        with self._lock:
            entry = next(entry for entry in self._index if Path(file).name in entry.file_names)
        return self._lose(entry, f"{file}: {why}")

    def _note(self, losses: Losses) -> None:
        with full_disk_is_named(self.folder):
            losses.write(self.folder)
        self._losses = losses

    def _headers(self, after: int, upto: int) -> list[Header]:
        written = [entry.header for entry in self._index.between(after, upto)]
        return written + [each.header() for each in self._tail.between(after, upto)]

    def _places(self, table: str, after: int, upto: int) -> list[tuple[FrameEntry, RowsPlace]]:
        """The frames with rows of the table."""
        if self.loss is not None and self.loss.overlaps(after, upto):
            raise self.loss.error()
        return self._index.places(table, after, upto)

    def _as_owner(self) -> _AsOwner:
        return _AsOwner(self._verify)


class _AsOwner:
    """A former owner's folder is gone: what then fails is that, not the disk."""

    __slots__ = ("_verify",)

    def __init__(self, verify: Callable[[], None]) -> None:
        self._verify = verify

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: TracebackType | None) -> Literal[False]:
        if isinstance(error, OSError):
            self._verify()
        return False


def _open(segment: str) -> int | str:
    """A descriptor for reading; or why a segment of blocks has none."""
    try:
        return os.open(segment, os.O_RDONLY)
    except FileNotFoundError:
        if not segment.endswith(BLOCKS):
            raise
        return "the segment is missing"
