"""Opening a stream log after whatever happened: what counts is found again, what a crash left behind goes.

A write that was cut short was acknowledged to nobody and is cut off. Anything else that is missing is a loss. Four things
tell: the log's mark (`mark`), what the ledger says of it, the frames behind a damaged place, and each frame's `durable`,
which the frame before it must reach. A loss is noted (`loss`) before the log goes on with what is whole.

Segments of former owners are only read, because a former owner that was paused may still write to them: their frames
count up to a byte, which the manifest names (`log_manifest`), and the log goes on in a segment of its own.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from headgate.capture.block_segments import problem_of
from headgate.capture.durable import read_checked, sync_file
from headgate.capture.log_manifest import FormerSegment
from headgate.capture.loss import Loss, Losses
from headgate.capture.segments import (
    SUFFIX,
    FrameEntry,
    SegmentScan,
    list_segments,
    rewrite_segment,
    scan_segment,
    segment_number,
)
from headgate.mark import DamagedMark, Reach, read_mark


@dataclass(frozen=True, slots=True)
class Expected:
    """What the rest of the warehouse knows of a log."""

    position: int = 0
    """A closed job holds transactions up to here."""
    is_marked: bool = False
    """The log has a mark."""


UNKNOWN = Expected()
_LEFT = "left-"
"""What begins the names of folders that opening takes out of the way."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """The frames of all segments, and the segment that is written next, open for that; none in a new log."""

    trimmed: int
    trimmed_at: int | None
    entries: list[FrameEntry]
    end: int
    losses: Losses
    former: tuple[FormerSegment, ...] = ()
    """The segments of former owners that have some of them."""
    active: Path | None = None
    size: int = 0
    descriptor: int | None = None


def recover(
    folder: Path, files: Path, blocks: Path, expected: Expected, former: Sequence[SegmentScan] = ()
) -> Recovered:
    """Finds what the log holds; what was lost since it was opened last is noted first.

    `former` are the segments of former owners; those in the folder follow them, or are later versions of them.
    """
    losses = Losses.read(folder)
    search = _GapSearch(folder, files, blocks, expected, losses, former)
    if (loss := search.loss()) is not None:
        losses = losses.with_loss(loss)
        losses.write(folder)
    entries = search.repair()
    ends = [search.trimmed, *(entry.header.position for entry in entries[-1:])]
    ends += [each.position for each in (search.reach,) if each is not None]
    ends += [each.upto for each in (losses.open,) if each is not None]
    end = max(ends)
    kept = [entry for entry in entries if entry.header.position > search.trimmed]
    segments = list_segments(folder)
    # What is left of an earlier segment is not written any further.
    is_active = bool(segments) and segment_number(segments[-1]) == search.newest
    used = search.former({entry.segment for entry in kept}, or_last=not is_active)
    if not is_active:
        return Recovered(search.trimmed, search.trimmed_at, kept, end, losses, used)
    descriptor = os.open(segments[-1], os.O_WRONLY | os.O_APPEND)
    size = os.fstat(descriptor).st_size
    return Recovered(search.trimmed, search.trimmed_at, kept, end, losses, used, segments[-1], size, descriptor)


class _GapSearch:
    """Goes through a log's files once, and finds the first place where something is missing."""

    def __init__(
        self,
        folder: Path,
        files: Path,
        blocks: Path,
        expected: Expected,
        known: Losses,
        former: Sequence[SegmentScan],
    ) -> None:
        self._folder = folder
        self._known = known
        self._files = files
        self._blocks = blocks
        self._is_torn = False
        """A crash left a commit record without its rows, which nobody was told of; nor of any that follows."""
        self._after: int | None = None
        """Everything up to here is there, when something behind it is not ..."""
        self._where, self._what = folder, ""
        """... and the place and reason of that."""
        self._keep: dict[Path, list[FrameEntry]] = {}
        self._unknown: tuple[Path, str] | None = None
        self._last = self._upto = self.trimmed = 0
        self.trimmed, self.trimmed_at = self._read_trimmed()
        self.reach = self._read_reach(expected)
        segments = list_segments(folder)
        # Rows that could not be read may be what the noted loss is about.
        suspicious = known.open is not None
        own = [scan_segment(segment, bodies=suspicious or segment == segments[-1]) for segment in segments]
        by_number = {scan.number: scan for scan in (*former, *own)}
        self._scans = [by_number[number] for number in sorted(by_number)]
        for scan in self._scans:
            self._walk(scan)
        self._compare(expected)

    def loss(self) -> Loss | None:
        if self._after is None:
            return None
        return Loss(self._after, max(self._after, self._upto), self._what, str(self._where))

    def repair(self) -> list[FrameEntry]:
        """Leaves whole frames alone in the segments; gives them."""
        found: list[FrameEntry] = []
        for scan in self._scans:
            kept = self._keep[scan.segment]
            is_own = scan.segment.parent == self._folder
            if not scan.end and not kept:
                if is_own:
                    scan.segment.unlink()
            elif kept != scan.entries:
                found += rewrite_segment(scan.segment, kept, self._folder)[1]
            else:
                if not is_own:
                    sync_file(scan.segment)
                elif scan.segment.stat().st_size != scan.end:
                    _cut(scan.segment, scan.end)
                found += kept
        return found

    @property
    def newest(self) -> int:
        """The number of the last segment."""
        return max((scan.number for scan in self._scans), default=0)

    def former(self, used: Collection[Path], *, or_last: bool) -> tuple[FormerSegment, ...]:
        """The segments of former owners that are used, or at least the last one, which the mark tells of."""
        scans = [scan for scan in self._scans if scan.segment.parent != self._folder and scan.entries]
        last = scans[-1:] if or_last else []
        return tuple(FormerSegment(scan.segment, scan.end) for scan in scans if scan.segment in used or scan in last)

    def _read_trimmed(self) -> tuple[int, int | None]:
        file = self._folder / "trimmed"
        if not file.exists():
            return 0, None
        try:
            content = json.loads(read_checked(file))
            return int(content["position"]), int(content["commit_at"])
        except (ValueError, KeyError, TypeError) as error:
            self._note(0, file, f"this file is damaged: {error}")
            return 0, None

    def _read_reach(self, expected: Expected) -> Reach | None:
        file = self._folder / "mark"
        try:
            found = read_mark(file)
        except DamagedMark as error:
            self._unknown = file, f"how far the stream log reached is not known: {error}"
            return None
        if found is None and expected.is_marked:
            self._unknown = file, "how far the stream log reached is not known: this file is missing"
        return found

    def _walk(self, scan: SegmentScan) -> None:
        kept = self._keep[scan.segment] = []
        for entry in scan.entries:
            self._take(entry, kept)
        if scan.problem is None:
            return
        whole = max(self._last, scan.number - 1)
        is_damaged = (
            scan is not self._scans[-1]
            or not scan.can_be_torn
            or (self.reach is not None and (scan.number, scan.end) < (self.reach.segment, self.reach.size))
            or any(entry.header.durable > whole for entry in scan.later)
        )
        if is_damaged:
            self._note(self._last, scan.segment, scan.problem)
            for entry in scan.later:
                self._take(entry, kept)

    def _take(self, entry: FrameEntry, kept: list[FrameEntry]) -> None:
        """Keeps a frame that follows the ones before and whose files are there."""
        header = entry.header
        if header.first <= self._last:
            self._note(self._last, entry.segment, f"damaged at byte {entry.start}: a position that does not follow")
            return
        end = max(self._last, self.trimmed)
        if header.durable > end and not self._known.explains(end, header.durable):
            self._note(self._last, entry.segment, f"transactions before {header.first} are missing")
        elif self._is_torn:
            return
        self._upto = header.position
        # A former owner, too, deletes the blocks of what was let go.
        problem = self._block_problem(entry) if header.position > self.trimmed else None
        if problem is not None:
            if self.reach is not None and self.reach.position < header.position:
                self._is_torn = True
                return
            self._note(self._last, *problem)
            self._last = header.position
            return
        for sides in header.files.values() if header.position > self.trimmed else ():
            for side in sides:
                file = self._files / side.name
                if not file.exists() or file.stat().st_size != side.bytes:
                    self._note(self._last, file, "this file is missing or cut short")
                    self._last = header.position
                    return
        self._last = header.position
        kept.append(entry)

    def _block_problem(self, entry: FrameEntry) -> tuple[Path, str] | None:
        """Where and why rows of a commit record are missing.

        Their content is tested when it is read, unless it may not have reached the disk.
        """
        is_unsure = self._known.open is not None or (
            self.reach is not None and self.reach.position < entry.header.position
        )
        for block in entry.blocks:
            if (what := problem_of(self._blocks, block, content=is_unsure)) is not None:
                return self._blocks / block.segment, what
        return None

    def _compare(self, expected: Expected) -> None:
        """With what the mark and the ledger say."""
        end = max(self._last, self.trimmed)
        reach = self.reach
        if reach is not None and reach.position > self.trimmed:
            scan = self._scans[-1] if self._scans else None
            if scan is None or (scan.number, scan.end) < (reach.segment, reach.size):
                where = self._folder if scan is None else scan.segment
                self._note(end, where, "the stream log ends before what was acknowledged")
            else:
                end = max(end, reach.position)
        if self._unknown is not None:
            self._note(end, *self._unknown)
        if end < expected.position:
            self._note(end, self._folder, "the stream log ends before the newest job")
        self._upto = max(end, expected.position, 0 if reach is None else reach.position)

    def _note(self, after: int, where: Path, what: str) -> None:
        if self._after is None:
            self._after, self._where, self._what = max(after, self.trimmed), where, what


def remove_leftovers(
    folder: Path, files: Path, spool: Path, entries: Sequence[FrameEntry], active: Path | None
) -> None:
    """Removes what no frame refers to."""
    # An executor of a killed process may still write there. It finds its folder gone; what it adds meanwhile goes at the next opening.
    spool.rename(folder / f"{_LEFT}{secrets.token_hex(4)}")
    for left in folder.glob(f"{_LEFT}*"):
        shutil.rmtree(left, ignore_errors=True)
    spool.mkdir()
    named = {side.name for entry in entries for sides in entry.header.files.values() for side in sides}
    for path in files.iterdir():
        if path.name not in named:
            path.unlink()
    live = {entry.segment for entry in entries} | {active}
    for path in folder.iterdir():
        if path.suffix == SUFFIX and path not in live:
            path.unlink()


def _cut(segment: Path, size: int) -> None:
    descriptor = os.open(segment, os.O_WRONLY)
    try:
        os.ftruncate(descriptor, size)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
