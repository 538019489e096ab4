"""Many flows: what a refresh, a query and a new flow cost as the flows of a warehouse grow in number.

    make bench NAME=flows SCALE=tiny|small|full
    python -m benchmarks.flows --scale small --large-rows 50000 --rounds 3     (on fewer rows)
    python -m benchmarks.flows --scale small --parts touched query define      (parts of it: only their warehouses are loaded)

Warehouses with the same twenty tables and 1, 3, 10, 30 and 100 flows are open side by side, on one Spark, and take turns. The flows
are aggregates, joins of large with small and of large with large tables, filters, and chains of four. A transaction changes
a few rows of every table, except for `touched`: there it changes one table, which the same three flows read in both warehouses.

    refresh_30_vs_1, refresh_100_vs_10   seconds of a refresh of all flows (at full of 300, as refresh_300_vs_10)
    touched_3_of_100_vs_3                the same where three flows have something to do
    one_query_growth                     seconds of a fresh answer from one flow, among 100 over among 10
    refresh_all_vs_recompute_all         seconds of running the queries of all flows from scratch, over those of a refresh
    define_growth                        seconds of defining and dropping one flow, among 100 over among 10
    executions                           Spark jobs of one refresh
    sharing                              twelve flows over one join of three tables: computing the join once, over in each of them
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

import headgate
from benchmarks.processor import cost, processor_seconds
from benchmarks.report import SCALES, earlier, median, merged, publish, say, seconds
from benchmarks.spark import spark_settings
from headgate import Warehouse
from headgate.capture.memory import MemorySource
from headgate.runtime.stages import view_stage

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
RECOMPUTED = 3
"""Rounds of recomputing all flows, after one that does not count."""
GROUPS = 200
PARTS = ("refresh", "touched", "query", "define", "sharing")
SHARING = 12
"""Flows of the warehouse in which all read the same join."""
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


def sharing_flows() -> list[str]:
    """Flows that differ above one join of three tables."""
    joined = "FROM shop.b0 b JOIN shop.b1 o ON o.id = b.id JOIN shop.s0 s ON s.id = b.small"
    heads = [f"CREATE MATERIALIZED VIEW over_{number} AS SELECT" for number in range(SHARING)]
    return [
        f"{head} b.part, SUM(b.amount + {number}) AS amount, COUNT(*) AS n {joined} GROUP BY b.part"
        if number % 3 == 0
        else f"{head} s.kind, SUM(o.amount * {number}) AS amount {joined} GROUP BY s.kind"
        if number % 3 == 1
        else f"{head} b.id, b.amount + o.amount + {number} AS amount, s.name {joined}"
        for number, head in enumerate(heads)
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
    texts = sharing_flows() if count == SHARING else flow_texts(count)
    (flows / "flows.sql").write_text(";\n".join(texts) + ";\n", encoding="utf-8")
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


def warm_up(loaded: Loaded, scale: str) -> None:
    for _ in range(WARM_UP[scale]):
        loaded.refresh()
        loaded.refresh(ALONE)


def compared(
    warehouses: dict[int, Loaded], rounds: int, sizes: tuple[int, ...], action: Callable[[Loaded], float]
) -> dict[str, dict[str, float]]:
    """By number of flows, seconds and processor seconds of the action; the warehouses take turns."""
    found: dict[str, list[tuple[float, float]]] = {str(size): [] for size in sizes}
    for _ in range(rounds):
        for size in sizes:
            before = processor_seconds()
            elapsed = action(warehouses[size])
            found[str(size)].append((elapsed, processor_seconds() - before))
    medians = {
        name: {size: median([pair[place] for pair in pairs]) for size, pairs in found.items()}
        for place, name in enumerate(("s", "cpu_s"))
    }
    say(str(medians))
    return medians


def figures(warehouses: dict[int, Loaded], scale: str, parts: list[str]) -> dict[str, object]:
    one, three, few, some, many = SIZES[scale]
    rounds = ROUNDS[scale]
    found: dict[str, object] = {"large_rows": LARGE_ROWS[scale]}
    if "refresh" in parts:
        say("refreshing")
        took = compared(warehouses, rounds, (one, few, some, many), Loaded.refresh)
        found["refresh_30_vs_1"] = took["s"][str(some)] / took["s"][str(one)]
        found["refresh_300_vs_10" if scale == "full" else "refresh_100_vs_10"] = (
            took["s"][str(many)] / took["s"][str(few)]
        )
        found["refresh"] = took
        found["executions"] = {
            str(size): loaded.executions(loaded.refresh)
            for size, loaded in warehouses.items()
            if size in (one, few, some, many)
        }
        say("recomputing")
        warehouses[many].recompute()
        found["recompute_all_s"] = recomputed = median([warehouses[many].recompute() for _ in range(RECOMPUTED)])
        found["refresh_all_vs_recompute_all"] = recomputed / took["s"][str(many)]
    if "touched" in parts:
        say("touching one table")
        took = compared(warehouses, rounds, (three, many), lambda loaded: loaded.refresh(ALONE))
        found["touched_3_of_100_vs_3"] = took["s"][str(many)] / took["s"][str(three)]
        found["touched"] = took
    if "query" in parts:
        say("asking")
        took = compared(warehouses, rounds, (few, many), Loaded.query)
        found["one_query_growth"] = took["s"][str(many)] / took["s"][str(few)]
        found["query"] = took
        for size in (few, many):
            warehouses[size].warehouse.refresh()
    if "define" in parts:
        say("defining")
        took = compared(warehouses, rounds, (few, many), Loaded.define)
        found["define_growth"] = took["s"][str(many)] / took["s"][str(few)]
        found["define"] = took
    if "sharing" in parts:
        say("sharing")
        found["sharing"] = sharing_figures(warehouses[SHARING], rounds)
    return found


def sharing_figures(loaded: Loaded, rounds: int) -> dict[str, object]:
    """Refreshes in which the join is computed once, and in each flow."""
    parts = loaded.warehouse._engine.batches.shared_parts
    worth, found = view_stage.is_worth_sharing, {}
    try:
        for _ in range(rounds):
            for name, rule in {"once": worth, "each": lambda part, flows: False}.items():
                view_stage.is_worth_sharing = rule  # type: ignore[assignment]
                found.setdefault(name, []).append(cost(loaded.refresh))
    finally:
        view_stage.is_worth_sharing = worth
    if not parts.reused:
        raise SystemExit("no part was shared")
    medians = {name: [median(values) for values in zip(*costs, strict=True)] for name, costs in found.items()}
    say(str(medians))
    return {
        "seconds": medians["once"][0] / medians["each"][0],
        "processor": medians["once"][1] / medians["each"][1],
        "once_s": medians["once"][0],
        "each_s": medians["each"][0],
    }


def needed_sizes(scale: str, parts: list[str]) -> list[int]:
    """The warehouses that the parts compare."""
    one, three, few, some, many = SIZES[scale]
    needed = {"refresh": {one, few, some, many}, "touched": {three, many}, "query": {few, many}, "define": {few, many}}
    needed["sharing"] = {SHARING}
    return sorted(set().union(*(needed[part] for part in parts)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", choices=SCALES, default="small")
    parser.add_argument("--large-rows", type=int, help="rows of a large table instead of the scale's")
    parser.add_argument("--rounds", type=int, help="rounds instead of the scale's")
    parser.add_argument("--parts", nargs="+", choices=PARTS, help="only these, beside what runs of others found")
    given = parser.parse_args()
    scale, parts = given.scale, given.parts or list(PARTS)
    LARGE_ROWS[scale] = given.large_rows or LARGE_ROWS[scale]
    ROUNDS[scale] = given.rounds or ROUNDS[scale]
    with tempfile.TemporaryDirectory(prefix="headgate-flows-") as folder:
        warehouses: dict[int, Loaded] = {}
        try:
            for count in needed_sizes(scale, parts):
                place = Path(folder) / str(count)
                place.mkdir()
                say(f"loading a warehouse of {count} flows")
                began = time.perf_counter()
                warehouses[count] = Loaded(headgate.open(project(place, scale, count)), scale)
                warm_up(warehouses[count], scale)
                say(f"  {time.perf_counter() - began:.0f} s")
            found = figures(warehouses, scale, parts)
            publish("flows", scale, found if given.parts is None else merged(earlier("flows", scale), found), TARGETS)
        finally:
            for loaded in reversed(warehouses.values()):
                loaded.warehouse.close()


if __name__ == "__main__":
    main()
