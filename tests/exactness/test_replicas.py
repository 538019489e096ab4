"""Replicas hold what the source holds, whatever happens to a row inside a transaction or a job."""

from __future__ import annotations

from tests.exactness.conftest import MakeWorld
from tests.exactness.model import Delete, Insert, Table, Truncate, Update
from tests.exactness.world import View

TABLES = {"t": Table({"a": "int", "b": "string", "n": "int"}, ("a", "b")), "o": Table({"a": "int", "n": "int"}, ("a",))}
VIEWS = [
    View("rows", "SELECT * FROM s.t"),
    View("stamped", "SELECT a.a, a.n, a.__commit_at AS since FROM s.o a"),
    View("bag", "SELECT n FROM s.t UNION ALL SELECT n FROM s.o"),
]


def test_a_row_that_comes_and_goes_in_two_transactions_of_one_job_was_never_there(world: MakeWorld) -> None:
    found = world(TABLES, views=VIEWS)
    found.commit(Insert("o", {"a": 0, "n": 1}))
    found.commit(Update("o", {"a": 3, "n": 2}, key={"a": 0}))
    found.check(found.refresh())
    found.step(Insert("o", {"a": 0, "n": 5}))


def test_many_changes_of_a_row_in_a_transaction_and_in_a_job_are_exact(world: MakeWorld) -> None:
    found = world(TABLES, views=VIEWS, limits={"small_table_rows": 1, "rows_per_file": 1})
    row = {"a": 1, "b": "𝄞"}
    found.step(
        Insert("t", {**row, "n": 1}), Update("t", {**row, "n": 2}), Delete("t", row), Insert("t", {**row, "n": 3})
    )
    found.commit(Insert("o", {"a": 1, "n": 1}), Delete("o", {"a": 1}))
    found.commit(Update("o", {"a": 1, "n": 7}), Update("t", row))
    found.commit(Update("t", {**row, "n": None}), Delete("t", {"a": 9, "b": ""}))
    found.close_job()
    found.commit(Truncate("t"), Insert("t", {**row, "n": 4}), Update("t", {"a": 2, "b": ""}))
    found.close_job()
    found.commit(Insert("t", {"a": 2, "b": "x"}), Truncate("t"), Truncate("o"))
    found.refresh()
    found.check_all()
    found.reopen()
    found.step(Insert("o", {"a": 1}), Update("o", {"a": 2, "n": 2}, key={"a": 1}))
