"""Any row that fits its columns comes back from the log as it went in, also from a reopened one."""

from __future__ import annotations

import tempfile
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import types

from headgate.capture.locallog import LocalLog
from headgate.capture.memory import MemorySource
from headgate.capture.source import SourceTable
from headgate.clock import ManualClock

SCHEMA = types.StructType(
    [
        types.StructField("id", types.LongType()),
        types.StructField("small", types.ByteType()),
        types.StructField("amount", types.DecimalType(12, 3)),
        types.StructField("ratio", types.DoubleType()),
        types.StructField("flag", types.BooleanType()),
        types.StructField("text", types.StringType()),
        types.StructField("raw", types.BinaryType()),
        types.StructField("day", types.DateType()),
        types.StructField("at", types.TimestampType()),
        types.StructField("local", types.TimestampNTZType()),
        types.StructField("list", types.ArrayType(types.IntegerType())),
        types.StructField("map", types.MapType(types.StringType(), types.LongType())),
        types.StructField("place", types.StructType([types.StructField("town", types.StringType())])),
    ]
)


def optional(values: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    return st.none() | values


ROWS = st.fixed_dictionaries(
    {"id": st.integers(-(1 << 63), (1 << 63) - 1)},
    optional={
        "small": optional(st.integers(-128, 127)),
        "amount": optional(st.decimals(-999_999_999, 999_999_999, places=3)),
        "ratio": optional(st.floats(allow_nan=False)),
        "flag": optional(st.booleans()),
        "text": optional(st.text(st.characters(exclude_categories=["Cs"]))),
        "raw": optional(st.binary()),
        "day": optional(st.dates()),
        "at": optional(st.datetimes(timezones=st.just(UTC))),
        "local": optional(st.datetimes()),
        "list": optional(st.lists(optional(st.integers(-(1 << 31), (1 << 31) - 1)))),
        "map": optional(st.dictionaries(st.text("abc"), optional(st.integers(0, 9)))),
        "place": optional(st.fixed_dictionaries({"town": optional(st.text("xyz"))})),
    },
)


def expected(row: dict[str, object]) -> dict[str, object]:
    full = {name: row.get(name) for name in SCHEMA.names}
    if isinstance(full["map"], dict):
        full["map"] = list(full["map"].items())
    return full


@given(
    transactions=st.lists(st.lists(ROWS, min_size=1, max_size=4), min_size=1, max_size=4),
    limit=st.sampled_from([1, 500, 1 << 24]),
)
@settings(max_examples=60, deadline=None)
def test_rows_come_back_as_they_went_in(transactions: list[list[dict[str, object]]], limit: int) -> None:
    table = SourceTable("t", SCHEMA, ("id",))
    with tempfile.TemporaryDirectory() as folder:
        log = LocalLog(Path(folder), segment_bytes=3000, transaction_bytes=limit)
        source = MemorySource("s", {"t": table}, log, ManualClock())
        for rows in transactions:
            with source.transaction() as transaction:
                for row in rows:
                    transaction.insert("t", row)
        source.close()
        log = LocalLog(Path(folder))
        found = log.read("t", 0, log.end)
        events = [] if found.table is None else found.table.to_pylist()
        for file in found.files:
            events += pq.read_table(file.path).to_pylist()
        log.close()
    events.sort(key=lambda event: (event["__position"], event["__sequence"]))
    assert [{name: event[name] for name in SCHEMA.names} for event in events] == [
        expected(row) for rows in transactions for row in rows
    ]
    assert [event["__position"] for event in events] == [
        position for position, rows in enumerate(transactions, 1) for _ in rows
    ]


def test_the_extremes_of_every_type_are_kept(tmp_path: Path) -> None:
    extreme = {
        "id": -(1 << 63),
        "amount": Decimal("-999999999.999"),
        "ratio": float("-inf"),
        "text": "𝄞 \x00 ẞ",
        "day": date(1, 1, 1),
        "at": datetime.max.replace(tzinfo=UTC),
        "local": datetime.min,
    }
    source = MemorySource("s", {"t": SourceTable("t", SCHEMA, ("id",))}, LocalLog(tmp_path), ManualClock())
    with source.transaction() as transaction:
        transaction.insert("t", extreme)
    found = source.log.read("t", 0, 1).table
    assert found is not None
    assert {name: found[name][0].as_py() for name in extreme} == extreme
    source.close()
