"""Many flows: what a refresh, a query and a new flow cost as the flows of a warehouse grow in number.

    make bench NAME=flows SCALE=tiny|small|full

Warehouses with the same twenty tables and 1, 3, 10, 30 and 100 flows are open side by side, on one Spark, and take turns. The flows
are aggregates, joins of large with small and of large with large tables, filters, and chains of four. A transaction changes
a few rows of every table, except for `touched`: there it changes one table, which the same three flows read in both warehouses.

    refresh_30_vs_1, refresh_100_vs_10   seconds of a refresh of all flows
    touched_3_of_100_vs_3                the same where three flows have something to do
    one_query_growth                     seconds of a fresh answer from one flow, among 100 over among 10
    refresh_all_vs_recompute_all         seconds of running the queries of all flows from scratch, over those of a refresh
    define_growth                        seconds of defining and dropping one flow, among 100 over among 10
    executions                           Spark jobs of one refresh
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

import headgate
from benchmarks.report import in_turns, median, parse_scale, publish, say, seconds
from benchmarks.spark import spark_settings
from headgate import Warehouse
from headgate.capture.memory import MemorySource

LARGE, SMALL = 5, 15
"""Numbers of tables."""
LARGE_ROWS = {"tiny": 2_000, "small": 500_000, "full": 500_000}
SMALL_ROWS = {"tiny": 200, "small": 10_000, "full": 10_000}
SIZES = {"tiny": (1, 3, 4, 8, 16), "small": (1, 3, 10, 30, 100), "full": (1, 3, 10, 30, 300)}
"""Flows of the warehouses: one, the touched ones, few, some, many."""
ROUNDS = {"tiny": 2, "small": 7, "full": 5}
WARM_UP = {"tiny": 1, "small": 4, "full": 4}
CHANGED_ROWS = 20
"""Of each table in a transaction."""
GROUPS = 200
ALONE = f"s{SMALL - 1}"
"""The table that only the flows of `touched` read."""
TARGETS = {
    "refresh_30_vs_1": ("<=", 6.0),
    "refresh_100_vs_10": ("<=", 4.0),
    "touched_3_of_100_vs_3": ("<=", 1.2),
    "one_query_growth": ("<=", 1.2),
    "refresh_all_vs_recompute_all": (">=", 3.0),
    "define_growth": ("<=", 1.5),
}


def touched_flows() -> list[str]:
    """Three flows over the table that no other flow reads."""
    return [
        f"CREATE MATERIALIZED VIEW touched_{number} AS SELECT kind, COUNT(*) AS n, SUM(weight + {number}) AS weight"
        f" FROM shop.{ALONE} GROUP BY kind"
        for number in range(3)
    ]


def mixed_flows(number: int) -> list[str]:
    """Ten flows of different kinds, the last four a chain; `number` varies the tables and what is selected."""
    large, other = f"shop.b{number % LARGE}", f"shop.b{(number + 1) % LARGE}"
    small = f"shop.s{number % (SMALL - 1)}"
    head = "CREATE MATERIALIZED VIEW"
    return [
        f"{head} kinds_{number} AS SELECT s.kind, COUNT(*) AS n, SUM(b.amount) AS amount FROM {large} b"
        f" JOIN {small} s ON s.id = b.small GROUP BY s.kind",
        f"{head} totals_{number} AS SELECT part, COUNT(*) AS n, SUM(amount + {number}) AS amount FROM {large} GROUP BY part",
        f"{head} extremes_{number} AS SELECT part, MIN(amount) AS least, MAX(amount) AS most FROM {large}"
        f" WHERE part = {number} GROUP BY part",
        f"{head} named_{number} AS SELECT b.id, b.amount, s.name FROM {large} b JOIN {small} s ON s.id = b.small"
        f" WHERE b.part = {number + 1}",
        f"{head} pairs_{number} AS SELECT b.id, b.amount, o.amount AS other FROM {large} b JOIN {other} o ON o.id = b.id"
        f" WHERE b.part = {number + 2}",
        f"{head} dear_{number} AS SELECT id, part, amount FROM {large} WHERE amount > {9_900 + number}",
        f"{head} first_{number} AS SELECT id, small, part, amount FROM {large} WHERE part < {number % 7 + 2}",
        f"{head} second_{number} AS SELECT f.id, f.part, f.amount, s.kind FROM first_{number} f"
        f" JOIN {small} s ON s.id = f.small",
        f"{head} third_{number} AS SELECT kind, part, SUM(amount) AS amount FROM second_{number} GROUP BY kind, part",
        f"{head} fourth_{number} AS SELECT kind, COUNT(*) AS parts, SUM(amount) AS amount FROM third_{number} GROUP BY kind",
    ]


def flow_texts(count: int) -> list[str]:
    if count == 1:
        return mixed_flows(0)[:1]
    if count == 3:
        return touched_flows()
    texts = [text for number in range(count // 10 + 1) for text in mixed_flows(number)]
    return [*touched_flows(), *texts][:count] if count > 10 else texts[:count]


def project(folder: Path, scale: str, count: int) -> dict[str, object]:
    flows = folder / "flows"
    flows.mkdir(parents=True)
    (flows / "flows.sql").write_text(";\n".join(flow_texts(count)) + ";\n", encoding="utf-8")
    large = {"id": "bigint", "small": "bigint", "part": "int", "amount": "bigint"}
    small = {"id": "bigint", "kind": "int", "weight": "bigint", "name": "string"}
    tables = {f"b{number}": {"columns": large, "key": ["id"]} for number in range(LARGE)}
    tables |= {f"s{number}": {"columns": small, "key": ["id"]} for number in range(SMALL)}
    return {
        "name": f"flows{count}",
        "storage": str(folder / "warehouse"),
        "libraries": [{"glob": {"include": f"{flows}/**"}}],
        "spark": spark_settings(scale, "6g"),
        "retention": {"jobs": 3},
        # Nothing but what is measured runs.
        "background": {"system_jobs": False, "idle_after": "1h", "oldest_changes": "1h"},
        "sources": {"shop": {"type": "memory", "tables": tables}},
    }


@dataclass
class Loaded:
    """A warehouse with its flows and the tables' rows."""

    warehouse: Warehouse
    scale: str
    seed: int = 1
    _random: np.random.Generator = field(init=False)

    def __post_init__(self) -> None:
        self._random = np.random.default_rng(self.seed)
        self._source: MemorySource = self.warehouse.source("shop")
        with self._source.transaction(initial=True) as transaction:
            for name in self._source.tables:
                transaction.insert_many(name, self._rows(name, np.arange(self._size(name))))
        self.warehouse.refresh()

    def change(self, *names: str) -> None:
        """One transaction that replaces a few rows of the tables, of all if none is named."""
        with self._source.transaction() as transaction:
            for name in names or self._source.tables:
                ids = self._random.choice(self._size(name), CHANGED_ROWS, replace=False)
                for row in self._rows(name, ids).to_pylist():
                    transaction.update(name, row)

    def refresh(self, *names: str) -> float:
        self.change(*names)
        return seconds(self.warehouse.refresh)

    def query(self) -> float:
        self.change()
        return seconds(lambda: self.warehouse.sql("SELECT SUM(n) AS n FROM kinds_0", max_staleness="0s").to_arrow())

    def define(self) -> float:
        """Seconds of defining a flow over a small table, its first rows included, and of dropping it."""
        warehouse = self.warehouse

        def run() -> None:
            warehouse.flow("added", "SELECT id, name FROM shop.s0 WHERE kind = 1")
            warehouse.drop("added")

        return seconds(run)

    def recompute(self) -> float:
        """Seconds of every flow's query from scratch over the same replicas, the results made but not kept."""

        def run() -> None:
            for text in flow_texts(SIZES[self.scale][-1]):
                session, query = self.warehouse.from_scratch(text.split()[3])
                session.sql(query).write.format("noop").mode("overwrite").save()

        return seconds(run)

    def executions(self, action: Callable[[], object]) -> int:
        """How many Spark jobs the action takes."""
        before = self._jobs()
        action()
        return self._jobs() - before

    def _jobs(self) -> int:
        context = self.warehouse.spark_for_small_jobs.sparkContext._jsc
        return int(context.sc().dagScheduler().numTotalJobs())

    def _size(self, name: str) -> int:
        return (LARGE_ROWS if name.startswith("b") else SMALL_ROWS)[self.scale]

    def _rows(self, name: str, ids: np.ndarray) -> pa.Table:
        count, draw = len(ids), self._random.integers
        if name.startswith("b"):
            return pa.table(
                {
                    "id": ids.astype(np.int64),
                    "small": draw(0, SMALL_ROWS[self.scale], count),
                    "part": draw(0, GROUPS, count).astype(np.int32),
                    "amount": draw(0, 10_000, count),
                }
            )
        return pa.table(
            {
                "id": ids.astype(np.int64),
                "kind": (ids % 50).astype(np.int32),
                "weight": draw(0, 1_000, count),
                "name": [f"name {value}" for value in draw(0, 1_000, count)],
            }
        )


