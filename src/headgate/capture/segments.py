"""Segments: the files of a stream log, each a row of frames in position order.

Only the last segment is ever written, and it is synced before the next begins. So bytes that are no frame are damage in
an earlier segment; at the end of the last one they are a write that a crash interrupted, unless the log's mark or a later
frame proves that they had been on the disk (`recovery`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from headgate.capture import frames
from headgate.capture.durable import replace_file
from headgate.capture.frames import BadFrame, Header

SEGMENT_MAGIC = b"HGSTREAM1\n"
SUFFIX = ".segment"


@dataclass(frozen=True, slots=True)
class FrameEntry:
    """A frame's place: its segment, where it begins, where its body begins and where it ends."""

    header: Header
    segment: Path
    start: int
    body: int
    end: int

    @property
    def file_names(self) -> list[str]:
        return [side.name for files in self.header.files.values() for side in files]

    @property
    def bytes(self) -> int:
        """Of the frame and its files."""
        return self.end - self.start + sum(side.bytes for files in self.header.files.values() for side in files)


def segment_path(folder: Path, first_position: int) -> Path:
    """The file of the segment that begins with this position."""
    return folder / f"{first_position:020d}{SUFFIX}"


def list_segments(folder: Path) -> list[Path]:
    """The log's segments, oldest first."""
    return sorted(path for path in folder.iterdir() if path.suffix == SUFFIX)


@dataclass(frozen=True, slots=True)
class SegmentScan:
    """What a segment holds."""

    segment: Path
    entries: list[FrameEntry]
    """Its frames, up to the first bytes that are none."""
    end: int
    """Where these frames end; 0 when not even the segment's beginning is there."""
    problem: str | None = None
    """Why no frame follows, where there are bytes."""
    later: tuple[FrameEntry, ...] = ()
    """Whole frames behind those bytes."""
    can_be_torn: bool = True
    """Whether a crash can leave a segment like this, if it was the last."""

    @property
    def number(self) -> int:
        return int(self.segment.stem)


def scan_segment(segment: Path, *, bodies: bool) -> SegmentScan:
    """Reads a segment; without `bodies`, the rows of its frames are tested when they are read."""
    descriptor = os.open(segment, os.O_RDONLY)
    try:
        size = os.fstat(descriptor).st_size
        start = os.pread(descriptor, len(SEGMENT_MAGIC), 0)
        offset = len(SEGMENT_MAGIC)
        if start != SEGMENT_MAGIC:
            later = tuple(_valid_frames_after(descriptor, segment, 0, size))
            is_begun = SEGMENT_MAGIC.startswith(start) or not any(start)
            return SegmentScan(segment, [], 0, "this is not a segment", later, can_be_torn=is_begun)
        entries: list[FrameEntry] = []
        while offset < size:
            try:
                entry = _read_entry(descriptor, segment, offset, size)
                if bodies:
                    _check_body(descriptor, entry)
            except BadFrame as error:
                later = tuple(_valid_frames_after(descriptor, segment, offset, size))
                return SegmentScan(segment, entries, offset, f"damaged at byte {offset}: {error}", later)
            entries.append(entry)
            offset = entry.end
        return SegmentScan(segment, entries, offset)
    finally:
        os.close(descriptor)


def rewrite_segment(segment: Path, entries: Sequence[FrameEntry]) -> list[FrameEntry]:
    """Replaces a segment by one with these frames of it alone, durably; gives their new places."""
    content = segment.read_bytes()
    parts, places = [SEGMENT_MAGIC], []
    start = len(SEGMENT_MAGIC)
    for entry in entries:
        moved = start - entry.start
        places.append(replace(entry, start=start, body=entry.body + moved, end=entry.end + moved))
        parts.append(content[entry.start : entry.end])
        start = places[-1].end
    replace_file(segment, b"".join(parts))
    return places


def _read_entry(descriptor: int, segment: Path, offset: int, size: int) -> FrameEntry:
    prefix = os.pread(descriptor, frames.PREFIX_BYTES, offset)
    text = os.pread(descriptor, frames.header_bytes(prefix), offset + frames.PREFIX_BYTES)
    header = frames.decode_header(prefix, text)
    body = offset + frames.PREFIX_BYTES + len(text)
    if body + header.body_bytes > size:
        raise BadFrame("the frame ends within its rows")
    return FrameEntry(header, segment, offset, body, body + header.body_bytes)


def _check_body(descriptor: int, entry: FrameEntry) -> None:
    for part in entry.header.inline.values():
        frames.check_rows(part, os.pread(descriptor, part.length, entry.body + part.offset))


def _valid_frames_after(descriptor: int, segment: Path, offset: int, size: int) -> Iterator[FrameEntry]:
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
