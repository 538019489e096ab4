"""Large jobs run from files instead of the driver's memory: the same flows, the same results."""

from __future__ import annotations

import pytest

from tests.exactness import test_aggregates, test_joins, test_subqueries
from tests.exactness.conftest import MakeWorld
from tests.exactness.world import View

LIMITS = {"batch_rows": 3, "rows_per_file": 2, "small_table_rows": 1}


def test_joins_from_files_are_exact_after_every_job(world: MakeWorld) -> None:
    views = [view for view in test_joins.views_of("FULL") if view.name in ("residual", "onto_key")]
    test_joins.exercise(world(test_joins.TABLES, views=views, limits=LIMITS))


@pytest.mark.thorough
def test_aggregates_from_files_are_exact_after_every_job(world: MakeWorld) -> None:
    views = [*test_aggregates.RUNNING[:2], *test_aggregates.RECOMPUTED[3:5]]
    test_aggregates.exercise(world(test_aggregates.TABLES, views=views, limits=LIMITS))


def test_subqueries_from_files_are_exact_after_every_job(world: MakeWorld) -> None:
    views = [
        View("outside", "SELECT id, a FROM s.t WHERE a NOT IN (SELECT a FROM s.u)"),
        View("none", "SELECT id FROM s.t WHERE (SELECT count(*) FROM s.u WHERE u.a = t.a) = 0"),
    ]
    test_subqueries.exercise(world(test_subqueries.TABLES, views=views, limits=LIMITS))
