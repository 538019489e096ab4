"""Rows of Arrow as messages: a column at a time gives the bytes that each value by itself gives."""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pyarrow as pa
import pytest

from headgate.gateway.rows import column_bytes, copy_binary_rows, copy_data, copy_text_rows, data_rows
from headgate.gateway.types import (
    ARRAYS,
    BOOL,
    BYTEA,
    DATE,
    FLOAT4,
    FLOAT8,
    INT2,
    INT4,
    INT8,
    INTERVAL,
    JSON,
    NUMERIC,
    TEXT,
    TIMESTAMP,
    TIMESTAMPTZ,
    UUID,
    WireColumn,
)
from headgate.gateway.values import numeric_binary, writer_of

NOON = datetime(2026, 7, 1, 12, 0, 0, 500_000)
COLUMNS: dict[int, pa.Array] = {
    BOOL: pa.array([True, None, False]),
    BYTEA: pa.array([b"\0\xff", b"", None]),
    INT2: pa.array([-1, None, 7], pa.int16()),
    INT4: pa.array([-(2**31), 0, 2**31 - 1], pa.int32()),
    INT8: pa.array([None, -5, 2**62], pa.int64()),
    FLOAT8: pa.array([1.5, float("nan"), -0.0]),
    NUMERIC: pa.array([Decimal("-12.50"), Decimal("0.00"), None], pa.decimal128(10, 2)),
    TEXT: pa.array(["Öl", "", None]),
    DATE: pa.array([date(1999, 12, 31), None, date(2026, 1, 2)]),
    TIMESTAMP: pa.array([NOON, None, datetime(1969, 12, 31, 23, 59, 59)], pa.timestamp("us")),
    TIMESTAMPTZ: pa.array(
        [NOON.replace(tzinfo=UTC), None, datetime(2026, 1, 1, tzinfo=UTC)], pa.timestamp("us", "UTC")
    ),
    ARRAYS[INT8]: pa.array([[1, None], [], None], pa.list_(pa.int64())),
    ARRAYS[TEXT]: pa.array([["a b", 'q"', "NULL", ""], None, ["ü"]], pa.list_(pa.string())),
}
BATCH = pa.RecordBatch.from_arrays(list(COLUMNS.values()), names=[str(oid) for oid in COLUMNS])
NAMED = [WireColumn(str(oid), oid) for oid in COLUMNS]


def messages(data: bytes, kind: bytes) -> Iterator[bytes]:
    """The bodies of messages."""
    place = 0
    while place < len(data):
        assert data[place : place + 1] == kind
        (length,) = struct.unpack_from("!i", data, place + 1)
        yield data[place + 5 : place + 1 + length]
        place += 1 + length


def fields(body: bytes) -> list[bytes | None]:
    (count,) = struct.unpack_from("!h", body)
    place, found = 2, list[bytes | None]()
    for _ in range(count):
        (length,) = struct.unpack_from("!i", body, place)
        place += 4
        found.append(None if length < 0 else body[place : place + length])
        place += max(0, length)
    assert place == len(body)
    return found


@pytest.mark.parametrize("form", [0, 1])
@pytest.mark.parametrize("offset", [0, 1])
@pytest.mark.parametrize("copies", [1, 20], ids=["few", "many"])
def test_columns_and_single_values_have_the_same_bytes(form: int, offset: int, copies: int) -> None:
    batch = pa.concat_batches([BATCH] * copies).slice(offset)
    rows = [fields(body) for body in messages(bytes(data_rows(batch, NAMED, [form] * len(NAMED))), b"D")]
    written = [
        [None if value is None else writer_of(column.oid, form == 1)(value) for value in array.to_pylist()]
        for array, column in zip(batch.columns, NAMED, strict=True)
    ]
    assert rows == [list(row) for row in zip(*written, strict=True)]
    if form == 1:
        copied = [fields(body) for body in messages(bytes(copy_binary_rows(batch, NAMED)), b"d")]
        assert copied == rows


@pytest.mark.parametrize(
    ("precision", "scale"), [(18, 0), (18, 16), (5, 5), (10, 2), (18, 4), (4, 4), (18, 18), (28, 9)]
)
def test_decimals_have_the_groups_of_single_ones(precision: int, scale: int) -> None:
    chosen = random.Random(precision * 100 + scale)
    numbers = [0, 1, -1, 9_999, 10_000, -(10 ** (precision - 1)), 10**precision - 1]
    numbers += [chosen.randrange(10 ** chosen.randint(1, precision)) * chosen.choice((1, -1)) for _ in range(500)]
    scaled = [Decimal(number).scaleb(-scale) for number in numbers if abs(number) < 10**precision]
    array = pa.array([None, *scaled, None], pa.decimal128(precision, scale)).slice(1)
    written = column_bytes(array, WireColumn("c", NUMERIC), True).to_pylist()
    assert written == [*map(numeric_binary, array.to_pylist()[:-1]), None]


