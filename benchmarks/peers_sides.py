"""What a user would do instead of headgate: recompute with Spark or DuckDB, or keep store_sales by hand with MERGE.

All of them work on plain Delta tables, which are copies of headgate's replicas. A change reaches the copies outside of what is
measured: recomputation gets its inputs for nothing. Who works by hand gets the changed rows and the item versions for nothing, computes
the sales of the touched purchases with Spark, puts them into the table with delta-rs' MERGE, and reads the answer with Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import duckdb
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import DataFrame, SparkSession

from headgate import Warehouse

Row = tuple[object, ...]

PLAIN_ROWS = 64_000
"""Rows of a file of the plain copies, each one row group."""
SMALL = ("customer", "store", "promotion", "dates")
ITEM_COLUMNS = "__sk, item_id, __start_at, __end_at"
LINE_COLUMNS = "purc_id, line, item_id, qty, price, __commit_at"

SALES = """
SELECT p.purc_id AS ticket, i.__sk AS item_sk, c.customer_sk, s.store_sk, m.promotion_sk, d.date_sk,
       SUM(l.qty) AS qty, SUM(l.qty * l.price) AS revenue, COUNT(*) AS lines
FROM {purchases} p
LEFT JOIN {customer} c ON c.customer_id = p.customer_id
LEFT JOIN {store} s ON s.store_id = p.store_id
LEFT JOIN {promotion} m ON m.promotion_id = p.promotion_id
LEFT JOIN {dates} d ON d.sold_on = p.sold_on
JOIN {lineitems} l ON l.purc_id = p.purc_id
JOIN {item} i ON i.item_id = l.item_id AND i.__start_at <= l.__commit_at
     AND (i.__end_at IS NULL OR l.__commit_at < i.__end_at)
