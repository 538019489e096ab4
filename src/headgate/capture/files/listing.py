"""The files that a table's paths name now.

Below a folder count the files whose names end as the format's do; a pattern or a name counts as it is. Names that begin with
a dot or an underscore, and those that programs give to files they are still writing, never count: as in Spark, `_temporary`
and `.part-0.crc` are no data.
"""

from __future__ import annotations

import glob
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from headgate.capture.files.layout import format_of
from headgate.errors import TransientError

_UNFINISHED = (".tmp", ".temp", ".part", ".partial", ".crdownload", ".filepart", ".swp", "._copying_", "~")
_MAGIC = frozenset("*?[")


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file as it was when it was looked at."""

    path: str
    size: int
    modified: int
    """Nanoseconds since 1970."""
    inode: int

    @property
    def identity(self) -> tuple[int, int, int]:
        """What a file keeps when it is renamed."""
        return self.inode, self.size, self.modified


class FolderUnreachable(TransientError):
    """A folder of files is not there, or cannot be read."""


def list_files(paths: Sequence[str], is_wanted: Callable[[str], bool] = lambda path: True) -> dict[str, FoundFile]:
    """The files by path. Raises `FolderUnreachable` where what is named is not there: no file is not no folder."""
    found: dict[str, FoundFile] = {}
    for path in paths:
        for each in _listed(path, is_wanted):
            found.setdefault(each.path, each)
    return found


def _listed(path: str, is_wanted: Callable[[str], bool]) -> Iterator[FoundFile]:
    if _MAGIC.isdisjoint(path):
        if Path(path).is_dir():
            yield from (each for each in _below(path) if is_wanted(each.path))
        elif (named := _looked_at(path)) is not None:
            yield named
        elif format_of(path) is None or not Path(path).parent.is_dir():
            raise _unreachable(path, "there is no such folder")
        return
    fixed = Path(path)
    while not _MAGIC.isdisjoint(str(fixed)):
        fixed = fixed.parent
    if not fixed.is_dir():
        raise _unreachable(str(fixed), "there is no such folder")
    for name in glob.iglob(path, recursive=True):
        if _counts(name, str(fixed)) and (each := _looked_at(name)) is not None:
            yield each


def _below(folder: str) -> Iterator[FoundFile]:
    try:
        entries = list(os.scandir(folder))
    except FileNotFoundError:
        return
    except OSError as error:
        raise _unreachable(folder, error.strerror or str(error)) from None
    for entry in entries:
        if _is_unfinished(entry.name):
            continue
        if entry.is_dir():
            yield from _below(entry.path)
        elif (found := _looked_at(entry.path)) is not None:
            yield found


def _looked_at(path: str) -> FoundFile | None:
    """The file, unless it is gone or none."""
    try:
        found = Path(path).stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise _unreachable(path, error.strerror or str(error)) from None
    if not stat.S_ISREG(found.st_mode):
        return None
    return FoundFile(path, found.st_size, found.st_mtime_ns, found.st_ino)


def _counts(path: str, fixed: str) -> bool:
    return not any(_is_unfinished(part) for part in Path(path).relative_to(fixed).parts)


def _is_unfinished(name: str) -> bool:
    return name.startswith((".", "_")) or name.lower().endswith(_UNFINISHED)


def _unreachable(path: str, why: str) -> FolderUnreachable:
    return FolderUnreachable(
        f"the files of {path} cannot be listed: {why}", hint="create or mount it, or correct path:"
    )
