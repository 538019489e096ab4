"""Filters of many flows over one table are evaluated together, and every flow stays exact at each job."""

from __future__ import annotations

import pytest

from headgate.runtime.tables.table_changes import TableChanges
from tests.exactness.conftest import MakeWorld
from tests.exactness.model import Delete, Insert, Table, Update
from tests.exactness.world import View

TABLES = {
    "p": Table({"id": "int", "c": "int", "v": "string"}, ("id",)),
    "l": Table({"p": "int", "line": "int", "n": "int"}, ("p", "line")),
}
VIEWS = [
    View("some", "SELECT id, v FROM s.p WHERE c = 1"),
    View("named", "SELECT v FROM s.p WHERE v LIKE 'x%'"),
    View("sums", "SELECT c, count(*) AS n FROM s.p WHERE c > 1 OR v IS NULL GROUP BY c"),
    View("extremes", "SELECT v, max(c) AS most FROM s.p WHERE c < 3 GROUP BY v"),
    View("joined", "SELECT x.id, y.line, y.n FROM s.p x JOIN s.l y ON y.p = x.id WHERE x.c = 2 AND y.n > 1"),
    View("kept", "SELECT x.id, y.n FROM s.p x LEFT JOIN s.l y ON y.p = x.id AND y.n > 2 WHERE x.v = 'y'"),
    View("missing", "SELECT x.id FROM s.p x WHERE x.c = 0 AND NOT EXISTS (SELECT 1 FROM s.l y WHERE y.p = x.id)"),
    View("itself", "SELECT x.id, o.v FROM s.p x JOIN s.p o ON o.id = x.c WHERE x.c = 3"),
    View("all_of_it", "SELECT id, c FROM s.p"),
    View("lines", "SELECT p, sum(n) AS n FROM s.l WHERE line = 1 GROUP BY p"),
    View("more_lines", "SELECT p, n FROM s.l WHERE n IN (7, 8)"),
    View("divided", "SELECT p, 12 / line AS part FROM s.l WHERE n = 2"),
]


@pytest.mark.parametrize("small_table_rows", [1, 1000], ids=["looked up", "read whole"])
def test_flows_whose_filters_are_evaluated_together_are_exact(
    world: MakeWorld, monkeypatch: pytest.MonkeyPatch, small_table_rows: int
) -> None:
    evaluated: list[int] = []
    evaluate = TableChanges._evaluated

    def counted(changes: TableChanges) -> object:
        found = evaluate(changes)
        evaluated.append(len(found))
        return found

    monkeypatch.setattr(TableChanges, "_evaluated", counted)
    found = world(TABLES, (), VIEWS, {"small_table_rows": small_table_rows, "way": "narrow"})
    found.step(
        *(Insert("p", {"id": number, "c": number % 4, "v": "xyz"[number % 3]}) for number in range(8)),
        *(Insert("l", {"p": number, "line": line, "n": line + 1}) for number in range(7) for line in range(1, 4)),
    )
    found.step(Update("p", {"id": 0, "v": "y"}), Update("l", {"p": 1, "line": 1, "n": 8}))
    found.step(Update("p", {"id": 3, "c": None, "v": None}))
    assert evaluated and all(evaluated)
    # Rows enter a filter, leave it, and go, in jobs of one batch.
    found.commit(Update("p", {"id": 1, "c": 2}), Delete("l", {"p": 2, "line": 2}))
    found.close_job()
    found.commit(Update("p", {"id": 1, "c": 3}), Update("p", {"id": 2, "v": "x2"}))
    found.close_job()
    found.commit(Delete("p", {"id": 1}), Insert("l", {"p": 2, "line": 2, "n": 7}))
    found.refresh()
    found.check_all(5)


def test_a_condition_that_fails_fails_its_own_flow(world: MakeWorld) -> None:
    views = [View(f"v{number}", f"SELECT id FROM s.p WHERE c > {number}") for number in range(4)]
    found = world(TABLES, (), [*views, View("fails", "SELECT id FROM s.p WHERE 1 / c > 0")], {"way": "narrow"})
    found.step(Insert("p", {"id": 1, "c": 1, "v": "x"}))
    found.commit(Insert("p", {"id": 2, "c": 0, "v": "x"}), Insert("p", {"id": 3, "c": 3, "v": "x"}))
    warehouse = found.warehouse
    with pytest.raises(Exception, match="fails"):
        warehouse.refresh()
    assert {row.id for row in warehouse.sql("SELECT id FROM v1").collect()} == {3}
    assert set(warehouse._engine.executor.failures) == {"fails"}
