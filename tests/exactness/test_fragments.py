"""What is not incremental runs as written over the incremental results, at every job."""

from __future__ import annotations

import pytest

from headgate.runtime.reading import evaluated
from tests.exactness.conftest import MakeWorld
from tests.exactness.model import Delete, Insert, Table, Update
from tests.exactness.world import View

TABLES = {
    "t": Table({"id": "int", "g": "string", "n": "int", "at": "timestamp"}, ("id",)),
    "u": Table({"g": "string", "m": "int"}, ("g",)),
}
VIEWS = [
    View("first", "SELECT id, n FROM s.t ORDER BY n DESC, id LIMIT 2"),
    View("busiest", "SELECT g, sum(n) AS s FROM s.t GROUP BY g ORDER BY s DESC, g LIMIT 1"),
    View("past", "SELECT t.id, u.m FROM s.t JOIN s.u ON t.g = u.g WHERE t.at < now() OR t.at IS NULL"),
    View("ordered", "SELECT id, row_number() OVER (ORDER BY n, id) AS r FROM s.t"),
    View("behind", "SELECT f.id, u.m FROM first f LEFT JOIN s.u ON u.m = f.n"),
    View("few", "WITH few AS (SELECT g, n FROM s.t ORDER BY id LIMIT 3) SELECT g, count(*) AS c FROM few GROUP BY g"),
]


def test_fragments_are_exact_at_every_job(world: MakeWorld) -> None:
    found = world(TABLES, views=VIEWS)
    found.step(*(Insert("t", {"id": number, "g": "ab"[number % 2], "n": number % 3}) for number in range(5)))
    found.commit(Insert("u", {"g": "a", "m": 2}), Delete("t", {"id": 2}))
    found.close_job()
    found.commit(Update("t", {"id": 0, "n": 9}), Insert("u", {"g": "b", "m": 1}))
    found.refresh()
    found.check_all()
    found.materialize()
    found.reopen()
    found.step(Update("t", {"id": 1, "g": "a", "n": 3}))


@pytest.mark.parametrize("few_rows", [5_000, 1])
def test_a_function_of_context_is_evaluated_once_per_job(
    world: MakeWorld, monkeypatch: pytest.MonkeyPatch, few_rows: int
) -> None:
    monkeypatch.setattr(evaluated, "FEW_ROWS", few_rows)
    found = world(TABLES, views=[View("stamped", "SELECT id, now() AS at, rand() AS r, NULL AS none FROM s.t")])
    found.commit(Insert("t", {"id": 1}), Insert("t", {"id": 2}))
    job = found.refresh()
    first = found.rows("stamped", job)
    assert found.rows("stamped", job) == first
    found.commit(Insert("t", {"id": 3}))
    found.refresh()
    assert found.rows("stamped", job) == first
    assert len(found.rows("stamped")) == 3
