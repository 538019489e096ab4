"""Targets are plain Delta tables: other readers see what headgate answers."""

from __future__ import annotations

import duckdb
from deltalake import DeltaTable

import headgate
from tests.faults import shop
from tests.faults.conftest import MakeShop

COLUMNS = {
    "item": "item_id, name, __sk, __start_at, __end_at",
    "item_sales": "name, qty",
    "quantities": "item_id, odd",
    "facts": "purc_id, line, item_sk, name, qty",
}


def test_deltalake_and_duckdb_read_what_a_query_answers(make_shop: MakeShop) -> None:
    with headgate.open(shop.project(make_shop())) as warehouse:
        shop.run(warehouse)
        warehouse.materialize()
        for name, columns in COLUMNS.items():
            with warehouse.sql(f"SELECT {columns} FROM {name}") as answer:
                expected = in_order(answer.to_arrow().to_pylist())
            table = DeltaTable(warehouse.location(name))
            assert in_order(table.to_pyarrow_table(columns=columns.split(", ")).to_pylist()) == expected
            stored = table.to_pyarrow_dataset()
            with duckdb.connect() as database:
                database.execute("SET TimeZone = 'UTC'")
                database.register("stored", stored)
                assert in_order(database.sql(f"SELECT {columns} FROM stored").to_arrow_table().to_pylist()) == expected
                files = database.read_parquet(table.file_uris())
                assert in_order(files.project(columns).to_arrow_table().to_pylist()) == expected


def in_order(rows: list[dict[str, object]]) -> list[str]:
    return sorted(repr({name: str(value) for name, value in row.items()}) for row in rows)
