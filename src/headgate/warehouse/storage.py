"""Where files are: the one place that knows about paths.

`deltalake` gets a folder's address, Spark its Spark address, and everything else goes through its pyarrow file system. Names of
files inside a folder are relative to it.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyarrow import fs

from headgate.errors import EnvironmentProblem


@dataclass(frozen=True)
class StoredFile:
    """A file in a folder: its name relative to the folder, size, and when it was written."""

    name: str
    bytes: int
    modified_ms: int


@dataclass(frozen=True)
class Folder:
    """A folder of the warehouse."""

    filesystem: fs.FileSystem
    path: str

    @classmethod
    def at(cls, location: str | Path) -> Folder:
        return cls(fs.LocalFileSystem(), str(Path(location).absolute()))

    @property
    def address(self) -> str:
        """For `deltalake` and for messages."""
        return self.path

    @property
    def spark_address(self) -> str:
        return f"file://{self.path}"

    def child(self, *names: str) -> Folder:
        return Folder(self.filesystem, "/".join((self.path, *names)))

    def file(self, name: str) -> str:
        """The path of a file for `filesystem`."""
        return f"{self.path}/{name}"

    def create(self) -> None:
        """Makes the folder; a folder that cannot be made or written is a one-line error."""
        probe = self.file(".writable")
        try:
            self.filesystem.create_dir(self.path, recursive=True)
            with self.filesystem.open_output_stream(probe) as stream:
                stream.write(b"")
            self.filesystem.delete_file(probe)
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else str(error).splitlines()[0]
            raise EnvironmentProblem(
                f"cannot write to the storage folder {self.address}: {reason}",
                hint="change `storage` to a writable folder, or its permissions",
            ) from error

    def exists(self, name: str = "") -> bool:
        return Path(self.file(name) if name else self.path).exists()

    def files(self, below: str = "", *, recursive: bool = True) -> list[StoredFile]:
        """Files below this folder, in name order; none when it does not exist."""
        start = self.file(below) if below else self.path
        selector = fs.FileSelector(start, allow_not_found=True, recursive=recursive)
        files = [
            StoredFile(info.path[len(self.path) + 1 :], int(info.size), int((info.mtime_ns or 0) // 1_000_000))
            for info in self.filesystem.get_file_info(selector)
            if info.type == fs.FileType.File
        ]
        return sorted(files, key=lambda file: file.name)

    def folders(self) -> list[str]:
        """Names of the folders directly in this one."""
        selector = fs.FileSelector(self.path, allow_not_found=True)
        found = self.filesystem.get_file_info(selector)
        return sorted(info.base_name for info in found if info.type == fs.FileType.Directory)

    def read(self, name: str) -> bytes:
        with self.filesystem.open_input_file(self.file(name)) as stream:
            return bytes(stream.read())

    def delete(self, name: str) -> None:
        try:
            self.filesystem.delete_file(self.file(name))
        except FileNotFoundError:
            return

    def delete_folder(self, name: str = "") -> None:
        try:
            self.filesystem.delete_dir(self.file(name) if name else self.path)
        except (FileNotFoundError, pa.ArrowInvalid):
            return

    def free_bytes(self) -> int:
        """Space left."""
        place = Path(self.path)
        while not place.exists():
            place = place.parent
        return shutil.disk_usage(place).free
