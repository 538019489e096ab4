"""Row messages of pgoutput as Arrow columns: many rows of one relation at a time, without work per row.

    messages ──► one block of bytes ──► where each value lies ──► Arrow strings ──► decoders of `values`
                                        (numpy, a column at a time)

An update whose key changed becomes a delete of the old key and an upsert of the new. A value that is stored out of line
and that an update left alone is not in the log; it is taken from the old row when the log has that (REPLICA IDENTITY
FULL), else it is left to the replica, which finds the row by its key. So such an update may not change the key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema

from headgate.capture.events import ROW_FIELDS, row_schema
from headgate.capture.postgres.catalog import PostgresTable
from headgate.capture.postgres.pgoutput import BODY, DELETE, INSERT, KIND, TRUNCATE, UPDATE, RelationLayout
from headgate.capture.postgres.problems import SourceSetup
from headgate.capture.postgres.values import Decoder, decoder
from headgate.delta import events

Numbers = npt.NDArray[np.int64]
Truths = npt.NDArray[np.bool_]

_TUPLE = BODY + 4
_OLD_KEY, _OLD_ROW = ord("K"), ord("O")
UNCHANGED, TEXT = ord("u"), ord("t")
_PADDING = bytes(16)
OPS = np.full(256, events.UPSERT, dtype=np.int8)
OPS[DELETE], OPS[TRUNCATE] = events.DELETE, events.TRUNCATE

# Arrow's string views: a length, then twelve bytes, which are the text or its first four, a buffer and an offset.
_VIEW = np.dtype([("length", "<i4"), ("prefix", "<u4"), ("rest", "<u8")])
_INLINE = 12
_PREFIX_MASK = np.array([(1 << 8 * min(length, 4)) - 1 for length in range(_INLINE + 1)], dtype=np.uint32)
_REST_MASK = np.array([(1 << 8 * max(length - 4, 0)) - 1 for length in range(_INLINE + 1)], dtype=np.uint64)


class KeyChangedWithoutValue(SourceSetup):
    """An update changed a row's key and left out a value that only the row under its old key has."""


@dataclass(slots=True, eq=False)
class RowBlock:
    """Row messages of one relation and one layout, in order, each with its number in the stream."""

    layout: RelationLayout
    messages: list[memoryview] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)

    def part(self, first: int, last: int) -> RowBlock:
        return RowBlock(self.layout, self.messages[first:last], self.numbers[first:last])


@dataclass(frozen=True, slots=True, eq=False)
class RowImages:
    """Rows by column: for each value its kind (t for a text, n, u, or 0 where the row has none) and where it lies."""

    kinds: npt.NDArray[np.uint8]
    starts: Numbers
    lengths: Numbers

    @staticmethod
    def empty(columns: int, rows: int) -> RowImages:
        shape = (columns, rows)
        return RowImages(
            np.zeros(shape, dtype=np.uint8), np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
        )

    def take(self, rows: Numbers | Truths) -> RowImages:
        return RowImages(self.kinds[:, rows], self.starts[:, rows], self.lengths[:, rows])

    def put(self, rows: Numbers, other: RowImages) -> None:
        self.kinds[:, rows], self.starts[:, rows], self.lengths[:, rows] = other.kinds, other.starts, other.lengths

    def followed_by(self, other: RowImages) -> RowImages:
        return RowImages(
            np.concatenate([self.kinds, other.kinds], axis=1),
            np.concatenate([self.starts, other.starts], axis=1),
            np.concatenate([self.lengths, other.lengths], axis=1),
        )


class Content:
    """Messages in one block of bytes, with the places where they begin."""

    def __init__(self, messages: Sequence[memoryview]) -> None:
        self._block = b"".join([*messages, _PADDING])
        sizes = np.fromiter(map(len, messages), dtype=np.int64, count=len(messages))
        self.starts: Numbers = np.cumsum(sizes) - sizes
        self.bytes = np.frombuffer(self._block, dtype=np.uint8)
        # The same bytes as numbers that begin at any of them.
        self._lengths = self._overlapping(">u4")
        self._words = self._overlapping("<u4")
        self._longs = self._overlapping("<u8")

    def walk(self, places: Numbers, columns: int) -> tuple[RowImages, Numbers]:
        """The tuples that begin at these places, and where they end."""
        found = RowImages.empty(columns, len(places))
        place = places + 2
        for column in range(columns):
            kind = self.bytes[place]
            text = kind == TEXT
            length = np.where(text, self._lengths[place + 1], 0)
            found.kinds[column], found.starts[column], found.lengths[column] = kind, place + 5, length
            place = place + np.where(text, 5 + length, 1)
        return found, place

    def texts(self, present: Truths, starts: Numbers, lengths: Numbers) -> pa.Array:
        """The texts that lie there as Arrow strings, NULL where none is present."""
        starts, lengths = np.where(present, starts, 0), np.where(present, lengths, 0)
        views = np.empty(len(starts), dtype=_VIEW)
        short = np.minimum(lengths, _INLINE)
        views["length"] = lengths
        views["prefix"] = self._words[starts] & _PREFIX_MASK[short]
        views["rest"] = np.where(
            lengths <= _INLINE, self._longs[starts + 4] & _REST_MASK[short], starts.astype(np.uint64) << np.uint64(32)
        )
        valid = None if present.all() else pa.array(present).buffers()[1]
        buffers = [valid, pa.py_buffer(views), pa.py_buffer(self._block)]
        return pa.Array.from_buffers(pa.string_view(), len(starts), buffers).cast(pa.string())

    def _overlapping(self, kind: str) -> npt.NDArray[np.unsignedinteger]:
        size = np.dtype(kind).itemsize
        return np.ndarray((len(self._block) - size + 1,), dtype=kind, buffer=self._block, strides=(1,))


