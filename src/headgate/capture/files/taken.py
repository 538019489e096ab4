"""Which files were taken: in one small file beside the stream log, so that each is taken exactly once.

    1. the files of the next transactions and their positions are written here
    2. the transactions are appended to the stream log
    3. after a crash, those whose positions the log reached are taken, and the others are not

A file is known by its path, size and time of modification; one that was renamed also by its inode. What is gone is forgotten
after a while, not at once: a folder that is not mounted for a moment has no files.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from headgate.capture.durable import full_disk_is_named, read_checked, replace_checked
from headgate.capture.files.first_load import TableLoad
from headgate.capture.files.listing import FoundFile
from headgate.errors import HistoryLost, Location


@dataclass(frozen=True, slots=True)
class TakenFile:
    """A file whose rows are in the stream log, or are about to be, at a position."""

    file: FoundFile
    position: int
    gone_at: float | None = None
    """Since when it is not there any more, in seconds since 1970."""


@dataclass(slots=True)
class TakenTable:
    """What is remembered of a table."""

    schema: dict[str, Any]
    """Of Spark."""
    names: dict[str, str]
    """By the columns their names in the files, where the columns were read from them."""
    opened_at: float
    """When the table was first looked at, in seconds since 1970 ..."""
    loaded: bool = False
    """... and whether all files that were there then have been taken."""
    taken: dict[str, TakenFile] = field(default_factory=dict)
    """By path."""
    load: TableLoad | None = None
    """While the first files are loaded range by range, how far that is."""


class TakenFiles:
    """The state on the disk, and in memory; not safe to use from several threads at once."""

    def __init__(self, folder: Path, end: int, *, is_begun: bool) -> None:
        """`end` is how far the stream log reaches; what was only about to be taken beyond it was not."""
        self._path = folder / "cursor"
        self.tables: dict[str, TakenTable] = {}
        if self._path.exists():
            try:
                self._read(json.loads(read_checked(self._path)), end)
            except (ValueError, KeyError, TypeError) as error:
                raise _damaged(self._path, f"is damaged: {error}") from None
        elif is_begun:
            raise _damaged(self._path, "is missing")

    def save(self, pending: Mapping[str, Iterable[TakenFile]] | None = None) -> None:
        """Writes the state, with files that are about to be taken; durable on return."""
        tables = {}
        for name, table in self.tables.items():
            files = [*table.taken.values(), *((pending or {}).get(name, ()))]
            rows = [[*asdict(each.file).values(), each.position, each.gone_at] for each in files]
            tables[name] = {
                "schema": table.schema,
                "names": table.names,
                "opened_at": table.opened_at,
                "loaded": table.loaded,
                "taken": rows,
            } | ({} if table.load is None else {"load": table.load.body()})
        with full_disk_is_named(self._path):
            replace_checked(self._path, json.dumps({"tables": tables}, separators=(",", ":")).encode())

    def _read(self, content: dict[str, Any], end: int) -> None:
        for name, found in content["tables"].items():
            table = TakenTable(found["schema"], found["names"], found["opened_at"], found["loaded"])
            if (load := found.get("load")) is not None and load["position"] <= end:
                table.load = TableLoad.from_body(load, end)
            for path, size, modified, inode, position, gone_at in found["taken"]:
                # A file that changed is there twice; the later one counts if the log has it.
                if position <= end:
                    table.taken[path] = TakenFile(FoundFile(path, size, modified, inode), position, gone_at)
            self.tables[name] = table

    def forget(self, after: int, upto: int) -> None:
        """The transactions in (after, upto] are lost: their files are not taken any more."""
        for table in self.tables.values():
            table.taken = {
                path: each for path, each in table.taken.items() if not after < each.position <= max(upto, after + 1)
            }

    def note_gone(self, table: str, present: Iterable[str], now: float, remember: float) -> None:
        """Notes which files are gone, and forgets those that have been for long."""
        state, there = self.tables[table], set(present)
        for path, each in list(state.taken.items()):
            if path in there:
                if each.gone_at is not None:
                    state.taken[path] = replace(each, gone_at=None)
            elif each.gone_at is None:
                state.taken[path] = replace(each, gone_at=now)
            elif now - each.gone_at > remember:
                del state.taken[path]


def _damaged(path: Path, why: str) -> HistoryLost:
    return HistoryLost(
        f"the record of the files that were taken of this source {why}",
        where=Location(str(path)),
        hint="`headgate refresh --full` reads all files of tables with a key again; tables without one need a backup",
    )
