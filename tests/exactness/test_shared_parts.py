"""Parts that several flows have are computed once, and every flow stays exact at each job."""

from __future__ import annotations

import pytest

from headgate.runtime.stages import view_stage
from tests.exactness.conftest import MakeWorld
from tests.exactness.model import Delete, Insert, Table, Update
from tests.exactness.world import View

TABLES = {
    "p": Table({"id": "int", "c": "int", "v": "string"}, ("id",)),
    "l": Table({"p": "bigint", "line": "int", "n": "int"}, ("p", "line")),
    "c": Table({"id": "int", "name": "string"}, ("id",)),
}
JOINED = "FROM s.p p JOIN s.l l ON l.p = p.id JOIN s.c c ON c.id = p.c"
OTHER_NAMES = "FROM s.l x JOIN s.p y ON x.p = y.id JOIN s.c z ON z.id = y.c"
VIEWS = [
    View("sums", f"SELECT c.name, sum(l.n) AS n, count(*) AS rows {JOINED} GROUP BY c.name"),
    View("extremes", f"SELECT p.v, min(l.n) AS lo, max(l.line) AS hi {JOINED} GROUP BY p.v"),
    View("rows_of_it", f"SELECT p.id, l.line, p.v {JOINED}"),
    View("bag", f"SELECT c.name, p.v {JOINED} WHERE l.n > 1"),
    View("renamed", f"SELECT z.name AS called, x.n {OTHER_NAMES}"),
    View("joined_on", f"SELECT p.v, o.v AS other {JOINED} JOIN s.p o ON o.id = l.line"),
    View("windowed", f"SELECT p.id, l.line, rank() OVER (PARTITION BY c.name ORDER BY l.n) AS r {JOINED}"),
    View("two", "SELECT p.v, l.n FROM s.p p JOIN s.l l ON l.p = p.id WHERE l.n > 0"),
    View("two_sums", "SELECT p.c, sum(l.n) AS n FROM s.p p JOIN s.l l ON l.p = p.id WHERE l.n > 0 GROUP BY p.c"),
    View("alone", "SELECT id, v FROM s.p"),
]


@pytest.mark.parametrize("small_table_rows", [1, 1000], ids=["looked up", "read whole"])
def test_flows_that_share_parts_are_exact(
    world: MakeWorld, monkeypatch: pytest.MonkeyPatch, small_table_rows: int
) -> None:
    monkeypatch.setattr(view_stage, "is_worth_sharing", lambda part, flows: flows > 1)
    found = world(TABLES, (), VIEWS, {"small_table_rows": small_table_rows, "way": "narrow"})
    shared = found.warehouse._engine.batches.shared_parts
    found.step(
        *(Insert("c", {"id": number, "name": f"c{number % 2}"}) for number in range(4)),
        *(Insert("p", {"id": number, "c": number % 3, "v": "xyz"[number % 3]}) for number in range(6)),
        *(Insert("l", {"p": number, "line": line, "n": line}) for number in range(7) for line in range(3)),
    )
    computed, reused = shared.computed, shared.reused
    found.step(
        Update("p", {"id": 0, "v": "y"}),
        Update("l", {"p": 0, "line": 1, "n": 9}),
        Update("p", {"id": 1, "c": 2}),
        Update("c", {"id": 2, "name": "new"}),
        Insert("p", {"id": 6, "c": None, "v": "new"}),
        Delete("l", {"p": 3, "line": 2}),
    )
    assert shared.computed > computed and shared.reused > reused
    # One table alone, then several jobs in one batch in which rows come and go.
    found.step(Update("c", {"id": 1, "name": "other"}))
    found.commit(Delete("p", {"id": 0}), Delete("l", {"p": 0, "line": 0}))
    found.close_job()
    found.commit(Insert("p", {"id": 0, "c": 1, "v": "back"}), Update("l", {"p": 0, "line": 1, "n": 2}))
    found.close_job()
    found.commit(Update("p", {"id": 0, "c": 2}), Delete("c", {"id": 3}))
    found.refresh()
    found.check_all(5)


def test_a_flow_that_is_asked_for_alone_shares_nothing(world: MakeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view_stage, "is_worth_sharing", lambda part, flows: flows > 1)
    found = world(TABLES, (), VIEWS[:3], {"way": "narrow"})
    found.commit(
        Insert("c", {"id": 1, "name": "c"}),
        Insert("p", {"id": 1, "c": 1, "v": "x"}),
        Insert("l", {"p": 1, "line": 1, "n": 2}),
    )
    with found.warehouse.sql("SELECT n FROM sums", max_staleness="0s") as answer:
        assert answer.to_arrow().to_pylist() == [{"n": 2}]
    batches = found.warehouse._engine.batches
    assert (batches.shared_parts.computed, batches.shared_parts.reused) == (0, 0)
