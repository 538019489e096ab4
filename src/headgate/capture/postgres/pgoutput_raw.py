"""Row messages kept as they came, for a table whose changes no longer fit what headgate knows of it.

They go into the stream log under a name of their own, with the columns as the source names them, and the old and the
new row as texts in that order. `__unchanged` names the columns that an update left out.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from headgate.capture.events import ROW_FIELDS
from headgate.capture.postgres.pgoutput import KIND
from headgate.capture.postgres.pgoutput_rows import OPS, TEXT, UNCHANGED, Content, RowBlock, RowImages, split_images

_TEXTS = pa.list_(pa.field("element", pa.string()))
RAW_SCHEMA = pa.schema(
    [pa.field("columns", _TEXTS), pa.field("old", _TEXTS), pa.field("new", _TEXTS), *ROW_FIELDS],
)


def raw_name(table: str) -> str:
    """The name of a table's raw changes in the stream log."""
    return f"{table}__raw"


def raw_rows(block: RowBlock) -> pa.RecordBatch:
    """The messages as rows of `RAW_SCHEMA`; sequences as `TableRows.decode` gives them."""
    names = [column.name for column in block.layout.columns]
    content = Content(block.messages)
    kinds = content.bytes[content.starts + KIND]
    new, old = split_images(content, kinds, len(names))
    unchanged = [[name for name, left in zip(names, row, strict=True) if left] for row in (new.kinds == UNCHANGED).T]
    arrays = [
        pa.array([names] * len(block.messages), _TEXTS),
        _lists(content, old),
        _lists(content, new),
        pa.array(OPS[kinds]),
        pa.array(unchanged, ROW_FIELDS[1].type),
        pa.array(2 * np.array(block.numbers, dtype=np.int64)),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=RAW_SCHEMA)


def _lists(content: Content, images: RowImages) -> pa.Array:
    """Each row's texts as a list; NULL where a message has no such row."""
    columns, rows = images.kinds.shape
    texts = content.texts((images.kinds == TEXT).T.ravel(), images.starts.T.ravel(), images.lengths.T.ravel())
    ends = pa.array(np.arange(rows + 1, dtype=np.int32) * columns)
    return pa.ListArray.from_arrays(ends, texts, type=_TEXTS, mask=pa.array(~images.kinds.any(axis=0)))
