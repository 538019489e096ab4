"""Opening a stream log after whatever happened: what counts is found again, what a crash left behind goes.

A write that was cut short was acknowledged to nobody and is cut off. Anything else that is missing is a loss. Four things
tell: the log's mark (`mark`), what the ledger says of it, the frames behind a damaged place, and each frame's `durable`,
which the frame before it must reach. A loss is noted (`loss`) before the log goes on with what is whole.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from headgate.capture.durable import read_checked
from headgate.capture.loss import Loss, Losses
from headgate.capture.segments import FrameEntry, SegmentScan, list_segments, rewrite_segment, scan_segment
from headgate.mark import DamagedMark, Reach, read_mark


@dataclass(frozen=True, slots=True)
class Expected:
    """What the rest of the warehouse knows of a log."""

    position: int = 0
    """A closed job holds transactions up to here."""
    is_marked: bool = False
    """The log has a mark."""


UNKNOWN = Expected()


@dataclass(frozen=True, slots=True)
class Recovered:
    """The frames of all segments, and the segment that is written next, open for that; none in a new log."""

    trimmed: int
    trimmed_at: int | None
    entries: list[FrameEntry]
    end: int
    losses: Losses
    active: Path | None = None
    size: int = 0
    descriptor: int | None = None


def recover(folder: Path, files: Path, expected: Expected) -> Recovered:
    """Finds what the log holds; what was lost since it was opened last is noted first."""
    losses = Losses.read(folder)
    search = _Search(folder, files, expected, losses)
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
    if not segments:
        return Recovered(search.trimmed, search.trimmed_at, kept, end, losses)
    descriptor = os.open(segments[-1], os.O_WRONLY | os.O_APPEND)
    size = os.fstat(descriptor).st_size
    return Recovered(search.trimmed, search.trimmed_at, kept, end, losses, segments[-1], size, descriptor)


class _Search:
    """Goes through a log's files once, and finds the first place where something is missing."""

    def __init__(self, folder: Path, files: Path, expected: Expected, known: Losses) -> None:
        self._folder = folder
        self._known = known
        self._files = files
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
        self._scans = [scan_segment(segment, bodies=suspicious or segment == segments[-1]) for segment in segments]
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
            if not scan.end and not kept:
                scan.segment.unlink()
            elif kept != scan.entries:
                found += rewrite_segment(scan.segment, kept)
            else:
                if scan.segment.stat().st_size != scan.end:
                    _cut(scan.segment, scan.end)
                found += kept
        return found

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
        self._upto = header.position
        for sides in header.files.values() if header.position > self.trimmed else ():
            for side in sides:
                file = self._files / side.name
                if not file.exists() or file.stat().st_size != side.bytes:
                    self._note(self._last, file, "this file is missing or cut short")
                    self._last = header.position
                    return
        self._last = header.position
        kept.append(entry)

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
    shutil.rmtree(spool)
    spool.mkdir()
    named = {side.name for entry in entries for sides in entry.header.files.values() for side in sides}
    for path in files.iterdir():
        if path.name not in named:
            path.unlink()
    live = {entry.segment for entry in entries} | {active}
    for segment in list_segments(folder):
        if segment not in live:
            segment.unlink()


def _cut(segment: Path, size: int) -> None:
    descriptor = os.open(segment, os.O_WRONLY)
    try:
        os.ftruncate(descriptor, size)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
