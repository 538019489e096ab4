"""Large jobs run from files instead of the driver's memory: the same flows, the same results."""

from __future__ import annotations

import pytest

from headgate.delta.changes import JobId
from headgate.runtime.stages.batch import Batch
from headgate.runtime.stages.view_stage import ViewStage
from tests.exactness import test_aggregates, test_joins, test_subqueries
from tests.exactness.conftest import MakeWorld
from tests.exactness.model import Insert, Table
from tests.exactness.world import View

LIMITS = {"batch_rows": 3, "rows_per_file": 2, "small_table_rows": 1}


def test_joins_from_files_are_exact_after_every_job(world: MakeWorld) -> None:
    views = [view for view in test_joins.views_of("FULL") if view.name in ("residual", "onto_key")]
    test_joins.exercise(world(test_joins.TABLES, views=views, limits=LIMITS))


def test_aggregates_from_files_are_exact_after_every_job(world: MakeWorld) -> None:
    views = [test_aggregates.RUNNING[1], test_aggregates.RECOMPUTED[4]]
    test_aggregates.exercise(world(test_aggregates.TABLES, views=views, limits=LIMITS))


def test_subqueries_from_files_are_exact_after_every_job(world: MakeWorld) -> None:
    views = [
        View("outside", "SELECT id, a FROM s.t WHERE a NOT IN (SELECT a FROM s.u)"),
        View("none", "SELECT id FROM s.t WHERE (SELECT count(*) FROM s.u WHERE u.a = t.a) = 0"),
    ]
    test_subqueries.exercise(world(test_subqueries.TABLES, views=views, limits=LIMITS))


def test_a_batch_is_halved_when_its_groups_would_be_computed_from_too_many_rows(
    world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    halved: list[int] = []
    halve = ViewStage._halve

    def noting(stage: ViewStage, after: JobId, upto: JobId, batch: Batch) -> None:
        halved.append(upto - after)
        halve(stage, after, upto, batch)

    monkeypatch.setattr(ViewStage, "_halve", noting)
    view = View("largest", "SELECT g, MAX(v) AS v, COUNT(DISTINCT v) AS n FROM s.t GROUP BY g")
    table = Table({"id": "int", "g": "int", "v": "int"}, ("id",))
    found = world({"t": table}, views=[view], limits={"batch_rows": 100, "small_table_rows": 1})
    found.step(*(Insert("t", {"id": number, "g": 0, "v": number % 7}) for number in range(30)))
    for number in range(4):
        found.commit(Insert("t", {"id": number, "g": 0, "v": 9 - number}))
        found.close_job()
    found.refresh()
    found.check_all()
    assert halved == [4]
