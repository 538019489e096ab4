"""Ranges of tables at different jobs: whatever was brought forward and whatever was left behind, every job is exact."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headgate.runtime.evaluation import wide_inputs
from headgate.runtime.stages.ways import Way
from tests.exactness.model import Change, Delete, Dimension, Insert, Table, Truncate, Update
from tests.exactness.world import View, World
from tests.seed import SEED

EXAMPLES = int(os.environ.get("HEADGATE_EXAMPLES", 1))

TABLES = {
    "heads": Table({"k": "bigint", "g": "int", "w": "int"}, ("k",)),
    "facts": Table({"k": "bigint", "n": "int", "ref": "bigint", "v": "int"}, ("k", "n")),
    "refs": Table({"ref": "bigint", "name": "string"}, ("ref",)),
}
RANGES = {"heads": {"column": "k", "bounds": [3, 6]}, "facts": {"column": "k"}}
VIEWS = (
    View("joined", "SELECT h.k, h.g, f.n, f.v FROM s.heads h JOIN s.facts f ON h.k = f.k"),
    View("outer_joined", "SELECT h.k, f.n, f.v FROM s.heads h LEFT JOIN s.facts f ON h.k = f.k"),
    View("outer_residual", "SELECT h.k, f.n FROM s.heads h LEFT JOIN s.facts f ON h.k = f.k AND f.v > h.w"),
    View("summed", "SELECT k, sum(v) AS s, count(*) AS c, max(n) AS m FROM s.facts GROUP BY k"),
    View("looked_up", "SELECT f.k, f.n, r.name FROM s.facts f LEFT JOIN s.refs r ON f.ref = r.ref"),
    View("in_one", "SELECT k, v FROM s.facts UNION ALL SELECT k, w FROM s.heads"),
    View("numbered", "SELECT k, n, row_number() OVER (PARTITION BY k ORDER BY v, n) AS r FROM s.facts"),
    View("self_joined", "SELECT a.k, a.n, b.n AS bn FROM s.facts a JOIN s.facts b ON a.k = b.ref"),
    # States whose groups lack the column.
    View(
        "of_totals",
        "SELECT f.k, f.n, t.s, u.u FROM s.facts f JOIN (SELECT g, sum(w) AS s FROM s.heads GROUP BY g) t ON t.g = f.ref"
        " LEFT JOIN (SELECT c, count(*) AS u FROM (SELECT g, count(*) AS c FROM s.heads GROUP BY g) GROUP BY c) u ON u.c = f.n",
    ),
    View("matched", "SELECT f.k, f.n, h.w FROM s.facts f LEFT JOIN s.heads h ON h.g = f.ref"),
    View("counted", "SELECT k, count(*) AS c FROM joined GROUP BY k"),
    View("all_rows", "SELECT sum(v) AS s, count(*) AS c FROM s.facts"),
    View("by_ref", "SELECT ref, sum(v) AS s FROM s.facts GROUP BY ref", ranges=("ref", 3)),
    View("without", "SELECT k, g FROM s.heads h WHERE NOT EXISTS (SELECT 1 FROM s.facts f WHERE f.k = h.k)"),
    View("of_groups", "SELECT x.k, x.s, h.g FROM summed x JOIN s.heads h ON x.k = h.k"),
    View("by_other", "SELECT ref, s, count(*) AS c FROM by_ref GROUP BY ref, s"),
    View(
        "dated",
        "SELECT f.k, f.n, d.name FROM s.facts f LEFT JOIN dim FOR SYSTEM_TIME AS OF f.__commit_at d ON d.ref = f.ref",
        "SELECT f.k, f.n, d.name FROM s.facts f LEFT JOIN dim d ON d.ref = f.ref"
        " AND d.__start_at <= f.__commit_at AND (d.__end_at IS NULL OR f.__commit_at < d.__end_at)",
    ),
)
ALWAYS = ("joined", "summed", "of_groups", "by_ref", "by_other", "dated")
ALIGNED = {"joined", "outer_joined", "outer_residual", "summed", "looked_up", "in_one", "numbered", "counted", "without",
           "of_totals", "matched", "of_groups", "by_ref", "by_other", "dated"}  # fmt: skip


def change(choice: random.Random) -> Change:
    k, n = choice.randint(0, 8), choice.randint(0, 2)
    match choice.randint(0, 11):
        case 0 | 1 | 2 | 3:
            return Insert("facts", {"k": k, "n": n, "ref": choice.randint(0, 8), "v": choice.randint(0, 5)})
        case 4 | 5:
            return Insert("heads", {"k": k, "g": choice.randint(0, 3), "w": choice.randint(0, 3)})
        case 6:
            return Insert("refs", {"ref": k, "name": choice.choice("abc")})
        case 7:
            # From one range to another: a row goes here and comes there, in one job.
            moved = {"k": choice.randint(0, 8), "n": n, "ref": choice.randint(0, 8), "v": choice.randint(0, 5)}
            return Update("facts", moved, {"k": k, "n": n})
        case 8:
            return Delete("facts", {"k": k, "n": n})
        case 9:
            return Delete("heads", {"k": k})
        case 10:
            return Update("heads", {"k": k, "g": choice.randint(0, 3)})
    return Truncate("facts") if choice.random() < 0.1 else Delete("refs", {"ref": k})


@pytest.mark.slow
@pytest.mark.parametrize("number", range(EXAMPLES))
def test_ranges_at_different_jobs_are_exact(
    oracle: SparkSession, tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    choice = random.Random(f"ranges {SEED} {number}")
    monkeypatch.setattr(wide_inputs, "ROWS_PER_CHANGE", choice.randint(0, 1))
    monkeypatch.setattr(wide_inputs, "MANY_ROWS", choice.choice((0, wide_inputs.MANY_ROWS)))
    limits = {"rows_per_file": 4, "small_table_rows": choice.choice((1, 1000)), "batch_rows": 50}
    views = [*choice.sample(VIEWS[:8], 3), *choice.sample(VIEWS[8:14], 2)]
    wanted = [view for view in VIEWS if view in views or view.name in ALWAYS]
    with World(tmp_path, oracle, TABLES, [Dimension("dim", "refs")], wanted, limits, RANGES) as world:
        divided = {view.name for view in wanted if world.stored(view.name).division is not None}
        assert divided == ALIGNED & {view.name for view in wanted}
        world.commit(*[change(choice) for _ in range(25)])
        world.refresh()
        # A flow with ranges of its own, by another column, which the flow that reads it inherits.
        world.warehouse.change_ranges("by_ref", bounds=["3", "6"])
        assert world.stored("by_other").range_map.bounds == (3, 6)
        for _ in range(4):
            for _ in range(choice.randint(1, 2)):
                world.commit(*[change(choice) for _ in range(choice.randint(1, 6))])
            world.close_job()
            if choice.random() < 0.5:
                world.way = choice.choice([*Way, None])
            for _ in range(choice.randint(1, 2)):
                world.bring(choice.choice(sorted(divided)), choice.sample(range(3), choice.randint(1, 2)))
            if choice.random() < 0.3:
                world.materialize()
            if choice.random() < 0.3:
                world.kill_in(world.materialize, choice.randint(0, 12))
                world.reopen()
            if choice.random() < 0.3:
                bounds = sorted(choice.sample(range(1, 8), 2))
                world.warehouse.change_ranges("summed", bounds=[str(bound) for bound in bounds])
        world.refresh()
        world.check_new_jobs()
