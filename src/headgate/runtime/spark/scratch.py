"""The scratch folder: rows of batches that are too many for the driver, until no overlay names their files."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from threading import Lock


class Scratch:
    """One owner's scratch folder; what earlier owners left is deleted."""

    def __init__(self, home: Path, epoch: int) -> None:
        shutil.rmtree(home, ignore_errors=True)
        self._home = home
        self.folder = home / str(epoch)
        self._lock = Lock()
        self._in_use: set[str] = set()

    def new(self) -> Path:
        """A name for a folder that stays at least until `done` is told of it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / uuid.uuid4().hex
        with self._lock:
            self._in_use.add(path.name)
        return path

    def done(self, folders: Iterable[Path]) -> None:
        """The batch that made the folders has ended: what it kept of them is named by overlays."""
        with self._lock:
            self._in_use.difference_update(folder.name for folder in folders)

    def clean(self, used: Callable[[], Collection[str]]) -> None:
        """Deletes the folders that neither a running batch nor one of the names in use keeps.

        Names are asked for last: what a batch made is in use until overlays name it. Spark's process outlives a former owner
        that was killed by a moment, and may have written its folder again.
        """
        for former in self._home.glob("[0-9]*"):
            if former != self.folder:
                shutil.rmtree(former, ignore_errors=True)
        found = list(self.folder.glob("*"))
        with self._lock:
            in_use = set(self._in_use)
        kept = in_use.union(used())
        for folder in found:
            if folder.name not in kept:
                shutil.rmtree(folder, ignore_errors=True)