def test_types_without_columns_at_once_have_the_bytes_of_postgresql() -> None:
    hours = struct.Struct("!qii")
    short = struct.Struct("!f")
    for oid, array, text, binary in (
        (
            INTERVAL,
            pa.array([timedelta(3, 14_706, 789_000), None, timedelta(hours=-1)], pa.duration("us")),
            [b"3 days 04:05:06.789", None, b"-01:00:00"],
            [hours.pack(14_706_789_000, 3, 0), None, hours.pack(23 * 3_600_000_000, -1, 0)],
        ),
        (
            FLOAT4,
            pa.array([0.1, None, -2], pa.float32()),
            [b"0.1", None, b"-2"],
            [short.pack(0.1), None, short.pack(-2)],
        ),
        (
            FLOAT4,
            pa.array([0.1, math.nan, -math.inf], pa.float32()),
            [b"0.1", b"NaN", b"-Infinity"],
            [short.pack(0.1), short.pack(math.nan), short.pack(-math.inf)],
        ),
        (ARRAYS[FLOAT4], pa.array([[0.1, None]], pa.list_(pa.float32())), [b"{0.1,NULL}"], None),
        (
            JSON,
            pa.array([{"x": 1, "y": None}, None], pa.struct({"x": pa.int32(), "y": pa.string()})),
            [b'{"x":1,"y":null}', None],
            [b'{"x":1,"y":null}', None],
        ),
        (
            JSON,
            pa.array([{"ö": [1, 2]}, {}, None], pa.map_(pa.string(), pa.list_(pa.int64()))),
            ['{"ö":[1,2]}'.encode(), b"{}", None],
            ['{"ö":[1,2]}'.encode(), b"{}", None],
        ),
        (
            JSON,
            pa.array(
                [[{"at": NOON, "price": Decimal("1.50")}]],
                pa.list_(pa.struct({"at": pa.timestamp("us"), "price": pa.decimal128(10, 2)})),
            ),
            [b'[{"at":"2026-07-01T12:00:00.500000","price":"1.50"}]'],
            None,
        ),
        (
            UUID,
            pa.array(["00112233-4455-6677-8899-aabbccddeeff", None]),
            [b"00112233-4455-6677-8899-aabbccddeeff", None],
            [bytes.fromhex("00112233445566778899aabbccddeeff"), None],
        ),
    ):
        assert column_bytes(array, WireColumn("c", oid), False).to_pylist() == text
        if binary is not None:
            assert column_bytes(array, WireColumn("c", oid), True).to_pylist() == binary


@pytest.mark.parametrize("rows", [2, 40], ids=["few", "many"])
def test_no_rows_and_no_columns_are_messages_too(rows: int) -> None:
    assert bytes(data_rows(BATCH.slice(0, 0), NAMED, [0] * len(NAMED))) == b""
    empty = pa.RecordBatch.from_struct_array(pa.array([{}] * rows, pa.struct([])))
    assert [fields(body) for body in messages(bytes(data_rows(empty, [], [])), b"D")] == [[]] * rows


@pytest.mark.parametrize("copies", [1, 20], ids=["few", "many"])
def test_instants_are_shown_in_the_columns_zone(copies: int) -> None:
    array = pa.concat_arrays([COLUMNS[TIMESTAMPTZ]] * copies)
    lists = pa.array([[value] for value in array.to_pylist()], pa.list_(array.type))
    batch = pa.RecordBatch.from_arrays([array, lists], names=["a", "b"])
    for zone, expected in (
        ("Europe/Berlin", [b"2026-07-01 14:00:00.5+02", None, b"2026-01-01 01:00:00+01"]),
        ("America/St_Johns", [b"2026-07-01 09:30:00.5-02:30", None, b"2025-12-31 20:30:00-03:30"]),
    ):
        expected = expected * copies
        columns = [WireColumn("a", TIMESTAMPTZ, zone=zone), WireColumn("b", ARRAYS[TIMESTAMPTZ], zone=zone)]
        rows = [fields(body) for body in messages(bytes(data_rows(batch, columns, [0, 0])), b"D")]
        assert [row[0] for row in rows] == expected
        assert [row[1] for row in rows] == [b"{NULL}" if value is None else b'{"' + value + b'"}' for value in expected]
        # In binary form an instant has no zone.
        binary = bytes(data_rows(batch.select(["a"]), columns[:1], [1]))
        assert binary == bytes(data_rows(batch.select(["a"]), [WireColumn("a", TIMESTAMPTZ)], [1]))


def test_lines_of_copies_escape_what_has_a_meaning() -> None:
    batch = pa.RecordBatch.from_arrays([pa.array(["a\tb", None, 'q"\\', "x\n"])], names=["t"])
    columns = [WireColumn("t", TEXT)]
    text = copy_text_rows(batch, columns, "\t", "\\N", False)
    assert text.to_pylist() == ["a\\tb\n", "\\N\n", 'q"\\\\\n', "x\\n\n"]
    assert list(messages(bytes(copy_data(text)), b"d")) == [line.encode() for line in text.to_pylist()]
    assert copy_text_rows(batch, columns, ",", "", True).to_pylist() == ["a\tb\n", "\n", '"q""\\"\n', '"x\n"\n']
