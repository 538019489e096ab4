"""A small shop whose tables hold the beginning of time in every way that a warehouse can store it.

`python -m tests.formats.shop FILE` writes a warehouse with the first half of the shop's history, as a compressed archive:
with the version of headgate that is about to be followed by another format, this makes the archive that the tests of the
next version keep. The warehouse is left as a killed process leaves it: its last jobs are closed but not materialized.

`format_1.tar.gz` was written by the version of headgate whose ledger had no format number.
"""

from __future__ import annotations

import os
import sys
import tarfile
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pyspark.sql import DataFrame

import headgate
from headgate import Procedure, Warehouse
from headgate.runtime.stages.procedures import Call

FLOWS = """
CREATE STREAMING TABLE item;
CREATE FLOW items AS AUTO CDC INTO item FROM shop.items KEYS (id) STORED AS SCD TYPE 2;
CREATE STREAMING TABLE priced;
CREATE FLOW prices AS AUTO CDC INTO priced FROM shop.prices KEYS (id) SEQUENCE BY valid_from STORED AS SCD TYPE 2;
CREATE MATERIALIZED VIEW sale AS
  SELECT s.id, s.item, s.amount, i.name, i.__sk AS item_sk, i.__start_at AS known_since, s.__commit_at AS sold_at
  FROM shop.sales s JOIN item FOR SYSTEM_TIME AS OF s.__commit_at i ON i.id = s.item;
CREATE MATERIALIZED VIEW by_name AS
  SELECT name, COUNT(*) AS sales, SUM(amount) AS amount, MIN(known_since) AS since, MIN(year(sold_at)) AS year
  FROM sale GROUP BY name;
CREATE MATERIALIZED VIEW since AS SELECT DISTINCT __start_at AS moment FROM item;
CREATE MATERIALIZED VIEW totals AS SELECT item, SUM(amount) AS amount FROM shop.sales GROUP BY item;
CREATE MATERIALIZED VIEW sold AS
  SELECT s.id, i.name, s.__commit_at AS sold_at FROM shop.items i JOIN shop.sales s ON s.item = i.id;
CREATE MATERIALIZED VIEW namesake AS
  SELECT a.id, a.__sk AS sk, b.id AS other, b.__start_at AS moment FROM item a JOIN item b ON a.name = b.name;
CREATE MATERIALIZED VIEW newest AS
  SELECT id, name, __start_at AS moment FROM item WHERE __end_at IS NULL ORDER BY __start_at DESC, id LIMIT 5;
"""
TABLES = {
    "items": {"columns": {"id": "bigint", "name": "string"}, "key": ["id"]},
    "prices": {"columns": {"id": "bigint", "price": "bigint", "valid_from": "timestamp"}, "key": ["id"]},
    "sales": {"columns": {"id": "bigint", "item": "bigint", "amount": "bigint"}, "key": ["id"]},
}
QUERIES = {
    "item": "SELECT id, name, __sk, __start_at, __end_at FROM item",
    "priced": "SELECT id, price, valid_from, __sk, __start_at, __end_at FROM priced",
    "items": "SELECT id, name, __commit_at FROM shop.items",
    "sales": "SELECT id, item, amount, __commit_at FROM shop.sales",
    "sale": "SELECT * FROM sale",
    "by_name": "SELECT * FROM by_name",
    "since": "SELECT * FROM since",
    "totals": "SELECT * FROM totals",
    "sold": "SELECT * FROM sold",
    "namesake": "SELECT * FROM namesake",
    "newest": "SELECT * FROM newest",
    "heard": "SELECT * FROM heard",
}
LATE = 200
"""Items of the second initial load."""
NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)
FIRST_YEAR = datetime(1, 1, 1, tzinfo=UTC)


def project(folder: Path) -> dict[str, object]:
    (folder / "flows").mkdir(parents=True, exist_ok=True)
    (folder / "flows" / "shop.sql").write_text(FLOWS)
    return {
        "name": "shop",
        "storage": str(folder / "warehouse"),
        "libraries": [{"glob": {"include": f"{folder}/flows/**"}}],
        "spark": {"spark.master": "local[2]", "spark.sql.shuffle.partitions": "1"},
        # Every table is large enough for arrangements; the second initial load goes to a file of its own.
        "limits": {"small_table_rows": 1, "transaction_bytes": 20_000},
        "sources": {"shop": {"type": "memory", "tables": TABLES}},
        "background": {"system_jobs": False},
    }


def _hear(changes: DataFrame, call: Call) -> DataFrame:
    return changes.where("__weight > 0").selectExpr("id", "__start_at AS heard_of")


def open_shop(folder: Path) -> Warehouse:
    heard = Procedure("heard", "item", _hear, columns={"id": "bigint", "heard_of": "timestamp"}, key=["id", "heard_of"])
    return headgate.open(project(folder), procedures=[heard])


def first_half(warehouse: Warehouse) -> None:
    """An initial load and changes, materialized; then jobs that are not."""
    shop = warehouse.source("shop")
    with shop.transaction(NOON, initial=True) as load:
        for number in range(1, 7):
            load.insert("items", {"id": number, "name": f"item {number}"})
            load.insert("prices", {"id": number, "price": number, "valid_from": FIRST_YEAR})
            load.insert("sales", {"id": number, "item": number, "amount": number})
    warehouse.refresh()
    with shop.transaction(NOON + timedelta(minutes=1)) as change:
        change.update("items", {"id": 1, "name": "first"})
        change.insert("sales", {"id": 11, "item": 1, "amount": 10})
    warehouse.refresh()
    warehouse.materialize()
    with shop.transaction(NOON + timedelta(minutes=2)) as change:
        change.update("items", {"id": 2, "name": "second"})
        change.insert("prices", {"id": 1, "price": 7, "valid_from": NOON})
        change.insert("sales", {"id": 12, "item": 2, "amount": 20})
    warehouse.refresh()
    with shop.transaction(NOON + timedelta(minutes=3), initial=True) as load:
        for number in range(LATE):
            load.insert("items", {"id": 100 + number, "name": "late".ljust(200)})
    with shop.transaction(NOON + timedelta(minutes=3)) as change:
        change.insert("sales", {"id": 13, "item": 3, "amount": 30})
    warehouse.close_job()


def second_half(warehouse: Warehouse) -> None:
    """Changes of versions and rows that the initial load brought."""
    shop = warehouse.source("shop")
    with shop.transaction(NOON + timedelta(minutes=4)) as change:
        change.update("items", {"id": 3, "name": "third"})
        change.delete("items", {"id": 4})
        change.delete("sales", {"id": 5})
        change.insert("sales", {"id": 6, "item": 1, "amount": 60})
        change.insert("prices", {"id": 2, "price": 8, "valid_from": NOON})
    warehouse.refresh()


def answers(warehouse: Warehouse) -> dict[str, list[str]]:
    """Every table's rows, in order."""
    found = {}
    for name, text in QUERIES.items():
        with warehouse.sql(text) as answer:
            found[name] = sorted(map(repr, answer.to_arrow().to_pylist()))
    return found


def write_archive(file: Path, run: Callable[[Warehouse], None] = first_half) -> None:
    with tempfile.TemporaryDirectory() as folder:
        warehouse = open_shop(Path(folder))
        run(warehouse)
        with tarfile.open(file, "w:gz") as archive:
            archive.add(Path(folder) / "warehouse", "warehouse", filter=_anonymous)
    # As if killed: closing would tidy up.
    os._exit(0)


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    if member.name.endswith((".crc", "/lock")):
        return None
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


if __name__ == "__main__":
    write_archive(Path(sys.argv[1]))
