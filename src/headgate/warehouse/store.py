"""One Delta table on a folder, written by one owner who always knows the version it builds on.

A commit names its data files, adds and removes them at once, and lands on exactly the next version. If anybody else
committed since, `ForeignCommit` is raised and nothing is changed: the owner makes sure that it still is the owner,
calls `repair` and tries again. Data files of an attempt live in a folder of their own (`<attempt>/part-….parquet`),
so that what a crash leaves behind is found by name and removed by `vacuum`.

The log is checkpointed every `CHECKPOINT_EVERY` commits. Entries go, oldest first, only below the lowest kept
version. A former owner may put a version whose entry was cleaned away since: it finds the entry of the version it
built on missing, and is told so.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from threading import RLock

import numpy as np
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from headgate.errors import CorruptWarehouse, TransientError
from headgate.warehouse.index import FileIndex
from headgate.warehouse.log import LOG, find_damage, log_name, versions_in
from headgate.warehouse.problems import is_full, repair_hint, storage_full, storage_problems
from headgate.warehouse.spec import TableSpec
from headgate.warehouse.statistics import DataFile, to_json
from headgate.warehouse.storage import Folder, StoredFile

CHECKPOINT_EVERY = 50
OVERLAY = "_overlay"

Step = Callable[[str], None]
Verify = Callable[[], None]


class ForeignCommit(TransientError):
    """Somebody else committed to the table since `known`: repair it to a known version, then try again."""

    def __init__(self, table: str, known: int) -> None:
        self.table = table
        self.known = known
        super().__init__(
            f"table {table} was changed by another process after version {known}",
            hint="make sure that this process still owns the warehouse, repair the table and retry",
        )


def no_step(name: str) -> None:
    """The default for `step`: nothing watches the points of a commit."""


def unverified() -> None:
    """The default for `verify`: nobody else can own the table."""


@dataclass(frozen=True)
class Listing:
    """Files and folders of a table, and the attempts that were under way before they were listed."""

    attempts: frozenset[str]
    files: list[StoredFile]
    folders: list[str]


@dataclass(frozen=True)
class Unneeded:
    """Files and folders of a table that nothing needs, and the version below which its log is not needed."""

    files: list[str]
    folders: list[str]
    below: int


class DeltaStore:
    """The Delta table of a spec: its version, its live files, and commits to it."""

    def __init__(self, folder: Folder, spec: TableSpec, table: DeltaTable, step: Step = no_step) -> None:
        self.folder = folder
        self.spec = spec
        self._step = step
        self._table = table
        self._schema = Schema.from_arrow(spec.arrow_schema)
        self._lock = RLock()
        self._attempts: set[str] = set()
        self._version = table.version()
        self._index = self._load(table)

    @classmethod
    def open(cls, folder: Folder, spec: TableSpec, step: Step = no_step) -> DeltaStore:
        """Opens the table, creating it (version 0, no rows) when the folder has none."""
        try:
            return cls(folder, spec, DeltaTable(folder.address), step)
        except TableNotFoundError:
            if folder.files(LOG):
                raise CorruptWarehouse(
                    f"the Delta log of {folder.address} is damaged", hint=repair_hint(folder.address)
                ) from None
        except (DeltaError, OSError) as error:
            raise find_damage(folder, error) from error
        folder.create()
        configuration = {
            "delta.checkpointInterval": str(CHECKPOINT_EVERY),
            "delta.enableExpiredLogCleanup": "false",
        }
        with storage_problems(folder):
            table = DeltaTable.create(folder.address, spec.arrow_schema, name=spec.name, configuration=configuration)
        return cls(folder, spec, table, step)

    @property
    def identity(self) -> str:
        """The table's id, which Delta has given it when it was made."""
        return str(self._table.metadata().id)

    @property
    def version(self) -> int:
        return self._version

    @property
    def index(self) -> FileIndex:
        """The live files of the current version."""
        return self._index

    def index_by(self, column: str) -> FileIndex:
        """The same files in the same order, with the ranges of another column."""
        with self._lock:
            return self._load(self._table, column)

    def at(self, version: int) -> FileIndex:
        """The live files of an older version that is still kept."""
        with self._lock:
            if version == self._version:
                return self._index
            try:
                return self._load(DeltaTable(self.folder.address, version=version))
            except (DeltaError, OSError, ValueError) as error:
                raise find_damage(self.folder, error, f"version {version} of table {self.spec.name}") from error

    def begin(self) -> str:
        """A name for a new attempt's subfolder; vacuum leaves it alone until `end`."""
        attempt = uuid.uuid4().hex
        with self._lock:
            self._attempts.add(attempt)
        self.folder.child(attempt).create()
        return attempt

    def end(self, attempt: str, *, discard: bool) -> None:
        """The attempt is committed, or its files go; one that has ended stays as it is."""
        with self._lock:
            if attempt not in self._attempts:
                return
            self._attempts.discard(attempt)
        if discard:
            self.folder.delete_folder(attempt)

    def commit(
        self, adds: Sequence[DataFile], removes: FileIndex | None = None, note: Mapping[str, object] | None = None
    ) -> int:
        """Adds and removes data files in one commit and returns its version; without any, the version stays."""
        with self._lock:
            gone = self._index.take(np.array([], np.int64)) if removes is None else removes
            if not adds and not len(gone):
                return self._version
            self._step("before-commit")
            self._put(adds, gone, note or {})
            self._step("after-commit")
            self._version += 1
            added = FileIndex.of(adds, self.spec.lead, self.spec.arrow_schema.field(self.spec.lead).type)
            self._index = self._index.updated(added, gone)
            return self._version

    def restore(self, version: int) -> int:
        """Makes the content of `version` current, by a new commit; returns the new version."""
        with self._lock:
            try:
                table = DeltaTable(self.folder.address)
                if table.version() != version:
                    table.restore(version)
                    table = DeltaTable(self.folder.address)
            except (DeltaError, OSError, ValueError) as error:
                if is_full(error):
                    raise storage_full(self.folder, None) from error
                raise find_damage(self.folder, error, f"version {version} of table {self.spec.name}") from error
            self._table = table
            self._version = table.version()
            self._index = self._load(table)
            return self._version

    def widen(self, spec: TableSpec) -> int:
        """Goes on with a spec that has more columns, which hold NULL in all rows so far; returns the version."""
        with self._lock:
            known = {field.name for field in self._table.schema().fields}
            added = [field for field in Schema.from_arrow(spec.arrow_schema).fields if field.name not in known]
            if added:
                with storage_problems(self.folder):
                    self._table.alter.add_columns(added, commit_properties=CommitProperties(max_commit_retries=0))
                self._table = DeltaTable(self.folder.address)
            self.spec = spec
            self._schema = Schema.from_arrow(spec.arrow_schema)
            self._version = self._table.version()
            return self._version

    def repair(self, version: int) -> int:
        """Undoes what others committed after `version`; the owner can then commit again."""
        return self.restore(version)

    def vacuum(self, keep_versions: Iterable[int] = (), verify: Verify = unverified) -> int:
        """Deletes data files that no kept version names, and the log below all of them; returns how many went.

        Which files a kept version names is read from the log. `verify` raises when this process is no longer the owner. It is asked
        after the files were listed: what was listed before belongs to no later owner, so a pause at any point cannot cost that one
        a file.
        """
        listing = self.listed()
        with self._lock:
            unneeded = self.unneeded(
                listing, {version: self.at(version) for version in {*keep_versions, self._version}}
            )
        verify()
        return self.delete(unneeded)

    def listed(self) -> Listing:
        """What lies in the folder. Attempts are noted first: one that begins later is in the listing or in a later version."""
        with self._lock:
            attempts = frozenset(self._attempts)
        return Listing(attempts, self.folder.files(), self.folder.folders())

    def unneeded(self, listing: Listing, keep: Mapping[int, FileIndex]) -> Unneeded:
        """What of the listing neither an attempt nor the current version needs, nor those to keep, with their files; it never will be
        needed again. Reads nothing."""
        with self._lock:
            versions = {**keep, self._version: self._index}
            named = {path for index in versions.values() for path in index.paths}
            kept = {LOG, OVERLAY, *self._attempts, *listing.attempts}
        files = [
            file.name
            for file in listing.files
            if file.name.split("/", 1)[0] not in kept and _data_name(file.name) not in named
        ]
        kept |= {path.split("/", 1)[0] for path in named}
        return Unneeded(files, [name for name in listing.folders if name not in kept], min(versions))

    def delete(self, unneeded: Unneeded) -> int:
        """Deletes it; returns how many files went."""
        for name in unneeded.files:
            self.folder.delete(name)
        for name in unneeded.folders:
            self.folder.delete_folder(name)
        self._clean_log(unneeded.below)
        return len(unneeded.files)

    def _put(self, adds: Sequence[DataFile], removes: FileIndex, note: Mapping[str, object]) -> None:
        known = self._version
        moment = max((file.modified_ms for file in adds), default=0)
        actions: list[AddAction | RemoveAction] = [
            AddAction(file.path, file.bytes, {}, file.modified_ms, True, to_json(file, self.spec.arrow_schema))
            for file in adds
        ]
        actions += [
            RemoveAction(path, True, moment, size=int(size))
            for path, size in zip(removes.paths, removes.bytes_of, strict=True)
        ]
        properties = CommitProperties(max_commit_retries=0, custom_metadata={"headgate": json.dumps(dict(note))})
        try:
            self._table.create_write_transaction(actions, "append", self._schema, commit_properties=properties)
        except (DeltaError, OSError) as error:
            if is_full(error):
                raise storage_full(self.folder, sum(file.bytes for file in adds)) from error
            if self._is_taken(known + 1) or not self._is_taken(known):
                raise ForeignCommit(self.spec.name, known) from error
            raise
        if not self._is_taken(known):
            raise ForeignCommit(self.spec.name, known)
        self._table.update_incremental()
        if self._table.version() != known + 1:
            self._table.load_as_version(known + 1)

    def is_current(self) -> bool:
        """Whether nobody else has committed since this owner did."""
        with self._lock:
            return self._is_taken(self._version) and not self._is_taken(self._version + 1)

    def _is_taken(self, version: int) -> bool:
        return self.folder.exists(f"{LOG}/{log_name(version)}")

    def _load(self, table: DeltaTable, column: str | None = None) -> FileIndex:
        actions = pa.table(table.get_add_actions(flatten=True))
        name = column or self.spec.lead
        return FileIndex.of_actions(actions, name, self.spec.arrow_schema.field(name).type)

    def _clean_log(self, lowest: int) -> None:
        """Deletes the log below `lowest`, oldest first, once enough of it has come together."""
        entries = versions_in(self.folder)
        old = [(version, name) for version, name in entries if version < lowest]
        if len(old) < CHECKPOINT_EVERY:
            return
        DeltaTable(self.folder.address, version=lowest).create_checkpoint()
        for _, name in old:
            self.folder.delete(f"{LOG}/{name}")


def _data_name(name: str) -> str:
    """The data file that a checksum file (`.part-….parquet.crc`) belongs to; else the name itself."""
    folder, _, last = name.rpartition("/")
    if last.startswith(".") and last.endswith(".crc"):
        last = last[1 : -len(".crc")]
    return f"{folder}/{last}" if folder else last
