"""A small market for the page: two sources' worth of tables, flows over flows, a target lag, and a flow that can fail."""

from __future__ import annotations

from pathlib import Path

import headgate
from headgate import Warehouse
from tests.scheduling.bank import SPARK

EVIL = "<img src=x onerror=document.body.dataset.evil=1>"
"""As a text it is harmless."""

FLOWS = f"""
CREATE MATERIALIZED VIEW revenue TBLPROPERTIES ('target_lag' = '1h') AS
SELECT item, SUM(price) AS total, COUNT(*) AS sales FROM market.sales GROUP BY item;
CREATE MATERIALIZED VIEW best AS SELECT item, total FROM revenue WHERE total > 10;
CREATE MATERIALIZED VIEW shares AS SELECT id, 1000 DIV price AS share FROM market.sales;
CREATE MATERIALIZED VIEW `{EVIL}` AS SELECT item FROM market.items;
"""


def open_market(folder: Path) -> Warehouse:
    (folder / "flows").mkdir(parents=True, exist_ok=True)
    (folder / "flows" / "market.sql").write_text(FLOWS)
    tables = {
        "sales": {"columns": {"id": "bigint", "item": "string", "price": "int"}, "key": ["id"]},
        "items": {"columns": {"item": "string"}, "key": ["item"], "ranges": {"column": "item"}},
    }
    project = {
        "name": "market",
        "storage": str(folder / "warehouse"),
        "libraries": [{"glob": {"include": f"{folder}/flows/**"}}],
        "spark": SPARK,
        "sources": {"market": {"type": "memory", "tables": tables}},
        "background": {"system_jobs": False},
    }
    return headgate.open(project)


def sell(warehouse: Warehouse, *sales: tuple[int, str, int]) -> None:
    """One transaction with sales (id, item, price)."""
    with warehouse.source("market").transaction() as transaction:
        for number, item, price in sales:
            transaction.insert("sales", {"id": number, "item": item, "price": price})
