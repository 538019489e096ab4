"""Aggregates are exact after every job: one row for nothing, HAVING both ways, decimals, floating point."""

from __future__ import annotations

from decimal import Decimal

import pytest

from tests.exactness.conftest import MakeWorld
from tests.exactness.model import Delete, Insert, Table, Truncate, Update
from tests.exactness.world import View, World

TABLES = {
    "t": Table(
        {"id": "int", "g": "string", "n": "int", "big": "bigint", "d": "decimal(10,2)", "x": "double", "f": "boolean"},
        ("id",),
    )
}

RUNNING = [
    View("overall", "SELECT count(*) AS n, sum(n) AS s, avg(n) AS m, sum(d) AS d, avg(d) AS e FROM s.t"),
    View("grouped", "SELECT g, count(*) AS n, count(n) AS c, sum(n) AS s, avg(d) AS a FROM s.t GROUP BY g"),
    View("flipping", "SELECT g, sum(n) AS s FROM s.t GROUP BY g HAVING sum(n) > 3"),
    View("filtered", "SELECT g, sum(big) FILTER (WHERE f) AS s, count_if(n > 1) AS c FROM s.t GROUP BY g"),
    View("by_expression", "SELECT n % 2 AS odd, sum(d * n) AS s FROM s.t GROUP BY n % 2"),
    View("keyless_having", "SELECT count(*) AS n FROM s.t HAVING count(*) > 2"),
    View("anonymous", "SELECT sum(n) AS s FROM s.t GROUP BY g"),
    View("twice", "SELECT max(c) AS m, count(*) AS k FROM (SELECT g, count(*) AS c FROM s.t GROUP BY g)"),
]

RECOMPUTED = [
    View("extremes", "SELECT g, min(n) AS lo, max(d) AS hi, min(g) AS mg FROM s.t GROUP BY g"),
    View("overall_extremes", "SELECT min(n) AS lo, max(x) AS hi, bool_and(f) AS b FROM s.t"),
    View("distinct_values", "SELECT g, count(DISTINCT n) AS c, sum(DISTINCT n) AS s, sum(n) AS a FROM s.t GROUP BY g"),
    View("distinct_pairs", "SELECT count(DISTINCT n, f) AS c FROM s.t"),
    View("floating", "SELECT g, sum(x) AS s, avg(x) AS a FROM s.t GROUP BY g"),
    View("floating_alone", "SELECT sum(x) AS s FROM s.t GROUP BY g"),
    View("spread", "SELECT g, stddev(n) AS s, variance(x) AS v, var_pop(d) AS p FROM s.t GROUP BY g"),
    View("distinct_rows", "SELECT DISTINCT g, f FROM s.t"),
]


FLOATS = [0.1, 0.2, 0.3, 0.7, 1e-3, 3.3, 1 / 3]


def exercise(world: World) -> None:
    world.check(0)
    world.step(
        Insert("t", {"id": 1, "g": "a", "n": 1, "big": 2**62, "d": Decimal("1.10"), "x": 0.1, "f": True}),
        Insert("t", {"id": 2, "g": "a", "n": 3, "big": -1, "d": Decimal("2.25"), "x": 0.2, "f": False}),
        Insert("t", {"id": 3, "g": None, "n": None, "d": None, "x": 1e16, "f": True}),
    )
    world.commit(Update("t", {"id": 2, "n": 2}), Insert("t", {"id": 4, "g": "b", "n": 9, "x": float("inf")}))
    world.close_job()
    world.commit(Delete("t", {"id": 1}), Insert("t", {"id": 5, "g": "a", "n": 2, "d": Decimal("0.01"), "x": 0.3}))
    world.close_job()
    world.commit(Update("t", {"id": 5, "g": "b", "n": -9}), Insert("t", {"id": 6, "g": "a", "n": 7, "x": 0.7}))
    world.refresh()
    world.check_all(2)
    world.materialize()
    world.step(Update("t", {"id": 4, "x": float("nan")}), Delete("t", {"id": 3}), Insert("t", {"id": 7, "g": ""}))
    world.step(Truncate("t"))
    world.step(Insert("t", {"id": 1, "g": "a", "n": 4, "x": 0.5}))


@pytest.mark.parametrize(
    ("views", "small_rows"),
    [([*RUNNING, *RECOMPUTED], 1), pytest.param(RECOMPUTED, 1000, marks=pytest.mark.thorough)],
    ids=["looked up", "recomputed from whole tables"],
)
def test_an_aggregate_is_exact_after_every_job(world: MakeWorld, views: list[View], small_rows: int) -> None:
    exercise(world(TABLES, views=views, limits={"small_table_rows": small_rows, "rows_per_file": 4}))


def test_floating_point_results_are_taken_back_as_they_were_given(world: MakeWorld) -> None:
    """Sums of doubles depend on the order of rows, and rows come in another order from files than from memory."""
    views = [
        View("alone", "SELECT avg(x) AS a, variance(x) AS v, stddev(n) AS d FROM s.t GROUP BY g"),
        View("of_sums", "SELECT s, count(*) AS c FROM (SELECT g, sum(x) AS s FROM s.t GROUP BY g) GROUP BY s"),
        View(
            "of_window", "SELECT s, count(*) AS c FROM (SELECT avg(x) OVER (PARTITION BY g) AS s FROM s.t) GROUP BY s"
        ),
        View("filtered", "SELECT sum(x) FILTER (WHERE n > 1) AS s, max(n) AS m FROM s.t GROUP BY g"),
    ]
    found = world(TABLES, views=views, limits={"small_table_rows": 1, "rows_per_file": 4})
    for job in range(5):
        for number in range(5):
            place = (7 * job + 11 * number) % 23
            row = {"id": place, "g": "ab"[place % 2], "n": place % 5, "x": FLOATS[(place + job) % len(FLOATS)]}
            found.commit(Insert("t", row))
        found.commit(Delete("t", {"id": 3 * job}))
        found.check(found.refresh())
        if job % 2:
            found.materialize()
