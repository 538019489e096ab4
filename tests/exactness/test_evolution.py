"""Flows over flows, and flows that are added, changed and removed while data goes on changing."""

from __future__ import annotations

import pytest

from headgate.errors import UnknownTable
from tests.exactness.conftest import MakeWorld
from tests.exactness.model import Delete, Dimension, Insert, Table, Update
from tests.exactness.world import View

TABLES = {
    "t": Table({"id": "int", "g": "string", "n": "int"}, ("id",)),
    "u": Table({"id": "int", "g": "string", "x": "double"}, ("id",)),
}
BASE = View("base", "SELECT g, count(*) AS c, sum(n) AS s FROM s.t GROUP BY g")
BAG = View("bag", "SELECT g, n % 2 AS odd FROM s.t WHERE n > 0")
LIMITS = {"small_table_rows": 1, "rows_per_file": 2}


def test_flows_over_flows_are_exact_after_every_job(world: MakeWorld) -> None:
    views = [
        BASE,
        BAG,
        View("above", "SELECT c, count(*) AS k FROM base GROUP BY c"),
        View("beside", "SELECT b.g, b.c, u.x FROM base b LEFT JOIN s.u ON u.g = b.g"),
        View("of_bag", "SELECT g, odd, count(*) AS k FROM bag GROUP BY g, odd"),
        View("of_both", "SELECT a.k, b.odd FROM above a JOIN of_bag b ON a.c = b.k"),
        View("of_versions", "SELECT name, count(*) AS k FROM versions GROUP BY name"),
    ]
    tables = {**TABLES, "d": Table({"k": "int", "name": "string"}, ("k",))}
    found = world(tables, [Dimension("versions", "d")], views, LIMITS)
    found.step(*(Insert("t", {"id": number, "g": "aab"[number % 3], "n": number}) for number in range(4)))
    found.commit(Insert("u", {"id": 1, "g": "a", "x": 0.5}), Insert("d", {"k": 1, "name": "x"}))
    found.close_job()
    found.commit(Update("t", {"id": 1, "g": "b"}), Update("d", {"k": 1, "name": "y"}))
    found.close_job()
    found.commit(Delete("t", {"id": 2}), Insert("u", {"id": 2, "g": "b", "x": 1.5}))
    found.refresh()
    found.check_all(2)
    found.materialize()
    found.step(Insert("t", {"id": 9, "g": None, "n": 1}))
    found.reopen()
    found.check_all()
    found.step(Delete("t", {"id": 9}), Delete("u", {"id": 1}))


def test_a_flow_added_later_is_built_from_the_replicas(world: MakeWorld) -> None:
    found = world(TABLES, views=[BASE], limits=LIMITS)
    found.step(*(Insert("t", {"id": number, "g": "ab"[number % 2], "n": number}) for number in range(6)))
    added = [
        BAG,
        View("averages", "SELECT g, avg(n) AS a, max(n) AS m FROM s.t GROUP BY g"),
        View("overall", "SELECT count(*) AS c, sum(n) AS s FROM s.t"),
        View("unmatched", "SELECT a.id FROM s.t a LEFT JOIN s.u b ON a.g = b.g AND b.x > a.n WHERE b.id IS NULL"),
    ]
    for view in added:
        found.warehouse.flow(view.name, view.text)
    found.views = [BASE, *added]
    found.check(1)
    found.step(Update("t", {"id": 1, "g": "a"}), Delete("t", {"id": 2}), Insert("u", {"id": 1, "g": "a", "x": 3.5}))
    found.step(Insert("u", {"id": 2, "g": "b", "x": 99.0}), Insert("t", {"id": 7, "g": "b", "n": 4}))
    for view in added:
        assert any(found.rows(view.name))


def test_an_arrangement_of_a_replaced_table_is_made_anew(world: MakeWorld) -> None:
    most = View("most", "SELECT g, max(n) AS m FROM sized GROUP BY g")
    found = world(TABLES, views=[View("sized", "SELECT id, g, n FROM s.t"), most], limits=LIMITS)
    found.step(*(Insert("t", {"id": number, "g": "ab"[number % 2], "n": number}) for number in range(6)))
    assert found.warehouse.explain("most").arrangements
    found.materialize()
    found.views = [View("sized", "SELECT id, g, 0 - n AS n FROM s.t"), most]
    found.reopen()
    found.step(Delete("t", {"id": 0}), Update("t", {"id": 1, "g": "a"}))


def test_a_changed_flow_is_rebuilt_and_the_flows_over_it_as_well(world: MakeWorld) -> None:
    over = View("over", "SELECT sum(c) AS total FROM counted")
    found = world(TABLES, views=[View("counted", "SELECT g, count(*) AS c FROM s.t GROUP BY g"), over], limits=LIMITS)
    found.step(*(Insert("t", {"id": number, "g": "ab"[number % 2], "n": number}) for number in range(5)))
    found.materialize()
    found.views = [View("counted", "SELECT g, count(*) AS c FROM s.t WHERE n > 1 GROUP BY g"), over]
    found.reopen()
    found.check(1)
    found.step(Delete("t", {"id": 3}), Insert("t", {"id": 8, "g": "c", "n": 8}))
    found.materialize()
    found.reopen()
    found.check(2)


def test_the_old_definition_answers_when_the_new_one_cannot_be_built(world: MakeWorld) -> None:
    found = world(TABLES)
    found.commit(Insert("t", {"id": 1, "g": "a", "n": 0}))
    found.refresh()
    found.warehouse.flow("shares", "SELECT id, n + 1 AS share FROM s.t")
    with pytest.raises(Exception, match="could not be built"):
        found.warehouse.flow("shares", "SELECT id, raise_error('no') AS share FROM s.t")
    assert found.rows("shares") == {(1, 1)}
    found.commit(Insert("t", {"id": 2, "g": "a", "n": 5}))
    found.refresh()
    assert found.rows("shares") == {(1, 1), (2, 6)}


def test_a_removed_flow_is_archived_and_a_new_one_of_its_name_starts_afresh(world: MakeWorld) -> None:
    found = world(TABLES, views=[BASE, BAG], limits=LIMITS)
    found.step(Insert("t", {"id": 1, "g": "a", "n": 1}), Insert("t", {"id": 2, "g": "a", "n": 3}))
    found.materialize()
    found.views = [BAG]
    found.reopen()
    with pytest.raises(UnknownTable, match="there is no table base"):
        found.rows("base")
    found.step(Insert("t", {"id": 3, "g": "b", "n": 5}))
    found.views = [BAG, BASE]
    found.materialize()
    found.reopen()
    found.check(2)
    found.step(Delete("t", {"id": 1}))
