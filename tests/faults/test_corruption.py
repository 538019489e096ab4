"""A damaged or missing file is named; no answer is silently wrong."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

import headgate
from headgate.errors import CorruptWarehouse, DefiniteError
from headgate.scheduling.warehouse import Warehouse
from tests.faults import shop
from tests.faults.conftest import MakeShop


@pytest.fixture
def warehouse(make_shop: MakeShop) -> Iterator[Warehouse]:
    with headgate.open(shop.project(make_shop())) as opened:
        yield opened


def a_file_of(warehouse: Warehouse, table: str) -> Path:
    return Path(DeltaTable(warehouse.location(table)).file_uris()[0])


def end_of(file: Path, column: str) -> int:
    """Where the values of a column end."""
    group = pq.read_metadata(file).row_group(0)
    (found,) = (
        group.column(place) for place in range(group.num_columns) if group.column(place).path_in_schema == column
    )
    start = found.dictionary_page_offset or found.data_page_offset
    return int(start + found.total_compressed_size)


def damage(file: Path, place: int) -> None:
    content = bytearray(file.read_bytes())
    content[place] ^= 0xFF
    file.write_bytes(content)


@pytest.mark.parametrize("column", [None, "item_sk", "name", "qty"])
def test_a_damaged_data_file_is_named_by_a_query(warehouse: Warehouse, column: str | None) -> None:
    file = a_file_of(warehouse, "facts")
    damage(file, file.stat().st_size - 2 if column is None else end_of(file, column) - 1)
    with pytest.raises(CorruptWarehouse, match=file.name), warehouse.sql("SELECT * FROM facts") as answer:
        answer.collect()


def test_a_missing_data_file_is_named_by_a_query(warehouse: Warehouse) -> None:
    file = a_file_of(warehouse, "quantities")
    file.unlink()
    with pytest.raises(CorruptWarehouse, match=file.name), warehouse.sql("SELECT count(odd) FROM quantities") as answer:
        answer.collect()
    with pytest.raises(CorruptWarehouse, match=file.name), warehouse.table("quantities") as answer:
        answer.to_arrow()


def test_a_missing_data_file_stops_a_refresh_and_a_materialization_that_need_it(warehouse: Warehouse) -> None:
    for file in DeltaTable(warehouse.location("facts")).file_uris():
        Path(file).unlink()
    shop.commit(warehouse, 4)
    with pytest.raises(CorruptWarehouse, match=r"facts.*parquet"):
        warehouse.refresh()
        warehouse.materialize()


def test_a_damaged_ledger_file_is_named(make_shop: MakeShop) -> None:
    folder = make_shop()
    file = sorted((folder / "warehouse/_headgate/ledger").rglob("part-*.parquet"))[0]
    file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(CorruptWarehouse, match=f"{file.parent.name}/{file.name}"):
        headgate.open(shop.project(folder))


def segments(folder: Path) -> list[Path]:
    return sorted((folder / "warehouse/_headgate/streams/shop").rglob("*.segment"))


def with_pending_jobs(folder: Path) -> None:
    with headgate.open(shop.project(folder)) as warehouse:
        for number in range(4, 7):
            shop.commit(warehouse, number)
        warehouse.close_job()


@pytest.mark.parametrize("which", [-2, -1])
def test_a_stream_log_that_lost_what_a_closed_job_holds_names_the_source_and_goes_on(
    make_shop: MakeShop, expected: dict[int, shop.Content], which: int
) -> None:
    folder = make_shop()
    with_pending_jobs(folder)
    segment = segments(folder)[which]
    damage(segment, segment.stat().st_size - 3)
    with headgate.open(shop.project(folder)) as warehouse:
        with pytest.raises(DefiniteError, match="lost"):
            warehouse.refresh()
        with warehouse.table("shop.items", shop_job := warehouse.newest_job - 1) as answer:
            assert answer.job == shop_job
        warehouse.refresh(table="shop.items")
        found = shop.content(warehouse)
    with headgate.open(shop.project(folder)) as warehouse:
        assert not warehouse.failures
        assert shop.content(warehouse) == found
