"""UNION, INTERSECT and EXCEPT, with and without ALL, are exact after every job."""

from __future__ import annotations

from tests.exactness.conftest import MakeWorld
from tests.exactness.model import Delete, Insert, Table, Truncate, Update
from tests.exactness.world import View

TABLES = {
    "t": Table({"id": "int", "a": "int", "c": "string"}, ("id",)),
    "u": Table({"id": "int", "a": "bigint", "c": "string"}, ("id",)),
}

OPERATIONS = {
    "united": "UNION",
    "united_all": "UNION ALL",
    "shared": "INTERSECT",
    "shared_all": "INTERSECT ALL",
    "without": "EXCEPT",
    "without_all": "EXCEPT ALL",
}


def test_set_operations_are_exact_after_every_job(world: MakeWorld) -> None:
    views = [View(name, f"SELECT a, c FROM s.t {word} SELECT a, c FROM s.u") for name, word in OPERATIONS.items()]
    views.append(
        View("nested", "(SELECT a FROM s.t UNION ALL SELECT a FROM s.u) EXCEPT SELECT a FROM s.u WHERE c = 'x'")
    )
    found = world(TABLES, views=views, limits={"small_table_rows": 1, "rows_per_file": 4})
    found.step(*(Insert("t", {"id": number, "a": number % 2, "c": "x"}) for number in range(5)))
    found.step(Insert("u", {"id": 1, "a": 1, "c": "x"}), Insert("u", {"id": 2, "a": 1, "c": "x"}))
    found.commit(Insert("u", {"id": 3, "a": None, "c": None}), Insert("t", {"id": 9, "a": None, "c": None}))
    found.close_job()
    found.commit(Update("t", {"id": 1, "a": 0}), Delete("t", {"id": 0}))
    found.close_job()
    found.commit(Delete("u", {"id": 3}), Update("u", {"id": 1, "c": "𝄞 ß"}), Insert("u", {"id": 4, "a": 0, "c": "x"}))
    found.refresh()
    found.check_all(3)
    found.step(Truncate("u"))
    found.step(Truncate("t"), Insert("u", {"id": 1, "a": 1, "c": "x"}))
