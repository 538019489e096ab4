"""Copies files piece by piece to where executors read them, at most so many bytes a second.

A copy grows from its beginning on, so that places in it are those of the file. Of text that can be cut a piece ends with a line; all
else is copied whole. A file that is not as it was before or after a piece was read is told, and nothing of it counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from headgate.capture.files.layout import FileLayout
from headgate.capture.files.listing import FoundFile

_BLOCK_BYTES = 1 << 20
_HEAD_BYTES = 4 << 20
"""Where a copy goes on in the middle, its beginning is there too: it has the header."""


class FileChanged(Exception):
    """The file is another one by now, or gone."""


class CopyStopped(Exception):
    """Nobody wants the copy any more."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes [first, end) of a file, which are in its copy."""

    number: int
    file: FoundFile
    copy: Path
    first: int
    end: int

    @property
    def bytes(self) -> int:
        return self.end - self.first

    @property
    def is_last(self) -> bool:
        return self.end >= self.file.size


@dataclass
class Copier:
    folder: Path
    rate: int | None
    """Bytes a second; None: no limit."""
    is_stopped: Callable[[], bool]
    _free_at: float = field(default=0.0, init=False)
    """When the rate allows the next byte."""

    def piece(self, number: int, path: str, file: FoundFile, layout: FileLayout, first: int, room: int) -> Piece:
        """The next piece of a file, from a byte on, of about so many bytes; the file is at `path` now."""
        copy = self.folder / f"{number}{''.join(Path(file.path).suffixes)}"
        is_cut = layout.can_be_cut(file.path)
        try:
            _require_same(path, file)
            with Path(path).open("rb") as source, copy.open("ab") as target:
                if not is_cut:
                    target.truncate(0)
                    end = self._copy(source.read, target.write, 0, file.size)
                else:
                    end = self._lines(source, target, first, min(room, file.size - first))
            _require_same(path, file)
        except OSError as error:
            if isinstance(error, FileNotFoundError) or error.filename == path:
                raise FileChanged from error
            raise
        return Piece(number, file, copy, first if is_cut else 0, end)

    def _lines(self, source: BinaryIO, target: BinaryIO, first: int, room: int) -> int:
        """Copies whole lines; gives where they end."""
        there = target.tell()
        if there < first:
            self._copy(source.read, target.write, there, min(_HEAD_BYTES, first))
            target.truncate(first - 1)
            there = first - 1
        source.seek(there)
        at = self._copy(source.read, target.write, there, first + room)
        while line := source.readline(_BLOCK_BYTES):
            target.write(line)
            at += len(line)
            self._rest(len(line))
            if line.endswith(b"\n"):
                break
        return at

    def _copy(self, read: Callable[[int], bytes], write: Callable[[bytes], object], first: int, end: int) -> int:
        while first < end and (block := read(min(_BLOCK_BYTES, end - first))):
            write(block)
            first += len(block)
            self._rest(len(block))
        return first

    def _rest(self, size: int) -> None:
        """Waits as long as the rate wants."""
        if self.rate is not None:
            self._free_at = max(self._free_at, time.monotonic()) + size / self.rate
        while not self.is_stopped():
            left = self._free_at - time.monotonic()
            if left <= 0:
                return
            time.sleep(min(left, 0.1))
        raise CopyStopped


def is_as_it_was(path: str, file: FoundFile) -> bool:
    """Whether the file is there and was not written to."""
    try:
        found = Path(path).stat()
    except FileNotFoundError:
        return False
    return (found.st_ino, found.st_size, found.st_mtime_ns) == file.identity


def _require_same(path: str, file: FoundFile) -> None:
    if not is_as_it_was(path, file):
        raise FileChanged
