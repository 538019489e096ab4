"""`FOR SYSTEM_TIME AS OF`: a fact sees the dimension version that was valid at its commit, at every job."""

from __future__ import annotations

import pytest

from headgate.errors import FlowFailed
from tests.exactness.conftest import MakeWorld
from tests.exactness.model import Delete, Dimension, Insert, Table, Truncate, Update
from tests.exactness.world import View, World

TABLES = {
    "d": Table({"k": "int", "name": "string", "note": "string"}, ("k",)),
    "f": Table({"id": "int", "k": "int", "qty": "int"}, ("id",)),
}
VALID = "d.k = f.k AND d.__start_at <= f.__commit_at AND (d.__end_at IS NULL OR f.__commit_at < d.__end_at)"


def as_of(name: str, select: str, join: str = "JOIN", miss: str | None = None, rest: str = "") -> View:
    """A lookup and, for the oracle, the same as a range join; what a miss gives is the oracle's own text."""
    text = f"SELECT {select} FROM s.f f {join} dim FOR SYSTEM_TIME AS OF f.__commit_at d ON d.k = f.k{rest}"
    kind = "JOIN" if miss in ("drop", "fail") else "LEFT JOIN"
    plain = select if join == "LEFT JOIN" else select.replace("d.__sk", "coalesce(d.__sk, -1)")
    return View(name, text, f"SELECT {plain} FROM s.f f {kind} dim d ON {VALID}{rest}", miss)


VIEWS = [
    as_of("facts", "f.id, f.qty, d.name, d.__sk AS sk"),
    as_of("optional", "f.id, d.name, d.__sk AS sk", join="LEFT JOIN"),
    as_of("dropped", "f.id, d.name, d.__sk AS sk", miss="drop"),
    as_of("summed", "d.__sk AS sk, sum(f.qty) AS qty, count(*) AS n", rest=" GROUP BY d.__sk"),
    as_of("ends", "f.id, d.note, d.__start_at AS a, d.__end_at AS b"),
    as_of("named", "d.name, count(*) AS n", join="LEFT JOIN", rest=" WHERE f.qty > 1 GROUP BY d.name"),
]


def exercise(world: World) -> None:
    world.commit(Insert("d", {"k": 1, "name": "one"}), initial=True)
    world.commit(Insert("f", {"id": 1, "k": 1, "qty": 1}), Insert("f", {"id": 2, "k": 2, "qty": 2}))
    world.check(world.refresh())
    world.commit(Insert("f", {"id": 3, "k": 1, "qty": 3}))
    world.commit(Update("d", {"k": 1, "name": "uno"}), Insert("f", {"id": 4, "k": 1, "qty": 4}))
    world.commit(Insert("f", {"id": 5, "k": 1, "qty": 5}), Insert("d", {"k": 2, "name": "two"}))
    world.close_job()
    world.commit(Update("f", {"id": 2, "qty": 7}), Update("d", {"k": 1, "note": "untracked"}))
    world.close_job()
    world.commit(Delete("d", {"k": 1}), Insert("f", {"id": 6, "k": 1, "qty": 1}))
    world.commit(Insert("d", {"k": 1, "name": "ein"}), Insert("f", {"id": 7, "k": None, "qty": 1}))
    world.refresh()
    world.check_all(2)
    world.materialize()
    world.step(Update("d", {"k": 2, "name": "deux"}))
    world.step(Insert("f", {"id": 8, "k": 2, "qty": 6}), Delete("f", {"id": 3}))
    world.reopen()
    world.check_all()
    world.step(Truncate("d"), Update("f", {"id": 1, "qty": 9}))
    world.step(
        Insert(
            "d",
            {"k": 1, "name": "late"},
        ),
        Insert("f", {"id": 9, "k": 1, "qty": 2}),
    )


def test_lookups_are_exact_after_every_job(world: MakeWorld) -> None:
    exercise(world(TABLES, [Dimension("dim", "d", track=("name",))], VIEWS))


def test_lookups_into_large_dimensions_are_exact_after_every_job(world: MakeWorld) -> None:
    limits = {"small_table_rows": 1, "rows_per_file": 2}
    exercise(world(TABLES, [Dimension("dim", "d", track=("name",))], VIEWS[::2], limits))


def test_lookups_from_files_are_exact_after_every_job(world: MakeWorld) -> None:
    limits = {"batch_rows": 2, "rows_per_file": 2}
    exercise(world(TABLES, [Dimension("dim", "d", track=("name",))], VIEWS[1::2], limits))


def test_a_late_initial_load_reaches_facts_that_missed(world: MakeWorld) -> None:
    """Rows of an initial load are valid from the beginning of time, also for facts of earlier jobs."""
    found = world(TABLES, [Dimension("dim", "d", track=("name",))], VIEWS, {"small_table_rows": 1})
    found.step(Insert("f", {"id": 1, "k": 1, "qty": 1}))
    found.commit(Insert("d", {"k": 1, "name": "one"}), initial=True)
    found.check(found.refresh())
    assert not any(row[3] == -1 for row in found.rows("facts"))


def test_a_lookup_that_must_not_miss_fails_its_job_and_names_the_fact(world: MakeWorld) -> None:
    found = world(TABLES, [Dimension("dim", "d")], [as_of("strict", "f.id, d.name", miss="fail")])
    found.commit(Insert("d", {"k": 1, "name": "one"}))
    found.commit(Insert("f", {"id": 1, "k": 1, "qty": 1}))
    found.close_job()
    found.commit(Insert("f", {"id": 2, "k": 5, "qty": 1}))
    with pytest.raises(FlowFailed, match="no version of dim was valid for k = 5"):
        found.warehouse.refresh()
    assert found.rows("strict", 1) == {(1, "one")}
