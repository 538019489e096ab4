"""The data files of a table's version as columns, and which of them can hold given values of the leading sort column.

    path   rows   bytes   low   high   nulls       one row per file; low, high and nulls are those of the leading column

An index is immutable. It is made from the add actions of the Delta log when the table is opened, and a commit makes the next one
by taking rows out and adding some: no file is an object. Files may overlap. A file is picked when one of the values lies
within its range, when NULL is asked and it has NULLs, or when its range is unknown. NaN lies in no range: asking for it
picks every file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headgate.warehouse.statistics import ROWS_PER_GROUP, DataFile, has_range, ordering_column, ordering_type

Values = npt.NDArray[Any]
Places = npt.NDArray[np.int64]
"""Positions of files in an index."""


@dataclass(frozen=True)
class Wanted:
    """Sorted distinct ordering values to look for."""

    values: Values
    null: bool
    everything: bool = False

    @classmethod
    def of(cls, column: pa.ChunkedArray | pa.Array) -> Wanted:
        """The values of an Arrow column; a type without ranges wants everything."""
        kind = column.type
        null = column.null_count > 0
        if not has_range(kind):
            return cls(np.array([], dtype=np.int64), null, everything=len(column) > 0)
        values = ordering_values(pc.unique(column).drop_null())
        everything = values.dtype.kind == "f" and bool(np.isnan(values.astype(np.float64)).any())
        return cls(np.sort(values), null, everything)


def ordering_values(column: pa.ChunkedArray | pa.Array) -> Values:
    """The values of a column without NULLs, as `statistics` orders them."""
    column = ordering_column(column, column.type)
    if pa.types.is_integer(column.type):
        return np.asarray(column, dtype=np.int64)
    if pa.types.is_floating(column.type):
        return np.asarray(column, dtype=np.float64)
    values = np.empty(len(column), dtype=object)
    values[:] = column.to_pylist()
    return values


class FileIndex:
    """Some of a table's files; `table` has a row for each."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table

    @classmethod
    def of(cls, files: Sequence[DataFile], lead: str, kind: pa.DataType) -> FileIndex:
        """Files that were written; `kind` is the type of the leading column."""
        ranges = [file.range(lead) for file in files]
        columns: dict[str, pa.Array] = {
            "path": pa.array([file.path for file in files], pa.string()),
            "rows": pa.array([file.rows for file in files], pa.int64()),
            "bytes": pa.array([file.bytes for file in files], pa.int64()),
            "low": pa.array([found.low for found in ranges], ordering_type(kind)),
            "high": pa.array([found.high for found in ranges], ordering_type(kind)),
            "nulls": pa.array([found.nulls for found in ranges], pa.int64()),
        }
        return cls(pa.table(columns))

    @classmethod
    def of_actions(cls, actions: pa.Table, lead: str, kind: pa.DataType) -> FileIndex:
        """The files that `DeltaTable.get_add_actions(flatten=True)` gives."""

        def column(name: str, wanted: pa.DataType) -> pa.ChunkedArray:
            if name not in actions.column_names:
                return pa.chunked_array([pa.nulls(actions.num_rows, wanted)])
            found = actions.column(name)
            return found if found.type == wanted else found.cast(wanted)

        def bounds(prefix: str) -> pa.ChunkedArray:
            if not has_range(kind) or f"{prefix}.{lead}" not in actions.column_names:
                return pa.chunked_array([pa.nulls(actions.num_rows, ordering_type(kind))])
            return ordering_column(actions.column(f"{prefix}.{lead}"), kind)

        columns = {
            "path": column("path", pa.string()),
            "rows": pc.fill_null(column("num_records", pa.int64()), 0),
            "bytes": column("size_bytes", pa.int64()),
            "low": bounds("min"),
            "high": bounds("max"),
            "nulls": column(f"null_count.{lead}", pa.int64()),
        }
        return cls(pa.table(columns))

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def take(self, places: Places) -> FileIndex:
        return FileIndex(self.table.take(pa.array(places, pa.int64())))

    def updated(self, adds: FileIndex, removes: FileIndex) -> FileIndex:
        """Without some files, with others."""
        gone = pc.is_in(self.table.column("path"), value_set=removes.table.column("path"))
        return FileIndex(pa.concat_tables([self.table.filter(pc.invert(gone)), adds.table]).combine_chunks())

    @cached_property
    def paths(self) -> list[str]:
        found: list[str] = self.table.column("path").to_pylist()
        return found

    @cached_property
    def rows_of(self) -> npt.NDArray[np.int64]:
        """Rows per file."""
        return np.asarray(self.table.column("rows"), dtype=np.int64)

    @cached_property
    def bytes_of(self) -> npt.NDArray[np.int64]:
        """Bytes per file."""
        return np.asarray(self.table.column("bytes"), dtype=np.int64)

    @property
    def rows(self) -> int:
        return int(self.rows_of.sum())

    @property
    def bytes(self) -> int:
        return int(self.bytes_of.sum())

    @cached_property
    def _is_ranged(self) -> npt.NDArray[np.bool_]:
        known = pc.and_(self.table.column("low").is_valid(), self.table.column("high").is_valid())
        return np.asarray(known, dtype=np.bool_)

    @cached_property
    def ranged(self) -> Places:
        """Files whose range is known."""
        return np.flatnonzero(self._is_ranged)

    @cached_property
    def lows(self) -> Values:
        """The lower bounds of `ranged`."""
        return ordering_values(self.table.column("low").filter(pa.array(self._is_ranged)))

    @cached_property
    def highs(self) -> Values:
        """The upper bounds of `ranged`."""
        return ordering_values(self.table.column("high").filter(pa.array(self._is_ranged)))

    @cached_property
    def _nulls(self) -> npt.NDArray[np.int64]:
        """NULLs per file, -1 where that is not known."""
        return np.asarray(self.table.column("nulls").fill_null(-1), dtype=np.int64)

    @property
    def may_hold_nulls(self) -> npt.NDArray[np.bool_]:
        return np.asarray(self._nulls != 0, dtype=np.bool_)

    @property
    def is_unknown(self) -> npt.NDArray[np.bool_]:
        """Whether a file may have any values (one of NULLs only is known)."""
        return np.asarray(~self._is_ranged & (self._nulls != self.rows_of), dtype=np.bool_)

    def has_outside(self, low: int, high: int) -> bool:
        """Whether a file has no value between the two."""
        return bool(((self.highs < low) | (self.lows > high)).any())

    def bytes_to_read(self, wanted: Wanted) -> int:
        """About how many bytes a lookup of the values reads: those of the row groups that may hold one."""
        found = self.pick(wanted)
        if wanted.everything or not len(found):
            return found.bytes
        groups = -(-found.rows_of // ROWS_PER_GROUP)
        asked = groups.copy()
        values = np.searchsorted(wanted.values, found.highs) - np.searchsorted(wanted.values, found.lows) + 1
        is_one = np.asarray(found.lows == found.highs, dtype=np.bool_)
        places = found.ranged
        asked[places] = np.where(is_one, groups[places], np.minimum(values + wanted.null, groups[places]))
        return int((found.bytes_of * asked // np.maximum(1, groups)).sum())

    def pick(self, wanted: Wanted) -> FileIndex:
        """The files that may hold a wanted value, in their order."""
        return self if wanted.everything else self.take(self.places(wanted))

    def places(self, wanted: Wanted) -> Places:
        """Where the files are that may hold a wanted value."""
        if wanted.everything:
            return np.arange(len(self))
        chosen = np.zeros(len(self), dtype=bool)
        if len(wanted.values):
            chosen |= self.is_unknown
            if len(self.ranged):
                at = np.searchsorted(wanted.values, self.lows, side="left")
                inside = at < len(wanted.values)
                nearest = wanted.values[np.minimum(at, len(wanted.values) - 1)]
                chosen[self.ranged] = inside & np.asarray(nearest <= self.highs, dtype=np.bool_)
        if wanted.null:
            chosen |= self.may_hold_nulls
        return np.flatnonzero(chosen)
