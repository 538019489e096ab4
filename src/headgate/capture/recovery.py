"""Opening a stream log after whatever happened: what counts is found again, what a crash left behind goes."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from headgate.capture.segments import Entry, corrupt, list_segments, recover_segment, scan_segment
from headgate.errors import CorruptWarehouse, Location


@dataclass(frozen=True, slots=True)
class Recovered:
    """The frames of all segments, and the segment that is written next, open for that; none in a new log."""

    entries: list[Entry]
    active: Path | None = None
    size: int = 0
    descriptor: int | None = None


def read_trimmed(folder: Path) -> tuple[int, int | None]:
    """The position up to which transactions have been let go, and its commit time."""
    file = folder / "trimmed"
    if not file.exists():
        return 0, None
    try:
        content = json.loads(file.read_bytes())
        return int(content["position"]), int(content["commit_at"])
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptWarehouse(f"this file is damaged: {error}", where=Location(str(file))) from None


def recover_segments(folder: Path) -> Recovered:
    """Reads all segments; a torn frame at the end of the last one is cut off."""
    segments = list_segments(folder)
    while segments:
        tail, cut = recover_segment(segments[-1])
        if cut:
            descriptor = os.open(segments[-1], os.O_WRONLY | os.O_APPEND)
            os.ftruncate(descriptor, cut)
            os.fsync(descriptor)
            entries = [entry for segment in segments[:-1] for entry in scan_segment(segment)] + tail
            for before, entry in pairwise(entries):
                if entry.header.first <= before.header.position:
                    raise corrupt(entry.segment, entry.start, "its position does not follow the one before")
            return Recovered(entries, segments[-1], cut, descriptor)
        segments.pop().unlink()
    return Recovered([])


def remove_leftovers(folder: Path, files: Path, spool: Path, entries: Sequence[Entry], active: Path | None) -> None:
    """Removes what no frame refers to; a file that one does refer to must be whole."""
    shutil.rmtree(spool)
    spool.mkdir()
    found = {path.name: path for path in files.iterdir()}
    for entry in entries:
        for sides in entry.header.files.values():
            for side in sides:
                path = found.pop(side.name, None)
                if path is None or path.stat().st_size != side.bytes:
                    raise CorruptWarehouse(
                        f"the rows of transaction {entry.header.position} are missing or cut short",
                        where=Location(str(files / side.name)),
                        hint="restore this file from a copy",
                    )
    for path in found.values():
        path.unlink()
    live = {entry.segment for entry in entries} | {active}
    for segment in list_segments(folder):
        if segment not in live:
            segment.unlink()
