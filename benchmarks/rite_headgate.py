"""headgate, loaded through a producer's connection: in memory, durably, and into the table."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from types import TracebackType

import headgate
from benchmarks.rite_rows import COLUMNS, SUMS, Data, Sums
from benchmarks.rite_sides import COMMIT_EVERY, insert_all, insert_batches, insert_each
from headgate import Warehouse
from headgate.producing import AtOnce, Connection, Policy

SOURCE = "etl"


def open_warehouse(folder: Path, tables: Collection[str]) -> Warehouse:
    """A warehouse of tables without a key that does nothing unasked, so that rows stay where a measurement wants them."""
    columns = dict.fromkeys(COLUMNS, "int")
    return headgate.open(
        {
            "name": "rite",
            "storage": str(folder),
            "sources": {SOURCE: {"type": "producer", "tables": {table: {"columns": columns} for table in tables}}},
            "limits": {"overlay_bytes": "8GiB"},
            "background": {"system_jobs": False, "idle_after": "1d", "oldest_changes": "1d"},
        }
    )


def connect(warehouse: Warehouse, table: str, *, durable: bool = False, policy: Policy | None = None) -> Connection:
    """A producer of one table; rows are visible when a commit returns, unless a policy says otherwise."""
    return headgate.connect(
        warehouse, source=SOURCE, tables=[table], durable=durable, paramstyle="format", policy=policy or AtOnce()
    )


def read(warehouse: Warehouse, table: str) -> Sums:
    """What a reader sees without naming a bound: every committed row."""
    with warehouse.sql(SUMS.format(table=f"{SOURCE}.{table}")) as answer:
        row = answer.collect()[0]
    return Sums(row[0], row[1] or 0)


class Producer:
    """A connection that writes to one table after another."""

    def __init__(self, warehouse: Warehouse, tables: Iterator[str], *, durable: bool = False) -> None:
        self._warehouse = warehouse
        self._tables = tables
        self._durable = durable
        self._connection: Connection | None = None

    def __enter__(self) -> Producer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def begin(self) -> None:
        self._close()
        self._warehouse.materialize()
        self._table = next(self._tables)
        self._connection = connect(self._warehouse, self._table, durable=self._durable)

    def read(self) -> Sums:
        return read(self._warehouse, self._table)

    def insert(self, data: Data) -> None:
        insert_each(self._connection, self._table, data.count, every=data.count)

    def insert_short(self, data: Data) -> None:
        insert_each(self._connection, self._table, data.count, every=COMMIT_EVERY)

    def batches_short(self, data: Data) -> None:
        insert_batches(self._connection, self._table, data.count, short=True)

    def batches_long(self, data: Data) -> None:
        insert_batches(self._connection, self._table, data.count)

    def rows(self, data: Data) -> None:
        insert_all(self._connection, self._table, data.count)

    def rows_materialized(self, data: Data) -> None:
        insert_all(self._connection, self._table, data.count, materialize=True)

    def arrow(self, data: Data) -> None:
        self._insert_arrow(data, materialize=False)

    def arrow_materialized(self, data: Data) -> None:
        self._insert_arrow(data, materialize=True)

    def _insert_arrow(self, data: Data, *, materialize: bool) -> None:
        assert self._connection is not None
        self._connection.cursor().insert(self._table, data.table)
        self._connection.commit(materialize=materialize)

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
