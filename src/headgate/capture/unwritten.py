"""The transactions at the end of a stream log that are in memory alone: readable, and lost in a crash before they are written.

A small file counts them, so that after a crash of the process it can be told what was lost: the system keeps its pages.
"""

from __future__ import annotations

import os
import struct
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from headgate.capture.frames import Group, Header, Inline

_COUNTS = struct.Struct("<qqq")


@dataclass(frozen=True, slots=True)
class Lost:
    """What a crash took: commits that were acknowledged without being durable."""

    commits: int
    rows: int


@dataclass(frozen=True, slots=True)
class Unwritten:
    """One transaction and its rows by table."""

    group: Group
    rows: Mapping[str, pa.Table]
    bytes: int

    @staticmethod
    def of(position: int, commit_at: int, tables: Mapping[str, pa.Table]) -> Unwritten:
        group = Group.of_one(position, commit_at, {name: rows.num_rows for name, rows in tables.items()})
        return Unwritten(group, tables, sum(rows.nbytes for rows in tables.values()))

    @property
    def position(self) -> int:
        return int(self.group.positions[0])

    @property
    def commit_at(self) -> int:
        return int(self.group.commit_at[0])

    def header(self, durable: int = 0, inline: Mapping[str, Inline] | None = None) -> Header:
        return Header(self.group, False, durable, dict(inline or {}), {})


class UnwrittenTail:
    """The transactions in memory, in order, and the file that counts them: the last one, how many, and their rows."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._descriptor: int | None = None
        self._held: list[Unwritten] = []
        self._rows = 0
        self.bytes = 0

    def lost(self, end: int) -> Lost | None:
        """What is missing behind the end of a log that was opened again; counting starts anew."""
        content = self._file.read_bytes() if self._file.exists() else b""
        self._file.unlink(missing_ok=True)
        if len(content) != _COUNTS.size:
            return None
        position, commits, rows = _COUNTS.unpack(content)
        return Lost(commits, rows) if position > end and commits else None

    @property
    def first(self) -> Unwritten | None:
        return next(iter(self._held[:1]), None)

    @property
    def last(self) -> Unwritten | None:
        return next(iter(self._held[-1:]), None)

    def bytes_after(self, position: int) -> int:
        return sum(each.bytes for each in self._held[bisect_right(self._held, position, key=_position) :])

    def between(self, after: int, upto: int) -> list[Unwritten]:
        """Those in (after, upto]."""
        first, end = (bisect_right(self._held, each, key=_position) for each in (after, upto))
        return self._held[first:end]

    def add(self, transaction: Unwritten) -> None:
        self._held.append(transaction)
        self._count(transaction, 1)

    def remove_first(self) -> None:
        """It is written."""
        self._count(self._held.pop(0), -1)

    def close(self) -> None:
        """Everything is written."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
            self._file.unlink(missing_ok=True)

    def _count(self, transaction: Unwritten, sign: int) -> None:
        if self._descriptor is None:
            self._descriptor = os.open(self._file, os.O_WRONLY | os.O_CREAT, 0o600)
        self.bytes += sign * transaction.bytes
        self._rows += sign * sum(rows.num_rows for rows in transaction.rows.values())
        os.pwrite(self._descriptor, _COUNTS.pack(transaction.position, len(self._held), self._rows), 0)


def _position(transaction: Unwritten) -> int:
    return transaction.position
