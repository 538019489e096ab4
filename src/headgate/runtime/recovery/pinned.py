"""The files of a warehouse at one ledger version, held by links of their own while they are copied.

Deleting a file takes away one of its names. So what is linked into another folder outlives every vacuum and trim, and
the warehouse works on meanwhile. Data files and Delta logs never change once they are written; a segment of a stream log
may grow, and of it only the bytes count that it had at the moment.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from headgate.capture.durable import full_disk_is_named, read_checked
from headgate.capture.events import from_micros
from headgate.capture.segments import FrameEntry, list_segments, scan_segment
from headgate.errors import DefiniteError
from headgate.runtime.tables.records import CHECKPOINT, FLOW, JOB_CLOSED
from headgate.runtime.tables.tables import INTERNAL
from headgate.warehouse.files import FileReader
from headgate.warehouse.ledger import SPEC
from headgate.warehouse.log import LOG, find_damage, versions_in
from headgate.warehouse.problems import damaged
from headgate.warehouse.storage import Folder
from headgate.warehouse.store import DeltaStore

LEDGER = f"{INTERNAL}/ledger"
STREAMS = f"{INTERNAL}/streams"
_KEPT_WHOLE = ("cursor", "trimmed", "lost")
"""Small files beside a stream log's segments, which are replaced whole."""
_MARK = "mark"
"""Written in place while the log grows: read before its segments, it tells of no more than they have."""


@dataclass(frozen=True, slots=True)
class Part:
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
    parts: tuple[Part, ...]
    sources: dict[str, SourceEnd]


@dataclass(frozen=True, slots=True)
class Stream:
    """The newest stream log of a source: its folder below the storage, and its segments at a moment."""

    folder: str
    segments: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Moment:
    """The ledger and the ends of all stream logs at one moment; the rest of the files follows from them."""

    storage: Path
    place: Path
    streams: dict[str, Stream]
    """By source."""
    others: tuple[Part, ...]

    @staticmethod
    def of(storage: Path, place: Path) -> Moment:
        """To be made while nothing is added to the ledger, and nothing trimmed; links go below `place`."""
        others = [Part(f"{LEDGER}/{file.name}") for file in Folder.at(storage / LEDGER).files()]
        for part in others:
            link(storage / part.name, place / part.name)
        streams: dict[str, Stream] = {}
        for source in Folder.at(storage / STREAMS).folders():
            folder = newest_epoch(storage / STREAMS / source)
            if folder is None:
                continue
            streams[source], contents = _stream_at_a_moment(storage, folder)
            for name, content in contents.items():
                (place / name).parent.mkdir(parents=True, exist_ok=True)
                (place / name).write_bytes(content)
                others.append(Part(name, len(content)))
        return Moment(storage, place, streams, tuple(others))

    def pin(self) -> Pinned:
        """Links all files that the ledger and the logs name; while nothing is vacuumed or trimmed."""
        version, job, tables = _read_ledger(self.place / LEDGER)
        parts = list(self.others)
        for path, table_version in tables.items():
            # A table that was replaced is deleted; its checkpoint stays in the ledger.
            if (self.storage / path / LOG).exists():
                parts += _table_parts(self.storage, path, table_version)
        sources = {}
        for source, stream in self.streams.items():
            end, committed_at = _trimmed(self.place / stream.folder)
            parts += stream.segments
            for entry in _entries(self.storage, stream.segments):
                if entry.header.position <= end:
                    continue
                end, committed_at = entry.header.position, from_micros(entry.header.commit_at)
                files = (side.name for sides in entry.header.files.values() for side in sides)
                parts += [Part(f"{stream.folder}/files/{name}") for name in files]
            sources[source] = SourceEnd(end, committed_at, (self.place / stream.folder / "cursor").exists())
        for part in parts:
            if not (self.place / part.name).exists():
                link(self.storage / part.name, self.place / part.name)
        return Pinned(version, job, tuple(parts), sources)


