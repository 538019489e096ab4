"""The files of a warehouse at one ledger version, held by links of their own while they are copied.

Deleting a file takes away one of its names. So what is linked into another folder outlives every vacuum and trim, and
the warehouse works on meanwhile. Data files and Delta logs never change once they are written; a segment of a stream log
may grow, and of it only the bytes count that it had at the moment.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from headgate.capture.durable import full_disk_is_named, read_checked
from headgate.capture.events import from_micros
from headgate.capture.log_manifest import LogManifest, epochs
from headgate.capture.segments import FrameEntry, list_segments, scan_segment, segment_number
from headgate.errors import DefiniteError
from headgate.runtime.tables.records import CHECKPOINT, FLOW, JOB_CLOSED, STREAM
from headgate.runtime.tables.tables import INTERNAL
from headgate.warehouse.files import FileReader
from headgate.warehouse.ledger import SPEC
from headgate.warehouse.log import LOG, find_damage, versions_in
from headgate.warehouse.problems import damaged
from headgate.warehouse.storage import Folder
from headgate.warehouse.store import DeltaStore

LEDGER = f"{INTERNAL}/ledger"
STREAMS = f"{INTERNAL}/streams"
_KEPT_WHOLE = ("cursor", "trimmed", "lost", "partitions")
"""Small files beside a stream log's segments, which are replaced whole."""
_MARK = "mark"
"""Written in place while the log grows: read before its segments, it tells of no more than they have."""


@dataclass(frozen=True, slots=True)
class PinnedFile:
    """A file by its name below the storage."""

    name: str
    bytes: int | None = None
    """How many of its bytes count; None for all of a file that never changes."""


@dataclass(frozen=True, slots=True)
class SourceEnd:
    """Where a source's stream log ends."""

    position: int
    committed_at: datetime | None
    is_database: bool
    """Whether it is captured from elsewhere, and not written by programs through headgate."""


@dataclass(frozen=True, slots=True)
class Pinned:
    """All that belongs to one ledger version."""

    ledger_version: int
    job: int
    """The newest closed job; 0 before the first."""
    parts: tuple[PinnedFile, ...]
    sources: dict[str, SourceEnd]


@dataclass(frozen=True, slots=True)
class EpochFolder:
    """What one owner wrote of a stream log, at a moment: its folder below the storage, segments and small files."""

    folder: str
    segments: tuple[PinnedFile, ...]
    small: tuple[PinnedFile, ...]


@dataclass(frozen=True, slots=True)
class Moment:
    """The ledger and the ends of all stream logs at one moment; the rest of the files follows from them."""

    storage: Path
    place: Path
    streams: dict[str, dict[int, EpochFolder]]
    """By source and epoch."""
    others: tuple[PinnedFile, ...]

    @staticmethod
    def of(storage: Path, place: Path) -> Moment:
        """To be made while nothing is added to the ledger, and nothing trimmed; links go below `place`."""
        others = [PinnedFile(f"{LEDGER}/{file.name}") for file in Folder.at(storage / LEDGER).files()]
        for part in others:
            link(storage / part.name, place / part.name)
        streams: dict[str, dict[int, EpochFolder]] = {}
        for source in Folder.at(storage / STREAMS).folders():
            home = storage / STREAMS / source
            streams[source] = {epoch: _at_a_moment(storage, place, home / str(epoch)) for epoch in epochs(home)}
        return Moment(storage, place, streams, tuple(others))

    def pin(self) -> Pinned:
        """Links all files that the ledger and the logs name; while nothing is vacuumed or trimmed."""
        version, job, tables, manifests = _read_ledger(self.place / LEDGER)
        parts = list(self.others)
        for path, table_version in tables.items():
            # A table that was replaced is deleted; its checkpoint stays in the ledger.
            if (self.storage / path / LOG).exists():
                parts += _table_parts(self.storage, path, table_version)
        sources = {}
        for source, found in self.streams.items():
            if not found:
                continue
            home = f"{STREAMS}/{source}"
            # A log that an earlier version wrote lies whole in its newest folder.
            manifest = manifests.get(source, LogManifest(max(found)))
            if manifest.epoch not in found:
                raise damaged(str(self.storage / home / str(manifest.epoch)), "the folder is missing")
            newest = found[manifest.epoch]
            end, committed_at = _trimmed(self.place / newest.folder)
            segments = _segments(home, manifest, newest.segments, self.storage)
            parts += [*newest.small, *segments]
            blocks: dict[str, int] = {}
            for entry in _entries(self.storage, segments):
                if entry.header.position <= end:
                    continue
                end, committed_at = entry.header.position, from_micros(entry.header.commit_at)
                files = (side.name for sides in entry.header.files.values() for side in sides)
                parts += [PinnedFile(_file(self.storage, home, newest.folder, name)) for name in files]
                for block in entry.blocks:
                    blocks[block.segment] = max(blocks.get(block.segment, 0), block.end)
            # Writers may add to them meanwhile.
            parts += [PinnedFile(f"{home}/blocks/{name}", end) for name, end in blocks.items()]
            sources[source] = SourceEnd(end, committed_at, (self.place / newest.folder / "cursor").exists())
        for part in parts:
            if not (self.place / part.name).exists():
                link(self.storage / part.name, self.place / part.name)
        return Pinned(version, job, tuple(parts), sources)


