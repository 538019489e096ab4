"""What is remembered of a table's first load from files, beside which files were taken: how far they are distributed to buckets.

    files there at first contact, in their order ──► pieces, in any order ──► files of buckets ──► all distributed: the table is *up*

The files count as taken, all at one position. What is written here is on the disk; buckets that it does not name are removed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from headgate.capture.files.listing import FoundFile
from headgate.ranges.key_set import Value
from headgate.ranges.range_map import Kind, RangeMap


@dataclass(slots=True)
class LoadFile:
    """A file of the load."""

    file: FoundFile
    upto: int = 0
    """Bytes before this one are distributed."""
    is_done: bool = False
    rows: int = 0
    bad: int = 0


@dataclass(frozen=True, slots=True)
class BucketFile:
    """A file of buckets, with rows of a file from some byte on."""

    number: int
    first: int
    part: int
    name: str
    is_bad: bool = False
    """It has broken rows instead."""


@dataclass(slots=True)
class TableLoad:
    """The first load of one table."""

    position: int
    """The one that its files have."""
    files: dict[int, LoadFile]
    """By their places in the order of files: rows of a later one replace those of an earlier one."""
    column: str = ""
    kind: Kind = "integer"
    bounds: tuple[Value, ...] | None = None
    """Of the buckets; None until somebody asked for them."""
    buckets: list[BucketFile] = field(default_factory=list)
    up_at: int | None = None
    """Where in the log it says that all is distributed."""
    is_told: bool = False
    """Whether the log says so of an earlier distribution, with its broken rows."""

    @property
    def bytes(self) -> int:
        return sum(each.file.size for each in list(self.files.values()))

    @property
    def ranges(self) -> RangeMap:
        return RangeMap(self.kind, self.bounds or ())

    def names(self, *, bad: bool = False) -> tuple[str, ...]:
        """Files of buckets in the order of their rows."""
        found = sorted((each.number, each.first, each.part, each.name) for each in self.buckets if each.is_bad == bad)
        return tuple(name for *_, name in found)

    def drop(self, number: int) -> None:
        """The file is no part of the load."""
        self.files.pop(number, None)
        self.buckets = [each for each in self.buckets if each.number != number]

    def lose(self, numbers: Collection[int]) -> None:
        """Buckets of these files are gone: the files are to be distributed again."""
        self.buckets = [each for each in self.buckets if each.number not in numbers]
        for number in numbers:
            self.files[number] = LoadFile(self.files[number].file)
        self.is_told = self.is_told or self.up_at is not None
        self.up_at = None

    def body(self) -> dict[str, Any]:
        files = [
            [n, *asdict(each.file).values(), each.upto, each.is_done, each.rows, each.bad]
            for n, each in self.files.items()
        ]
        return {
            "position": self.position,
            "files": files,
            "column": self.column,
            "ranges": None if self.bounds is None else self.ranges.body(),
            "buckets": [[each.number, each.first, each.part, each.name, each.is_bad] for each in self.buckets],
            "up_at": self.up_at,
            "is_told": self.is_told,
        }

    @staticmethod
    def from_body(body: Mapping[str, Any], end: int) -> TableLoad:
        """As it was written; `end` is how far the stream log reaches."""
        ranges = None if body["ranges"] is None else RangeMap.from_body(body["ranges"])
        up_at = body["up_at"]
        return TableLoad(
            body["position"],
            {
                number: LoadFile(FoundFile(path, size, modified, inode), upto, done, rows, bad)
                for number, path, size, modified, inode, upto, done, rows, bad in body["files"]
            },
            body["column"],
            "integer" if ranges is None else ranges.kind,
            None if ranges is None else ranges.bounds,
            [BucketFile(*each) for each in body["buckets"]],
            None if up_at is None or up_at > end else up_at,
            body["is_told"],
        )
