"""A full disk stops what needs space, loses nothing, and work goes on when there is space again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

import headgate
from headgate.errors import StorageFull
from headgate.runtime.spark.sessions import SparkSessions
from headgate.scheduling.warehouse import Warehouse
from tests.faults import shop

ROWS = 12_000
LATER = shop.START + timedelta(minutes=shop.LOADED)


@contextmanager
def no_space(disk: Path, left: int) -> Iterator[None]:
    """Fills the disk but for some bytes."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))
    with ballast.open("r+b") as file:
        file.truncate(max(0, ballast.stat().st_size - left))
    try:
        yield
    finally:
        ballast.unlink()


def many_lines(purchase: int) -> pa.Table:
    """Rows that do not compress well."""
    numbers = [(number * 7_919_777 + purchase) % 2_147_483_647 for number in range(ROWS)]
    schema = pa.schema([(name, pa.int32()) for name in ("purc_id", "line", "item_id", "qty")])
    columns = [[purchase] * ROWS, list(range(ROWS)), [number % 6 for number in numbers], numbers]
    return pa.table(columns, schema=schema)


def count(warehouse: Warehouse) -> int:
    with warehouse.sql("SELECT count(*) FROM facts") as answer:
        return int(answer.collect()[0][0])


def test_a_full_disk_loses_nothing(spark_sessions: SparkSessions, tmp_path: Path, mount: Callable[[str], Path]) -> None:
    disk = mount("size=48m")
    project = {**shop.project(tmp_path, batch_rows=5_000, rows_per_file=5_000), "storage": str(disk / "warehouse")}
    with headgate.open(project) as warehouse:
        shop.load(warehouse)
        before = shop.content(warehouse)
        source = warehouse.source("shop")
        with no_space(disk, 8192), pytest.raises(StorageFull), source.transaction(LATER) as transaction:
            transaction.insert_many("lineitems", many_lines(100))
        assert shop.position(warehouse) == shop.LOADED
        assert shop.content(warehouse) == before

        with source.transaction(LATER) as transaction:
            transaction.insert_many("lineitems", many_lines(100))
        with no_space(disk, 64 * 1024), pytest.raises(StorageFull):
            warehouse.refresh()
        warehouse.refresh()
        assert count(warehouse) == len(before["facts"]) + ROWS

        shop.commit(warehouse, 4)
        with no_space(disk, 0), pytest.raises(StorageFull):
            warehouse.refresh()
        warehouse.refresh()
        with no_space(disk, 0), pytest.raises(StorageFull):
            warehouse.materialize()
        known = shop.content(warehouse)
        warehouse.materialize()
        assert shop.content(warehouse) == known
    with headgate.open(project) as warehouse:
        assert shop.content(warehouse) == known
