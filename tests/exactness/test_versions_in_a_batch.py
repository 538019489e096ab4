"""Rows that change in many jobs of one batch, on both sides of joins: only versions of the same time meet."""

from __future__ import annotations

import random

import pytest

from tests.exactness.conftest import MakeWorld
from tests.exactness.model import Change, Delete, Dimension, Insert, Row, Table, Update
from tests.exactness.world import View, World

TABLES = {
    "p": Table({"id": "int", "k": "int", "v": "int"}, ("id",)),
    "q": Table({"id": "int", "line": "int", "k": "int", "w": "int"}, ("id", "line")),
    "d": Table({"k": "int", "name": "string"}, ("k",)),
}
VIEWS = [
    View("sums", "SELECT p.id, p.v, SUM(q.w) AS w, COUNT(*) AS n FROM s.p p JOIN s.q q ON q.id = p.id GROUP BY p.id, p.v"),
    View("bag", "SELECT p.k, q.w FROM s.p p JOIN s.q q ON q.k = p.k"),
    View("left_bag", "SELECT p.k, p.v, q.w FROM s.p p LEFT JOIN s.q q ON q.k = p.k AND q.w > p.v"),
    View("full_join", "SELECT p.id, q.id AS other, q.line FROM s.p p FULL JOIN s.q q ON q.k = p.k"),
    View("missing", "SELECT q.id, q.line FROM s.q q LEFT ANTI JOIN s.p p ON q.k = p.k"),
    View("selfed", "SELECT a.id, b.id AS other FROM s.p a JOIN s.p b ON a.k = b.v"),
    View("three", "SELECT p.id, d.name, MAX(q.w) AS w FROM s.p p JOIN s.q q ON q.id = p.id JOIN s.d d ON d.k = q.k GROUP BY 1, 2"),
    View(
        "united",
        "SELECT u.id, u.x, d.name FROM (SELECT id, k, v AS x FROM s.p UNION ALL SELECT id, k, w AS x FROM s.q) u"
        " JOIN s.d d ON d.k = u.k WHERE u.x > 0",
    ),
    View("counted", "SELECT c.n, p.v FROM (SELECT k, COUNT(*) AS n FROM s.q GROUP BY k) c JOIN s.p p ON p.k = c.k"),
    View(
        "as_of",
        "SELECT p.id, p.v, q.line, i.name FROM s.p p JOIN s.q q ON q.id = p.id"
        " JOIN versions FOR SYSTEM_TIME AS OF q.__commit_at i ON i.k = q.k",
        oracle="SELECT p.id, p.v, q.line, i.name FROM s.p p JOIN s.q q ON q.id = p.id JOIN versions i ON i.k = q.k"
        " AND i.__start_at <= q.__commit_at AND (i.__end_at IS NULL OR q.__commit_at < i.__end_at)",
        lookup_miss="drop",
    ),
]  # fmt: skip


def _changes(world: World, chance: random.Random) -> list[Change]:
    """A few changes of few keys, so that the same rows change again and again, go, come back and take other keys."""
    now = world.model.state(len(world.model.transactions))
    found: list[Change] = []
    for table, value in (("p", "v"), ("q", "w"), ("q", "w"), ("d", "name")):
        key: Row = {"k": chance.randrange(3)} if table == "d" else {"id": chance.randrange(3)}
        key |= {"line": chance.randrange(2)} if table == "q" else {}
        row: Row = {**key, value: f"n{chance.randrange(2)}" if table == "d" else chance.randrange(3)}
        row |= {} if table == "d" else {"k": chance.choice((0, 1, 1, 2, None))}
        kind = chance.random()
        if tuple(key.values()) not in now[table] or kind < 0.5:
            found.append(Insert(table, row))
        elif kind < 0.75:
            found.append(Delete(table, key))
        else:
            first = next(iter(key))
            found.append(Update(table, {**row, first: (int(str(key[first])) + 1) % 3}, key=key))
    return found


def _exercise(world: World, seed: int) -> None:
    chance = random.Random(seed)
    for jobs in (1, 12):
        for _ in range(jobs):
            world.commit(*_changes(world, chance))
            world.close_job()
        world.refresh()
        world.check_new_jobs()
        world.materialize()


def test_rows_that_change_in_many_jobs_of_a_batch_are_exact_at_each(world: MakeWorld) -> None:
    limits = {"small_table_rows": 1, "rows_per_file": 4}
    _exercise(world(TABLES, [Dimension("versions", "d")], VIEWS, limits=limits), seed=2)


# With rows that are looked up, every run has it.
@pytest.mark.thorough
def test_rows_of_small_tables_that_change_in_many_jobs_of_a_batch_are_exact_at_each(world: MakeWorld) -> None:
    _exercise(world(TABLES, [Dimension("versions", "d")], VIEWS), seed=0)
