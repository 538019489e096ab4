"""A damaged or removed table: what can be made again is, what cannot is named with its remedy, and all others answer."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from deltalake import DeltaTable

import headgate
from headgate.errors import CorruptWarehouse, DefiniteError
from headgate.runtime.recovery.backup import restore
from headgate.scheduling.warehouse import Warehouse
from tests.faults import shop
from tests.faults.conftest import MakeShop


def damage_newest_log_entry(table: Path) -> None:
    entry = max((table / "_delta_log").glob("*.json"))
    entry.write_bytes(entry.read_bytes()[:-20])


def do_as_told(warehouse: Warehouse, error: CorruptWarehouse) -> None:
    """Carries out the call that the hint names."""
    found = re.search(r"`warehouse\.refresh\(table='([^']+)'\)`", error.hint or "")
    assert found is not None, error.hint
    warehouse.refresh(table=found[1])


def readable(warehouse: Warehouse) -> dict[str, list[str]]:
    """The rows of all tables that can be read."""
    found = {}
    for name in shop.TABLES:
        try:
            with warehouse.table(name) as answer:
                found[name] = sorted(repr(sorted(row.items())) for row in answer.to_arrow().to_pylist())
        except CorruptWarehouse:
            pass
    return found


def test_views_and_what_belongs_to_them_are_made_again_on_opening(
    make_shop: MakeShop, expected: dict[int, shop.Content]
) -> None:
    folder = make_shop()
    storage = folder / "warehouse"
    shutil.rmtree(storage / "facts")
    damage_newest_log_entry(storage / "quantities")
    shutil.rmtree(next((storage / "_headgate/states").iterdir()))
    damage_newest_log_entry(next((storage / "_headgate/arrangements").rglob("_delta_log")).parent)
    with headgate.open(shop.project(folder)) as warehouse:
        assert shop.content(warehouse) == expected[shop.LOADED]
        shop.run(warehouse)
        assert shop.content(warehouse) == expected[shop.TRANSACTIONS]
        warehouse.backup(folder / "backup")
    with headgate.open(shop.project(folder)) as warehouse:
        assert shop.content(warehouse) == expected[shop.TRANSACTIONS]


def test_a_view_whose_file_is_gone_is_built_again_as_the_hint_says(
    make_shop: MakeShop, expected: dict[int, shop.Content]
) -> None:
    folder = make_shop()
    with headgate.open(shop.project(folder)) as warehouse:
        Path(DeltaTable(warehouse.location("quantities")).file_uris()[0]).unlink()
        with pytest.raises(CorruptWarehouse) as told, warehouse.table("quantities") as answer:
            answer.to_arrow()
        do_as_told(warehouse, told.value)
        assert shop.content(warehouse) == expected[shop.LOADED]
        warehouse.backup(folder / "backup")
    with headgate.open(shop.project(folder)) as warehouse:
        assert shop.content(warehouse) == expected[shop.LOADED]


@pytest.mark.parametrize(
    ("table", "path", "unreadable"),
    [
        ("item", "item", {"item", "facts"}),
        (
            "shop.lineitems",
            "_headgate/replicas/shop/lineitems",
            {"shop.lineitems", "item_sales", "quantities", "facts"},
        ),
    ],
)
def test_what_only_a_backup_has_is_named_and_all_else_answers(
    make_shop: MakeShop, expected: dict[int, shop.Content], table: str, path: str, unreadable: set[str]
) -> None:
    folder = make_shop()
    with headgate.open(shop.project(folder)) as warehouse:
        warehouse.backup(folder / "backup")
    shutil.rmtree(folder / "warehouse" / path)
    with headgate.open(shop.project(folder)) as warehouse:
        whole = {name: rows for name, rows in expected[shop.LOADED].items() if name not in unreadable}
        assert readable(warehouse) == whole
        with pytest.raises(CorruptWarehouse, match="cannot read") as told:
            warehouse.session().sql("SELECT COUNT(*) FROM facts")
        assert {name for name in shop.TABLES if name in unreadable} <= {
            status.name for status in warehouse.status.tables if status.failure is not None
        }
        with pytest.raises(DefiniteError, match=r"cannot be made again.*headgate restore"):
            do_as_told(warehouse, told.value)
    shutil.rmtree(folder / "warehouse")
    restore(folder / "backup", folder / "warehouse")
    with headgate.open(shop.project(folder)) as warehouse:
        assert shop.content(warehouse) == expected[shop.LOADED]
