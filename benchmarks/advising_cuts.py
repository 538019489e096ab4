"""The paper's flow of incomplete orders, stored behind different operators, at growing update rates.

    orders ─ filter ─ join customers ─ M1 ─┐
                                           ├─ join ─ M3 ─ aggregate ─ whole
    lines ── filter ─ aggregate ────── M2 ─┘

    recompute   nothing is stored (the paper's f1)         f3      M3
    f2          M1 and M2                                  whole   the result, as without advice
    f2-1        M1                                         chosen  what headgate stores by itself, after a few reads at a rate
    f2-2        M2

Seven flows of the same query stand beside each other, so that every rate's changes are made once. Timed is what a reader waits for:
bringing the flow to the job, its sources being there, and its rows.

python -m benchmarks.advising_cuts --scale small
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa

import headgate
from benchmarks.report import median, parse_scale, publish, say
from headgate import Warehouse
from headgate.dataflow.cutting import Cut, operator_key
from headgate.dataflow.graph import Aggregate, Join, Node, walk

ORDERS = {"tiny": 600, "small": 300_000, "full": 3_000_000}
RATES = {"tiny": (0.01,), "small": (0.001, 0.01, 0.1, 0.3, 0.5), "full": (0.001, 0.01, 0.1, 0.3, 0.5)}
ROUNDS = {"tiny": 1, "small": 2, "full": 5}
LINES_PER_ORDER = 4
TODAY = 9_298  # 1995-06-17, in days
TABLES = {
    "customers": {"columns": {"id": "bigint", "nation": "int", "region": "int"}, "key": ["id"]},
    "orders": {"columns": {"id": "bigint", "customer": "bigint", "branch": "int", "ordered_on": "int"}, "key": ["id"]},
    "lines": {
        "columns": {"id": "bigint", "order_id": "bigint", "price": "bigint", "discount": "int", "shipped_on": "int"},
        "key": ["id"],
    },
}
QUERY = f"""
SELECT o.branch, c.nation, c.region, MIN(o.ordered_on) AS earliest, MAX(l.latest) AS latest, SUM(l.revenue) AS revenue, COUNT(*) AS orders
FROM shop.orders o
JOIN shop.customers c ON c.id = o.customer
JOIN (SELECT order_id, MAX(shipped_on) AS latest, SUM(price * (100 - discount)) AS revenue FROM shop.lines
      WHERE shipped_on > {TODAY} GROUP BY order_id) l ON l.order_id = o.id