def require_ledger(storage: Path) -> None:
    """Refuses a folder that holds no warehouse."""
    if not (storage / LEDGER / LOG).is_dir():
        raise DefiniteError(f"there is no warehouse in {storage}", hint="give the `storage` folder of a project")


def _at_a_moment(storage: Path, place: Path, folder: Path) -> EpochFolder:
    """The segments with their sizes, and the small files, copied.

    A cursor belongs to what the log holds at the same moment: one that runs ahead would skip transactions, one that
    lags behind may not know a table's columns. So it is read before and after, until it did not change meanwhile.
    """
    start = str(folder.relative_to(storage))
    while True:
        mark = {_MARK: (folder / _MARK).read_bytes()} if (folder / _MARK).exists() else {}
        contents = _contents(folder)
        sizes = tuple(PinnedFile(f"{start}/{path.name}", path.stat().st_size) for path in list_segments(folder))
        if _contents(folder) == contents:
            break
    (place / start).mkdir(parents=True, exist_ok=True)
    for name, content in (contents | mark).items():
        (place / start / name).write_bytes(content)
    small = tuple(PinnedFile(f"{start}/{name}", len(content)) for name, content in (contents | mark).items())
    return EpochFolder(start, sizes, small)


def _segments(home: str, manifest: LogManifest, own: tuple[PinnedFile, ...], storage: Path) -> list[PinnedFile]:
    """The segments of the log, oldest first; those of former owners may have been let go."""
    found = {segment_number(Path(name)): PinnedFile(f"{home}/{name}", size) for name, size in manifest.former}
    found |= {segment_number(Path(part.name)): part for part in own}
    return [found[number] for number in sorted(found) if (storage / found[number].name).exists()]


def _file(storage: Path, home: str, folder: str, name: str) -> str:
    """The file of a large transaction; an earlier version has it beside its segments."""
    earlier = f"{folder}/files/{name}"
    return earlier if (storage / earlier).exists() else f"{home}/files/{name}"


def _contents(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in _KEPT_WHOLE if (folder / name).exists()}


def _trimmed(folder: Path) -> tuple[int, datetime | None]:
    file = folder / "trimmed"
    if not file.exists():
        return 0, None
    found = json.loads(read_checked(file))
    return int(found["position"]), from_micros(int(found["commit_at"]))


def _entries(storage: Path, segments: Sequence[PinnedFile]) -> Iterator[FrameEntry]:
    """The frames that were whole at the moment."""
    for number, part in enumerate(segments, start=1):
        path = storage / part.name
        is_last = number == len(segments)
        found = scan_segment(path, bodies=is_last, limit=part.bytes)
        if found.problem is not None and not is_last:
            raise damaged(str(path), found.problem)
        yield from found.entries


def _read_ledger(folder: Path) -> tuple[int, int, dict[str, int], dict[str, LogManifest]]:
    """The version of the ledger, the newest job, per table the version that counts, and per source the manifest of its log."""
    store = DeltaStore.open(Folder.at(folder), SPEC)
    job = 0
    tables: dict[str, int] = {}
    generations: dict[str, int] = {}
    manifests: dict[str, LogManifest] = {}
    for row in FileReader(store.folder, SPEC).rows(store.index.paths).sort_by("sequence").to_pylist():
        if row["kind"] == JOB_CLOSED:
            job = int(json.loads(row["body"])["id"])
        elif row["kind"] == CHECKPOINT:
            tables |= {path: int(found[0]) for path, found in json.loads(row["body"])["tables"].items()}
        elif row["kind"] == STREAM:
            body = json.loads(row["body"])
            manifests[body["source"]] = LogManifest.from_body(body)
        elif row["kind"] == FLOW:
            body = json.loads(row["body"])
            generations[body["name"]] = int(body["generation"])
    counting = {path: found for path, found in tables.items() if not _is_replaced(path, generations)}
    return store.version, job, counting, manifests


def _is_replaced(path: str, generations: Mapping[str, int]) -> bool:
    """Whether a flow goes on with another table than this, which may have been built because this one is damaged."""
    folder = path.removeprefix(f"{INTERNAL}/states/").partition("/")[0]
    flow, _, number = folder.rpartition(".")
    if number.isdigit() and flow in generations:
        return int(number) < generations[flow]
    return generations.get(folder, 1) > 1


def _table_parts(storage: Path, path: str, version: int) -> list[PinnedFile]:
    """The data files of a table's version, and its Delta log up to there."""
    folder = Folder.at(storage / path)
    try:
        actions = pa.table(DeltaTable(folder.address, version=version).get_add_actions(flatten=True))
    except (DeltaError, OSError, ValueError) as error:
        raise find_damage(folder, error, f"version {version} of the table in {folder.address}") from error
    parts = [PinnedFile(f"{path}/{name}") for name in actions.column("path").to_pylist()]
    return parts + [PinnedFile(f"{path}/{LOG}/{name}") for number, name in versions_in(folder) if number <= version]


def link(file: Path, target: Path) -> None:
    """Another name for a file; where the file system has no links, a copy."""
    with full_disk_is_named(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(file, target)
        except FileNotFoundError:
            raise damaged(str(file), "the file is missing") from None
        except OSError:
            shutil.copyfile(file, target)
