"""The segments that writers put blocks into, as the owner of a stream log sees them.

    folder/<name>.blocks      written by one writer, read by whoever has a reference; deleted when its last block is consumed

A segment is open while a writer may still add to it, and then sealed. Names are random and never used twice, so what
a writer of a former owner still writes reaches nobody. Segments are deleted whole, never compacted or rewritten.
"""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Callable, Collection, Iterable
from pathlib import Path

from headgate.capture.block_writer import OpenSegment, create_segment
from headgate.capture.durable import full_disk_is_named, sync_file
from headgate.capture.frames import BadFrame, Block, Inline, check_rows
from headgate.capture.segments import FrameEntry
from headgate.errors import Location, TransactionError

SUFFIX = ".blocks"


class BlockSegments:
    """Which segments there are, and up to which position each is needed; safe to use from several threads."""

    def __init__(self, folder: Path, entries: Iterable[FrameEntry]) -> None:
        """Deletes the segments that no frame refers to."""
        self.folder = folder
        self._lock = threading.Lock()
        self._open: set[str] = set()
        self._unsynced: set[str] = set()
        self._held: dict[str, set[int]] = {}
        """Where blocks begin, by segment, to which a frame may yet refer."""
        self._last: dict[str, int] = {}
        """The newest position that has rows in a segment."""
        for entry in entries:
            self._note(entry)
        if folder.exists():
            for file in folder.iterdir():
                if file.name not in self._last:
                    file.unlink()

    def open(self) -> OpenSegment:
        """A new segment for one writer."""
        with full_disk_is_named(self.folder):
            self.folder.mkdir(mode=0o700, exist_ok=True)
            segment = create_segment(self.folder, f"{secrets.token_hex(8)}{SUFFIX}")
        with self._lock:
            self._open.add(segment.name)
        return segment

    def reserve(self) -> Path:
        """The path of a segment that a writer with access to the storage makes itself."""
        self.folder.mkdir(mode=0o700, exist_ok=True)
        path = self.folder / f"{secrets.token_hex(8)}{SUFFIX}"
        with self._lock:
            self._open.add(path.name)
        return path

    def seal(self, names: Iterable[str], trimmed: int) -> None:
        """Nobody adds to these segments any more: they go with their last block, at once if that was consumed."""
        with self._lock:
            self._open.difference_update(names)
        self._delete(names, trimmed)

    def require(self, blocks: Iterable[Block]) -> None:
        """Raises unless every block lies in an open segment and is there in full."""
        ends: dict[str, int] = {}
        for block in blocks:
            ends[block.segment] = max(ends.get(block.segment, 0), block.end)
        for name, end in ends.items():
            with self._lock:
                self._require_open(name)
            path = self.folder / name
            if _size(path) < end and _size(path, is_opened=True) < end:
                raise _missing_part("a part of the transaction is not there", path)

    def hold(self, blocks: Collection[Block]) -> None:
        """A frame may yet refer to these blocks, which stay until it does or until they are released."""
        with self._lock:
            for block in blocks:
                self._require_open(block.segment)
            for block in blocks:
                self._held.setdefault(block.segment, set()).add(block.offset)

    def release(self, blocks: Collection[Block], trimmed: int) -> None:
        """No frame will refer to these blocks, unless one does already."""
        with self._lock:
            self._release(blocks)
        self._delete({block.segment for block in blocks}, trimmed)

    def written(self, blocks: Iterable[Block]) -> None:
        """These blocks may not be on the disk yet."""
        with self._lock:
            self._unsynced.update(block.segment for block in blocks)

    def sync(self) -> None:
        """Returns once all blocks of which that was not known are on the disk."""
        with self._lock:
            names, self._unsynced = self._unsynced, set()
        try:
            with full_disk_is_named(self.folder):
                for name in names:
                    if (self.folder / name).exists():
                        sync_file(self.folder / name)
        except BaseException:
            with self._lock:
                self._unsynced |= names
            raise

    def note(self, entry: FrameEntry) -> None:
        """A frame refers to segments."""
        with self._lock:
            self._note(entry)
            self._release(entry.blocks)

    def trim(self, gone: Iterable[FrameEntry], trimmed: int, verify: Callable[[], None]) -> None:
        """Deletes the segments of consumed frames that nothing else needs; a former owner deletes nothing."""
        names = {block.segment for entry in gone for block in entry.blocks}
        if names:
            verify()
            self._delete(names, trimmed)

    def _delete(self, names: Iterable[str], trimmed: int) -> None:
        with self._lock:
            gone = [name for name in names if self._is_free(name, trimmed)]
            for name in gone:
                self._last.pop(name, None)
        for name in gone:
            (self.folder / name).unlink(missing_ok=True)

    def _is_free(self, name: str, trimmed: int) -> bool:
        return name not in self._open and name not in self._held and self._last.get(name, 0) <= trimmed

    def _require_open(self, name: str) -> None:
        if name not in self._open and name not in self._held:
            raise _missing_part("the segment of a part was closed", self.folder / name)

    def _release(self, blocks: Iterable[Block]) -> None:
        for block in blocks:
            held = self._held.get(block.segment, set())
            held.discard(block.offset)
            if not held:
                self._held.pop(block.segment, None)

    def _note(self, entry: FrameEntry) -> None:
        for block in entry.blocks:
            self._last[block.segment] = max(self._last.get(block.segment, 0), entry.header.position)


def _size(path: Path, *, is_opened: bool = False) -> int:
    """A file's size. What another machine wrote a network file system may show only to who opens the file."""
    try:
        if not is_opened:
            return path.stat().st_size
        with path.open("rb") as file:
            return os.fstat(file.fileno()).st_size
    except FileNotFoundError:
        return 0


def _missing_part(what: str, path: Path) -> TransactionError:
    hint = "put it again, in a new transaction; a producer on another machine needs the storage at the same path"
    return TransactionError(what, where=Location(str(path)), hint=hint)


def problem_of(folder: Path, block: Block, *, content: bool) -> str | None:
    """Why a block cannot be read; None when it can, or, without a look at its content, when it is long enough."""
    path = folder / block.segment
    if not path.exists():
        return "this segment is missing"
    if path.stat().st_size < block.end:
        return "this segment is cut short"
    if content:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            check_rows(Inline(block.rows, 0, block.length, block.crc), os.pread(descriptor, block.length, block.offset))
        except BadFrame as error:
            return f"damaged at byte {block.offset}: {error}"
        finally:
            os.close(descriptor)
    return None
