"""A warehouse that two kinds of sources fill: producers, and a database that is captured (here one in this process).

Run as a program it produces until it is killed: python -m tests.producing.depot FOLDER durable|memory|elastic COMMITS
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import headgate
from headgate import Warehouse
from tests.scheduling.bank import SPARK

FLOWS = """
CREATE MATERIALIZED VIEW sold AS SELECT item, COUNT(*) AS sales, SUM(amount) AS amount FROM etl.sales GROUP BY item;
CREATE MATERIALIZED VIEW named AS
    SELECT s.sale, i.name FROM etl.sales s JOIN shop.items i ON s.item = i.id;
"""


def project(folder: Path, flows: str = FLOWS, **settings: object) -> dict[str, object]:
    (folder / "flows").mkdir(parents=True, exist_ok=True)
    (folder / "flows" / "depot.sql").write_text(flows)
    sales = {"columns": {"sale": "int", "item": "int", "amount": "bigint"}}
    customers = {"columns": {"id": "bigint", "name": "string"}, "key": ["id"]}
    items = {"columns": {"id": "int", "name": "string"}, "key": ["id"]}
    return {
        "name": "depot",
        "storage": str(folder / "warehouse"),
        "libraries": [{"glob": {"include": f"{folder}/flows/**"}}],
        "spark": SPARK,
        "sources": {
            "etl": {"type": "producer", "tables": {"sales": sales, "customers": customers}},
            "shop": {"type": "memory", "tables": {"items": items}},
        },
        "background": {"system_jobs": False},
        **settings,
    }


def open_depot(folder: Path, flows: str = FLOWS, **settings: object) -> Warehouse:
    return headgate.open(project(folder, flows, **settings))


def rows_of(warehouse: Warehouse, text: str) -> list[tuple[object, ...]]:
    with warehouse.sql(text) as answer:
        return sorted(tuple(row) for row in answer.collect())


def elastic(folder: Path) -> dict[str, object]:
    """The depot, with an elastic queue for its producers."""
    found = project(folder)
    sources = found["sources"]
    assert isinstance(sources, dict)
    return {**found, "sources": {**sources, "etl": {**sources["etl"], "stream": "elastic", "partition_bytes": "4KiB"}}}


def produce(folder: Path, mode: str, commits: int) -> None:
    """Commits rows, has them read, and then waits to be killed."""
    durable = mode != "memory"
    warehouse = headgate.open(elastic(folder) if mode == "elastic" else project(folder))
    connection = headgate.connect(warehouse, tables=["sales"], durable=durable, paramstyle="qmark")
    cursor = connection.cursor()
    for number in range(commits):
        cursor.executemany("INSERT INTO sales VALUES (?, ?, ?)", [(number, 1, 10), (number, 2, 20)])
        connection.commit()
    seen = rows_of(warehouse, "SELECT SUM(sales) FROM sold")
    print(seen[0][0], warehouse.newest_job, flush=True)  # noqa: T201
    signal.pause()


if __name__ == "__main__":
    produce(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
