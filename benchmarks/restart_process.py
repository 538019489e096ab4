"""One process of the restart benchmark. It imports nothing but headgate and Spark, so that it runs on any commit.

    python benchmarks/restart_process.py spark
    python benchmarks/restart_process.py build FOLDER ROWS JOBS
    python benchmarks/restart_process.py open FOLDER
    python benchmarks/restart_process.py change FOLDER FLOW_FILE
    python benchmarks/restart_process.py kill FOLDER JOBS

Each writes one line of JSON as soon as it has what is measured; `spark` and `open` measure from the start of the process.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

CUSTOMERS, PRODUCTS, STORES = 2_000, 500, 20
CHUNK = 50_000


def main(what: str, *words: str) -> None:
    match what:
        case "spark":
            start_spark()
        case "build":
            build(Path(words[0]), int(words[1]), int(words[2]))
        case "open":
            open_once(Path(words[0]))
        case "change":
            open_once(Path(words[0]), Path(words[1]))
        case "kill":
            run_and_die(Path(words[0]), int(words[1]))


def tell(**fields: object) -> None:
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()


def start_spark() -> None:
    """A bare session and one trivial query."""
    from pyspark.sql import SparkSession

    settings = json.loads(os.environ["RESTART_SPARK"])
    builder = SparkSession.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    rows = session.sql("SELECT 1 AS one").collect()
    tell(rows=[list(row) for row in rows])
    session.stop()


def build(folder: Path, rows: int, jobs: int) -> None:
    """Loads the warehouse, folds it, runs jobs on top, and stops cleanly."""
    import headgate

    with headgate.open(folder) as warehouse:
        with warehouse.source("shop").transaction(initial=True) as transaction:
            for first in range(0, rows, CHUNK):
                transaction.insert_many("sales", sales(first, min(CHUNK, rows - first)))
            transaction.insert_many("customers", customers())
            transaction.insert_many("products", products())
        warehouse.refresh()
        warehouse.materialize()
        run_jobs(warehouse, rows, jobs)
        tell(total=total(warehouse), lines=rows + jobs * 10)


def run_jobs(warehouse: Any, first: int, jobs: int) -> None:
    """Closed jobs of a few rows each, in every table."""
    source = warehouse.source("shop")
    for number in range(jobs):
        with source.transaction() as transaction:
            transaction.insert_many("sales", sales(first + number * 10, 10))
        warehouse.close_job()
    warehouse.refresh()


def open_once(folder: Path, file: Path | None = None) -> None:
    """Opens the warehouse and asks for any snapshot, then for a current one; with a file, changes the flow in it."""
    import headgate

    with headgate.open(folder) as warehouse:
        tell(total=total(warehouse, max_staleness="any"))
        tell(total=total(warehouse, max_staleness=0))
        if file is not None:
            text = file.read_text(encoding="utf-8")
            file.write_text(text.replace("> 0", "> 1"), encoding="utf-8")
            began = time.perf_counter()
            warehouse.apply()
            tell(seconds=time.perf_counter() - began)


def run_and_die(folder: Path, jobs: int) -> None:
    """Runs jobs that nobody folds, and is killed."""
    import headgate

    warehouse = headgate.open(folder)
    with warehouse.sql("SELECT COUNT(*) AS n FROM shop.sales", max_staleness=0) as answer:
        count = answer.to_arrow().to_pylist()[0]["n"]
    run_jobs(warehouse, count, jobs)
    tell(jobs=jobs)
    os.kill(os.getpid(), signal.SIGKILL)


def total(warehouse: Any, **bound: object) -> list[dict[str, Any]]:
    with warehouse.sql("SELECT COUNT(*) AS stores, SUM(lines) AS lines FROM by_store_1", **bound) as answer:
        return list(answer.to_arrow().to_pylist())


def sales(first: int, count: int) -> Any:
    import numpy as np
    import pyarrow as pa

    ids = np.arange(first, first + count)
    return pa.table(
        {
            "id": ids,
            "customer": (ids * 7919) % CUSTOMERS,
            "product": (ids * 104729) % PRODUCTS,
            "store": ((ids * 31) % STORES).astype(np.int32),
            "qty": ((ids % 9) + 1).astype(np.int32),
            "cents": (ids * 17) % 10_000,
        }
    )


def customers() -> Any:
    import numpy as np
    import pyarrow as pa

    ids = np.arange(CUSTOMERS)
    return pa.table({"customer": ids, "region": (ids % 50).astype(np.int32), "name": [f"customer {n}" for n in ids]})


def products() -> Any:
    import numpy as np
    import pyarrow as pa

    ids = np.arange(PRODUCTS)
    return pa.table({"product": ids, "category": (ids % 25).astype(np.int32), "name": [f"product {n}" for n in ids]})


if __name__ == "__main__":
    main(*sys.argv[1:])
