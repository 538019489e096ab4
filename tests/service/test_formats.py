"""Rows on the wire."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import DefiniteError
from headgate.service.formats import in_parts, json_pieces
from headgate.tabular import arrow_pieces

AT = datetime(2024, 2, 29, 12, 30, 0, 250000, tzinfo=UTC)
MANY = pa.table(
    {
        "number": pa.array([1, None], pa.int64()),
        "price": pa.array([Decimal("1234567890123456.70"), Decimal("-0.01")], pa.decimal128(18, 2)),
        "share": pa.array([0.1, 2.0]),
        "text": ['"quoted" ünicode\n', ""],
        "day": [date(2024, 2, 29), None],
        "at": pa.array([AT, None], pa.timestamp("us", "UTC")),
        "local": pa.array([AT.replace(tzinfo=None), None], pa.timestamp("us")),
        "raw": [b"\x00\xff", None],
        "list": [[1, 2], []],
        "pair": [{"a": 1, "b": Decimal("2.50")}, None],
        "map": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int32())),
        "lasts": pa.array([timedelta(seconds=1.5), None], pa.duration("us")),
    }
)


def as_json(rows: pa.Table, receipt: dict[str, object] | None = None) -> dict[str, object]:
    text = b"".join(json_pieces(rows.schema, [str(field.type) for field in rows.schema], rows.to_batches(), receipt))
    found: dict[str, object] = json.loads(text, parse_constant=pytest.fail)
    return found


def test_an_arrow_stream_has_the_rows_as_they_were() -> None:
    rows = pa.concat_tables([MANY, MANY.slice(1)])
    assert pa.ipc.open_stream(b"".join(arrow_pieces(rows.schema, rows.to_batches()))).read_all().equals(rows)


def test_an_arrow_stream_without_rows_has_the_columns() -> None:
    found = pa.ipc.open_stream(b"".join(arrow_pieces(MANY.schema, []))).read_all()
    assert found.schema == MANY.schema and found.num_rows == 0


def test_json_has_every_type_in_plain_values() -> None:
    found = as_json(MANY, {"job": 3})
    assert found["columns"][1] == {"name": "price", "type": "decimal128(18, 2)"}  # type: ignore[index]
    assert found["receipt"] == {"job": 3}
    assert found["rows"] == [
        [
            1,
            "1234567890123456.70",
            0.1,
            '"quoted" ünicode\n',
            "2024-02-29",
            "2024-02-29T12:30:00.250000+00:00",
            "2024-02-29T12:30:00.250000",
            "AP8=",
            [1, 2],
            {"a": 1, "b": "2.50"},
            [["k", 1]],
            1.5,
        ],
        [None, "-0.01", 2.0, "", None, None, None, None, [], None, None, None],
    ]


def test_json_has_texts_for_the_floats_that_it_lacks() -> None:
    values = [float("nan"), float("inf"), float("-inf"), 1.0]
    found = as_json(pa.table({"x": values, "deep": [{"y": [value]} for value in values]}))
    shown = ["NaN", "Infinity", "-Infinity", 1.0]
    assert found["rows"] == [[value, {"y": [value]}] for value in shown]


def test_json_without_rows_and_without_a_receipt_is_whole() -> None:
    assert as_json(pa.table({"x": pa.array([], pa.int32())})) == {
        "columns": [{"name": "x", "type": "int32"}],
        "rows": [],
        "receipt": None,
    }


def test_json_of_several_batches_joins_them() -> None:
    rows = pa.concat_tables([pa.table({"x": [1]}), pa.table({"x": pa.array([], pa.int64())}), pa.table({"x": [2]})])
    assert as_json(rows)["rows"] == [[1], [2]]


def test_a_value_without_a_form_in_json_says_what_to_do() -> None:
    beyond = pa.table({"at": pa.array([2**62], pa.timestamp("us"))})
    with pytest.raises(DefiniteError, match="arrow"):
        as_json(beyond)


@given(st.lists(st.binary(max_size=20), max_size=20), st.integers(1, 30))
def test_parts_are_the_pieces_and_only_the_last_says_so(pieces: list[bytes], size: int) -> None:
    parts = list(in_parts(pieces, size))
    assert b"".join(part for part, _ in parts) == b"".join(pieces)
    assert [has_more for _, has_more in parts] == [True] * (len(parts) - 1) + [False]
    assert all(len(part) >= size for part, _ in parts[:-1])
