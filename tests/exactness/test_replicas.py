"""Replicas hold what the source holds, whatever happens to a row inside a transaction or a job."""

from __future__ import annotations

from datetime import timedelta

import pytest

from headgate.capture.shape import Shape
from headgate.delta.events import DELETE, OBSERVED, TRUNCATE
from tests.exactness.conftest import MakeWorld
from tests.exactness.model import Delete, Insert, Table, Truncate, Update
from tests.exactness.world import START, View

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


@pytest.mark.parametrize("limits", [{}, {"way": "wide", "rows_per_file": 1, "small_table_rows": 1}])
def test_a_row_observed_as_it_was_has_not_changed(world: MakeWorld, limits: dict[str, int]) -> None:
    """A poll or a second load shows rows without saying whether anything happened to them."""
    found = world(TABLES, views=VIEWS, limits=limits)
    found.step(Insert("o", {"a": 1, "n": 1}), Insert("o", {"a": 2, "n": None}), Insert("o", {"a": 3, "n": 3}))
    first = START + timedelta(minutes=1)
    log = found.warehouse.source("s").log

    def observe(minutes: int, *rows: tuple[int, int, int | None]) -> None:
        columns = [[op for op, _, _ in rows], [a for _, a, _ in rows], [n for _, _, n in rows]]
        shape = Shape("s", found.warehouse.source("s").tables["o"])
        with log.begin(log.end + 1, START + timedelta(minutes=minutes)) as writer:
            values = [{"a": a, "n": n} for a, n in zip(columns[1], columns[2], strict=True)]
            writer.write("o", shape.build(values, columns[0], [()] * len(rows), range(len(rows))))
            writer.commit()

    observe(2, (OBSERVED, 1, 1), (OBSERVED, 2, 7), (OBSERVED, 4, 4))
    observe(3, (OBSERVED, 2, 7), (OBSERVED, 1, 1), (DELETE, 3, None))
    observe(4, (TRUNCATE, 0, None), (OBSERVED, 1, 1), (OBSERVED, 2, None), (OBSERVED, 3, 3))
    found.warehouse.refresh()
    later = {minute: START + timedelta(minutes=minute) for minute in (2, 3, 4)}
    assert found.rows("stamped") == {(1, 1, first), (2, None, later[4]), (3, 3, later[4])}