def figures(warehouses: dict[int, Loaded], scale: str) -> dict[str, object]:
    one, three, few, some, many = SIZES[scale]
    for loaded in warehouses.values():
        for _ in range(WARM_UP[scale]):
            loaded.refresh()
            loaded.refresh(ALONE)
    rounds = ROUNDS[scale]
    say("refreshing")
    refreshed = in_turns({str(size): warehouses[size].refresh for size in (one, few, some, many)}, rounds)
    touched = in_turns({str(size): lambda size=size: warehouses[size].refresh(ALONE) for size in (three, many)}, rounds)
    say("asking")
    asked = in_turns({str(size): warehouses[size].query for size in (few, many)}, rounds)
    warehouses[few].warehouse.refresh()
    warehouses[many].warehouse.refresh()
    say("defining")
    defined = in_turns({str(size): warehouses[size].define for size in (few, many)}, rounds)
    say("recomputing")
    recomputed = warehouses[many].recompute()
    refresh = {size: median(values) for size, values in refreshed.items()}
    define = {size: median(values) for size, values in defined.items()}
    return {
        "refresh_30_vs_1": refresh[str(some)] / refresh[str(one)],
        "refresh_100_vs_10": refresh[str(many)] / refresh[str(few)],
        "touched_3_of_100_vs_3": median(touched[str(many)]) / median(touched[str(three)]),
        "one_query_growth": median(asked[str(many)]) / median(asked[str(few)]),
        "refresh_all_vs_recompute_all": recomputed / refresh[str(many)],
        "define_growth": define[str(many)] / define[str(few)],
        "executions": {
            str(size): loaded.executions(loaded.refresh) for size, loaded in warehouses.items() if size != three
        },
        "refresh_s": refresh,
        "query_s": {size: median(values) for size, values in asked.items()},
        "define_s": define,
        "recompute_all_s": recomputed,
    }


def main() -> None:
    scale = parse_scale(__doc__ or "")
    with tempfile.TemporaryDirectory(prefix="headgate-flows-") as folder:
        warehouses: dict[int, Loaded] = {}
        try:
            for count in SIZES[scale]:
                place = Path(folder) / str(count)
                place.mkdir()
                say(f"loading a warehouse of {count} flows")
                warehouses[count] = Loaded(headgate.open(project(place, scale, count)), scale)
            publish("flows", scale, figures(warehouses, scale), TARGETS)
        finally:
            for loaded in reversed(warehouses.values()):
                loaded.warehouse.close()


if __name__ == "__main__":
    main()
