"""pgoutput's messages, decoded a column at a time: the same as one value at a time."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import StringType, StructField, StructType

from headgate.capture.postgres.catalog import CatalogColumn, PostgresTable
from headgate.capture.postgres.pgoutput import (
    LayoutColumn,
    RelationLayout,
    read_layout,
    read_lsn,
    read_truncate,
    show_lsn,
)
from headgate.capture.postgres.pgoutput_raw import raw_rows
from headgate.capture.postgres.pgoutput_rows import KeyChangedWithoutValue, RowBlock, RowDecoder
from headgate.capture.postgres.values import PostgresType
from headgate.capture.source import SourceTable
from headgate.delta.events import DELETE, TRUNCATE, UPSERT

_TEXT = 25
_NAMES = ("id", "v", "w")
UNCHANGED = object()
Value = str | None | object
Expected = tuple[int, list[str | None], list[str]]


def table() -> PostgresTable:
    columns = tuple(
        CatalogColumn(name, place + 1, _TEXT, -1, "text", PostgresType(_TEXT, -1), place > 0, False, False)
        for place, name in enumerate(_NAMES)
    )
    schema = StructType([StructField(name, StringType(), name != "id") for name in _NAMES])
    return PostgresTable(
        schema="public",
        name="a",
        oid=7,
        columns=columns,
        primary_key=("id",),
        replica_identity="d",
        identity_columns=("id",),
        partitioned=False,
        logged=True,
        with_generated=False,
        source_table=SourceTable("a", schema, ("id",)),
    )


LAYOUT = RelationLayout(7, "public", "a", "d", tuple(LayoutColumn(name, _TEXT, -1, name == "id") for name in _NAMES))


def wrapped(message: bytes) -> memoryview:
    return memoryview(b"w" + bytes(24) + message)


def row(values: tuple[Value, ...]) -> bytes:
    parts = []
    for value in values:
        if isinstance(value, str):
            parts.append(b"t" + struct.pack(">I", len(value.encode())) + value.encode())
        else:
            parts.append(b"n" if value is None else b"u")
    return struct.pack(">H", len(values)) + b"".join(parts)


def message(kind: str, *parts: bytes) -> memoryview:
    return wrapped(kind.encode() + struct.pack(">I", 7) + b"".join(parts))


_text = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
_key = st.sampled_from(["k", "key-of-12-by", "key-of-13-byt", "schlüssel", ""])
_value: st.SearchStrategy[Value] = st.one_of(st.none(), _text)


@st.composite
def changes(draw: st.DrawFn) -> tuple[memoryview, list[Expected]]:
    """A message, and the events that it stands for."""
    kind = draw(st.sampled_from("IUUUDT"))
    key, v, w = draw(_key), draw(_value), draw(_value)
    upsert: Expected = (UPSERT, [key, v, w], [])  # type: ignore[list-item]  # only texts and None are drawn
    if kind == "I":
        return message("I", b"N", row((key, v, w))), [upsert]
    if kind == "T":
        return wrapped(b"T" + struct.pack(">IBI", 1, 0, 7)), [(TRUNCATE, [None] * 3, [])]
    old_key, old_v, old_w = draw(_key), draw(_value), draw(_value)
    tag = draw(st.sampled_from("KO"))
    old = row((old_key, old_v, old_w) if tag == "O" else (old_key, None, None))
    if kind == "D":
        return message("D", tag.encode(), old), [(DELETE, [old_key, None, None], [])]
    shape = draw(st.sampled_from(["plain", "with old", "left out"]))
    if shape == "plain":
        return message("U", b"N", row((key, v, w))), [upsert]
    moved: list[Expected] = [(DELETE, [old_key, None, None], [])] if old_key != key else []
    if shape == "with old":
        return message("U", tag.encode(), old, b"N", row((key, v, w))), [*moved, upsert]
    if tag == "O":
        completed: Expected = (UPSERT, [key, old_v, w], [])  # type: ignore[list-item]  # as above
        return message("U", b"O", old, b"N", row((key, UNCHANGED, w))), [*moved, completed]
    unchanged: Expected = (UPSERT, [key, None, w], ["v"])  # type: ignore[list-item]  # as above
    return message("U", b"N", row((key, UNCHANGED, w))), [unchanged]


@given(st.lists(changes(), min_size=1, max_size=30))
def test_columns_at_a_time_give_what_rows_at_a_time_give(drawn: list[tuple[memoryview, list[Expected]]]) -> None:
    block = RowBlock(LAYOUT, [each for each, _ in drawn], list(range(5, 5 + len(drawn))))
    decoded = RowDecoder(table(), LAYOUT).decode(block)
    rows = [(each["__op"], [each[name] for name in _NAMES], each["__unchanged"]) for each in decoded.to_pylist()]
    assert rows == [event for _, events in drawn for event in events]
    numbers = [number for number, (_, events) in enumerate(drawn, 5) for _ in events]
    sequences = decoded.column("__sequence").to_pylist()
    assert [(sequence + 1) // 2 for sequence in sequences] == numbers
    assert sequences == sorted(set(sequences))


@given(st.lists(changes(), min_size=1, max_size=10))
def test_raw_rows_keep_all_that_a_message_has(drawn: list[tuple[memoryview, list[Expected]]]) -> None:
    raw = raw_rows(RowBlock(LAYOUT, [each for each, _ in drawn], list(range(len(drawn))))).to_pylist()
    for kept, (_, events) in zip(raw, drawn, strict=True):
        op, image, _ = events[-1]
        assert (kept["__op"], kept["columns"]) == (op, list(_NAMES))
        if op == UPSERT and not kept["__unchanged"]:
            assert kept["new"] == image
        if op == DELETE:
            assert kept["old"][0] == image[0] and kept["new"] is None
        if op == TRUNCATE:
            assert kept["old"] is None and kept["new"] is None


def test_a_changed_key_without_a_value_is_refused() -> None:
    update = message("U", b"K", row(("old", None, None)), b"N", row(("new", UNCHANGED, "w")))
    with pytest.raises(KeyChangedWithoutValue, match="value of v"):
        RowDecoder(table(), LAYOUT).decode(RowBlock(LAYOUT, [update], [0]))


def test_layouts_truncations_and_positions_are_read() -> None:
    columns = b"\1id\0" + struct.pack(">Ii", 23, -1) + b"\0w\xc3\xb6rt\0" + struct.pack(">Ii", 1700, 786438)
    layout = read_layout(wrapped(b"R" + struct.pack(">I", 9) + b"public\0t\0f" + struct.pack(">H", 2) + columns))
    assert (layout.relation, layout.schema, layout.name, layout.replica_identity) == (9, "public", "t", "f")
    assert layout.columns == (LayoutColumn("id", 23, -1, True), LayoutColumn("wört", 1700, 786438, False))
    assert read_truncate(wrapped(b"T" + struct.pack(">IB3I", 3, 1, 5, 6, 7))) == (5, 6, 7)
    assert read_lsn(show_lsn(0x16B374D848)) == 0x16B374D848 == read_lsn("16/B374D848")
