"""A small in-process source for the tests of this folder."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    DecimalType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from headgate.capture.locallog import LocalLog
from headgate.capture.memory import MemorySource
from headgate.capture.source import SourceTable
from headgate.clock import Clock, ManualClock

ITEMS = StructType(
    [
        StructField("id", LongType()),
        StructField("name", StringType()),
        StructField("price", DecimalType(10, 2)),
    ]
)
SALES = StructType(
    [
        StructField("id", LongType()),
        StructField("line", IntegerType()),
        StructField("at", TimestampType()),
        StructField("tags", ArrayType(StringType())),
        StructField("place", StructType([StructField("town", StringType()), StructField("zip", IntegerType())])),
    ]
)
TABLES = {"items": SourceTable("items", ITEMS, ("id",)), "sales": SourceTable("sales", SALES, ("id", "line"))}


def open_shop(
    folder: Path,
    clock: Clock | None = None,
    *,
    segment_bytes: int = 64 << 20,
    transaction_bytes: int = 16 << 20,
    limit_bytes: int | None = None,
    kind: type[LocalLog] = LocalLog,
) -> MemorySource:
    """The source as it stands in the folder; `kind` is that of its stream log."""
    log = kind(folder, segment_bytes=segment_bytes, transaction_bytes=transaction_bytes, limit_bytes=limit_bytes)
    return MemorySource("shop", TABLES, log, clock or ManualClock())


def items(start: int, stop: int) -> pa.Table:
    """Rows for `insert_many`."""
    ids = list(range(start, stop))
    return pa.table({"id": ids, "name": [f"item {i}" for i in ids], "price": pa.array(ids, pa.int64())})
