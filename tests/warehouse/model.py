"""A table as plain Python: the oracle of the versioned table's tests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from headgate.delta.changes import JOB, WEIGHT, JobId
from headgate.warehouse.changes import ChangeSet
from headgate.warehouse.spec import TableSpec

SCHEMA = StructType(
    [
        StructField("a", LongType()),
        StructField("b", StringType()),
        StructField("number", IntegerType()),
        StructField("text", StringType()),
        StructField("day", DateType()),
        StructField("moment", TimestampType()),
        StructField("amount", DecimalType(20, 4)),
        StructField("ratio", DoubleType()),
        StructField("raw", BinaryType()),
        StructField("flag", BooleanType()),
        StructField("pair", StructType([StructField("x", IntegerType()), StructField("y", StringType())])),
        StructField("items", ArrayType(StringType())),
    ]
)
BY_KEY = TableSpec("things", SCHEMA, key=("a", "b"))
BY_NUMBER = TableSpec("things_by_number", SCHEMA, key=("a", "b"), sort=("number", "a", "b"))

Key = tuple[Any, ...]
Row = dict[str, Any]


def row(a: int | None, b: str | None, seed: int) -> Row:
    """A row whose values follow from the seed; every fifth has NULLs, every seventh a very long text."""
    if seed % 5 == 0:
        return dict.fromkeys(SCHEMA.names) | {"a": a, "b": b, "number": seed % 3 or None}
    return {
        "a": a,
        "b": b,
        "number": seed % 4,
        "text": "ÿ漢\U0001f600" * 700 if seed % 7 == 0 else f"té{seed}",
        "day": date(1, 1, 1) if seed % 11 == 0 else date(2024, 2, 1 + seed % 28),
        "moment": datetime(1, 1, 1, tzinfo=UTC) if seed % 13 == 0 else datetime(2024, 5, 6, 7, 8, 9, seed, tzinfo=UTC),
        "amount": Decimal(seed) / 7 // Decimal("0.0001") * Decimal("0.0001"),
        "ratio": seed / 3,
        "raw": bytes([seed % 256, 0, 255]),
        "flag": seed % 2 == 0,
        "pair": {"x": seed, "y": None},
        "items": [str(seed), None, "…"],
    }


class Model:
    """Snapshots per job, and the changes between them."""

    def __init__(self, spec: TableSpec) -> None:
        self.spec = spec
        self.job = 0
        self.snapshots: dict[int, dict[Key, Row]] = {0: {}}

    def run(self, edits: Mapping[Key, int | None]) -> list[Row]:
        """One job that sets each key to the row of a seed or deletes it; gives its netted changes."""
        before = self.snapshots[self.job]
        after = dict(before)
        self.job += 1
        changes = []
        for key, seed in edits.items():
            old, new = before.get(key), None if seed is None else row(key[0], key[1], seed)
            if old == new:
                continue
            if old is not None:
                changes.append({**old, JOB: self.job, WEIGHT: -1})
                del after[key]
            if new is not None:
                changes.append({**new, JOB: self.job, WEIGHT: 1})
                after[key] = new
        self.snapshots[self.job] = after
        return changes


def change_set(spec: TableSpec, rows: Iterable[Row], after: int, upto: int) -> ChangeSet:
    table = pa.Table.from_pylist(list(rows), schema=spec.change_arrow_schema)
    return ChangeSet.of_table(spec, table, JobId(after), JobId(upto))


def canonical(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Rows in an order that does not depend on types."""
    return sorted(repr([(name, _comparable(found[name])) for name in sorted(found)]) for found in rows)


def _comparable(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value
