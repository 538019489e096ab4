"""A shop whose tables producers fill, served over PostgreSQL's protocol and HTTP."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import headgate
from headgate import Warehouse
from headgate.gateway.endpoint import Gateway
from headgate.service import Server, ServiceLimits
from headgate.service.listening import listen
from tests.scheduling.bank import SPARK

FLOWS = """
CREATE MATERIALIZED VIEW sales_per_item COMMENT 'What was sold of each item' AS
SELECT item, SUM(qty) AS qty, COUNT(*) AS sales FROM shop.sales GROUP BY item;
CREATE MATERIALIZED VIEW top_items AS
SELECT i.id, i.name, s.qty FROM shop.items i JOIN sales_per_item s ON s.item = i.id;
"""
ITEMS = {
    "id": "bigint",
    "name": "string",
    "price": "decimal(10,2)",
    "weight": "double",
    "added": "timestamp",
    "day": "date",
    "is_sold": "boolean",
    "image": "binary",
    "tags": "array<string>",
    "spot": "struct<x:int,y:int>",
}


@dataclass(frozen=True)
class Shop:
    warehouse: Warehouse
    server: Server
    gateway: Gateway

    @property
    def port(self) -> int:
        return self.gateway.port

    @property
    def dsn(self) -> str:
        return f"host=127.0.0.1 port={self.port} user=tester dbname=shop"


def open_shop(folder: Path, **settings: object) -> Warehouse:
    (folder / "flows").mkdir(parents=True, exist_ok=True)
    (folder / "flows" / "shop.sql").write_text(FLOWS)
    tables = {
        "items": {"columns": ITEMS, "key": ["id"]},
        "sales": {"columns": {"sale": "bigint", "item": "bigint", "qty": "int"}, "key": ["sale"]},
    }
    project = {
        "name": "shop",
        "storage": str(folder / "warehouse"),
        "libraries": [{"glob": {"include": f"{folder}/flows/**"}}],
        "spark": SPARK,
        "sources": {"shop": {"type": "producer", "tables": tables}},
        "background": {"system_jobs": False},
        **settings,
    }
    return headgate.open(project)


@contextmanager
def served(warehouse: Warehouse, limits: ServiceLimits | None = None, token: str | None = None) -> Iterator[Shop]:
    gateway = Gateway(listen("127.0.0.1", 0), token or "made-up", is_open=token is None)
    with Server(warehouse, port=0, token=token, limits=limits, endpoints=[gateway]) as server:
        yield Shop(warehouse, server, gateway)


def fill(warehouse: Warehouse) -> None:
    """Two items and three sales."""
    with headgate.connect(warehouse, tables=["items", "sales"]) as connection:
        cursor = connection.cursor()
        cursor.insert(
            "items",
            [
                {
                    "id": 1,
                    "name": "Ölkanne",
                    "price": Decimal("12.50"),
                    "weight": 1.5,
                    "added": datetime(2026, 1, 2, 3, 4, 5, 678000, UTC),
                    "day": date(2026, 1, 2),
                    "is_sold": True,
                    "image": b"\x00\xff",
                    "tags": ["red", 'a "b"', None],
                    "spot": {"x": 1, "y": None},
                },
                dict.fromkeys(ITEMS)
                | {
                    "id": 2,
                    "name": "tab\there",
                    "price": Decimal("0.01"),
                    "weight": math.nan,
                    "is_sold": False,
                    "tags": [],
                },
            ],
        )
        cursor.insert("sales", [{"sale": 1, "item": 1, "qty": 3}, {"sale": 2, "item": 1, "qty": 4}])
        cursor.insert("sales", [{"sale": 3, "item": 2, "qty": 5}])
        connection.commit()
