"""Segments: the files of a stream log, each a row of frames in position order.

Only the last segment is ever written, and it is synced before the next begins. So damage in an earlier segment is
damage; at the end of the last one it is a write that a crash interrupted, and is cut off, unless a later valid
frame proves that the damaged bytes had been on the disk.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from headgate.capture import frames
from headgate.capture.frames import BadFrame, Header
from headgate.errors import CorruptWarehouse, Location

SEGMENT_MAGIC = b"HGSTREAM1\n"
SUFFIX = ".segment"


@dataclass(frozen=True, slots=True)
class Entry:
    """A frame's place: its segment, where it begins, where its body begins and where it ends."""

    header: Header
    segment: Path
    start: int
    body: int
    end: int


def segment_path(folder: Path, first_position: int) -> Path:
    """The file of the segment that begins with this position."""
    return folder / f"{first_position:020d}{SUFFIX}"


def list_segments(folder: Path) -> list[Path]:
    """The log's segments, oldest first."""
    return sorted(path for path in folder.iterdir() if path.suffix == SUFFIX)


def corrupt(segment: Path, offset: int, why: str) -> CorruptWarehouse:
    """The error that names a damaged place."""
    return CorruptWarehouse(
        f"the stream log is damaged at byte {offset}: {why}",
        where=Location(str(segment)),
        hint="restore this file from a copy; the transactions in it cannot be read",
    )


def scan_segment(segment: Path) -> list[Entry]:
    """The frames of a finished segment; bodies are tested when they are read."""
    descriptor = os.open(segment, os.O_RDONLY)
    try:
        size = os.fstat(descriptor).st_size
        if os.pread(descriptor, len(SEGMENT_MAGIC), 0) != SEGMENT_MAGIC:
            raise corrupt(segment, 0, "this is not a segment")
        entries: list[Entry] = []
        offset = len(SEGMENT_MAGIC)
        while offset < size:
            try:
                entry = _read_entry(descriptor, segment, offset, size)
            except BadFrame as error:
                raise corrupt(segment, offset, str(error)) from None
            entries.append(entry)
            offset = entry.end
        return entries
    finally:
        os.close(descriptor)


def recover_segment(segment: Path) -> tuple[list[Entry], int]:
    """The valid frames of the last segment and the length at which to cut it (0: not even its beginning is whole)."""
    descriptor = os.open(segment, os.O_RDONLY)
    try:
        size = os.fstat(descriptor).st_size
        start = os.pread(descriptor, len(SEGMENT_MAGIC), 0)
        if start != SEGMENT_MAGIC:
            if SEGMENT_MAGIC.startswith(start) or not any(start):
                return [], 0
            raise corrupt(segment, 0, "this is not a segment")
        entries: list[Entry] = []
        offset = len(SEGMENT_MAGIC)
        while offset < size:
            try:
                entry = _read_entry(descriptor, segment, offset, size)
                _check_body(descriptor, entry)
            except BadFrame as error:
                whole = entries[-1].header.position if entries else int(segment.stem) - 1
                for later in _valid_frames_after(descriptor, segment, offset, size):
                    if later.header.durable > whole:
                        raise corrupt(segment, offset, str(error)) from None
                return entries, offset
            entries.append(entry)
            offset = entry.end
        return entries, offset
    finally:
        os.close(descriptor)


def _read_entry(descriptor: int, segment: Path, offset: int, size: int) -> Entry:
    prefix = os.pread(descriptor, frames.PREFIX_BYTES, offset)
    text = os.pread(descriptor, frames.header_bytes(prefix), offset + frames.PREFIX_BYTES)
    header = frames.decode_header(prefix, text)
    body = offset + frames.PREFIX_BYTES + len(text)
    if body + header.body_bytes > size:
        raise BadFrame("the frame ends within its rows")
    return Entry(header, segment, offset, body, body + header.body_bytes)


def _check_body(descriptor: int, entry: Entry) -> None:
    for part in entry.header.inline.values():
        frames.check_rows(part, os.pread(descriptor, part.length, entry.body + part.offset))


def _valid_frames_after(descriptor: int, segment: Path, offset: int, size: int) -> Iterator[Entry]:
    """Frames behind a damaged place, found by their first bytes."""
    content = os.pread(descriptor, size - offset, offset)
    found = content.find(frames.MAGIC, 1)
    while found >= 0:
        try:
            entry = _read_entry(descriptor, segment, offset + found, size)
            _check_body(descriptor, entry)
            yield entry
        except (BadFrame, ValueError):
            pass
        found = content.find(frames.MAGIC, found + 1)
