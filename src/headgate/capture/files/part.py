"""A part of a file as events of the stream log: read in this process, or by a Spark task that writes them into files.

    part ──► rows ──► events ──► Arrow (few)  |  a Parquet file of the log, on the disk (many)  |  buckets (of a first load)
                 └──► broken rows, as events of the table `bad_rows`

The file is looked at before and after: one that changed meanwhile, or is gone, was not read.
"""

from __future__ import annotations

import errno
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from headgate.capture.columns import ColumnDoesNotFit
from headgate.capture.events import ROW_FIELDS
from headgate.capture.events_file import EventsFile, EventsFileWriter
from headgate.capture.files.buckets import Buckets, BucketWriter
from headgate.capture.files.layout import FileLayout, Unreadable
from headgate.capture.files.rows import BadRow, FileShape, read_rows
from headgate.delta.events import UPSERT

BAD_ROWS = pa.schema(
    [
        pa.field("table", pa.string()),
        pa.field("file", pa.string()),
        pa.field("first_byte", pa.int64()),
        pa.field("row", pa.int64()),
        pa.field("column", pa.string()),
        pa.field("reason", pa.string()),
        pa.field("text", pa.string()),
    ]
)
"""The columns of the table of broken rows; a row is counted from the first byte of its part of the file on."""
_LONGEST_TEXT = 10_000
_FULL = (errno.ENOSPC, errno.EDQUOT)
"""What the system says when there is no room to write."""


@dataclass(frozen=True, slots=True)
class FilePart:
    """What one task reads, and what it makes of it."""

    table: str
    path: str
    size: int
    modified: int
    first: int
    end: int | None
    sequence: int
    """Of its first row."""
    layout: FileLayout
    shape: FileShape
    op: int
    quarantine: bool
    """Else the first broken row ends the reading."""
    position: int
    commit_at: int
    """The commit time on its rows, in microseconds since 1970."""
    buckets: Buckets | None = None
    """Rows become no events, but are distributed to these."""
    copied_to: str | None = None
    """Where the file's bytes are, if they were copied: it was looked at then."""

    @property
    def place(self) -> str:
        return self.path if self.copied_to is None else self.copied_to


@dataclass(frozen=True, slots=True)
class PartOutcome:
    """What became of a part."""

    rows: int = 0
    bad: int = 0
    events: pa.Table | None = None
    bad_events: pa.Table | None = None
    files: tuple[tuple[str, EventsFile], ...] = ()
    """By table."""
    problem: str | None = None
    """Why the file cannot be taken."""
    changed: bool = False
    """The file is not as it was, or gone."""


def read_part(part: FilePart, folder: str | None) -> PartOutcome:
    """Reads a part; with a folder, its events become files there."""
    made: list[_TableEvents | BucketWriter] = []
    good: _TableEvents | BucketWriter
    bad: _TableEvents | BucketWriter
    try:
        if _is_changed(part):
            return PartOutcome(changed=True)
        if part.buckets is None:
            good, bad = _TableEvents(part, part.table, folder), _TableEvents(part, "bad_rows", folder)
        else:
            assert folder is not None
            good, bad = BucketWriter(part.table, folder, part.buckets), BucketWriter("bad_rows", folder, None)
        made += [good, bad]
        for rows in read_rows(part.layout, part.shape, part.place, part.first, part.end):
            if rows.bad and not part.quarantine:
                return _ended(made, part, _told(min(rows.bad), part))
            if rows.columns and len(rows.numbers):
                good.add(rows.columns, part.shape.schema, part.sequence + rows.numbers, part.op)
            if rows.bad:
                broken = sorted(rows.bad)
                numbers = np.array([part.sequence + each.number for each in broken], dtype=np.int64)
                bad.add(_bad_columns(part, broken), BAD_ROWS, numbers, UPSERT)
        if _is_changed(part):
            return _ended(made, part, None)
        files = tuple((each.table, file) for each in made for file in each.finish())
        return PartOutcome(good.rows, bad.rows, good.held(), bad.held(), files)
    except (Unreadable, ColumnDoesNotFit) as error:
        return _ended(made, part, str(error))
    except FileNotFoundError:
        return _ended(made, part, None)
    except OSError as error:
        if error.errno in _FULL:
            # Nothing is wrong with the file: it is read again when there is room.
            for each in made:
                each.drop()
            raise
        return _ended(made, part, error.strerror or str(error))
    except BaseException:
        for each in made:
            each.drop()
        raise


def _ended(made: Sequence[_TableEvents | BucketWriter], part: FilePart, problem: str | None) -> PartOutcome:
    """Nothing was taken: the file changed, or else there is a problem with it."""
    for each in made:
        each.drop()
    return PartOutcome(changed=True) if _is_changed(part) else PartOutcome(problem=problem, changed=problem is None)


def _is_changed(part: FilePart) -> bool:
    if part.copied_to is not None:
        return False
    try:
        found = Path(part.path).stat()
    except OSError:
        return True
    return (found.st_size, found.st_mtime_ns) != (part.size, part.modified)


def _told(bad: BadRow, part: FilePart) -> str:
    where = f"row {bad.number}" + (f" from byte {part.first:,} on" if part.first else "")
    return f"{where}: {'' if bad.column is None else f'{bad.column}: '}{bad.reason}"


def _bad_columns(part: FilePart, bad: Sequence[BadRow]) -> list[pa.Array]:
    count = len(bad)
    return [
        pa.array([part.table] * count, pa.string()),
        pa.array([part.path] * count, pa.string()),
        pa.array([part.first if part.layout.format != "parquet" else 0] * count, pa.int64()),
        pa.array([each.number for each in bad], pa.int64()),
        pa.array([each.column for each in bad], pa.string()),
        pa.array([each.reason for each in bad], pa.string()),
        pa.array([each.text[:_LONGEST_TEXT] for each in bad], pa.string()),
    ]


class _TableEvents:
    """Events of one table in the making: in memory, or in a file."""

    def __init__(self, part: FilePart, table: str, folder: str | None) -> None:
        self.table = table
        self.rows = 0
        path = f"{folder}/{part.position:020d}-{secrets.token_hex(8)}.parquet"
        self._file = None if folder is None else EventsFileWriter(path, part.position, part.commit_at)
        self._parts: list[pa.Table] = []

    def add(self, columns: list[pa.Array], schema: pa.Schema, sequences: np.ndarray, op: int) -> None:
        """Rows, as events of a kind with these numbers."""
        count = len(sequences)
        none = pa.ListArray.from_arrays(
            pa.array(np.zeros(count + 1, dtype=np.int32)), pa.array([], pa.string()), type=ROW_FIELDS[1].type
        )
        arrays = [*columns, pa.array(np.full(count, op, dtype=np.int8)), none, pa.array(sequences)]
        fields = [*(field.with_nullable(True) for field in schema), *ROW_FIELDS]
        rows = pa.Table.from_arrays(arrays, schema=pa.schema(fields))
        self.rows += count
        if self._file is None:
            self._parts.append(rows)
        else:
            self._file.add(rows)

    def held(self) -> pa.Table | None:
        """The events, where no file has them."""
        return pa.concat_tables(self._parts) if self._parts else None

    def finish(self) -> list[EventsFile]:
        """The file, on the disk, if there are rows."""
        found = None if self._file is None else self._file.finish()
        return [] if found is None else [found]

    def drop(self) -> None:
        self._parts.clear()
        if self._file is not None:
            self._file.drop()
