"""Subqueries are exact after every job: NOT IN with NULLs, the count of nothing, scalars that change."""

from __future__ import annotations

from tests.exactness.conftest import MakeWorld
from tests.exactness.model import Delete, Insert, Table, Truncate, Update
from tests.exactness.world import View, World

TABLES = {
    "t": Table({"id": "int", "a": "int", "b": "int"}, ("id",)),
    "u": Table({"id": "int", "a": "int", "e": "int"}, ("id",)),
}


def exercise(world: World) -> None:
    world.step(
        Insert("t", {"id": 1, "a": 1, "b": 1}),
        Insert("t", {"id": 2, "a": None, "b": 2}),
        Insert("t", {"id": 3, "a": 3}),
    )
    world.step(Insert("u", {"id": 1, "a": 1, "e": 1}))
    world.step(Insert("u", {"id": 2, "a": None, "e": 3}), Insert("u", {"id": 3, "a": 3, "e": None}))
    world.commit(Delete("u", {"id": 2}), Insert("t", {"id": 4, "a": 1, "b": 3}))
    world.close_job()
    world.commit(Update("u", {"id": 1, "a": 2}), Insert("u", {"id": 5, "a": 1, "e": 9}))
    world.close_job()
    world.commit(Update("u", {"id": 3, "e": 7}), Update("t", {"id": 3, "a": 1, "b": 7}))
    world.refresh()
    world.check_all(4)
    world.step(Truncate("u"))
    world.step(Insert("u", {"id": 1, "a": None, "e": None}), Delete("t", {"id": 1}))


def test_not_in_and_exists_are_exact_after_every_job(world: MakeWorld) -> None:
    views = [
        View("inside", "SELECT id, a FROM s.t WHERE a IN (SELECT a FROM s.u)"),
        View("outside", "SELECT id, a FROM s.t WHERE a NOT IN (SELECT a FROM s.u)"),
        View("outside_each", "SELECT id FROM s.t WHERE a NOT IN (SELECT u.e FROM s.u WHERE u.a = t.b)"),
        View("outside_pairs", "SELECT id FROM s.t WHERE (a, b) NOT IN (SELECT a, e FROM s.u)"),
        View("there", "SELECT id FROM s.t WHERE EXISTS (SELECT 1 FROM s.u WHERE u.a = t.a AND u.e > t.b)"),
        View("nowhere", "SELECT id FROM s.t WHERE NOT EXISTS (SELECT 1 FROM s.u WHERE u.a = t.a)"),
        View("either", "SELECT id FROM s.t WHERE b > 2 OR a NOT IN (SELECT e FROM s.u)"),
        View("known", "SELECT id, a IN (SELECT u.a FROM s.u WHERE u.e = t.b) AS known FROM s.t"),
    ]
    exercise(world(TABLES, views=views, limits={"small_table_rows": 1, "rows_per_file": 4}))


def test_scalar_subqueries_are_exact_after_every_job(world: MakeWorld) -> None:
    """A count of no rows is 0 and not NULL."""
    views = [
        View("counted", "SELECT id, (SELECT count(*) FROM s.u WHERE u.a = t.a) AS n FROM s.t"),
        View("none", "SELECT id FROM s.t WHERE (SELECT count(*) FROM s.u WHERE u.a = t.a) = 0"),
        View("largest", "SELECT id, b FROM s.t WHERE a = (SELECT max(a) FROM s.u)"),
        View("average", "SELECT id FROM s.t WHERE b > (SELECT avg(e) FROM s.u WHERE u.a = t.a)"),
        View("summed", "SELECT id, (SELECT sum(e + 1) FROM s.u WHERE u.a = t.a) + t.b AS s FROM s.t"),
        View("ranged", "SELECT id, (SELECT max(e) FROM s.u WHERE u.a < t.a) AS m FROM s.t"),
        View("having", "SELECT a, count(*) AS n FROM s.t GROUP BY a HAVING count(*) > (SELECT count(e) - 1 FROM s.u)"),
    ]
    exercise(world(TABLES, views=views, limits={"small_table_rows": 1, "rows_per_file": 4}))
