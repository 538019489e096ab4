"""A slowly changing dimension's changes on whole Arrow columns: what `dataflow.rules.scd` says in SQL.

It serves what the driver holds, for keys that it can hash as Spark does and columns that are not nested: an execution of
Spark costs more than a few thousand rows do here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.dataflow.rules.replica import TRANSACTION_AT
from headgate.delta.changes import END_AT, JOB, POSITION, START_AT, SURROGATE_KEY, WEIGHT
from headgate.runtime.rows.chains import Mask, Numbers, numbers_of, steps_of
from headgate.runtime.rows.spark_hash import can_hash, xxhash64
from headgate.warehouse.codes import code, ranks

_SURROGATE_KEYS = np.uint64((1 << 63) - 1)


def can_chain(schema: pa.Schema, key: Sequence[str]) -> bool:
    nested = any(pa.types.is_nested(field.type) for field in schema)
    return not nested and all(can_hash(schema.field(name).type) for name in key)


@dataclass(frozen=True, slots=True)
class _Links:
    """The links of all keys, one key after the other: an open version, then the batch's transactions."""

    images: pa.Table
    row: Numbers
    """Each link's place in the images."""
    there: Mask
    """Whether the key has an image after the link."""
    known: Mask
    """Whether the link is an open version from before the batch."""
    same_key: Mask
    """Whether the link has the key of the one before."""
    job: Numbers

    def put(self, links: Numbers, jobs: Numbers, weight: int) -> pa.Table:
        rows = self.images.take(pa.array(self.row[links])).append_column(JOB, pa.array(jobs))
        return rows.append_column(WEIGHT, pa.array(np.full(len(links), weight, dtype=np.int64)))


def _links(rows: pa.Table, old: pa.Table | None, columns: Sequence[str], key: Sequence[str]) -> _Links:
    images, known = rows.select(list(columns)), 0
    if old is not None:
        known = old.num_rows
        images = pa.concat_tables([old.select(list(columns)).cast(images.schema), images])

    def with_known(name: str, of_known: int) -> Numbers:
        return np.concatenate([np.full(known, of_known, dtype=np.int64), numbers_of(rows.column(name))])

    place, _ = ranks(code(images, key))
    weight = with_known(WEIGHT, 1)
    position = with_known(POSITION, -1)
    steps = steps_of(place, position, weight)
    row = steps.row
    return _Links(images, row, weight[row] > 0, position[row] < 0, steps.before >= 0, with_known(JOB, 0)[row])


def type_1_changes(rows: pa.Table, old: pa.Table | None, columns: Sequence[str], key: Sequence[str]) -> pa.Table:
    """Changes of the dimension; `rows` are changes per transaction, `old` its rows of the touched keys."""
    links = _links(rows, old, columns, key)
    return _netted(_came_and_went(links))


def type_2_changes(
    rows: pa.Table, old: pa.Table | None, columns: Sequence[str], key: Sequence[str], tracked: Sequence[str]
) -> pa.Table:
    """The same with history; `old` may hold closed versions too."""
    if old is not None:
        old = old.filter(pc.is_null(old.column(END_AT)))
    links = _links(rows, old, columns, key)
    count = len(links.row)
    before_there = np.append(False, links.there[:-1]) & links.same_key
    content = ranks(code(links.images, tracked))[0][links.row] if tracked else np.zeros(count, dtype=np.int64)
    same = np.append(False, content[1:] == content[:-1]) & before_there
    begins = links.known | (links.there & ~same)
    version = np.maximum.accumulate(np.where(begins, np.arange(count), 0))
    links = _with_versions(links, rows, old, key, version)
    closes = np.append((begins | ~links.there)[1:], False)
    closed = np.flatnonzero(links.there & closes & np.append(links.same_key[1:], False))
    moment = _after_known(rows.column(TRANSACTION_AT), old).take(pa.array(links.row))
    parts = [part.append_column(END_AT, pa.nulls(part.num_rows, moment.type)) for part in _came_and_went(links)]
    parts.append(links.put(closed, links.job[closed + 1], 1).append_column(END_AT, moment.take(pa.array(closed + 1))))
    return _netted(parts)


def _with_versions(links: _Links, rows: pa.Table, old: pa.Table | None, key: Sequence[str], version: Numbers) -> _Links:
    """The images with surrogate key and beginning of the version that each belongs to; `version` is its first link."""
    made = xxhash64([*(rows.column(name) for name in key), rows.column(POSITION)]) & _SURROGATE_KEYS
    keys = _after_known(pa.chunked_array([pa.array(made.astype(np.int64))]), old, SURROGATE_KEY)
    starts = _after_known(rows.column(TRANSACTION_AT), old, START_AT)
    first = np.zeros(links.images.num_rows, dtype=np.int64)
    first[links.row] = links.row[version]
    images = links.images.append_column(SURROGATE_KEY, keys.take(pa.array(first)))
    images = images.append_column(START_AT, starts.take(pa.array(first)))
    return _Links(images, links.row, links.there, links.known, links.same_key, links.job)


def _after_known(values: pa.ChunkedArray, old: pa.Table | None, name: str | None = None) -> pa.ChunkedArray:
    """The values behind those of the old rows' column, or behind NULLs."""
    if old is None:
        return values
    known = (
        pa.chunked_array([pa.nulls(old.num_rows, values.type)]) if name is None else old.column(name).cast(values.type)
    )
    return pa.chunked_array([*known.chunks, *values.chunks], values.type)


def _came_and_went(links: _Links) -> list[pa.Table]:
    """Each image from its own job to that of the next link."""
    came = np.flatnonzero(links.there & ~links.known)
    went = np.flatnonzero(links.there & np.append(links.same_key[1:], False))
    return [links.put(came, links.job[came], 1), links.put(went, links.job[went + 1], -1)]


def _netted(parts: list[pa.Table]) -> pa.Table:
    rows = pa.concat_tables(parts)
    names = [name for name in rows.column_names if name != WEIGHT]
    place, count = ranks(code(rows, names))
    weights = np.zeros(count, dtype=np.int64)
    np.add.at(weights, place, numbers_of(rows.column(WEIGHT)))
    first = np.full(count, rows.num_rows)
    np.minimum.at(first, place, np.arange(rows.num_rows))
    kept = first[weights != 0]
    rows = rows.drop_columns([WEIGHT]).take(pa.array(kept))
    return rows.append_column(WEIGHT, pa.array(weights[weights != 0]))
