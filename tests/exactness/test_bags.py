"""Results without a key hold equal rows as copies, and tell rows apart that only nearly are equal."""

from __future__ import annotations

import pytest

from tests.exactness.conftest import MakeWorld
from tests.exactness.model import Delete, Insert, Row, Table, Update
from tests.exactness.world import View

TABLES = {
    "t": Table(
        {"id": "int", "a": "int", "b": "int", "l": "array<int>", "r": "struct<a:int,b:string>", "x": "array<double>"},
        ("id",),
    )
}
ROWS: list[Row] = [
    {"a": 1, "b": None, "l": [], "r": {"a": None, "b": None}, "x": [-0.0]},
    {"a": None, "b": 1, "l": None, "r": None, "x": [0.0]},
    {"a": None, "b": None, "l": [None], "r": {"a": 1, "b": None}, "x": [None]},
    {"a": 1, "b": 1, "l": [None, None], "r": {"a": None, "b": "1"}, "x": [float("nan")]},
    {"a": 0, "b": None, "l": [0], "r": {"a": 0, "b": ""}, "x": []},
    {"a": None, "b": 0, "l": [0, None], "r": {"a": 1, "b": "x"}, "x": [-0.05]},
]
VIEWS = [
    View("numbers", "SELECT a, b FROM s.t"),
    View("lists", "SELECT l FROM s.t"),
    View("structs", "SELECT r FROM s.t"),
    View("floats", "SELECT x FROM s.t"),
    View("maps", "SELECT map('k', a, 'n', b) AS m FROM s.t"),
]


@pytest.mark.parametrize(
    "limits",
    [{"small_table_rows": 1}, {"batch_rows": 4}],
    ids=["in memory", "from files"],
)
def test_rows_that_differ_in_nulls_only_are_different(world: MakeWorld, limits: dict[str, int]) -> None:
    found = world(TABLES, views=VIEWS, limits={**limits, "rows_per_file": 4})
    found.commit(*(Insert("t", {"id": number, **row}) for number, row in enumerate(ROWS)))
    found.check(found.refresh())
    found.step(Insert("t", {"id": 10, **ROWS[0]}), Update("t", {"id": 1, **ROWS[0]}), Delete("t", {"id": 2}))
    found.materialize()
    found.step(Delete("t", {"id": 0}), Insert("t", {"id": 11, **ROWS[1]}), Update("t", {"id": 3, **ROWS[4]}))
    found.step(*(Delete("t", {"id": number}) for number in (1, 3, 4, 5, 10, 11)))


def test_a_bag_that_is_built_later_continues_with_the_same_rows(world: MakeWorld) -> None:
    found = world(TABLES)
    found.commit(*(Insert("t", {"id": number, **row}) for number, row in enumerate([*ROWS, *ROWS])))
    found.refresh()
    for view in VIEWS:
        found.warehouse.flow(view.name, view.text)
    found.views = VIEWS
    found.step(*(Delete("t", {"id": number}) for number in range(7)))
