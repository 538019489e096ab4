"""Backup and restore: ledger, tables and stream logs of a warehouse at one ledger version.

A backup is made while the warehouse is closed (`backup`) or while it works (`back_up_open`): what belongs to the version is
pinned in a moment and copied afterwards. Files that never change are hard links where source and backup share a file
system, else copies. A backup on the disk that it shall survive protects against mistakes only.

Restored elsewhere, the warehouse goes on from the backup's newest job and what its stream logs held beyond it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from headgate.capture.durable import full_disk_is_named, sync_file, sync_folder
from headgate.config.settings import Project
from headgate.errors import DefiniteError, EnvironmentProblem, Fenced
from headgate.runtime.recovery.manifest import CONTENT, FORMAT, CopiedFile, Manifest, damaged_file, read_manifest
from headgate.runtime.recovery.pinned import LEDGER, Moment, Pinned, PinnedFile, link, require_ledger
from headgate.runtime.recovery.restored import RestoredSource, advice
from headgate.runtime.spark.environment import make_private
from headgate.runtime.spark.scratch import Scratch
from headgate.runtime.tables.journal import Journal
from headgate.runtime.tables.tables import INTERNAL
from headgate.warehouse.lock import OwnerLock
from headgate.warehouse.log import LOG, log_name
from headgate.warehouse.storage import Folder

OnCopied = Callable[[int, int], None]
"""Hears how many bytes are done, and of how many."""

_UNFINISHED = ".restoring"
_CHUNK = 4 << 20


@dataclass(frozen=True, slots=True)
class Restored:
    """What a restored warehouse holds, and what is to be done about each source before it is fresh again."""

    storage: str
    made_at: datetime
    job: int
    ledger_version: int
    files: int
    bytes: int
    sources: tuple[RestoredSource, ...]

    def __str__(self) -> str:
        made = self.made_at.isoformat(sep=" ", timespec="seconds")
        first = (
            f"{self.storage} is the warehouse as of {made}, job {self.job} ({self.files:,} files, {self.bytes:,} bytes)"
        )
        return "\n".join([first, *map(str, self.sources)])


def backup(storage: str | Path, folder: str | Path, progress: OnCopied | None = None) -> Manifest:
    """Copies the warehouse in a storage folder, which nobody has open, into an empty folder."""
    root = _local(storage)
    require_ledger(root)
    target = _empty_target(root, folder)
    owner = f"a backup by {socket.gethostname()} process {os.getpid()}"
    lock = OwnerLock.take(Folder.at(root).child(INTERNAL), owner, datetime.now(UTC), takeover=False)
    place = root / INTERNAL / "scratch" / f"backup-{uuid.uuid4().hex}"
    try:
        pinned = Moment.of(root, place).pin()
        verify = partial(_require_unchanged, root, pinned.ledger_version)
        verify()
        return _copy(root, place, pinned, target, verify, progress)
    finally:
        shutil.rmtree(place, ignore_errors=True)
        lock.release()


def back_up_open(
    storage: str,
    journal: Journal,
    scratch: Scratch,
    keeping: AbstractContextManager[object],
    folder: str | Path,
    progress: OnCopied | None = None,
) -> Manifest:
    """Copies a warehouse that is open; inside `keeping` nothing is vacuumed, trimmed or deleted."""
    root = _local(storage)
    target = _empty_target(root, folder)
    place = scratch.new()
    try:
        with keeping:
            with journal.lock:
                journal.settle()
                moment = Moment.of(root, place)
            pinned = moment.pin()
            journal.verify()
        return _copy(root, place, pinned, target, journal.verify, progress)
    finally:
        shutil.rmtree(place, ignore_errors=True)
        scratch.done([place])


def restore(
    folder: str | Path, storage: str | Path, progress: OnCopied | None = None, project: Project | None = None
) -> Restored:
    """Puts a backup into an empty storage folder and says what is to be done about each source.

    With the project that the warehouse is opened with, its databases are asked whether they still have what follows.
    """
    origin, root = Path(folder).absolute(), _local(storage)
    manifest = read_manifest(origin)
    _require_empty_storage(root)
    unfinished, done = root / _UNFINISHED, 0
    try:
        with full_disk_is_named(root):
            for file in manifest.files:
                _restore_file(origin, file, unfinished)
                done += file.bytes
                _tell(progress, done, manifest.bytes)
            _sync_folders(unfinished)
            # The ledger last: without it there is no warehouse.
            for name in sorted((path.name for path in unfinished.iterdir()), key=lambda name: name == INTERNAL):
                (unfinished / name).rename(root / name)
            unfinished.rmdir()
            sync_folder(root)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    return Restored(
        str(root),
        manifest.made_at,
        manifest.job,
        manifest.ledger_version,
        len(manifest.files),
        manifest.bytes,
        tuple(advice(name, end, root, project) for name, end in sorted(manifest.sources.items())),
    )


def _copy(
    root: Path, place: Path, pinned: Pinned, target: Path, verify: Callable[[], None], progress: OnCopied | None
) -> Manifest:
    """Brings what is pinned to the target, and the manifest last.

    Whoever takes the warehouse over deletes what is pinned; `verify` then says so.
    """
    sizes = [(place / part.name).stat().st_size if part.bytes is None else part.bytes for part in pinned.parts]
    files: list[CopiedFile] = []
    done, total = 0, sum(sizes)
    try:
        with full_disk_is_named(target):
            for part, size in zip(pinned.parts, sizes, strict=True):
                files.append(_copy_file(part, place / part.name, target / CONTENT / part.name))
                done += size
                _tell(progress, done, total)
            _sync_folders(target)
            manifest = Manifest(
                FORMAT,
                datetime.now(UTC),
                str(root),
                pinned.ledger_version,
                pinned.job,
                pinned.sources,
                tuple(files),
            )
            manifest.write(target)
            return manifest
    except BaseException:
        shutil.rmtree(target / CONTENT, ignore_errors=True)
        verify()
        raise


def _copy_file(part: PinnedFile, file: Path, target: Path) -> CopiedFile:
    if part.bytes is None:
        link(file, target)
        sync_file(target)
        with target.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        return CopiedFile(part.name, target.stat().st_size, digest)
    size, digest = _copy_bytes(file, target, part.bytes)
    return CopiedFile(part.name, size, digest)


def _restore_file(origin: Path, file: CopiedFile, target: Path) -> None:
    try:
        size, digest = _copy_bytes(origin / CONTENT / file.name, target / file.name, file.bytes + 1)
    except FileNotFoundError:
        raise damaged_file(origin, file.name, "is missing") from None
    if size != file.bytes:
        raise damaged_file(origin, file.name, f"has not {file.bytes:,} bytes")
    if digest != file.sha256:
        raise damaged_file(origin, file.name, "does not have its checksum")


def _copy_bytes(file: Path, target: Path, most: int) -> tuple[int, str]:
    """Copies a file up to so many bytes; gives how many there were and their checksum."""
    digest, size = hashlib.sha256(), 0
    with file.open("rb") as source:
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("xb") as copy:
            while chunk := source.read(min(_CHUNK, most - size)):
                digest.update(chunk)
                copy.write(chunk)
                size += len(chunk)
            copy.flush()
            os.fsync(copy.fileno())
    return size, digest.hexdigest()


def _tell(progress: OnCopied | None, done: int, total: int) -> None:
    if progress is not None:
        progress(done, total)


def _sync_folders(folder: Path) -> None:
    for path, _, _ in os.walk(folder):
        sync_folder(Path(path))


def _local(storage: str | Path) -> Path:
    text = str(storage).removeprefix("file://")
    if "://" in text:
        raise EnvironmentProblem(
            f"only local folders are backed up and restored, not {text}",
            hint="close the warehouse and copy its folder with the object store's own tools",
        )
    return Path(text).absolute()


def _empty_target(root: Path, folder: str | Path) -> Path:
    target = Path(folder).absolute()
    if target.resolve().is_relative_to(root.resolve()):
        raise DefiniteError(f"{target} lies in the storage that is to be copied", hint="choose a folder outside of it")
    try:
        make_private(target)
        empty = not any(target.iterdir())
    except OSError as error:
        raise EnvironmentProblem(
            f"cannot write a backup to {target}: {error.strerror}", hint="choose another folder"
        ) from None
    if not empty:
        raise DefiniteError(f"the folder {target} is not empty", hint="choose a new folder for each backup")
    return target


def _require_empty_storage(root: Path) -> None:
    try:
        make_private(root)
        found = sorted(path.name for path in root.iterdir())
    except OSError as error:
        raise EnvironmentProblem(f"cannot write to {root}: {error.strerror}", hint="choose another folder") from None
    if _UNFINISHED in found:
        raise DefiniteError(
            f"an earlier restore to {root} was cut short", hint="delete what is in this folder, then restore again"
        )
    if found:
        raise DefiniteError(
            f"the storage {root} is not empty: it has {', '.join(found[:3])}",
            hint="restore to a new folder, or move what is there away",
        )


def _require_unchanged(root: Path, version: int) -> None:
    if (root / LEDGER / LOG / log_name(version + 1)).exists():
        raise Fenced(
            "another process has opened the warehouse while it was copied",
            hint="make the backup again, or have that process make it",
        )
