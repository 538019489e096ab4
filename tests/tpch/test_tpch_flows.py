"""The 22 TPC-H queries as flows of one warehouse: after every job each is what Spark makes of the same rows from scratch."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import headgate
from headgate.runtime.flows.explain import Explanation
from headgate.runtime.spark.sessions import SparkSessions
from headgate.scheduling.warehouse import Warehouse
from tests.exactness.comparing import Rows, difference
from tests.exactness.world import SMALL_QUERIES
from tests.tpch.data import KEYS, Shop, generated, spark_types

QUERIES = {
    file.stem: file.read_text(encoding="utf-8") for file in sorted((Path(__file__).parent / "queries").glob("*"))
}
DOCUMENT = Path(__file__).parents[2] / "docs" / "tpch.md"
SCALE = 0.002

HEADER = """\
# TPC-H

The 22 queries of TPC-H, as they stand in `tests/tpch/queries`, are flows of one warehouse in `tests/tpch/test_tpch_flows.py`.
After an initial load, jobs insert and delete orders with their line items and update rows of the other tables; after every
job each flow equals the query that Spark runs from scratch on the same rows. {fully} of the 22 are fully incremental.

An operator that is recomputed is incremental too: it reads and recomputes the groups that a job touched, and only these.
An aggregate over all rows has one group, so every job that changes its input reads that input whole (q15: one row per supplier).

The specification's row limits ("first 100 rows" of q02 and q21, 20 of q10, 10 of q03, 100 of q18) are not part of its SQL
text, so the flows keep all rows and a reader adds `LIMIT`. An `ORDER BY` says nothing about a table's rows; it is the
reader's as well.

| query | name | fully incremental | touched groups recomputed |
|---|---|---|---|
"""


class Comparison:
    """A warehouse with all queries as flows, and the rows that its source holds after every job."""

    def __init__(self, folder: Path, oracle: SparkSession) -> None:
        self._folder = folder
        self._oracle = oracle
        self._flows = folder / "flows"
        self._flows.mkdir()
        for name, text in QUERIES.items():
            statement = f"CREATE MATERIALIZED VIEW {name} AS\n{text}"
            (self._flows / f"{name}.sql").write_text(statement, encoding="utf-8")
        (folder / "rows").mkdir()
        self.shop = Shop(generated(folder / "rows", SCALE))
        self.shop.hold_back(every=10)
        self.seen: set[str] = set()
        """The queries that had a result."""
        self._snapshots = {0: dict(self.shop.tables)}
        self.open()

    def open(self, **limits: int) -> None:
        tables = {
            name: {"columns": spark_types(table), "key": list(KEYS[name])} for name, table in self.shop.tables.items()
        }
        self.warehouse: Warehouse = headgate.open(
            {
                "name": "tpch",
                "storage": str(self._folder / "warehouse"),
                "spark": SMALL_QUERIES,
                "libraries": [{"glob": {"include": f"{self._flows}/**"}}],
                "limits": limits,
                "sources": {"tpch": {"type": "memory", "tables": tables}},
            }
        )

    def reopen(self, **limits: int) -> None:
        self.warehouse.materialize()
        self.warehouse.close()
        self.open(**limits)

    def load(self) -> None:
        with self.warehouse.source("tpch").transaction(initial=True) as transaction:
            self.shop.load(transaction)
        self.close_job()

    def change(self, orders: int) -> None:
        with self.warehouse.source("tpch").transaction() as transaction:
            self.shop.refresh(transaction, orders)

    def close_job(self) -> int:
        job = int(self.warehouse.close_job())
        self._snapshots[job] = dict(self.shop.tables)
        return job

    def check(self, job: int) -> None:
        """Every flow at the job."""
        for name, table in self._snapshots[job].items():
            self._oracle.createDataFrame(table).createOrReplaceTempView(name)
        failures = []
        for name, text in QUERIES.items():
            with self.warehouse.table(name, job=job) as answer:
                actual = Rows.of(answer.dataframe)
            self.seen |= {name} if actual.values else set()
            found = difference(actual, Rows.of(self._oracle.sql(re.sub(r"\btpch\.", "", text))))
            failures += [f"{name} at job {job}: {found}"] if found else []
        assert not failures, "\n".join(failures)


@pytest.fixture
def comparison(spark_sessions: SparkSessions, tmp_path: Path) -> Iterator[Comparison]:
    oracle = spark_sessions.small.newSession()
    for name, value in SMALL_QUERIES.items():
        if name != "spark.master":
            oracle.conf.set(name, value)
    made = Comparison(tmp_path, oracle)
    yield made
    made.warehouse.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    "look_up", [False, pytest.param(True, marks=pytest.mark.thorough)], ids=["read whole", "looked up"]
)
def test_all_queries_are_exact_after_every_job(comparison: Comparison, *, look_up: bool) -> None:
    comparison.load()
    comparison.warehouse.refresh()
    comparison.change(orders=30)
    comparison.close_job()
    comparison.change(orders=3)
    comparison.close_job()
    comparison.warehouse.refresh()
    comparison.check(2)
    comparison.check(3)
    if look_up:
        comparison.reopen(small_table_rows=1)
        comparison.change(orders=20)
        comparison.change(orders=2)
        comparison.close_job()
        comparison.warehouse.refresh()
        comparison.check(4)
    assert comparison.seen == set(QUERIES)
    explanations = {name: comparison.warehouse.explain(name) for name in QUERIES}
    assert sum(found.is_incremental for found in explanations.values()) >= 18
    text = document(explanations)
    if os.environ.get("REWRITE"):
        DOCUMENT.write_text(text, encoding="utf-8")
    assert DOCUMENT.read_text(encoding="utf-8") == text, "run again with REWRITE=1 and look at what changed"


def document(explanations: Mapping[str, Explanation]) -> str:
    """The page that lists what is incremental."""
    lines = []
    for name, found in explanations.items():
        title = QUERIES[name].splitlines()[0].removeprefix("-- ").split(".")[0]
        kind = "yes" if found.is_incremental else f"no: {'; '.join(found.reasons)}"
        lines.append(f"| {name} | {title} | {kind} | {', '.join(recomputed(found)) or '–'} |")
    fully = sum(found.is_incremental for found in explanations.values())
    return HEADER.format(fully=fully) + "\n".join(lines) + "\n"


def recomputed(explanation: Explanation) -> list[str]:
    """The operators that recompute touched groups, with the query's own column names."""
    found = re.findall(r"^ *(.+?)  \[touched .* recomputed", explanation.graph, re.MULTILINE)
    return [re.sub(r"\b\w+?__(\w+?)(_\d+)?\b", r"\1", text) for text in found]