GROUP BY p.purc_id, i.__sk, c.customer_sk, s.store_sk, m.promotion_sk, d.date_sk
"""
ANSWER = """
SELECT store_sk, COUNT(*) AS sales, SUM(qty) AS qty, SUM(revenue) AS revenue, SUM(lines) AS lines
FROM {sales} GROUP BY store_sk
"""


def rows_of(found: pa.Table) -> list[Row]:
    """The rows in an order that does not depend on who computed them."""
    return sorted((tuple(row.values()) for row in found.to_pylist()), key=repr)


class Copies:
    """Plain Delta tables with what headgate's tables hold."""

    def __init__(self, warehouse: Warehouse, folder: Path) -> None:
        self._warehouse = warehouse
        self._folder = folder
        for name in SMALL:
            self._write(name, warehouse.table(f"shop.{name}").to_arrow())
        self.write_sources()
        self._write("sales", self._all("* FROM store_sales ORDER BY ticket, item_sk"))
        self.item: pa.Table
        self.changed_purchases: pa.Table
        self.changed_lines: pa.Table
        self.touched: pa.Array
        self.take(pa.array([], pa.int64()))

    def write_sources(self) -> None:
        """Writes the copies of purchases and line items anew."""
        self._write("purchases", self._all("* FROM shop.purchases ORDER BY purc_id"))
        self._write("lineitems", self._all(f"{LINE_COLUMNS} FROM shop.lineitems ORDER BY purc_id, line"))

    def take(self, purchases: pa.Array) -> None:
        """Brings the copies of the sources up to date; `purchases` are the keys of those that changed."""
        self.touched = purchases
        self.item = self._all(f"{ITEM_COLUMNS} FROM item")
        self._write("item", self.item)
        keys = ", ".join(map(str, purchases.to_pylist())) or "NULL"
        self.changed_purchases = self._all(f"* FROM shop.purchases WHERE purc_id IN ({keys})")
        self.changed_lines = self._all(f"{LINE_COLUMNS} FROM shop.lineitems WHERE purc_id IN ({keys})")
        if len(purchases):
            self.merge("purchases", "purc_id", self.changed_purchases)
            self.merge("lineitems", "purc_id", self.changed_lines)

    def merge(self, name: str, key: str, rows: pa.Table) -> None:
        """Replaces all rows of the touched purchases by the given ones."""
        count = len(self.touched)
        gone = pa.table({"__gone": self.touched, key: pa.nulls(count, rows.schema.field(key).type)})
        # Without Spark's word on which columns are never NULL.
        plain = pa.table(rows.columns, rows.column_names)
        source = pa.concat_tables([gone, plain], promote_options="default")
        merged = DeltaTable(self._folder / name).merge(source, f"t.`{key}` = s.`__gone`", "s", "t")
        columns = {f"`{column}`": f"s.`{column}`" for column in rows.column_names}
        merged.when_matched_delete().when_not_matched_insert(columns, f"s.`{key}` IS NOT NULL").execute()

    def files(self, name: str) -> list[str]:
        return DeltaTable(self._folder / name).file_uris()

    def _all(self, query: str) -> pa.Table:
        with self._warehouse.sql(f"SELECT {query}") as answer:
            return answer.to_arrow()

    def _write(self, name: str, rows: pa.Table) -> None:
        place = self._folder / name
        groups = max(1, -(-rows.num_rows // PLAIN_ROWS))
        parts = [rows.slice(part * PLAIN_ROWS, PLAIN_ROWS) for part in range(groups)]
        for number, part in enumerate(parts):
            write_deltalake(place, part, mode="append" if number else "overwrite")


class SparkRecompute:
    """The flow's query and the answer's, in one, over the copies."""

    def __init__(self, copies: Copies, session: SparkSession) -> None:
        self._copies = copies
        self._session = session

    def answer(self) -> list[Row]:
        return rows_of(self._session.sql(ANSWER.format(sales=f"({self._sales()})")).toArrow())

    def sales(self) -> DataFrame:
        """The flow's result."""
        return self._session.sql(self._sales())

    def _sales(self) -> str:
        views = {}
        for name in ("purchases", "lineitems", "item", *SMALL):
            views[name] = f"plain_{name}"
            self._session.read.parquet(*self._copies.files(name)).createOrReplaceTempView(views[name])
        return SALES.format(**views)


class DuckRecompute:
    """The same with DuckDB, on as many threads as there are cores."""

    def __init__(self, copies: Copies) -> None:
        self._copies = copies
        self._database = duckdb.connect()

    def answer(self) -> list[Row]:
        tables = {
            name: f"read_parquet({self._copies.files(name)!r})" for name in ("purchases", "lineitems", "item", *SMALL)
        }
        # DuckDB's sums have more digits; Spark's types are what is compared.
        text = f"""SELECT store_sk, sales, CAST(qty AS BIGINT) AS qty, revenue, CAST(lines AS BIGINT) AS lines
            FROM ({ANSWER.format(sales=f"({SALES.format(**tables)})")})"""
        return rows_of(self._database.sql(text).to_arrow_table())


class ByHand:
    """Sales of the touched purchases with Spark, then MERGE, then the answer with Spark."""

    def __init__(self, copies: Copies, session: SparkSession, small: SparkSession) -> None:
        self._copies = copies
        self._session = session
        self._small = small
        for name in SMALL:
            frame = small.read.parquet(*copies.files(name)).cache()
            frame.createOrReplaceTempView(f"hand_{name}")
            frame.count()

    def answer(self) -> list[Row]:
        copies, small = self._copies, self._small
        small.createDataFrame(copies.changed_purchases).createOrReplaceTempView("hand_purchases")
        small.createDataFrame(copies.changed_lines).createOrReplaceTempView("hand_lineitems")
        small.createDataFrame(copies.item).createOrReplaceTempView("hand_item")
        names = ("purchases", "lineitems", "item", *SMALL)
        copies.merge("sales", "ticket", small.sql(SALES.format(**{name: f"hand_{name}" for name in names})).toArrow())
        return plain_answer(self._session, copies.files("sales"))


def plain_answer(session: SparkSession, files: Sequence[str]) -> list[Row]:
    session.read.parquet(*files).createOrReplaceTempView("plain_sales")
    return rows_of(session.sql(ANSWER.format(sales="plain_sales")).toArrow())


Side = Callable[[], list[Row]]
