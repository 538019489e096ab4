"""Joins of every kind are exact after every job: NULL keys, residual conditions, duplicates, changes on both sides."""

from __future__ import annotations

import pytest

from tests.exactness.conftest import MakeWorld
from tests.exactness.model import Delete, Insert, Table, Truncate, Update
from tests.exactness.world import View, World

TABLES = {
    "l": Table({"id": "int", "k": "int", "v": "int"}, ("id",)),
    "r": Table({"id": "int", "k": "int", "w": "int"}, ("id",)),
    "u": Table({"k": "int", "n": "string"}, ("k",)),
}


def views_of(kind: str) -> list[View]:
    left_only = kind in ("LEFT SEMI", "LEFT ANTI")
    columns = "a.id, a.k, a.v" if left_only else "a.id, a.k, a.v, b.id AS bid, b.k AS bk, b.w"
    unique = "a.id, a.k" if left_only else "a.id, a.k, b.k AS bk, b.n"
    return [
        View("plain", f"SELECT {columns} FROM s.l a {kind} JOIN s.r b ON a.k = b.k"),
        View("residual", f"SELECT {columns} FROM s.l a {kind} JOIN s.r b ON a.k = b.k AND a.v < b.w"),
        View("unkeyed", f"SELECT {columns} FROM s.l a {kind} JOIN s.r b ON a.v < b.w"),
        View("onto_key", f"SELECT {unique} FROM s.l a {kind} JOIN s.u b ON a.k = b.k"),
        View("nulls_match", f"SELECT {columns} FROM s.l a {kind} JOIN s.r b ON a.k <=> b.k"),
    ]


def exercise(world: World) -> None:
    """Matches appear and go on either side, alone and together, through NULLs, in one job and in several."""
    world.step(Insert("l", {"id": 1, "k": 1, "v": 1}), Insert("l", {"id": 2, "k": None, "v": 1}))
    world.commit(Insert("r", {"id": 1, "k": 1, "w": 2}), Insert("u", {"k": 1, "n": "one"}))
    world.commit(Insert("r", {"id": 2, "k": 1, "w": 0}), Insert("r", {"id": 3, "k": None, "w": 5}))
    world.check(world.refresh())
    world.step(Insert("l", {"id": 3, "k": 1, "v": 0}), Insert("r", {"id": 4, "k": 2, "w": 3}))
    world.commit(Delete("r", {"id": 1}))
    world.close_job()
    world.commit(Insert("r", {"id": 1, "k": 1, "w": 7}), Update("l", {"id": 1, "v": 5}))
    world.close_job()
    world.commit(Update("r", {"id": 2, "k": None}), Update("l", {"id": 2, "k": 2}))
    world.close_job()
    world.commit(Delete("u", {"k": 1}), Insert("u", {"k": 2, "n": None}))
    world.refresh()
    world.check_all(4)
    world.materialize()
    world.commit(Update("r", {"id": 9, "k": 1, "w": 9}, key={"id": 1}), Delete("l", {"id": 3}))
    world.close_job()
    world.reopen()
    world.check_all()
    world.step(Truncate("r"), Insert("l", {"id": 8, "k": 1, "v": 2}))
    world.step(Insert("r", {"id": 1, "k": 1, "w": 4}))
    world.step(Truncate("l"), Truncate("u"))


KINDS = ("INNER", "LEFT", "RIGHT", "FULL", "LEFT SEMI", "LEFT ANTI")


def views_of_every_kind(*names: str) -> list[View]:
    return [
        View(f"{view.name}_{kind.lower().replace(' ', '_')}", view.text)
        for kind in KINDS
        for view in views_of(kind)
        if view.name in names
    ]


@pytest.mark.slow
def test_joins_of_every_kind_that_look_rows_up_are_exact_after_every_job(world: MakeWorld) -> None:
    views = views_of_every_kind("residual")
    exercise(world(TABLES, views=views, limits={"small_table_rows": 1, "rows_per_file": 4}))


def test_joins_of_every_kind_that_read_small_tables_whole_are_exact_after_every_job(world: MakeWorld) -> None:
    exercise(world(TABLES, views=views_of_every_kind("nulls_match")))


@pytest.mark.thorough
@pytest.mark.parametrize("small_table_rows", [1, 1000], ids=["looked up", "read whole"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_join_is_exact_after_every_job(world: MakeWorld, kind: str, small_table_rows: int) -> None:
    limits = {"small_table_rows": small_table_rows, "rows_per_file": 4}
    exercise(world(TABLES, views=views_of(kind), limits=limits))


def test_self_joins_and_chains_of_joins_are_exact_after_every_job(world: MakeWorld) -> None:
    views = [
        View("selfed", "SELECT a.id, b.id AS other FROM s.l a JOIN s.l b ON a.k = b.k AND a.id < b.id"),
        View("selfed_left", "SELECT a.id, b.id AS other FROM s.l a LEFT JOIN s.l b ON a.v = b.k"),
        View("crossed", "SELECT a.id, b.k FROM s.l a CROSS JOIN s.u b"),
        View(
            "chained",
            "SELECT a.id, b.id AS rid, c.n FROM s.l a JOIN s.r b ON a.k = b.k LEFT JOIN s.u c ON c.k = b.w",
        ),
        View(
            "left_then_inner",
            "SELECT a.id, b.w, c.n FROM s.l a LEFT JOIN s.r b ON a.k = b.k JOIN s.u c ON c.k = a.k",
        ),
        View("by_using", "SELECT * FROM s.l JOIN s.u USING (k)"),
        View("onto_key", "SELECT a.id, b.k AS bk, b.n FROM s.l a FULL JOIN s.u b ON a.k = b.k"),
        View("unkeyed", "SELECT a.id, b.id AS rid FROM s.l a LEFT JOIN s.r b ON a.v < b.w"),
        View("cast_keys", "SELECT a.id, b.id AS rid FROM s.l a JOIN s.r b ON CAST(a.k AS BIGINT) = b.k + 1"),
    ]
    exercise(world(TABLES, views=views, limits={"small_table_rows": 1, "rows_per_file": 4}))
