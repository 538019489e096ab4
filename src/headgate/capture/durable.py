"""Writing that survives a crash: whole writes, synced files and folders, and a clear error when the disk is full."""

from __future__ import annotations

import errno
import os
import zlib
from pathlib import Path
from types import TracebackType
from typing import Literal

from headgate.errors import Location, StorageFull

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class _FullDiskIsNamed:
    """A class, because every commit enters it several times: a generator takes three times as long."""

    __slots__ = ("_where",)

    def __init__(self, where: Path) -> None:
        self._where = where

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: TracebackType | None) -> Literal[False]:
        if isinstance(error, OSError) and error.errno in _FULL:
            raise StorageFull(
                f"there is no room to write: {os.strerror(error.errno)}",
                where=Location(str(self._where)),
                hint="free some space or raise the limit, then try again",
            ) from error
        return False


def full_disk_is_named(where: Path) -> _FullDiskIsNamed:
    """Turns the system's "no space", "quota exceeded" and "file too large" into `StorageFull`."""
    return _FullDiskIsNamed(where)


def write_all(descriptor: int, parts: list[bytes | memoryview]) -> None:
    """Writes every byte of every part; a failure may leave some of them written."""
    for part in parts:
        rest = memoryview(part).cast("B")
        while rest:
            rest = rest[os.write(descriptor, rest) :]


def sync_file(path: Path) -> None:
    """Returns once the file's content is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(path: Path) -> None:
    """Returns once the folder's entries (files created, renamed or removed in it) are on the disk."""
    sync_file(path)


def replace_checked(path: Path, content: bytes) -> None:
    """Puts a small file of one line in place whole or not at all, with a checksum."""
    replace_file(path, b"%s\n%08x" % (content, zlib.crc32(content)))


def read_checked(path: Path) -> bytes:
    """The line that `replace_checked` wrote; `ValueError` when it is not as it was. Older files have no checksum."""
    content, newline, checksum = path.read_bytes().rpartition(b"\n")
    if not newline:
        return checksum
    if checksum != b"%08x" % zlib.crc32(content):
        raise ValueError("it does not fit its checksum")
    return content


def replace_file(path: Path, content: bytes) -> None:
    """Puts a small file in place whole or not at all."""
    fresh = path.with_suffix(".new")
    fresh.write_bytes(content)
    sync_file(fresh)
    fresh.replace(path)
    sync_folder(path.parent)
