"""Parameters and views of clients narrow a query to key ranges as literals do."""

from __future__ import annotations

from pathlib import Path

import psycopg

from headgate.runtime.spark.sessions import SparkSessions
from tests.gateway.serving import ITEMS, Shop, open_shop, served

SALES = {
    "columns": {"sale": "bigint", "item": "bigint", "qty": "int"},
    "key": ["sale"],
    "ranges": {"column": "sale", "bounds": [10, 20]},
}
TABLES = {"items": {"columns": ITEMS, "key": ["id"]}, "sales": SALES}


def sell(shop: Shop, qty: int) -> None:
    with shop.warehouse.source("shop").transaction() as transaction:
        for sale in (1, 11, 21):
            transaction.insert("sales", {"sale": sale, "item": 1, "qty": qty})


def read(shop: Shop, table: str) -> tuple[str, ...]:
    """The ranges of a table that the latest query read."""
    receipt = shop.warehouse.history.receipts()[-1].receipt
    assert receipt is not None
    return next(each.read for each in receipt.ranges if each.table == table)


def test_parameters_and_views_narrow(tmp_path: Path, spark_sessions: SparkSessions) -> None:
    sources = {"shop": {"type": "memory", "tables": TABLES}}
    with (
        open_shop(tmp_path, sources=sources) as warehouse,
        served(warehouse) as shop,
        psycopg.connect(shop.dsn, autocommit=True) as connection,
    ):
        warehouse.flow("doubled", "SELECT sale, 2 * qty AS twice FROM shop.sales")
        # Run when it is read.
        warehouse.flow("firsts", "SELECT sale AS number, first(qty) AS qty FROM shop.sales GROUP BY sale")
        sell(shop, 1)
        warehouse.refresh()
        for qty, form in ((2, "%t"), (3, "%b")):
            sell(shop, qty)
            found = connection.execute(f"SELECT sale, twice FROM doubled WHERE sale = {form}", (11,))
            assert found.fetchall() == [(11, 2 * qty)]
            assert read(shop, "doubled") == read(shop, "shop.sales") == ("[10, 20)",)
        found = connection.execute("SELECT twice FROM doubled WHERE sale BETWEEN %s AND %s", (20, 25), prepare=True)
        assert found.fetchall() == [(6,)]
        assert read(shop, "doubled") == ("[20, )",)
        found = connection.execute("SELECT sale FROM doubled WHERE sale = ANY(%s) ORDER BY sale", ([1, 21],))
        assert found.fetchall() == [(1,), (21,)]
        found = connection.execute("SELECT qty FROM firsts WHERE number < %s", (10,))
        assert found.fetchall() == [(3,)]
        assert read(shop, "shop.sales") == ("(, 10)",)
