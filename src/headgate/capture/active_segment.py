"""The segment of a stream log that is written: frames are added at its end, each whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from headgate.capture.durable import full_disk_is_named, sync_folder, write_all
from headgate.capture.segments import SEGMENT_MAGIC, segment_number, segment_path


class ActiveSegment:
    """The last segment, open for writing; a log without frames has none. Whoever uses it from several threads locks it."""

    def __init__(self, folder: Path, path: Path | None, size: int, descriptor: int | None) -> None:
        self.path = path
        self.number = 0 if path is None else segment_number(path)
        """The first position of the segment; 0 before the first segment."""
        self.size = size
        self._folder = folder
        self._descriptor = descriptor

    @property
    def is_open(self) -> bool:
        return self._descriptor is not None

    def is_full(self, most: int) -> bool:
        """Whether the next frame begins a new segment."""
        return self._descriptor is None or self.path is None or self.size >= most

    def duplicate(self) -> int:
        """A descriptor for whoever syncs while others write on."""
        assert self._descriptor is not None
        return os.dup(self._descriptor)

    def sync(self) -> None:
        if self._descriptor is not None:
            os.fsync(self._descriptor)

    def begin(self, position: int) -> None:
        """Goes on with a new segment that begins with this position."""
        path = segment_path(self._folder, position)
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            write_all(descriptor, [SEGMENT_MAGIC])
            sync_folder(self._folder)
        except BaseException:
            os.close(descriptor)
            path.unlink()
            raise
        self.close()
        self._descriptor, self.path, self.number, self.size = descriptor, path, position, len(SEGMENT_MAGIC)

    def write(self, parts: Sequence[bytes]) -> int:
        """Adds these bytes; gives where they begin. A failed write is cut off again."""
        assert self._descriptor is not None and self.path is not None
        start = self.size
        try:
            with full_disk_is_named(self.path):
                write_all(self._descriptor, list(parts))
        except BaseException:
            os.ftruncate(self._descriptor, start)
            raise
        self.size = start + sum(map(len, parts))
        return start

    def go_on_with(self, path: Path) -> None:
        """Goes on with a file that has taken the segment's place."""
        self.close()
        self.path, self.number = path, segment_number(path)
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND)
        self.size = os.fstat(self._descriptor).st_size

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
