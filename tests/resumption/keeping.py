"""A process that keeps a warehouse over the bank until it is killed, and checks every job that it closes.

python -m tests.resumption.keeping <dsn> <folder> <capture>            says each checked job
python -m tests.resumption.keeping <dsn> <folder> <capture> finish     says all rows of all tables after one last job
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import headgate
from headgate.errors import DefiniteError, SnapshotGone, TransientError
from tests.faults.shop import SPARK
from tests.postgres.bank import TOTAL

TABLES = ("accounts", "moves", "pgbench_tellers", "pgbench_branches")
FLOWS = """
CREATE MATERIALIZED VIEW worth AS SELECT SUM(balance) AS total FROM bank.accounts;
CREATE MATERIALIZED VIEW tills AS SELECT bid, SUM(tbalance) AS total FROM bank.pgbench_tellers GROUP BY bid;
"""
CHECKS = {
    "SELECT (SELECT total FROM worth) AS a, (SELECT SUM(balance) FROM bank.accounts) AS b": (TOTAL, TOTAL),
    "SELECT COUNT(*) AS c FROM tills t FULL JOIN bank.pgbench_branches b ON b.bid = t.bid"
    " WHERE NOT (t.total <=> b.bbalance)": (0,),
}
RETAINED = 20


def project(dsn: str, folder: Path, capture: str) -> dict[str, object]:
    flows = folder / "flows"
    flows.mkdir(parents=True, exist_ok=True)
    (flows / "bank.sql").write_text(FLOWS)
    tables = {table: {} for table in TABLES}
    return {
        "name": "bank",
        "storage": str(folder / "warehouse"),
        "spark": SPARK,
        "libraries": [{"glob": {"include": f"{flows}/**"}}],
        "retention": {"jobs": RETAINED},
        "sources": {"bank": {"type": "postgres", "dsn": dsn, "capture": capture, "tables": tables}},
    }


def check(warehouse: headgate.Warehouse, job: int) -> None:
    """The totals that every transaction leaves as they are."""
    for query, expected in CHECKS.items():
        with warehouse.sql(query, job=job) as answer:
            found = [tuple(row.values()) for row in answer.to_arrow().to_pylist()]
        assert found == [expected], f"job {job}: {query} gave {found}"


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def keep(warehouse: headgate.Warehouse) -> None:
    say("open")
    number = 0
    while True:
        try:
            job = warehouse.refresh()
            check(warehouse, job)
        except TransientError:
            time.sleep(0.05)
            continue
        except DefiniteError as error:
            # The damage that was done to the stream log, and its remedy.
            assert "lost" in str(error) or "cursor" in str(error), error
            say(f"lost {' '.join(str(error).split())}")
            warehouse.refresh(full=True)
            continue
        say(f"job {job}")
        number += 1
        if number % 4 == 0:
            warehouse.materialize()


def finish(warehouse: headgate.Warehouse) -> None:
    try:
        newest = warehouse.refresh()
    except DefiniteError as error:
        say(f"lost {' '.join(str(error).split())}")
        newest = warehouse.refresh(full=True)
    checked = 0
    for job in range(max(1, newest - RETAINED), newest + 1):
        try:
            check(warehouse, job)
            checked += 1
        except SnapshotGone:
            continue
    content = {}
    for table in TABLES:
        with warehouse.table(f"bank.{table}", job=newest) as answer:
            content[table] = [[str(value) for value in row.values()] for row in answer.to_arrow().to_pylist()]
    say(json.dumps({"newest": newest, "checked": checked, "tables": content}))


def main(dsn: str, folder: str, capture: str, last: str = "") -> None:
    while True:
        try:
            with headgate.open(project(dsn, Path(folder), capture)) as warehouse:
                finish(warehouse) if last else keep(warehouse)
                return
        except TransientError:
            # The server was down at first contact.
            time.sleep(0.1)


if __name__ == "__main__":
    main(*sys.argv[1:])
