"""The ledger: what counts in a warehouse, as an append-only Delta table under `_headgate/ledger`.

    sequence | epoch | at | kind | body (JSON)

Every append is one commit on exactly the version this owner saw last. Opening appends an `owner` entry with the next
epoch, so from then on a former owner's append fails with `Fenced`, however long it was paused; it is never retried.
Entries are kept in memory; the table's many small files become one when there are `COMPACT_FILES` of them, without the
entries that no longer count, and the log below is cleaned.

The ledger says in which format the warehouse is (`FORMAT`); a ledger without that is of format 1. A later format is refused, an
earlier one is converted by `conversions`.

Without its ledger nobody knows what counts of a warehouse. So a ledger that is gone, cannot be read, or ends before the
version that was written last (`ledger.mark`) is an error, and never taken for a new one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from threading import RLock
from typing import Any

import pyarrow as pa
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

from headgate.errors import CorruptWarehouse, DefiniteError, Fenced, Location
from headgate.mark import DamagedMark, Mark, Reach, read_mark
from headgate.warehouse.files import FileReader, FileWriter
from headgate.warehouse.index import FileIndex
from headgate.warehouse.lock import OwnerLock
from headgate.warehouse.log import LOG
from headgate.warehouse.spec import TableSpec
from headgate.warehouse.storage import Folder
from headgate.warehouse.store import DeltaStore, ForeignCommit, Step, no_step

HOME = "_headgate"
LEDGER_HINT = (
    "restore a backup to an empty folder: `headgate restore`; or give the warehouse up and begin anew: `headgate reset`"
)
_SCRATCH = ("ledger", "scratch")
"""Folders beside the ledger that hold nothing without it."""
OWNER = "owner"
FORMAT = "format"
NEWEST_FORMAT = 4
"""The format that this version of headgate writes; `conversions` has the step to it."""
COMPACT_FILES = 100
ROWS_PER_FILE = 1_000_000

SPEC = TableSpec(
    "ledger",
    StructType(
        [
            StructField("sequence", LongType()),
            StructField("epoch", LongType()),
            StructField("at", TimestampType()),
            StructField("kind", StringType()),
            StructField("body", StringType()),
        ]
    ),
    key=("sequence",),
)


@dataclass(frozen=True)
class LedgerEntry:
    """A row of the ledger."""

    sequence: int
    epoch: int
    at: datetime
    kind: str
    body: Mapping[str, Any]


Prune = Callable[[Sequence[LedgerEntry]], Sequence[LedgerEntry]]


class Ledger:
    """The ledger of a warehouse that this process owns."""

    def __init__(
        self,
        store: DeltaStore,
        entries: list[LedgerEntry],
        lock: OwnerLock,
        clock: Callable[[], datetime],
        step: Step,
        mark: Mark | None,
    ) -> None:
        self._store = store
        self._mark = mark
        self._entries = entries
        self._owner_lock = lock
        self._clock = clock
        self._step = step
        self._lock = RLock()
        self._epoch = max((entry.epoch for entry in entries), default=0) + 1

    @classmethod
    def open(
        cls,
        root: str,
        owner: str,
        clock: Callable[[], datetime],
        *,
        takeover: bool = False,
        step: Step = no_step,
    ) -> Ledger:
        """Becomes the owner of the warehouse in `root`; `owner` says who that is (host and process id)."""
        home = Folder.at(root).child(HOME)
        home.create()
        lock = OwnerLock.take(home, owner, clock(), takeover=takeover)
        try:
            store, entries, mark = _open(home)
            ledger = cls(store, entries, lock, clock, step, mark)
            if ledger.format > NEWEST_FORMAT:
                raise DefiniteError(
                    f"the warehouse {root} has format {ledger.format}, this version of headgate knows formats up to"
                    f" {NEWEST_FORMAT}",
                    hint="open it with the version that wrote it, or a later one",
                )
            is_new = not ledger.entries()
            ledger.append([*([(FORMAT, {"number": NEWEST_FORMAT})] if is_new else ()), (OWNER, {"owner": owner})])
        except BaseException:
            lock.release()
            raise
        return ledger

    @property
    def identity(self) -> str:
        """The same for a warehouse as long as it exists, and for what is restored of it."""
        return self._store.identity

    @property
    def epoch(self) -> int:
        return self._epoch

    @property
    def format(self) -> int:
        """The format of the warehouse."""
        return max((int(entry.body["number"]) for entry in self.entries(FORMAT)), default=1)

    def entries(self, kind: str | None = None) -> list[LedgerEntry]:
        """All entries in order, or those of one kind."""
        with self._lock:
            return [entry for entry in self._entries if kind is None or entry.kind == kind]

    def append(self, entries: Sequence[tuple[str, Mapping[str, Any]]], prune: Prune = list) -> None:
        """Adds entries at once, or none of them: `Fenced` when this process is no longer the owner.

        `prune` chooses, when files become one, the entries that still count; they are numbered anew.
        """
        if not entries:
            return
        with self._lock:
            start = self._entries[-1].sequence + 1 if self._entries else 1
            at = self._clock()
            added = [
                LedgerEntry(start + number, self._epoch, at, kind, json.loads(json.dumps(body)))
                for number, (kind, body) in enumerate(entries)
            ]
            self._step("before-ledger")
            self._put(added)
            self._entries.extend(added)
            self._step("after-ledger")
            if len(self._store.index) >= COMPACT_FILES:
                self.rewrite(prune(self._entries))

    def rewrite(self, entries: Sequence[LedgerEntry]) -> None:
        """Makes these the only entries, in one commit; they are numbered anew."""
        with self._lock:
            self._step("before-ledger")
            kept = [replace(entry, sequence=number) for number, entry in enumerate(entries, start=1)]
            self._put(kept, self._store.index)
            self._entries = kept
            self._step("after-ledger")
            self._store.vacuum(verify=self.verify)

    def verify(self) -> None:
        """Raises `Fenced` when another process has taken over; cheap, and true for the moment of the call only."""
        with self._lock:
            if not self._store.is_current():
                raise _fenced()

    def close(self) -> None:
        """Gives the warehouse up."""
        if self._mark is not None:
            self._mark.flush()
            self._mark.close()
            self._mark = None
        self._owner_lock.release()

    def _put(self, entries: Sequence[LedgerEntry], replaced: FileIndex | None = None) -> None:
        attempt = self._store.begin()
        done = False
        try:
            writer = FileWriter(self._store.folder, attempt, SPEC, ROWS_PER_FILE)
            self._store.commit(writer.write(_table(entries)), replaced, {"epoch": self._epoch})
            done = True
            if self._mark is not None:
                self._mark.write(_reach(self._store))
        except ForeignCommit as error:
            raise _fenced() from error
        finally:
            self._store.end(attempt, discard=not done)


def _open(home: Folder) -> tuple[DeltaStore, list[LedgerEntry], Mark]:
    """The ledger, a new one only where there is no warehouse yet."""
    folder, file = home.child("ledger"), Path(home.file("ledger.mark"))
    try:
        written = read_mark(file)
    except DamagedMark as error:
        raise CorruptWarehouse(
            f"how far the ledger reached is not known: {error}",
            where=Location(str(file)),
            hint="if only this file was damaged, remove it: the warehouse opens with what the ledger holds",
        ) from None
    others = [name for name in home.folders() if name not in _SCRATCH]
    if not folder.files(LOG) and (others or written is not None):
        raise CorruptWarehouse(
            f"the warehouse in {home.address.removesuffix(f'/{HOME}')} has no ledger, which says what of it counts",
            where=Location(folder.address),
            hint=LEDGER_HINT,
        )
    try:
        store = DeltaStore.open(folder, SPEC)
        entries = _read(store)
    except CorruptWarehouse as error:
        raise CorruptWarehouse(error.what, where=error.where, hint=LEDGER_HINT) from error
    if written is not None and written.position > store.version:
        raise CorruptWarehouse(
            f"the ledger lost its newest entries: it ends at version {store.version}, {written.position} was written",
            where=Location(folder.address),
            hint=LEDGER_HINT,
        )
    return store, entries, Mark(file, _reach(store))


def _reach(store: DeltaStore) -> Reach:
    return Reach(0, 0, store.version)


def _fenced() -> Fenced:
    return Fenced(
        "another process has taken over this warehouse; nothing of this change was recorded",
        hint="close it here; open it again if this process shall own it",
    )


def _table(entries: Sequence[LedgerEntry]) -> pa.Table:
    return pa.Table.from_pylist(
        [
            {
                "sequence": entry.sequence,
                "epoch": entry.epoch,
                "at": entry.at,
                "kind": entry.kind,
                "body": json.dumps(entry.body, ensure_ascii=False),
            }
            for entry in entries
        ],
        schema=SPEC.arrow_schema,
    )


def _read(store: DeltaStore) -> list[LedgerEntry]:
    rows = FileReader(store.folder, SPEC).rows(store.index.paths).sort_by("sequence").to_pylist()
    entries = []
    for expected, row in enumerate(rows, start=1):
        if row["sequence"] != expected:
            raise _damage(store, f"entry {expected} is missing")
        try:
            body = json.loads(row["body"])
        except (TypeError, ValueError) as error:
            raise _damage(store, f"entry {expected} is not JSON") from error
        entries.append(LedgerEntry(row["sequence"], row["epoch"], row["at"], row["kind"], body))
    return entries


def _damage(store: DeltaStore, reason: str) -> CorruptWarehouse:
    return CorruptWarehouse(f"the ledger in {store.folder.address} is damaged: {reason}", hint=LEDGER_HINT)
