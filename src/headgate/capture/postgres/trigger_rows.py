"""Audit rows as events: whole rows in PostgreSQL's own text, taken apart by Arrow, a relation at a time.

A row's text is nearly CSV: in (1,"a, b",,"") the third column is NULL and the fourth is empty; quotes are doubled inside of
quotes, and unlike in CSV backslashes are too. Columns stand in the order that they have in the relation that was written
to, which for a partition may differ from its table's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headgate.capture.postgres.copied import parse_rows
from headgate.capture.postgres.pgoutput_raw import RAW_SCHEMA
from headgate.capture.postgres.rows import EventRows, Numbers
from headgate.delta.events import DELETE, TRUNCATE, UPSERT

_OPS = {"I": UPSERT, "U": UPSERT, "D": DELETE, "T": TRUNCATE}
_QUOTED = re.compile(r'"(?:[^"]|"")*"', re.DOTALL)

Columns = Sequence[str]
"""Names of a relation's columns, in its order."""


class UnknownColumns(ValueError):
    """A row does not have the number of columns that its relation has."""


@dataclass(frozen=True, slots=True, eq=False)
class TriggerChanges:
    """Events of one table, in order, each with the number of the note that it comes from."""

    rows: pa.RecordBatch
    notes: Numbers
    """Places in the audit rows; never decreasing."""


def row_texts(images: pa.Array, columns: Columns, fewest: int) -> dict[str, pa.Array]:
    """The columns of whole rows, as strings; rows may lack the last columns, down to the fewest: these are NULL."""
    texts: list[str] = images.to_pylist()
    if not texts:
        return {name: pa.array([], pa.string()) for name in columns}
    try:
        return _parsed(texts, columns)
    except pa.ArrowInvalid:
        return _parsed_by_count(texts, columns, fewest)


def decode_changes(notes: pa.Table, columns: Columns, fewest: int, table: EventRows) -> TriggerChanges:
    """The events of audit rows of one relation; `notes` has their places as `place`."""
    ops, places, ids = _ops(notes), _numbers(notes, "place"), _numbers(notes, "id")
    upserts = np.flatnonzero((ops == "I") | (ops == "U"))
    updates, deletes = np.flatnonzero(ops == "U"), np.flatnonzero(ops == "D")
    truncations = np.flatnonzero(ops == "T")
    key = table.table.key
    with_old = np.concatenate([updates, deletes])
    new = row_texts(_image(notes, "new", upserts), columns, fewest)
    old = row_texts(_image(notes, "old", with_old), columns, fewest)
    moved = _moved(key, new, old, np.searchsorted(upserts, updates))
    gone = np.concatenate([np.flatnonzero(moved), np.arange(len(updates), len(with_old))])
    removed = with_old[gone]
    order_by = np.concatenate([2 * places[upserts] + 1, 2 * places[removed], 2 * places[truncations]])
    order = np.argsort(order_by, kind="stable")
    taken = pa.array(order)
    blank = pa.nulls(len(truncations), pa.string())
    absent = pa.nulls(len(removed), pa.string())
    texts = {
        name: pa.concat_arrays([new[name], old[name].take(pa.array(gone)) if name in key else absent, blank]).take(
            taken
        )
        for name in (column.name for column in table.table.columns)
        if name in new
    }
    kinds = np.repeat(np.array([UPSERT, DELETE, TRUNCATE], np.int8), [len(upserts), len(removed), len(truncations)])
    # The old key's delete comes right before the new key's row.
    sequences = np.concatenate([2 * ids[upserts], 2 * ids[removed] - 1, 2 * ids[truncations]])
    return TriggerChanges(table.build(texts, kinds[order], sequences[order]), order_by[order] // 2)


def raw_changes(notes: pa.Table, columns: Columns) -> TriggerChanges:
    """The same audit rows as texts, for a table that cannot be decoded."""
    ops = _ops(notes)
    arrays = [
        pa.array([list(columns)] * len(ops), RAW_SCHEMA.field("columns").type),
        pa.array([_fields(text) for text in notes.column("old").to_pylist()], RAW_SCHEMA.field("old").type),
        pa.array([_fields(text) for text in notes.column("new").to_pylist()], RAW_SCHEMA.field("new").type),
        pa.array([_OPS[op] for op in ops], pa.int8()),
        pa.array([[]] * len(ops), RAW_SCHEMA.field("__unchanged").type),
        pa.array(2 * _numbers(notes, "id")),
    ]
    return TriggerChanges(pa.RecordBatch.from_arrays(arrays, schema=RAW_SCHEMA), _numbers(notes, "place"))


def _parsed(texts: Sequence[str], columns: Columns) -> dict[str, pa.Array]:
    content = "\n".join([text[1:-1] for text in texts]).encode()
    parsed = parse_rows(content + b"\n", columns)
    return {name: _unescaped(parsed.column(name).combine_chunks()) for name in columns}


def _parsed_by_count(texts: Sequence[str], columns: Columns, fewest: int) -> dict[str, pa.Array]:
    counts = np.array([_QUOTED.sub("", text).count(",") + 1 for text in texts])
    if counts.min() < fewest or counts.max() > len(columns):
        raise UnknownColumns(f"a row has {counts.min()} to {counts.max()} columns, its table {len(columns)}")
    order = np.argsort(counts, kind="stable")
    parts: dict[str, list[pa.Array]] = {name: [] for name in columns}
    for count in np.unique(counts):
        some = _parsed([texts[int(place)] for place in np.flatnonzero(counts == count)], columns[: int(count)])
        for name in columns:
            parts[name].append(some.get(name, pa.nulls(int((counts == count).sum()), pa.string())))
    back = pa.array(np.argsort(order, kind="stable"))
    return {name: pa.concat_arrays(arrays).take(back) for name, arrays in parts.items()}


def _fields(text: str | None) -> list[str | None] | None:
    if text is None:
        return None
    count = _QUOTED.sub("", text).count(",") + 1
    parsed = _parsed([text], [str(place) for place in range(count)])
    return [values[0].as_py() for values in parsed.values()]


def _unescaped(values: pa.Array) -> pa.Array:
    escaped = pc.any(pc.match_substring(values, "\\")).as_py()
    return pc.replace_substring(values, "\\\\", "\\") if escaped else values


def _moved(
    key: Sequence[str], new: Mapping[str, pa.Array], old: Mapping[str, pa.Array], updates: Numbers
) -> npt.NDArray[np.bool_]:
    """Which updates changed the key; `updates` are their places among the new rows."""
    moved = np.zeros(len(updates), dtype=bool)
    for name in key:
        after, before = new[name].take(pa.array(updates)), old[name].slice(0, len(updates))
        moved |= pc.not_equal(after, before).to_numpy(zero_copy_only=False)
    return moved


def _ops(notes: pa.Table) -> npt.NDArray[np.object_]:
    return np.array(notes.column("op").to_pylist(), dtype=object)


def _numbers(notes: pa.Table, name: str) -> Numbers:
    numbers: Numbers = notes.column(name).to_numpy()
    return numbers


def _image(notes: pa.Table, name: str, places: Numbers) -> pa.Array:
    return notes.column(name).combine_chunks().take(pa.array(places))
