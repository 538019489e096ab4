"""Every format holds an answer's rows exactly, and long answers are written as they come."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headgate.cli.formats import WRITERS
from headgate.cli.query import BINARY, FORMATS

ROWS = pa.table(
    {
        "id": pa.array([1, 2, None], pa.int64()),
        "price": pa.array([Decimal("1.50"), None, Decimal("-0.01")], pa.decimal128(10, 2)),
        "at": pa.array([datetime(2024, 1, 1, tzinfo=UTC), None, None], pa.timestamp("us", "UTC")),
        "day": pa.array([date(2024, 1, 1), None, None]),
        "name": pa.array(['a,"b"\n', "", None]),
        "tags": pa.array([["x", None], [], None], pa.list_(pa.string())),
        "raw": pa.array([b"\x00\xff", b"", None]),
        "ratio": pa.array([float("nan"), 0.1, None]),
    }
)


def written(form: str, rows: pa.Table = ROWS, chunk: int = 2) -> bytes:
    stream = io.BytesIO()
    WRITERS[form](rows.schema, rows.to_batches(max_chunksize=chunk), stream)
    return stream.getvalue()


def test_the_formats_are_those_of_the_command() -> None:
    assert tuple(WRITERS) == FORMATS
    assert set(BINARY) < set(FORMATS)


def test_json_is_one_array_of_objects() -> None:
    found = json.loads(written("json"))
    assert found[0] == {
        "id": 1,
        "price": "1.50",
        "at": "2024-01-01T00:00:00+00:00",
        "day": "2024-01-01",
        "name": 'a,"b"\n',
        "tags": ["x", None],
        "raw": "AP8=",
        "ratio": "NaN",
    }
    assert found[2] == dict.fromkeys(ROWS.column_names, None) | {"price": "-0.01"}
    assert written("json").count(b"\n") == ROWS.num_rows + 2


def test_json_without_rows_is_an_empty_array() -> None:
    assert json.loads(written("json", ROWS.slice(0, 0))) == []


def test_csv_tells_null_from_empty() -> None:
    text = written("csv").decode()
    rows = list(csv.DictReader(io.StringIO(text)))
    assert rows[0]["price"] == "1.50"
    assert rows[0]["name"] == 'a,"b"\n'
    assert json.loads(rows[0]["tags"]) == ["x", None]
    assert rows[0]["raw"] == "AP8="
    assert text.splitlines()[-1] == ",-0.01,,,,,,"
    assert ',"",' in text


def test_csv_without_rows_has_its_heading() -> None:
    assert written("csv", ROWS.slice(0, 0)).decode().startswith('"id","price"')


def test_arrow_and_parquet_are_the_same_rows() -> None:
    # NaN equals nothing, itself included.
    rows = ROWS.drop_columns(["ratio"])
    assert pa.ipc.open_stream(written("arrow", rows)).read_all().equals(rows)
    assert pq.read_table(io.BytesIO(written("parquet", rows))).equals(rows)
    assert pq.read_table(io.BytesIO(written("parquet", rows.slice(0, 0)))).schema.equals(rows.schema)


def test_a_table_aligns_numbers_to_the_right() -> None:
    lines = written("table", pa.table({"item": ["tea"], "total": [3]})).decode().splitlines()
    assert lines == ["item  total", "────  ─────", "tea       3", "(1 row)"]


@pytest.mark.parametrize("form", ["csv", "json", "arrow", "table"])
def test_rows_leave_before_the_last_batch_has_come(form: str) -> None:
    class Counting(io.RawIOBase, BinaryIO):
        count = 0

        def writable(self) -> bool:
            return True

        def write(self, data: object) -> int:
            size = memoryview(data).nbytes  # type: ignore[arg-type]  # whatever a stream may be given
            self.count += size
            return size

    stream, seen = Counting(), []

    def batches() -> Iterator[pa.RecordBatch]:
        for number in range(50):
            seen.append(stream.count)
            yield pa.record_batch({"n": pa.array(range(number * 2000, (number + 1) * 2000))})

    WRITERS[form](pa.schema([("n", pa.int64())]), batches(), stream)
    assert seen[25] > 0
    assert seen[49] > seen[25]