WHERE o.ordered_on < {TODAY}
GROUP BY o.branch, c.nation, c.region
"""
FIXED = ("recompute", "f2", "f2_1", "f2_2", "f3", "whole")
NAMES = {"f2_1": "f2-1", "f2_2": "f2-2"}
TARGETS = {"regret": ("<=", 1.15)}


def main() -> None:
    scale = parse_scale(__doc__ or "")
    with tempfile.TemporaryDirectory() as folder:
        publish("advising_cuts", scale, cut_figures(Path(folder), scale), TARGETS if scale != "tiny" else {})


def cut_figures(folder: Path, scale: str) -> dict[str, object]:
    orders, found, places = ORDERS[scale], {}, []
    with _warehouse(folder) as warehouse:
        _load(warehouse, orders)
        for name, cut in _cuts(warehouse).items():
            if cut is not None:
                with warehouse._engine.defining_flows():
                    warehouse._engine.defining.move(name, cut)
        warehouse.materialize()
        random = Random(5)
        _round(warehouse, random, orders, 0.001)  # what everything takes at first
        for rate in RATES[scale]:
            say(f"incomplete orders at {100 * rate:g} %")
            rounds = []
            for _ in range(ROUNDS[scale]):
                rounds.append(_round(warehouse, random, orders, rate))
                warehouse._advisor.look()
            # The last round is read from what was chosen at this rate.
            rounds.append(_round(warehouse, random, orders, rate))
            found[rate] = {name: median([each[name] for each in rounds]) for name in FIXED}
            found[rate]["chosen"] = rounds[-1]["chosen"]
            places.append(_place(warehouse))
            say(f"chosen: {places[-1]}; {warehouse.advised.get('chosen')}")
    regret = {rate: each["chosen"] / min(each[name] for name in FIXED) for rate, each in found.items()}
    return {
        "orders": orders,
        "cut_seconds": {
            _percent(rate): {NAMES.get(name, name): took for name, took in each.items()} for rate, each in found.items()
        },
        "chosen_behind": {_percent(rate): place for rate, place in zip(found, places, strict=True)},
        "chosen_places": len(set(places)),
        "regret_by_rate": {_percent(rate): value for rate, value in regret.items()},
        "regret": max(regret.values()),
    }


def _percent(rate: float) -> str:
    return f"{100 * rate:g} %"


def _warehouse(folder: Path) -> Warehouse:
    (folder / "flows").mkdir(parents=True)
    statements = [f"CREATE MATERIALIZED VIEW {name} AS {QUERY};" for name in FIXED]
    statements.append(f"CREATE MATERIALIZED VIEW chosen TBLPROPERTIES ('advise' = 'auto') AS {QUERY};")
    text = "\n".join(statements)
    (folder / "flows/flows.sql").write_text(text)
    return headgate.open(
        {
            "name": "advising",
            "storage": str(folder / "warehouse"),
            "libraries": [{"glob": {"include": f"{folder}/flows/**"}}],
            "spark": {"spark.master": "local[2]"},
            "sources": {"shop": {"type": "memory", "tables": TABLES}},
            "retention": {"jobs": 1},
            "background": {"system_jobs": False, "idle_after": "1h"},
            "advising": {"times": 1, "every": "1h"},
        }
    )


def _cuts(warehouse: Warehouse) -> Mapping[str, Cut | None]:
    graph = warehouse._engine.flows.get("whole").plan.uncut
    assert graph is not None
    nodes = walk(graph.root)
    joins = [node for node in nodes if isinstance(node, Join)]
    (with_customers, with_lines) = joins
    lines = next(node for node in nodes if isinstance(node, Aggregate))

    def behind(*places: Node) -> Cut:
        return tuple(map(operator_key, places))

    return {
        "recompute": (),
        "f2": behind(with_customers, lines),
        "f2_1": behind(with_customers),
        "f2_2": behind(lines),
        "f3": behind(with_lines),
        "whole": None,
    }


def _place(warehouse: Warehouse) -> str:
    cut = warehouse._engine.flows.get("chosen").plan.cut
    known = {found: name for name, found in _cuts(warehouse).items()}
    name = known.get(cut, "another")
    return NAMES.get(name, name)


def _orders(random: np.random.Generator, keys: np.ndarray, orders: int) -> pa.Table:
    count = len(keys)
    return pa.table(
        {
            "id": pa.array(keys, pa.int64()),
            "customer": pa.array(random.integers(0, max(1, orders // 10), count), pa.int64()),
            "branch": pa.array(random.integers(0, 20, count), pa.int32()),
            "ordered_on": pa.array(random.integers(8_035, 10_440, count), pa.int32()),
        }
    )


def _lines(random: np.random.Generator, keys: np.ndarray, orders: int) -> pa.Table:
    count = len(keys)
    return pa.table(
        {
            "id": pa.array(keys, pa.int64()),
            "order_id": pa.array(random.integers(0, orders, count), pa.int64()),
            "price": pa.array(random.integers(100, 100_000, count), pa.int64()),
            "discount": pa.array(random.integers(0, 10, count), pa.int32()),
            "shipped_on": pa.array(random.integers(8_036, 10_560, count), pa.int32()),
        }
    )


def _load(warehouse: Warehouse, orders: int) -> None:
    random = np.random.default_rng(5)
    customers = np.arange(max(1, orders // 10))
    with warehouse.source("shop").transaction(initial=True) as transaction:
        nations = random.integers(0, 25, len(customers))
        transaction.insert_many(
            "customers",
            pa.table(
                {
                    "id": pa.array(customers, pa.int64()),
                    "nation": pa.array(nations, pa.int32()),
                    "region": pa.array(nations % 5, pa.int32()),
                }
            ),
        )
        transaction.insert_many("orders", _orders(random, np.arange(orders), orders))
        transaction.insert_many("lines", _lines(random, np.arange(orders * LINES_PER_ORDER), orders))
    warehouse.refresh()
    warehouse.materialize()


def _round(warehouse: Warehouse, random: Random, orders: int, rate: float) -> dict[str, float]:
    """Changes so many of the orders and lines; the seconds until each flow's rows at that job are there."""
    numbers = np.random.default_rng(random.randrange(1 << 30))

    def some(rows: int) -> np.ndarray:
        return numbers.choice(rows, max(1, int(rows * rate)), replace=False)

    with warehouse.source("shop").transaction() as transaction:
        transaction.insert_many("orders", _orders(numbers, some(orders), orders))
        transaction.insert_many("lines", _lines(numbers, some(orders * LINES_PER_ORDER), orders))
    job, engine = warehouse.close_job(), warehouse._engine
    engine.executor.bring(["shop.orders", "shop.lines"], job)
    took, answers = {}, {}
    for name in (*FIXED, "chosen"):
        began = time.perf_counter()
        engine.executor.bring(engine.flows.stored(name), job)
        with warehouse.table(name, job=job) as answer:
            answers[name] = answer.to_arrow()
        took[name] = time.perf_counter() - began
    first = _sorted(answers["whole"])
    for name, rows in answers.items():
        if _sorted(rows) != first:
            raise SystemExit(f"{name} differs from the whole result at job {job}")
    warehouse.materialize()
    return took


def _sorted(rows: pa.Table) -> list[dict[str, object]]:
    return rows.sort_by([("branch", "ascending"), ("nation", "ascending"), ("region", "ascending")]).to_pylist()


if __name__ == "__main__":
    main()