class RowDecoder:
    """Makes event rows of one table from row messages of one layout."""

    def __init__(self, table: PostgresTable, layout: RelationLayout) -> None:
        self.table = table
        self.layout = layout
        names = [column.name for column in layout.columns]
        self._names = np.array(names, dtype=object)
        self._identity = np.array([column.identity for column in layout.columns], dtype=bool)
        self._key = np.isin(names, table.key)
        self._decoders: list[tuple[int, Decoder]] = [
            (names.index(column.name), decoder(column, table.source_table.name)) for column in table.columns
        ]
        self.schema = row_schema(to_arrow_schema(table.source_table.schema, timezone="UTC"))

    def decode(self, block: RowBlock) -> pa.RecordBatch:
        """The events of the messages; `__sequence` is twice a message's number, or one less for the old key's delete."""
        content = Content(block.messages)
        kinds = content.bytes[content.starts + KIND]
        images, old = split_images(content, kinds, len(self._names))
        updated = np.flatnonzero((kinds == UPDATE) & old.kinds.any(axis=0))
        moved = updated[:0]
        if len(updated):
            self._complete(content, images, old, updated)
            moved = updated[self._moved(content, images.take(updated), old.take(updated))]
        self._require_values(images, moved)
        removed = np.flatnonzero(kinds == DELETE)
        images.put(removed, old.take(removed))
        ops = OPS[kinds]
        sequences = 2 * np.array(block.numbers, dtype=np.int64)
        if len(moved):
            order = np.argsort(np.concatenate([sequences, sequences[moved] - 1]))
            sequences = np.concatenate([sequences, sequences[moved] - 1])[order]
            ops = np.concatenate([ops, np.full(len(moved), events.DELETE, dtype=np.int8)])[order]
            images = images.followed_by(old.take(moved)).take(order)
        # A delete has the key only, whatever else the old row tells.
        present = (images.kinds == TEXT) & (self._key[:, None] | (ops != events.DELETE))
        arrays = [
            decode(content.texts(present[place], images.starts[place], images.lengths[place]))
            for place, decode in self._decoders
        ]
        arrays += [pa.array(ops), self._unchanged(images.kinds == UNCHANGED), pa.array(sequences)]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _complete(self, content: Content, images: RowImages, old: RowImages, updated: Numbers) -> None:
        """Takes values that an update left out from the old row, as far as the log has it."""
        whole = content.bytes[content.starts[updated] + _TUPLE] == _OLD_ROW
        told = whole[None, :] | self._identity[:, None]
        columns, places = np.nonzero((images.kinds[:, updated] == UNCHANGED) & told)
        rows = updated[places]
        for into, out_of in ((images.kinds, old.kinds), (images.starts, old.starts), (images.lengths, old.lengths)):
            into[columns, rows] = out_of[columns, rows]

    def _moved(self, content: Content, new: RowImages, old: RowImages) -> Truths:
        """Which updates changed the key."""
        moved = np.zeros(new.kinds.shape[1], dtype=bool)
        for place in np.flatnonzero(self._key):
            there = np.ones(len(moved), dtype=bool)
            before, after = (content.texts(there, each.starts[place], each.lengths[place]) for each in (old, new))
            moved |= pc.not_equal(before, after).to_numpy(zero_copy_only=False)
        return moved

    def _require_values(self, images: RowImages, moved: Numbers) -> None:
        left_out = images.kinds == UNCHANGED
        lacking = left_out[:, moved].any(axis=1) | (left_out.any(axis=1) & self._key)
        if lacking.any():
            raise KeyChangedWithoutValue(
                f"the key of a row of {self.table.qualified} changed, and its log does not have the row's value of"
                f" {', '.join(self._names[lacking])}, which is stored out of line",
                hint=f"ALTER TABLE {self.table.qualified} REPLICA IDENTITY FULL",
            )

    def _unchanged(self, unchanged: Truths) -> pa.Array:
        ends = np.concatenate([[0], np.cumsum(unchanged.sum(axis=0))]).astype(np.int32)
        names = self._names[np.nonzero(unchanged.T)[1]]
        return pa.ListArray.from_arrays(pa.array(ends), pa.array(names, pa.string()), type=ROW_FIELDS[1].type)


def split_images(content: Content, kinds: npt.NDArray[np.uint8], columns: int) -> tuple[RowImages, RowImages]:
    """The new and the old rows of messages, without those that a message does not have."""
    images, old = RowImages.empty(columns, len(kinds)), RowImages.empty(columns, len(kinds))
    tags = content.bytes[content.starts + _TUPLE]
    with_old = np.flatnonzero(((kinds == UPDATE) | (kinds == DELETE)) & ((tags == _OLD_KEY) | (tags == _OLD_ROW)))
    places = content.starts + _TUPLE + 1
    if len(with_old):
        found, ends = content.walk(places[with_old], columns)
        old.put(with_old, found)
        places[with_old] = ends + 1
    with_new = np.flatnonzero((kinds == INSERT) | (kinds == UPDATE))
    found, _ = content.walk(places[with_new], columns)
    images.put(with_new, found)
    return images, old
