"""Joins of two tables that change in the same job are merged into one join of what is touched, and stay exact."""

from __future__ import annotations

import pytest

from headgate.runtime.evaluation import evaluation, merging
from tests.exactness.conftest import MakeWorld
from tests.exactness.model import Delete, Insert, Table, Update
from tests.exactness.world import View

TABLES = {
    "p": Table({"id": "int", "c": "int", "v": "string"}, ("id",)),
    "l": Table({"p": "bigint", "line": "int", "n": "int"}, ("p", "line")),
    "c": Table({"id": "int", "name": "string"}, ("id",)),
}
VIEWS = [
    View("plain", "SELECT p.id, p.v, l.line, l.n FROM s.p p JOIN s.l l ON l.p = p.id"),
    View("filtered", "SELECT p.v, l.n + 1 AS m FROM s.l l JOIN s.p p ON l.p = p.id AND l.n > 0 WHERE p.v <> 'x'"),
    View(
        "named",
        "SELECT c.name, sum(l.n) AS n FROM s.p p LEFT JOIN s.c c ON c.id = p.c JOIN s.l l ON l.p = p.id GROUP BY c.name",
    ),
    View("inside", "SELECT c.name, l.n FROM s.p p JOIN s.c c ON c.id = p.c JOIN s.l l ON l.p = p.id"),
    View("many", "SELECT p.id, l.p FROM s.p p JOIN s.l l ON l.n = p.c"),
    View("twice", "SELECT a.id, b.v FROM s.p a JOIN s.p b ON a.id = b.c"),
    View("outer_too", "SELECT p.id, l.n FROM s.p p LEFT JOIN s.l l ON l.p = p.id AND l.n > 1"),
]


@pytest.mark.slow
def test_merged_joins_are_exact(world: MakeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    merged: list[int] = []

    def spied(*arguments: object) -> object:
        found = merging.touched_sides(*arguments)  # type: ignore[arg-type]
        merged.append(found is not None)
        return found

    monkeypatch.setattr(evaluation, "touched_sides", spied)
    found = world(TABLES, (), VIEWS, {"small_table_rows": 1})
    found.step(
        *(Insert("c", {"id": number, "name": f"c{number % 2}"}) for number in range(4)),
        *(Insert("p", {"id": number, "c": number % 3, "v": "xyz"[number % 3]}) for number in range(6)),
        *(Insert("l", {"p": number, "line": line, "n": line}) for number in range(7) for line in range(3)),
    )
    # Both change, one of a pair alone changes, rows come and go, keys move, and what matches nothing.
    found.step(
        Update("p", {"id": 0, "v": "y"}),
        Update("l", {"p": 0, "line": 1, "n": 9}),
        Update("p", {"id": 1, "c": 2}),
        Update("l", {"p": 2, "line": 0, "n": 5}),
        Insert("p", {"id": 6, "c": None, "v": "new"}),
        Delete("l", {"p": 3, "line": 2}),
        Insert("l", {"p": 99, "line": 0, "n": 1}),
    )
    assert sum(merged) >= 4
    found.step(
        Delete("p", {"id": 2}),
        Delete("l", {"p": 2, "line": 1}),
        Update("p", {"id": 50, "c": 1, "v": "z"}, {"id": 4}),
        Insert("l", {"p": 50, "line": 7, "n": None}),
        Update("c", {"id": 1, "name": "other"}),
    )
    found.commit(Delete("p", {"id": 0}), Delete("l", {"p": 0, "line": 0}))
    found.close_job()
    found.commit(Insert("p", {"id": 0, "c": 1, "v": "back"}), Update("l", {"p": 0, "line": 1, "n": 2}))
    found.refresh()
    found.check_all(4)
