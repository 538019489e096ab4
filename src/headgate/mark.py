"""How far a file that grows reaches, in a small file of its own, so that a lost end is not taken for a write that was cut short.

    two slots, a page apart, written in turn and in place: each a number, a place and a crc32

A mark is written once what it tells of is on the disk and before anybody is told, so it never promises too much. It
survives the process at once, and a power failure once it is flushed. A write that is cut short spoils one slot, and the
other one holds the mark before.
"""

from __future__ import annotations

import os
import struct
import threading
import zlib
from pathlib import Path
from typing import NamedTuple

_FIELDS = struct.Struct("<8sQqqQ")
_CRC = struct.Struct("<I")
_MAGIC = b"HGMARK1\n"
_SLOT_BYTES = 4096
_SLOTS = 2


class Reach(NamedTuple):
    """Where a stream log ends; of the ledger, its version is the position."""

    segment: int
    """The first position of the segment that holds the end; 0 before the first segment."""
    size: int
    """The bytes of that segment."""
    position: int
    """The last transaction's; or a later one, up to which transactions were lost and given up."""


class DamagedMark(ValueError):
    """No slot of the file can be read."""


def read_mark(file: Path) -> Reach | None:
    """The last mark; None where there is no such file."""
    found = _read(file)
    return None if found is None else found[1]


class Mark:
    """The file, open for writing; safe to use from several threads."""

    def __init__(self, file: Path, reach: Reach) -> None:
        """Goes on with a file, or makes it; it says `reach` from then on."""
        try:
            before = _read(file)
        except DamagedMark:
            before = None
        self._lock = threading.Lock()
        self._number = 0 if before is None else before[0]
        if before is None:
            _create(file, _slot(0, reach).ljust(_SLOTS * _SLOT_BYTES, b"\0"))
        self._descriptor = os.open(file, os.O_WRONLY)
        self._reach = reach if before is None else before[1]
        self._is_flushed = True
        self.reset(reach)

    def write(self, reach: Reach) -> None:
        """Moves the mark forward; from then on the system keeps it, whatever happens to this process."""
        with self._lock:
            if reach > self._reach:
                self._put(reach)

    def reset(self, reach: Reach) -> None:
        """Sets the mark, also back; durable on return."""
        with self._lock:
            if reach != self._reach:
                self._put(reach)
        self.flush()

    def flush(self) -> None:
        """Returns once the mark is on the disk."""
        with self._lock:
            if not self._is_flushed:
                os.fdatasync(self._descriptor)
                self._is_flushed = True

    def close(self) -> None:
        os.close(self._descriptor)

    def _put(self, reach: Reach) -> None:
        self._is_flushed = False
        self._number += 1
        os.pwrite(self._descriptor, _slot(self._number, reach), self._number % _SLOTS * _SLOT_BYTES)
        self._reach = reach


def _create(file: Path, content: bytes) -> None:
    """Puts the file in place whole or not at all."""
    fresh = file.with_suffix(".new")
    with fresh.open("wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())
    fresh.replace(file)
    folder = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _slot(number: int, reach: Reach) -> bytes:
    content = _FIELDS.pack(_MAGIC, number, reach.position, reach.segment, reach.size)
    return content + _CRC.pack(zlib.crc32(content))


def _read(file: Path) -> tuple[int, Reach] | None:
    """The number and content of the newest slot that can be read."""
    try:
        content = file.read_bytes()
    except FileNotFoundError:
        return None
    found = []
    for start in range(0, _SLOTS * _SLOT_BYTES, _SLOT_BYTES):
        slot = content[start : start + _FIELDS.size + _CRC.size]
        if len(slot) < _FIELDS.size + _CRC.size:
            continue
        magic, number, position, segment, size = _FIELDS.unpack_from(slot)
        if magic == _MAGIC and (zlib.crc32(slot[: _FIELDS.size]),) == _CRC.unpack_from(slot, _FIELDS.size):
            found.append((number, Reach(segment, size, position)))
    if not found:
        raise DamagedMark("neither of its two slots can be read")
    return max(found)
