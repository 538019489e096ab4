"""A small shop with a table of every kind: replicas, an SCD-2 dimension, running sums, a bag, an arrangement.

Its script is a fixed list of transactions, with jobs and a materialization at fixed places. The next transaction
follows from the end of the stream log, so a second run goes on where a dead one stopped, whatever jobs that one closed.

    python -m tests.faults.shop <folder>                       runs the script
    python -m tests.faults.shop <folder> <step> <number>       dies when it comes to that step for the n-th time
    python -m tests.faults.shop <folder> <step> <number> wide  the same, with batches in that way
"""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import headgate
from headgate.capture.transaction import Transaction
from headgate.scheduling.warehouse import Warehouse
from headgate.warehouse.store import Step, no_step

LOADED = 3
"""So many transactions are there, and materialized, before the script begins."""
CLOSED, MATERIALIZED, TRANSACTIONS = 4, 5, 6
"""After the first a job is closed but not run, after the second both run and are materialized, the third only runs."""
START = datetime(2024, 1, 1, tzinfo=UTC)

FLOWS = """
CREATE STREAMING TABLE item;
CREATE FLOW item_cdc AS AUTO CDC INTO item FROM shop.items KEYS (item_id) STORED AS SCD TYPE 2;
CREATE MATERIALIZED VIEW item_sales AS
SELECT i.name, SUM(l.qty) AS qty FROM shop.items i LEFT JOIN shop.lineitems l ON l.item_id = i.item_id GROUP BY i.name;
CREATE MATERIALIZED VIEW quantities AS
SELECT item_id, qty % 2 AS odd FROM shop.lineitems WHERE qty > 0;
CREATE MATERIALIZED VIEW facts AS
SELECT l.purc_id, l.line, i.__sk AS item_sk, i.name, l.qty
FROM shop.lineitems l JOIN item FOR SYSTEM_TIME AS OF l.__commit_at i ON i.item_id = l.item_id;
"""
TABLES = ("shop.items", "shop.lineitems", "item", "item_sales", "quantities", "facts")
SPARK = {
    "spark.master": "local[2]",
    "spark.driver.memory": "512m",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.leafNodeDefaultParallelism": "1",
}

Content = dict[str, list[str]]


def project(folder: Path, **limits: object) -> dict[str, object]:
    """The project with its storage in `folder`; its flows lie beside it."""
    flows = folder / "flows"
    if not flows.exists():
        flows.mkdir(parents=True)
        (flows / "shop.sql").write_text(FLOWS)
    tables = {
        "items": {"columns": {"item_id": "int", "name": "string"}, "key": ["item_id"]},
        "lineitems": {
            "columns": {"purc_id": "int", "line": "int", "item_id": "int", "qty": "int"},
            "key": ["purc_id", "line"],
        },
    }
    return {
        "name": "shop",
        "storage": str(folder / "warehouse"),
        "spark": SPARK,
        "libraries": [{"glob": {"include": f"{flows}/**"}}],
        "retention": {"jobs": 1},
        "limits": {"small_table_rows": 1, "rows_per_file": 2, "segment_bytes": 2048, **limits},
        "sources": {"shop": {"type": "memory", "tables": tables}},
    }


def fill(transaction: Transaction, number: int) -> None:
    """The rows of the n-th transaction: inserts, updates, deletes and changes of a dimension."""
    for item in range(number % 3, 6, 2):
        transaction.insert("items", {"item_id": item, "name": f"item {item} of {number // 3}"})
    for line in range(4):
        row = {"purc_id": number, "line": line, "item_id": (number + line) % 6, "qty": line % 2 + number}
        transaction.insert("lineitems", row)
    if number > 2:
        transaction.update("lineitems", {"purc_id": number - 1, "line": 1, "qty": 100 + number})
        transaction.delete("lineitems", {"purc_id": number - 2, "line": 0})


def commit(warehouse: Warehouse, number: int) -> None:
    with warehouse.source("shop").transaction(commit_at=START + timedelta(minutes=number)) as transaction:
        fill(transaction, number)


def position(warehouse: Warehouse) -> int:
    """How many of the script's transactions have been committed."""
    return warehouse.source("shop").log.end


def load(warehouse: Warehouse) -> None:
    for number in range(1, LOADED + 1):
        commit(warehouse, number)
    warehouse.refresh()
    warehouse.materialize()


def run(warehouse: Warehouse, acknowledged: Callable[[int], None] = lambda number: None) -> None:
    """The script, from the next transaction on."""
    for number in range(position(warehouse) + 1, TRANSACTIONS + 1):
        commit(warehouse, number)
        acknowledged(number)
        if number == CLOSED:
            warehouse.close_job()
            continue
        warehouse.refresh()
        if number == MATERIALIZED:
            warehouse.materialize()


def content(warehouse: Warehouse) -> Content:
    """All rows of all tables at the newest job, in an order."""
    found: Content = {}
    for name in TABLES:
        with warehouse.table(name) as answer:
            assert answer.job == warehouse.newest_job
            found[name] = sorted(repr(sorted(row.items())) for row in answer.to_arrow().to_pylist())
    return found


def dying_at(name: str, number: int) -> Step:
    passed: Counter[str] = Counter()

    def step(found: str) -> None:
        passed[found] += 1
        if found == name and passed[found] == number:
            os.kill(os.getpid(), signal.SIGKILL)

    return step


def main(folder: Path, step: Step, **limits: object) -> None:
    with (
        headgate.open(project(folder, **limits), step=step) as warehouse,
        (folder / "acknowledged").open("a") as record,
    ):
        run(warehouse, lambda number: print(number, file=record, flush=True))


if __name__ == "__main__":
    limits = {"way": sys.argv[4]} if len(sys.argv) > 4 else {}
    main(Path(sys.argv[1]), dying_at(sys.argv[2], int(sys.argv[3])) if len(sys.argv) > 2 else no_step, **limits)
