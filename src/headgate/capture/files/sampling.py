"""Where to cut a table whose rows are still in files: by values of its range column at some places of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice

import pyarrow as pa

from headgate.capture.files.layout import Unreadable, parquet_file, plain_names
from headgate.capture.files.listing import FoundFile
from headgate.capture.files.rows import read_rows
from headgate.capture.files.tables import FilesTable
from headgate.ranges.key_set import Value
from headgate.ranges.range_map import even_bounds

_PLACES = 24
_PLACE_BYTES = 128 << 10
_PLACE_ROWS = 5_000


def sampled_bounds(table: FilesTable, files: Sequence[FoundFile], column: str, count: int) -> tuple[Value, ...] | None:
    """Bounds of at most so many ranges with about equally many rows; None where the files cannot be read.

    Of files whose rows can only be read from the beginning on, their beginnings stand for all.
    """
    values: list[Value] = []
    try:
        for found in _samples(table, files, column):
            values += [each for each in found.to_pylist() if each is not None]
    except (Unreadable, OSError):
        return None
    return even_bounds(sorted(values), count) if values else ()


def _samples(table: FilesTable, files: Sequence[FoundFile], column: str) -> Iterator[pa.Array]:
    whole = sum(each.size for each in files)
    for file in files:
        places = max(1, _PLACES * file.size // max(whole, 1)) if len(files) <= _PLACES else 1
        if file.size == 0:
            continue
        if table.layout.format == "parquet":
            yield from _of_parquet(table, file, column, places)
            continue
        shape = table.shape_of(file.path)
        if column not in shape.names:
            continue
        place, shape = shape.schema.get_field_index(column), replace(shape, required=())
        if not table.layout.can_be_cut(file.path):
            for rows in islice(read_rows(table.layout, shape, file.path, 0, None), 1):
                yield rows.columns[place][: _PLACE_ROWS * places]
            continue
        step = max(file.size // places, 1)
        for first in range(0, file.size, step):
            end = min(first + _PLACE_BYTES, file.size)
            for rows in read_rows(table.layout, shape, file.path, first, end):
                if rows.columns:
                    yield rows.columns[place]


def _of_parquet(table: FilesTable, file: FoundFile, column: str, places: int) -> Iterator[pa.Array]:
    opened = parquet_file(file.path)
    named = plain_names(list(opened.schema_arrow.names)).get(column)
    if named is None:
        return
    wanted = table.shape_of(file.path).schema.field(column).type
    groups = opened.metadata.num_row_groups
    for number in range(0, groups, max(groups // places, 1)):
        rows = opened.read_row_group(number, columns=[named]).column(0)
        step = max(len(rows) // _PLACE_ROWS, 1)
        try:
            yield rows.take(pa.array(range(0, len(rows), step))).cast(wanted).combine_chunks()
        except pa.ArrowException as error:
            raise Unreadable(str(error)) from None
