"""The rows that every side loads, and what a reader must see of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import pyarrow as pa
import pyarrow.compute as pc

COLUMNS = ("custkey", "datekey", "orderkey", "partkey", "suppkey", "quantity")
SCHEMA = pa.schema([(column, pa.int32()) for column in COLUMNS])
SUMS = "SELECT COUNT(*), SUM(quantity) FROM {table}"
_CHUNK = 16_384

Row = tuple[int, int, int, int, int, int]


def rows(count: int) -> Iterator[Row]:
    """The same rows in the same order each time: line items, four to an order."""
    for number in range(count):
        yield (
            number * 7919 % 150_000,
            number % 2_556,
            number // 4,
            number * 31 % 200_000,
            number * 17 % 10_000,
            number % 50 + 1,
        )


def parts(count: int, size: int) -> Iterator[list[Row]]:
    """The same rows in lists of a size."""
    remaining = rows(count)
    while part := list(islice(remaining, size)):
        yield part


def batches(count: int) -> pa.RecordBatchReader:
    """The same rows as Arrow, made chunk by chunk while they are read."""
    made = (
        pa.record_batch([pa.array(column, pa.int32()) for column in zip(*part, strict=True)], schema=SCHEMA)
        for part in parts(count, _CHUNK)
    )
    return pa.RecordBatchReader.from_batches(SCHEMA, made)


@dataclass(frozen=True)
class Sums:
    """What a reader sees of a table."""

    rows: int
    quantity: int

    def require(self, expected: Sums) -> None:
        if self != expected:
            raise SystemExit(f"a reader sees {self}, not {expected}")


@dataclass(frozen=True)
class Data:
    """Some rows, made into Arrow beforehand, and what a reader must see of them."""

    table: pa.Table
    sums: Sums

    @classmethod
    def of(cls, count: int) -> Data:
        return cls._of(batches(count).read_all().combine_chunks())

    @classmethod
    def _of(cls, table: pa.Table) -> Data:
        return cls(table, Sums(table.num_rows, pc.sum(table.column("quantity")).as_py()))

    @property
    def count(self) -> int:
        return self.sums.rows

    def first(self, count: int) -> Data:
        """The first of the rows; all when there are fewer."""
        return self._of(self.table.slice(0, count))
