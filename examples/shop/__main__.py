"""`python -m examples.shop`: a shop that goes on selling while its warehouse is refreshed and queried, step by step.

Every step prints what happened and why the answer is right; the last one compares with the flow run from scratch.
"""

from __future__ import annotations

import shutil
import sys
import time
from decimal import Decimal
from pathlib import Path

import headgate
from headgate import Warehouse
from headgate.config import load_project
from headgate.errors import HeadgateError

PROJECT = Path(__file__).parent / "headgate.yml"
QUERY = "SELECT store, item, qty, revenue FROM store_sales ORDER BY store, item"


def say(text: str = "") -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def show(warehouse: Warehouse, job: int | None = None) -> None:
    with warehouse.sql(QUERY, job=job) as answer:
        rows = answer.collect()
        say(f"    snapshot of job {answer.job}:")
        say(f"    {'store':<8}{'item':<12}{'qty':>5}{'revenue':>10}")
        for row in rows:
            say(f"    {row['store']:<8}{row['item'] or '?':<12}{row['qty']:>5}{row['revenue']:>10}")


def refresh(warehouse: Warehouse) -> None:
    start = time.perf_counter()
    job = warehouse.refresh()
    cut = ", ".join(f"{source} up to transaction {position}" for source, position in warehouse.job(job).cut.items())
    say(f"    refresh: job {job} holds {cut}; {time.perf_counter() - start:.1f} s")


def run() -> None:
    storage = Path(load_project(PROJECT).storage)
    shutil.rmtree(storage, ignore_errors=True)
    say("Starting Spark and opening an empty warehouse …")
    with headgate.open(PROJECT) as warehouse:
        shop = warehouse.source("shop")
        say("\n1. The shop names its items and sells two things, each purchase in a transaction of its own.")
        with shop.transaction() as transaction:
            transaction.insert("item_s", {"item_id": 1, "name": "tea"})
            transaction.insert("item_s", {"item_id": 2, "name": "cup"})
        sell(warehouse, 1, "north", [(1, 2, "3.50")])
        sell(warehouse, 2, "south", [(1, 1, "3.50"), (2, 1, "9.00")])
        say("    Nothing was transformed yet: the transactions are durable in the stream log and wait for demand.")
        refresh(warehouse)
        show(warehouse)

        say("\n2. Item 1 is renamed between two sales; all three transactions fall into one job.")
        sell(warehouse, 3, "north", [(1, 1, "3.50")])
        with shop.transaction() as transaction:
            transaction.update("item_s", {"item_id": 1, "name": "green tea"})
        sell(warehouse, 4, "north", [(1, 4, "3.75")])
        refresh(warehouse)
        show(warehouse)
        say(
            "    Purchase 3 counts as tea, purchase 4 as green tea: each line sees the name that was valid at its own commit."
        )

        say("\n3. Purchase 2 is cancelled and purchase 1 corrected, in one transaction.")
        with shop.transaction() as transaction:
            transaction.delete("purchases", {"purc_id": 2})
            transaction.delete("lineitems", {"purc_id": 2, "line": 1})
            transaction.delete("lineitems", {"purc_id": 2, "line": 2})
            transaction.update("lineitems", {"purc_id": 1, "line": 1, "qty": 5})
        refresh(warehouse)
        show(warehouse)
        say("    The corrected line is a new version of its row, committed after the renaming: it counts as green tea.")

        say("\n4. Job 1 is still there, as it was:")
        show(warehouse, job=1)

        say("\n5. A transaction that fails changes nothing.")
        try:
            with shop.transaction() as transaction:
                transaction.insert("purchases", {"purc_id": 9, "store": "east"})
                transaction.insert("lineitems", {"purc_id": 9, "line": 1, "item_id": 1, "qty": "many"})
        except HeadgateError as error:
            say(f"    refused: {error}")
        before = warehouse.newest_job
        say(f"    refresh: still job {warehouse.refresh()}, because nothing new was committed")
        check(warehouse, before)

        say(f"\nHow the flow is kept:\n{warehouse.explain('store_sales')}")
        warehouse.materialize()
        say(f"\nThe tables are plain Delta tables now, for example {warehouse.location('store_sales')}")


def sell(warehouse: Warehouse, number: int, store: str, lines: list[tuple[int, int, str]]) -> None:
    with warehouse.source("shop").transaction() as transaction:
        transaction.insert("purchases", {"purc_id": number, "store": store})
        for line, (item, qty, price) in enumerate(lines, start=1):
            row = {"purc_id": number, "line": line, "item_id": item, "qty": qty, "price": Decimal(price)}
            transaction.insert("lineitems", row)


def check(warehouse: Warehouse, job: int) -> None:
    """The maintained table against the flow's query, run from scratch over the same tables."""
    session, text = warehouse.from_scratch("store_sales")
    expected = sorted(map(tuple, session.sql(text).collect()))
    found = sorted(map(tuple, warehouse.sql("SELECT * FROM store_sales").collect()))
    if expected != found:
        raise SystemExit(f"the maintained table differs from the flow run from scratch: {found}, {expected}")
    say(f"    checked: store_sales at job {job} equals the flow run from scratch, {len(found)} rows")


if __name__ == "__main__":
    try:
        run()
    except HeadgateError as error:
        raise SystemExit(f"headgate: {error}") from None
