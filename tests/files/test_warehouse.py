"""Files in a warehouse: flows over them are what a plain computation makes of the files, small or read by executors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headgate
from headgate.capture.files import layout, method
from headgate.errors import FlowFailed
from headgate.runtime.sources.spark_parts import SparkParts
from headgate.runtime.spark.sessions import SparkSessions

FLOWS = """
CREATE MATERIALIZED VIEW totals AS
SELECT p.item, COUNT(*) AS orders, SUM(o.amount) AS amount
FROM landing.orders o JOIN landing.prices p ON p.item = o.item GROUP BY p.item;
CREATE STREAMING TABLE price;
CREATE FLOW price_cdc AS AUTO CDC INTO price FROM landing.prices KEYS (item) STORED AS SCD TYPE 2;
CREATE MATERIALIZED VIEW seen AS SELECT COUNT(*) AS events FROM landing.clicks;
"""


def project(folder: Path) -> dict[str, Any]:
    for name in ("flows", "in/orders", "in/prices", "in/clicks"):
        (folder / name).mkdir(parents=True)
    (folder / "flows/all.sql").write_text(FLOWS)
    return {
        "name": "shop",
        "storage": str(folder / "warehouse"),
        "libraries": [{"glob": {"include": f"{folder}/flows/**"}}],
        "sources": {
            "landing": {
                "type": "files",
                "settle": "0s",
                "tables": {
                    "orders": {
                        "path": str(folder / "in/orders"),
                        "format": "csv",
                        "key": ["id"],
                        "columns": {"id": "bigint", "item": "string", "amount": "bigint"},
                        "multiline": False,
                    },
                    "prices": {
                        "path": str(folder / "in/prices"),
                        "format": "parquet",
                        "mode": "snapshot",
                        "key": ["item"],
                        "columns": {"item": "string", "price": "decimal(10,2)"},
                    },
                    "clicks": {
                        "path": str(folder / "in/clicks"),
                        "format": "json",
                        "columns": {"user": "bigint", "page": "string"},
                        "bad_rows": "quarantine",
                    },
                },
            }
        },
    }


def rows(warehouse: headgate.Warehouse, text: str) -> list[tuple[object, ...]]:
    with warehouse.sql(text) as answer:
        found = answer.to_arrow().to_pylist()
    return sorted((tuple(row.values()) for row in found), key=str)


class Shop:
    """What was put into the folder, and what the tables then hold."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "in"
        self.orders: dict[int, tuple[str, int]] = {}
        self.prices: dict[str, int] = {}
        self.clicks = self.files = 0

    def put(self, name: str, content: bytes) -> None:
        path = self.folder / name
        fresh = path.with_name(f".{path.name}")
        fresh.write_bytes(content)
        fresh.rename(path)
        self.files += 1

    def order(self, name: str, found: dict[int, tuple[str, int]]) -> None:
        lines = ["id,item,amount", *(f"{key},{item},{amount}" for key, (item, amount) in found.items())]
        self.put(f"orders/{name}.csv", "\n".join(lines).encode())
        self.orders |= found

    def price(self, name: str, found: dict[str, int]) -> None:
        sink = pa.BufferOutputStream()
        table = pa.table({"item": list(found), "price": pa.array(list(found.values()), pa.int32())})
        pq.write_table(table, sink, row_group_size=2)
        self.put(f"prices/{name}.parquet", sink.getvalue().to_pybytes())
        self.prices = found

    def click(self, name: str, count: int, broken: int = 0) -> None:
        lines = [json.dumps({"user": number, "page": "x" * 40}) for number in range(count)] + ["{"] * broken
        self.put(f"clicks/{name}.json", "\n".join(lines).encode())
        self.clicks += count

    def totals(self) -> list[tuple[object, ...]]:
        found: dict[str, list[int]] = {}
        for item, amount in self.orders.values():
            if item in self.prices:
                found.setdefault(item, []).append(amount)
        return sorted(((item, len(amounts), sum(amounts)) for item, amounts in found.items()), key=str)

    def check(self, warehouse: headgate.Warehouse) -> None:
        assert rows(warehouse, "SELECT * FROM totals") == self.totals()
        assert rows(warehouse, "SELECT events FROM seen") == [(self.clicks,)]
        assert rows(warehouse, "SELECT item FROM price WHERE __END_AT IS NULL") == sorted(
            (item,) for item in self.prices
        )


