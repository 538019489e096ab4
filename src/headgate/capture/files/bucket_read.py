"""Reads a key range out of buckets: of each key the row that came last."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds

from headgate.capture.files.buckets import NUMBERS
from headgate.ranges.key_expression import key_expression
from headgate.ranges.key_set import KeySet
from headgate.ranges.range_map import RangeMap

_ROW = "__row"


@dataclass(frozen=True, slots=True)
class BucketRead:
    """Runs on executors. Only keys are held of all rows of the range; the rows themselves come batch by batch."""

    folder: str
    files: tuple[str, ...]
    """In the order in which rows replace each other: those of a later file count."""
    ranges: RangeMap
    """What each bucket holds."""
    column: str
    key: tuple[str, ...]

    def __call__(self, keys: KeySet) -> Generator[pa.RecordBatch, None, None]:
        last = self._last_of_each_key(keys)
        first = 0
        for rows in self._rows(keys, None):
            wanted = rows if last is None else rows.filter(pa.array(last[first : first + rows.num_rows]))
            first += rows.num_rows
            yield from wanted.to_batches()

    def _last_of_each_key(self, keys: KeySet) -> np.ndarray | None:
        """Of the rows in their order, which are the last of their key; None: all."""
        found = list(self._rows(keys, self.key))
        if not found:
            return None
        rows = pa.concat_tables(found)
        numbers = pa.array(np.arange(rows.num_rows))
        grouped = rows.append_column(_ROW, numbers).group_by(list(self.key), use_threads=False)
        last = grouped.aggregate([(_ROW, "max")]).column(f"{_ROW}_max").to_numpy()
        if len(last) == rows.num_rows:
            return None
        mask = np.zeros(rows.num_rows, dtype=bool)
        mask[last] = True
        return mask

    def _rows(self, keys: KeySet, columns: Sequence[str] | None) -> Iterator[pa.Table]:
        """The rows with these keys, in their order."""
        buckets = {
            number: None if _covers(keys, self.ranges.keys_of([number])) else key_expression(self.column, keys)
            for number in self.ranges.holding(keys)
        }
        for name in self.files:
            yield from _batches(Path(self.folder) / name, buckets, columns)


def _covers(keys: KeySet, others: KeySet) -> bool:
    return keys.intersection(others) == others


def _batches(path: Path, buckets: dict[int, ds.Expression | None], columns: Sequence[str] | None) -> Iterator[pa.Table]:
    with pa.memory_map(str(path)) as file:
        schema = pa.ipc.open_file(file).schema
        numbers = json.loads(schema.metadata[NUMBERS])
        fields = None if columns is None else [schema.get_field_index(name) for name in columns]
        reader = pa.ipc.open_file(file, options=pa.ipc.IpcReadOptions(included_fields=fields))
        for place, number in enumerate(numbers):
            if number in buckets:
                rows = pa.Table.from_batches([reader.get_batch(place)])
                restriction = buckets[number]
                yield rows if restriction is None else rows.filter(restriction)


def read_batches(path: Path) -> Iterator[pa.RecordBatch]:
    """All rows of a file of buckets."""
    with pa.memory_map(str(path)) as file:
        reader = pa.ipc.open_file(file)
        for number in range(reader.num_record_batches):
            yield reader.get_batch(number)
