"""A warehouse whose tables, of all types that can be placed, are placed at a database; and random changes of them."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from random import Random

import headgate
from headgate import Warehouse
from headgate.warehouse.store import Step, no_step
from tests.scheduling.bank import SPARK

COLUMNS = {
    "id": "bigint",
    "a": "int",
    "small": "smallint",
    "tiny": "tinyint",
    "text": "string",
    "other": "string",
    "amount": "decimal(12,3)",
    "price": "decimal(5,2)",
    "ratio": "double",
    "day": "date",
    "at": "timestamp",
    "local": "timestamp_ntz",
    "yes": "boolean",
    "raw": "binary",
}
FLOWS = """
CREATE MATERIALIZED VIEW facts TBLPROPERTIES ('place' = 'serving', 'indexes' = 'a, text') AS SELECT * FROM s.numbers;
CREATE MATERIALIZED VIEW sums TBLPROPERTIES ('place' = 'serving') AS
SELECT a, text, COUNT(*) AS n, SUM(amount) AS total, MAX(day) AS latest FROM s.numbers GROUP BY a, text;
CREATE MATERIALIZED VIEW bag TBLPROPERTIES ('place' = 'serving') AS SELECT text, yes FROM s.numbers WHERE a > 0;
CREATE MATERIALIZED VIEW elsewhere AS SELECT a, COUNT(*) AS n FROM s.numbers GROUP BY a;
"""
PLACED = ("facts", "sums", "bag")
TEXTS = ["", "x", "Ünï", "two words", "X", "ß", "\u2028", "~", "é", "10", "9", "it's", "a_b%"]


def project(folder: Path, dsn: str, flows: str = FLOWS, **more: object) -> dict[str, object]:
    (folder / "flows").mkdir(parents=True, exist_ok=True)
    (folder / "flows/flows.sql").write_text(flows, encoding="utf-8")
    return {
        "name": "numbers",
        "storage": str(folder / "warehouse"),
        "libraries": [{"glob": {"include": f"{folder}/flows/**"}}],
        "spark": SPARK,
        "sources": {"s": {"type": "memory", "tables": {"numbers": {"columns": COLUMNS, "key": ["id"]}}}},
        "platforms": {"serving": {"type": "postgres", "dsn": dsn, "schema": "shop"}},
        "background": {"system_jobs": False, "idle_after": "1h"},
        **more,
    }


def opened(folder: Path, dsn: str, flows: str = FLOWS, step: Step = no_step, **more: object) -> Warehouse:
    return headgate.open(project(folder, dsn, flows, **more), step=step)


def random_row(random: Random, key: int) -> dict[str, object]:
    def maybe(value: object) -> object:
        return None if random.random() < 0.15 else value

    return {
        "id": key,
        "a": maybe(random.randint(-3, 3)),
        "small": maybe(random.randint(-300, 300)),
        "tiny": maybe(random.choice([-128, -1, 0, 127])),
        "text": maybe(random.choice(TEXTS)),
        "other": maybe(random.choice(TEXTS)),
        "amount": maybe(Decimal(random.randint(-9999, 9999)) / 1000),
        "price": maybe(Decimal(random.randint(-300, 300)) / 100),
        "ratio": maybe(random.choice([0.0, -0.0, 1.5, 0.1, 1e300, float("inf"), float("-inf"), float("nan")])),
        "day": maybe(random.choice([date(1, 1, 1), date(2024, 2, 29), date(9999, 12, 31), date(1969, 12, 31)])),
        "at": maybe(datetime(2024, 2, 29, 23, 0, 0, random.randint(0, 999_999), tzinfo=UTC)),
        "local": maybe(datetime(random.choice([1, 1900, 2024]), 2, 28, 12, 0, 0, random.randint(0, 9))),
        "yes": maybe(random.random() < 0.5),
        "raw": maybe(random.choice(TEXTS).encode()),
    }


def change(warehouse: Warehouse, random: Random, count: int = 15, keys: int = 60) -> None:
    """A transaction that inserts, overwrites and deletes."""
    with warehouse.source("s").transaction() as transaction:
        for _ in range(count):
            key = random.randint(0, keys)
            if random.random() < 0.25:
                transaction.delete("numbers", {"id": key})
            else:
                transaction.insert("numbers", random_row(random, key))


def content(answer: headgate.Answer) -> list[str]:
    """The rows as texts, in any order."""
    with answer:
        return sorted(repr(list(row.values())) for row in answer.to_arrow().to_pylist())
