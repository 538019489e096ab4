"""TPC-H tables and the sets of changes made to them, in Arrow: the account that flows are judged by.

`tpchgen-cli` makes the rows. Some orders are held back; a refresh inserts orders of these with their line items (RF1 of the
specification), deletes others with theirs (RF2), and updates rows of the tables that the specification leaves alone.
"""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headgate.capture.transaction import Transaction

KEYS: Mapping[str, tuple[str, ...]] = {
    "region": ("r_regionkey",),
    "nation": ("n_nationkey",),
    "supplier": ("s_suppkey",),
    "customer": ("c_custkey",),
    "part": ("p_partkey",),
    "partsupp": ("ps_partkey", "ps_suppkey"),
    "orders": ("o_orderkey",),
    "lineitem": ("l_orderkey", "l_linenumber"),
}

Row = dict[str, object]


def generated(folder: Path, scale: float) -> dict[str, pa.Table]:
    """All tables at a scale factor."""
    command = str(Path(sys.executable).parent / "tpchgen-cli")
    subprocess.run([command, "parquet", "-q", "-s", str(scale), "--output-dir", str(folder)], check=True)
    return {table: _keyed(_plain(pq.read_table(folder / f"{table}.parquet")), key) for table, key in KEYS.items()}


def _keyed(table: pa.Table, key: tuple[str, ...]) -> pa.Table:
    """One row per key: with few suppliers, the generator names some of them twice for a part."""
    rows = table.append_column("__row", pa.array(range(table.num_rows)))
    return table.take(rows.group_by(list(key), use_threads=False).aggregate([("__row", "max")])["__row_max"])


def _plain(table: pa.Table) -> pa.Table:
    """Strings as Spark's Arrow has them."""
    kinds = [pa.string() if field.type == pa.string_view() else field.type for field in table.schema]
    return table.cast(pa.schema(list(zip(table.column_names, kinds, strict=True))))


def spark_types(table: pa.Table) -> dict[str, str]:
    names = {pa.int64(): "bigint", pa.int32(): "int", pa.string(): "string", pa.date32(): "date"}
    return {
        column.name: names.get(column.type) or f"decimal({column.type.precision},{column.type.scale})"
        for column in table.schema
    }


@dataclass
class Shop:
    """What the source holds; each change goes into a transaction and is made here as well."""

    tables: dict[str, pa.Table]
    held_back: dict[str, pa.Table] = field(default_factory=dict)
    chance: random.Random = field(default_factory=lambda: random.Random(22))

    def hold_back(self, every: int) -> None:
        """Keeps every n-th order and its line items for later."""
        keys = self.tables["orders"]["o_orderkey"].take(list(range(0, self.tables["orders"].num_rows, every)))
        self.held_back = {table: self._of_orders(table, keys) for table in ("orders", "lineitem")}
        for table in self.held_back:
            self.tables[table] = self._without_orders(self.tables[table], table, keys)

    def load(self, transaction: Transaction) -> None:
        for name, table in self.tables.items():
            transaction.insert_many(name, table)

    def insert_orders(self, transaction: Transaction, count: int) -> None:
        keys = self.held_back["orders"]["o_orderkey"].slice(0, count)
        for name, waiting in self.held_back.items():
            chosen = waiting.filter(pc.is_in(waiting[KEYS[name][0]], keys))
            transaction.insert_many(name, chosen)
            self.tables[name] = pa.concat_tables([self.tables[name], chosen])
            self.held_back[name] = self._without_orders(waiting, name, keys)

    def delete_orders(self, transaction: Transaction, count: int) -> None:
        orders = self.tables["orders"]["o_orderkey"]
        keys = orders.take(sorted(self.chance.sample(range(len(orders)), count)))
        for name in ("orders", "lineitem"):
            transaction.delete_many(name, self._of_orders(name, keys).select(list(KEYS[name])))
            self.tables[name] = self._without_orders(self.tables[name], name, keys)

    def update(self, transaction: Transaction, name: str, count: int, change: Callable[[Row], Row]) -> None:
        """Changes some rows; `change` gives the columns that are new, never of the key."""
        rows = self.tables[name].to_pylist()
        for place in sorted(self.chance.sample(range(len(rows)), count)):
            new = change(rows[place])
            rows[place].update(new)
            transaction.update(name, {**{column: rows[place][column] for column in KEYS[name]}, **new})
        self.tables[name] = pa.Table.from_pylist(rows, self.tables[name].schema)

    def refresh(self, transaction: Transaction, orders: int) -> None:
        """One set: orders in and out, and a few updates of everything that queries select by."""
        self.insert_orders(transaction, orders)
        self.delete_orders(transaction, orders)
        pick = self.chance.choice
        self.update(transaction, "customer", 3, lambda row: {"c_acctbal": _money(row["c_acctbal"], "-12.34")})
        self.update(transaction, "customer", 2, lambda row: {"c_mktsegment": pick(["BUILDING", "MACHINERY"])})
        self.update(transaction, "part", 3, lambda row: {"p_brand": pick(["Brand#12", "Brand#23"])})
        self.update(
            transaction, "part", 3, lambda row: {"p_type": pick(["PROMO PLATED BRASS", "ECONOMY ANODIZED STEEL"])}
        )
        self.update(transaction, "part", 2, lambda row: {"p_name": "forest green"})
        self.update(transaction, "supplier", 2, lambda row: {"s_nationkey": pick([3, 6, 7, 20])})
        self.update(transaction, "partsupp", 4, lambda row: {"ps_supplycost": _money(row["ps_supplycost"], "0.01")})
        self.update(transaction, "partsupp", 2, lambda row: {"ps_availqty": pick([1, 9999])})
        self.update(transaction, "orders", 2, lambda row: {"o_orderpriority": pick(["1-URGENT", "5-LOW"])})
        self.update(transaction, "lineitem", 4, lambda row: {"l_quantity": _money(row["l_quantity"], "100.00")})

    def _of_orders(self, name: str, keys: pa.ChunkedArray) -> pa.Table:
        table = self.tables[name]
        return table.filter(pc.is_in(table[KEYS[name][0]], keys))

    def _without_orders(self, table: pa.Table, name: str, keys: pa.ChunkedArray) -> pa.Table:
        return table.filter(pc.invert(pc.is_in(table[KEYS[name][0]], keys)))


def _money(value: object, change: str) -> Decimal:
    assert isinstance(value, Decimal)
    return value + Decimal(change)