def test_flows_are_what_files_say_that_executors_read(
    spark_sessions: SparkSessions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts: list[int] = []
    monkeypatch.setattr(method, "SMALL_BYTES", 0)
    monkeypatch.setattr(method, "SMALL_COMPRESSED_BYTES", 0)
    monkeypatch.setattr(layout.FileLayout.cut, "__defaults__", (512,))
    run = SparkParts.__call__
    monkeypatch.setattr(
        SparkParts, "__call__", lambda self, found, to: (parts.append(len(found)), run(self, found, to))[1]
    )
    settings, shop = project(tmp_path), Shop(tmp_path)
    shop.order("a", {number: (f"i{number % 4}", number) for number in range(60)})
    shop.price("a", {"i0": 1, "i1": 2, "i2": 3})
    shop.click("a", 50)
    with headgate.open(settings) as warehouse:
        shop.check(warehouse)
        shop.order("b", dict.fromkeys(range(50, 70), ("i1", 1000)))
        shop.click("b", 30, broken=2)
        shop.check(warehouse)
        shop.price("b", {"i1": 5, "i3": 4})
        shop.check(warehouse)
        bad = rows(warehouse, "SELECT `table`, `text`, file FROM landing.bad_rows")
        assert bad == [("clicks", "{", str(shop.folder / "clicks/b.json"))] * 2
        assert rows(warehouse, "SELECT COUNT(*) FROM landing.files WHERE problem IS NULL") == [(shop.files,)]
        history = rows(warehouse, "SELECT item, price FROM price")
        assert len(history) == 5, "prices that ended and prices that are valid"
    assert max(parts) > 3, "a large file is read by several tasks"
    # Again, with what came meanwhile.
    shop.order("c", {5: ("i3", 7)})
    with headgate.open(settings) as warehouse:
        shop.check(warehouse)
        assert rows(warehouse, "SELECT COUNT(*) FROM landing.files") == [(shop.files,)]
        assert rows(warehouse, "SELECT COUNT(*) FROM landing.clicks") == [(shop.clicks,)]


def test_a_broken_file_stops_what_reads_the_table_until_it_is_corrected(
    spark_sessions: SparkSessions, tmp_path: Path
) -> None:
    settings, shop = project(tmp_path), Shop(tmp_path)
    shop.order("a", {1: ("i0", 5)})
    shop.price("a", {"i0": 1})
    with headgate.open(settings) as warehouse:
        shop.check(warehouse)
        shop.put("orders/b.csv", b"id,item,amount\n2,i0,many\n")
        for _ in range(2):
            with pytest.raises(FlowFailed, match=r"b\.csv: row 2: amount: 'many' is not bigint") as failed:
                rows(warehouse, "SELECT * FROM totals")
            assert "bad_rows: quarantine" in str(failed.value)
        with warehouse.sql("SELECT * FROM totals", max_staleness="any") as answer:
            assert answer.to_arrow().num_rows == 1, "what was there before can be read"
        shop.click("a", 3)
        assert rows(warehouse, "SELECT events FROM seen") == [(3,)], "others go on"
        assert rows(warehouse, "SELECT path FROM landing.files WHERE problem IS NOT NULL") == [
            (str(shop.folder / "orders/b.csv"),)
        ]
        shop.order("b", {2: ("i0", 7)})
        shop.check(warehouse)
        warehouse.refresh(table="landing.orders")
        shop.check(warehouse)
