"""Segments: the files of a stream log, each a row of frames in position order.

Only the last segment is ever written, and it is synced before the next begins. So bytes that are no frame are damage in
an earlier segment; at the end of the last one they are a write that a crash interrupted, unless the log's mark or a later
frame proves that they had been on the disk (`recovery`). A segment is never replaced: what is left of it is a new version,
which counts instead.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from headgate.capture import frames
from headgate.capture.durable import replace_file
from headgate.capture.frames import BadFrame, Block, Header

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
    def blocks(self) -> list[Block]:
        return [block for blocks in self.header.blocks.values() for block in blocks]

    @property
    def bytes(self) -> int:
        """Of the frame, its files and its blocks."""
        files = sum(side.bytes for files in self.header.files.values() for side in files)
        return self.end - self.start + files + sum(block.length for block in self.blocks)


def segment_path(folder: Path, first_position: int, version: int = 0) -> Path:
    """The file of the segment that begins with this position; a later version has frames of it alone that count."""
    return folder / (f"{first_position:020d}" + (f".{version}" if version else "") + SUFFIX)


def segment_number(segment: Path) -> int:
    """The first position of a segment."""
    return int(segment.name.partition(".")[0])


def segment_version(segment: Path) -> int:
    return int(segment.stem.partition(".")[2] or 0)


def list_segments(folder: Path) -> list[Path]:
    """The segments in a folder, oldest first; of each the latest version."""
    found = (path for path in folder.iterdir() if path.suffix == SUFFIX)
    ordered = sorted(found, key=lambda path: (segment_number(path), segment_version(path)))
    return [*{segment_number(path): path for path in ordered}.values()]


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
        return segment_number(self.segment)


def scan_segment(segment: Path, *, bodies: bool, limit: int | None = None) -> SegmentScan:
    """Reads a segment, of which bytes up to a limit may count; without `bodies`, rows are tested when they are read."""
    descriptor = os.open(segment, os.O_RDONLY)
    try:
        size = os.fstat(descriptor).st_size
        size = size if limit is None else min(size, limit)
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


def rewrite_segment(segment: Path, entries: Sequence[FrameEntry], folder: Path) -> tuple[Path, list[FrameEntry]]:
    """Writes a segment's next version with these frames of it alone, durably; gives it, and their new places.

    The segment itself stays: another owner of the log may count on it.
    """
    target = segment_path(folder, segment_number(segment), segment_version(segment) + 1)
    content = segment.read_bytes()
    parts, places = [SEGMENT_MAGIC], []
    start = len(SEGMENT_MAGIC)
    for entry in entries:
        moved = start - entry.start
        places.append(replace(entry, segment=target, start=start, body=entry.body + moved, end=entry.end + moved))
        parts.append(content[entry.start : entry.end])
        start = places[-1].end
    replace_file(target, b"".join(parts))
    return target, places


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