def require_ledger(storage: Path) -> None:
    """Refuses a folder that holds no warehouse."""
    if not (storage / LEDGER / LOG).is_dir():
        raise DefiniteError(f"there is no warehouse in {storage}", hint="give the `storage` folder of a project")


def newest_epoch(home: Path) -> Path | None:
    """The log as its last owner has it; see `streams`."""
    epochs = [path for path in home.iterdir() if path.name.isdigit()]
    return max(epochs, key=lambda path: int(path.name), default=None)


def _stream_at_a_moment(storage: Path, folder: Path) -> tuple[Stream, dict[str, bytes]]:
    """The segments with their sizes, and the small files by name.

    A cursor belongs to what the log holds at the same moment: one that runs ahead would skip transactions, one that
    lags behind may not know a table's columns. So it is read before and after, until it did not change meanwhile.
    """
    start = str(folder.relative_to(storage))
    while True:
        mark = {_MARK: (folder / _MARK).read_bytes()} if (folder / _MARK).exists() else {}
        contents = _contents(folder)
        sizes = tuple(Part(f"{start}/{path.name}", path.stat().st_size) for path in list_segments(folder))
        if _contents(folder) == contents:
            kept = contents | mark
            return Stream(start, sizes), {f"{start}/{name}": content for name, content in kept.items()}


def _contents(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in _KEPT_WHOLE if (folder / name).exists()}


def _trimmed(folder: Path) -> tuple[int, datetime | None]:
    file = folder / "trimmed"
    if not file.exists():
        return 0, None
    found = json.loads(read_checked(file))
    return int(found["position"]), from_micros(int(found["commit_at"]))


def _entries(storage: Path, segments: tuple[Part, ...]) -> Iterator[FrameEntry]:
    """The frames that were whole at the moment."""
    for number, part in enumerate(segments, start=1):
        path = storage / part.name
        is_last = number == len(segments)
        found = scan_segment(path, bodies=is_last)
        if found.problem is not None and not is_last:
            raise damaged(str(path), found.problem)
        yield from (entry for entry in found.entries if part.bytes is None or entry.end <= part.bytes)


def _read_ledger(folder: Path) -> tuple[int, int, dict[str, int]]:
    """The version of the ledger, the newest job, and per table the version that counts."""
    store = DeltaStore.open(Folder.at(folder), SPEC)
    job = 0
    tables: dict[str, int] = {}
    generations: dict[str, int] = {}
    for row in FileReader(store.folder, SPEC).rows(store.index.files).sort_by("sequence").to_pylist():
        if row["kind"] == JOB_CLOSED:
            job = int(json.loads(row["body"])["id"])
        elif row["kind"] == CHECKPOINT:
            tables |= {path: int(found[0]) for path, found in json.loads(row["body"])["tables"].items()}
        elif row["kind"] == FLOW:
            body = json.loads(row["body"])
            generations[body["name"]] = int(body["generation"])
    return store.version, job, {path: found for path, found in tables.items() if not _is_replaced(path, generations)}


def _is_replaced(path: str, generations: Mapping[str, int]) -> bool:
    """Whether a flow goes on with another table than this, which may have been built because this one is damaged."""
    folder = path.removeprefix(f"{INTERNAL}/states/").partition("/")[0]
    flow, _, number = folder.rpartition(".")
    if number.isdigit() and flow in generations:
        return int(number) < generations[flow]
    return generations.get(folder, 1) > 1


def _table_parts(storage: Path, path: str, version: int) -> list[Part]:
    """The data files of a table's version, and its Delta log up to there."""
    folder = Folder.at(storage / path)
    try:
        actions = pa.table(DeltaTable(folder.address, version=version).get_add_actions(flatten=True))
    except (DeltaError, OSError, ValueError) as error:
        raise find_damage(folder, error, f"version {version} of the table in {folder.address}") from error
    parts = [Part(f"{path}/{name}") for name in actions.column("path").to_pylist()]
    return parts + [Part(f"{path}/{LOG}/{name}") for number, name in versions_in(folder) if number <= version]


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
