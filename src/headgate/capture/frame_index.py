"""The frames of a stream log in position order: what lies in a range of positions, by reference; reads no rows."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import takewhile
from pathlib import Path

import numpy as np

from headgate.capture.events import Committed, EventFile, from_micros
from headgate.capture.frames import Block, Header, Inline
from headgate.capture.places import RowsPlace, Stamps
from headgate.capture.reading import stamp_of, stamps_of
from headgate.capture.segments import FrameEntry
from headgate.errors import CorruptWarehouse, Location


class FrameIndex:
    """Where each frame lies; whoever uses it from several threads locks it."""

    def __init__(self, folder: Path, entries: list[FrameEntry], trimmed: int, blocks_folder: Path) -> None:
        self.trimmed = trimmed
        """The position up to which transactions have been let go."""
        self._folder = folder
        self._blocks_folder = blocks_folder
        self._entries: list[FrameEntry] = []
        self._positions: list[int] = []
        self.set(entries)

    def __iter__(self) -> Iterator[FrameEntry]:
        return iter(self._entries)

    def __contains__(self, entry: FrameEntry) -> bool:
        return entry in self._entries

    @property
    def last(self) -> FrameEntry | None:
        return self._entries[-1] if self._entries else None

    @property
    def end(self) -> int:
        """The position of the last frame, or of the last one that was let go."""
        return self._positions[-1] if self._positions else self.trimmed

    def set(self, entries: Iterable[FrameEntry]) -> None:
        self._entries = sorted(entries, key=lambda entry: entry.header.position)
        self._positions = [entry.header.position for entry in self._entries]

    def add(self, entry: FrameEntry) -> None:
        """Behind all others."""
        self._entries.append(entry)
        self._positions.append(entry.header.position)

    def remove(self, entry: FrameEntry) -> None:
        place = self._entries.index(entry)
        del self._entries[place], self._positions[place]

    def trim(self, position: int) -> None:
        """Without the frames up to a position."""
        count = bisect_right(self._positions, position)
        del self._entries[:count], self._positions[:count]
        self.trimmed = position

    def upto(self, position: int) -> list[FrameEntry]:
        """The frames whose transactions are all at or before a position."""
        return self._entries[: bisect_right(self._positions, position)]

    def bytes_after(self, position: int) -> int:
        """What the frames with transactions after a position take."""
        return sum(entry.bytes for entry in self._entries[bisect_right(self._positions, position) :])

    def between(self, after: int, upto: int) -> list[FrameEntry]:
        """The frames with transactions in (after, upto]."""
        if after < self.trimmed:
            raise CorruptWarehouse(
                f"the stream log begins after position {self.trimmed}, positions after {after} were requested",
                where=Location(str(self._folder)),
            )
        chosen = self._entries[bisect_right(self._positions, after) :]
        return list(takewhile(lambda entry: entry.header.first <= upto, chosen))

    def places(self, table: str, after: int, upto: int) -> list[tuple[FrameEntry, RowsPlace]]:
        """The frames with rows of the table, inside or in blocks, and where these are."""
        found = []
        for entry in self.between(after, upto):
            header = entry.header
            inline, blocks = header.inline.get(table), header.blocks.get(table, ())
            if inline is None and not blocks:
                continue
            part = header.group.part(after, upto)
            stamps = stamps_of(header, table, part)
            if not stamps.counts.any():
                continue
            first = int(header.group.rows[table][: part.start].sum())
            if inline is not None:
                found.append((entry, RowsPlace(str(entry.segment), entry.body + inline.offset, inline, first, stamps)))
            for block in blocks:
                found.append((entry, self._block_place(block, first, stamps, is_alone=len(blocks) > 1)))
        return found

    def _block_place(self, block: Block, first: int, stamps: Stamps, *, is_alone: bool) -> RowsPlace:
        counts = np.array([block.rows], dtype=np.int64) if is_alone else stamps.counts
        return RowsPlace(
            str(self._blocks_folder / block.segment),
            block.offset,
            Inline(block.rows, 0, block.length, block.crc),
            first,
            stamps._replace(counts=counts),
            block.base,
            block.partition,
        )

    def files(self, table: str, after: int, upto: int, folder: Path) -> tuple[EventFile, ...]:
        """The files of large transactions, which lie in a folder."""
        return tuple(
            EventFile(str(folder / side.name), entry.header.position, stamp_of(entry.header), side.rows, side.bytes)
            for entry in self.between(after, upto)
            for side in entry.header.files.get(table, ())
        )


def committed_of(header: Header, after: int, upto: int) -> list[Committed]:
    """The frame's transactions in (after, upto]."""
    chosen = header.group.part(after, upto)
    return [_committed(header, place) for place in range(chosen.start, chosen.stop)]


def last_committed(header: Header) -> Committed:
    """The frame's last transaction."""
    return _committed(header, -1)


def _committed(header: Header, place: int) -> Committed:
    group = header.group
    rows = {name: count for name, counts in group.rows.items() if (count := int(counts[place]))}
    for name, sides in header.files.items():
        rows[name] = sum(side.rows for side in sides)
    return Committed(int(group.positions[place]), from_micros(int(group.commit_at[place])), header.initial, rows)
