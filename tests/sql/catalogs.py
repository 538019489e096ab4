"""Tables for lowering tests: a catalog, and the same tables in Spark with random rows."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal

from pyspark.sql import SparkSession

COMMIT_AT = ("__commit_at",)
VERSIONS = ("__sk", "__start_at", "__end_at")


@dataclass(frozen=True)
class Table:
    """`columns` is a Spark schema in DDL, without the hidden columns."""

    columns: str
    key: tuple[str, ...] | None = None
    hidden: tuple[str, ...] = COMMIT_AT
    versioned: bool = False
    fragment: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(part.split()[0] for part in self.columns.split(", "))


@dataclass(frozen=True)
class TestCatalog:
    __test__ = False
    tables: dict[str, Table] = field(default_factory=dict)

    def columns(self, table: str) -> tuple[str, ...] | None:
        found = self.tables.get(table.casefold())
        return None if found is None else found.names

    def hidden(self, table: str) -> tuple[str, ...]:
        return self.tables[table.casefold()].hidden

    def key(self, table: str) -> tuple[str, ...] | None:
        return self.tables[table.casefold()].key

    def is_versioned(self, table: str) -> bool:
        return self.tables[table.casefold()].versioned

    def is_fragment(self, table: str) -> bool:
        return self.tables[table.casefold()].fragment

    def names(self) -> tuple[str, ...]:
        return tuple(self.tables)


SHOP = TestCatalog(
    {
        "s.t": Table("a INT, b INT, c STRING, d DECIMAL(10,2), at TIMESTAMP"),
        "s.u": Table("a INT, e INT, f STRING"),
        "s.k": Table("a INT, g INT, h STRING", key=("a",)),
        "s.n": Table("id INT, r STRUCT<x:INT,y:STRUCT<z:STRING>>, l ARRAY<INT>, m MAP<STRING,INT>", key=("id",)),
        "s.empty": Table("a INT, b INT"),
        "item": Table("item_id INT, name STRING", key=("item_id",), hidden=VERSIONS, versioned=True),
        "top": Table("a INT, b INT", hidden=(), fragment=True),
    }
)

_START = datetime(2024, 1, 1)


def view_name(table: str) -> str:
    return "lowering_" + table.replace(".", "_")


def create_views(spark: SparkSession, seed: int = 7) -> None:
    """The tables of the shop as temporary views: few distinct values, NULLs and duplicates."""
    chance = random.Random(seed)

    def number(upto: int) -> int | None:
        return None if chance.random() < 0.15 else chance.randrange(upto)

    def word() -> str | None:
        return None if chance.random() < 0.15 else chance.choice(["x", "y", "Z", "ä", "it's", "a%b"])

    def moment() -> datetime:
        return _START + timedelta(hours=chance.randrange(100))

    rows: dict[str, list[tuple[object, ...]]] = {
        "s.t": [
            (number(6), number(5), word(), Decimal(chance.randrange(-500, 500)) / 4, moment(), moment())
            for _ in range(40)
        ],
        "s.u": [(number(6), number(5), word(), moment()) for _ in range(25)],
        "s.k": [(index, number(4), word(), moment()) for index in range(5)],
        "s.n": [
            (
                index,
                None if index == 3 else (number(3), (word(),)),
                None if index == 2 else list(range(index)),
                {"p": index, "q": None} if index else {},
                moment(),
            )
            for index in range(6)
        ],
        "s.empty": [],
        "item": [
            (item, f"{item}-{version}", item * 10 + version, start, end)
            for item in range(4)
            for version, (start, end) in enumerate(
                ((_START + timedelta(hours=10), _START + timedelta(hours=50)), (_START + timedelta(hours=50), None))
            )
        ],
        "top": [(index, index % 3) for index in range(5)],
    }
    kinds = {"__commit_at": "TIMESTAMP", "__start_at": "TIMESTAMP", "__end_at": "TIMESTAMP", "__sk": "BIGINT"}
    for name, table in SHOP.tables.items():
        schema = ", ".join([table.columns, *(f"{column} {kinds[column]}" for column in table.hidden)])
        spark.createDataFrame(rows[name], schema).createOrReplaceTempView(view_name(name) + "_all")
        spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW {view_name(name)} AS SELECT * FROM {view_name(name)}_all")
