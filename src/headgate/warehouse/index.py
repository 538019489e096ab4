"""Which data files can hold given values of the leading sort column.

Files may overlap. A file is picked when one of the values lies within its range, when NULL is asked and it has NULLs,
or when its range is unknown. NaN lies in no range: asking for it picks every file.
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

from headgate.warehouse.statistics import ROWS_PER_GROUP, DataFile, Range, has_range

Values = npt.NDArray[Any]


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
            return cls(np.array([], dtype=np.int64), null, everything=True)
        values = ordering_values(pc.unique(column).drop_null())
        everything = values.dtype.kind == "f" and bool(np.isnan(values.astype(np.float64)).any())
        return cls(np.sort(values), null, everything)


def ordering_values(column: pa.ChunkedArray | pa.Array) -> Values:
    """The values of a column without NULLs, as `statistics` orders them."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    elif pa.types.is_date32(column.type):
        column = column.cast(pa.int32())
    if pa.types.is_integer(column.type):
        return np.asarray(column, dtype=np.int64)
    if pa.types.is_floating(column.type):
        return np.asarray(column, dtype=np.float64)
    return _objects(column.to_pylist())


class FileIndex:
    """The live files of one version of a table, indexed by the leading sort column."""

    def __init__(self, files: Sequence[DataFile], lead: str) -> None:
        self.files = tuple(files)
        self.lead = lead

    @cached_property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    @cached_property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)

    @cached_property
    def _ranged(self) -> tuple[npt.NDArray[np.int64], Values, Values]:
        """Positions, lower and upper bounds of the files with a known range."""
        places, lows, highs = [], [], []
        for place, file in enumerate(self.files):
            found = file.range(self.lead)
            if found.low is not None and found.high is not None:
                places.append(place)
                lows.append(found.low)
                highs.append(found.high)
        return np.array(places, dtype=np.int64), bounds_array(lows), bounds_array(highs)

    @cached_property
    def _open(self) -> npt.NDArray[np.int64]:
        """Positions of files whose values are not known (a file of NULLs only is known)."""
        return np.array(
            [
                place
                for place, file in enumerate(self.files)
                if (file.range(self.lead).low is None or file.range(self.lead).high is None)
                and (file.range(self.lead).nulls is None or file.range(self.lead).nulls != file.rows)
            ],
            dtype=np.int64,
        )

    @cached_property
    def _nulls(self) -> npt.NDArray[np.int64]:
        return np.array(
            [place for place, file in enumerate(self.files) if file.range(self.lead).nulls != 0], dtype=np.int64
        )

    def bytes_to_read(self, wanted: Wanted) -> int:
        """About how many bytes a lookup of the values reads: those of the row groups that may hold one."""
        return sum(_bytes_to_read(file, file.range(self.lead), wanted) for file in self.pick(wanted))

    def pick(self, wanted: Wanted) -> tuple[DataFile, ...]:
        """The files that may hold a wanted value, in their order."""
        if wanted.everything:
            return self.files
        chosen = np.zeros(len(self.files), dtype=bool)
        if len(wanted.values):
            chosen[self._open] = True
            places, lows, highs = self._ranged
            if len(places):
                at = np.searchsorted(wanted.values, lows, side="left")
                inside = at < len(wanted.values)
                nearest = wanted.values[np.minimum(at, len(wanted.values) - 1)]
                chosen[places] = inside & np.asarray(nearest <= highs, dtype=np.bool_)
        if wanted.null:
            chosen[self._nulls] = True
        return tuple(self.files[place] for place in np.flatnonzero(chosen))


def _bytes_to_read(file: DataFile, found: Range, wanted: Wanted) -> int:
    groups = -(-file.rows // ROWS_PER_GROUP)
    if wanted.everything or found.low is None or found.high is None or found.low == found.high:
        return file.bytes
    low, high = np.searchsorted(wanted.values, bounds_array([found.low, found.high]))
    values = int(high - low) + 1 + wanted.null
    return file.bytes * min(values, groups) // max(1, groups)


def bounds_array(bounds: Sequence[object]) -> Values:
    if all(isinstance(bound, int) for bound in bounds):
        return np.array(bounds, dtype=np.int64)
    if all(isinstance(bound, int | float) for bound in bounds):
        return np.array(bounds, dtype=np.float64)
    return _objects(bounds)


def _objects(values: Sequence[object]) -> Values:
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array
