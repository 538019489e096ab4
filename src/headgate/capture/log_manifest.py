"""Which segments a stream log consists of: its owner's own, and of former owners those that the ledger names.

    <source>/<epoch>/*.segment     written by the owner of that epoch alone
    <source>/<epoch>/mark …        small files, of the newest epoch alone: each owner has copies of its own
    <source>/files/, blocks/       rows that frames refer to, under names that are used once

A process that was paused while another took over still holds its segment open, and what it then appends must reach nobody. So
an owner never adds to a segment of another epoch. When it opens the log it records in the ledger, which only an owner can write to,
how many bytes of which segments it goes on with; nothing is copied or linked. A segment that a later epoch has under
the same first position counts instead of a former one.

The order makes it safe: the new owner is in the ledger before it reads, and an appended transaction is acknowledged only when
the ledger, asked after the disk had it, still names its owner. So what was acknowledged is in the manifest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from headgate.capture.segments import list_segments, segment_number


class FormerSegment(NamedTuple):
    """A segment of a former owner, and how many of its bytes count."""

    path: Path
    bytes: int


@dataclass(frozen=True, slots=True)
class LogManifest:
    """What the ledger says of one source's log since its owner opened it."""

    epoch: int
    former: tuple[tuple[str, int], ...] = ()
    """Segments of former owners by their names below the source's folder, and how many of their bytes count."""

    @staticmethod
    def of(home: Path, epoch: int, former: Sequence[FormerSegment]) -> LogManifest:
        return LogManifest(epoch, tuple((str(path.relative_to(home)), size) for path, size in former))

    @staticmethod
    def from_body(body: Mapping[str, Any]) -> LogManifest:
        return LogManifest(int(body["epoch"]), tuple((str(name), int(size)) for name, size in body["former"]))

    def body(self, source: str) -> dict[str, Any]:
        return {"source": source, "epoch": self.epoch, "former": [list(each) for each in self.former]}

    def segments(self, home: Path) -> list[tuple[Path, int | None]]:
        """The log's segments, oldest first, with the bytes that count; None for all of one that its owner may still write."""
        folder = home / str(self.epoch)
        own = list_segments(folder) if folder.exists() else []
        found: dict[int, tuple[Path, int | None]] = {
            segment_number(home / name): (home / name, size) for name, size in self.former
        }
        found |= {segment_number(path): (path, None) for path in own}
        return [found[number] for number in sorted(found)]


def epochs(home: Path) -> list[int]:
    """The epochs that have a folder, the newest last."""
    return sorted(int(path.name) for path in home.iterdir() if path.name.isdigit()) if home.exists() else []
