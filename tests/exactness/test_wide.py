"""Every operator over rows in files, in batches of many jobs: exact at each job, and none of the rows comes to the driver."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.classic.dataframe import DataFrame

from headgate.delta.changes import JobId
from headgate.errors import FlowFailed
from headgate.runtime.evaluation import wide_inputs
from headgate.runtime.spark.collecting import Collector
from headgate.runtime.spark.views import Views
from headgate.runtime.stages.batch import Batch
from headgate.runtime.stages.view_stage import ViewStage
from headgate.runtime.stages.ways import Way
from headgate.warehouse.changes import ChangeSet
from headgate.warehouse.versioned import VersionedTable
from tests.exactness.conftest import MakeWorld
from tests.exactness.model import Delete, Dimension, Insert, Table, Truncate, Update
from tests.exactness.test_lookups import as_of
from tests.exactness.world import View, World

MOST_ROWS = 1_000
"""That the driver may be given of a batch in files."""
TABLES = {
    "l": Table({"id": "int", "k": "int", "v": "int", "x": "double"}, ("id",)),
    "r": Table({"id": "int", "k": "bigint", "w": "int"}, ("id",)),
    "d": Table({"k": "int", "name": "string"}, ("k",)),
    "f": Table({"id": "int", "k": "int", "qty": "int"}, ("id",)),
}
DIMENSIONS = [Dimension("dim", "d", track=("name",))]


def _join(kind: str) -> View:
    columns = "a.id, a.k, a.v" if kind in ("LEFT SEMI", "LEFT ANTI") else "a.id, a.k, a.v, b.id AS bid, b.k AS bk, b.w"
    name = f"joined_{kind.lower().replace(' ', '_')}"
    return View(name, f"SELECT {columns} FROM s.l a {kind} JOIN s.r b ON a.k = b.k AND a.v < b.w")


VIEWS = [
    *map(_join, ("INNER", "FULL", "LEFT SEMI", "LEFT ANTI")),  # a full join is a left one and what the right one adds
    View("selfed", "SELECT a.id, b.id AS other, c.name FROM s.l a JOIN s.l b ON a.k = b.v LEFT JOIN s.d c ON c.k = a.v"),
    as_of("unknown", "f.id, f.qty, d.name, d.__sk AS sk"),
    as_of("dropped", "d.__sk AS sk, count(*) AS n", miss="drop", rest=" GROUP BY d.__sk"),
    View("running", "SELECT k, sum(v) AS s, count(*) AS n, avg(v) AS a FROM s.l GROUP BY k HAVING count(*) > 1"),
    View("overall", "SELECT count(*) AS n, sum(v) AS s, NULL AS nothing FROM s.l"),
    View("touched", "SELECT k, min(v) AS lo, count(DISTINCT v) AS c, sum(x) AS s FROM s.l GROUP BY k"),
    View("window", "SELECT id, rank() OVER (PARTITION BY k ORDER BY v DESC) AS r, sum(v) OVER (PARTITION BY k) AS s FROM s.l"),
    View("bag", "SELECT k, v FROM s.l"),
    View("repeated", "(SELECT k, v FROM s.l UNION ALL SELECT k, qty FROM s.f) EXCEPT ALL SELECT k, w FROM s.r"),
    View("outside", "SELECT id, k FROM s.l WHERE k NOT IN (SELECT k FROM s.r WHERE w > 3)"),
    View("generated", "SELECT id, e FROM s.l LATERAL VIEW explode(sequence(0, v)) g AS e"),
    View("on_a_view", "SELECT s, count(*) AS n FROM running GROUP BY s"),
]  # fmt: skip


def _exercise(world: World, rows: int) -> None:
    """Many rows come, then some of them change in each of several jobs that one batch takes."""
    world.commit(*(Insert("d", {"k": number, "name": f"n{number}"}) for number in range(rows // 10)), initial=True)
    world.commit(
        *(Insert("l", {"id": n, "k": n % (rows // 2), "v": n % 7, "x": n / 7}) for n in range(rows)),
        *(Insert("r", {"id": n, "k": n % (rows // 2), "w": n % 5}) for n in range(rows)),
        *(Insert("f", {"id": n, "k": n % (rows // 9), "qty": n % 5}) for n in range(rows)),
    )
    world.check(world.refresh())
    world.materialize()
    for job in range(2):
        world.commit(
            Update("l", {"id": 1, "k": job, "v": job}),
            Update("r", {"id": 1, "k": 2 - job}),
            Update("d", {"k": 1, "name": f"job{job}"}),
            Insert("l", {"id": rows + job, "k": None, "v": 2, "x": 0.1}),
        )
        world.commit(
            Insert("f", {"id": rows + job, "k": 1, "qty": job}),
            Delete("l", {"id": 10 + job}),
            Delete("r", {"id": 10}) if job else Insert("r", {"id": rows, "k": None, "w": 9}),
        )
        world.close_job()
    world.commit(Delete("l", {"id": 1}), Insert("l", {"id": 10, "k": 1, "v": 4, "x": 0.2}), Truncate("d"))
    world.refresh()
    world.check_new_jobs()


class Driver:
    """Counts the rows that a view's batch brings to the driver."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.most = 0
        self._inside = threading.local()
        for owner, name in (
            (DataFrame, "toArrow"),
            (DataFrame, "collect"),
            (Views, "collect"),
            (Collector, "collect"),
            (ChangeSet, "read"),
            (VersionedTable, "lookup"),
            (VersionedTable, "collected"),
        ):
            patch.setattr(owner, name, self._counting(getattr(owner, name)))
        advance = ViewStage.advance

        def counted(stage: ViewStage, upto: JobId, batch: Batch) -> None:
            with self._batch():
                advance(stage, upto, batch)

        def refused(*_: object) -> None:
            raise AssertionError("a batch in files was recomputed")

        patch.setattr(ViewStage, "advance", counted)
        patch.setattr(ViewStage, "_recompute", refused)

    @contextmanager
    def _batch(self) -> Iterator[None]:
        self._inside.rows = 0
        yield
        self.most = max(self.most, self._inside.rows)
        del self._inside.rows

    def _counting(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **more: Any) -> Any:
            found = method(*arguments, **more)
            if hasattr(self._inside, "rows"):
                rows = found[0] if isinstance(found, tuple) else found
                self._inside.rows += rows.num_rows if isinstance(rows, pa.Table) else len(rows)
            return found

        return counted


def test_every_operator_over_files_is_exact_at_every_job_and_brings_no_rows_to_the_driver(
    world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No table is so small that it is read whole.
    monkeypatch.setattr(wide_inputs, "ROWS_PER_CHANGE", 0)
    monkeypatch.setattr(wide_inputs, "MANY_ROWS", 0)
    limits = {"way": "wide", "small_table_rows": 1, "rows_per_file": 100}
    found = world(TABLES, DIMENSIONS, VIEWS, limits)
    driver = Driver(monkeypatch)
    _exercise(found, 1_100)
    assert 0 < driver.most < MOST_ROWS


def test_operators_that_are_recomputed_are_exact_at_every_job(world: MakeWorld) -> None:
    recomputed = ("joined_full", "unknown", "running", "touched", "bag", "mapped")
    views = [
        *(view for view in VIEWS if view.name in recomputed),
        View("mapped", "SELECT id, map(id, v) AS m FROM s.l"),
    ]
    limits = {"way": "recompute", "small_table_rows": 1, "rows_per_file": 4}
    _exercise(world(TABLES, DIMENSIONS, views, limits), 20)


def test_a_lookup_in_files_that_must_not_miss_names_the_fact(world: MakeWorld) -> None:
    view = as_of("strict", "f.id, d.name", miss="fail")
    found = world(TABLES, DIMENSIONS, [view], {"way": "wide"})
    found.commit(Insert("d", {"k": 1, "name": "one"}))
    found.commit(Insert("f", {"id": 1, "k": 1, "qty": 1}))
    found.close_job()
    found.commit(Insert("f", {"id": 2, "k": 5, "qty": 1}))
    with pytest.raises(FlowFailed, match="no version of dim was valid for k = 5"):
        found.warehouse.refresh()
    assert found.rows("strict", 1) == {(1, "one")}


def test_a_narrow_batch_is_halved_when_its_groups_would_be_computed_from_too_many_rows(
    world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches: list[tuple[int, int]] = []
    narrowly = ViewStage._narrowly

    def noting(stage: ViewStage, after: JobId, upto: JobId, rows: int, batch: Batch) -> None:
        batches.append((after, upto))
        narrowly(stage, after, upto, rows, batch)

    monkeypatch.setattr(ViewStage, "_narrowly", noting)
    view = View("largest", "SELECT g, MAX(v) AS v, COUNT(DISTINCT v) AS n FROM s.t GROUP BY g")
    table = Table({"id": "int", "g": "int", "v": "int"}, ("id",))
    found = world({"t": table}, views=[view], limits={"batch_rows": 100, "small_table_rows": 1})
    found.step(*(Insert("t", {"id": number, "g": 0, "v": number % 7}) for number in range(30)))
    for number in range(4):
        found.commit(Insert("t", {"id": number, "g": 0, "v": 9 - number}))
        found.close_job()
    found.refresh()
    found.check_all()
    assert batches == [(0, 1), (1, 5), (1, 3), (3, 5)]


def test_a_way_can_be_forced_and_is_told(world: MakeWorld) -> None:
    found = world(TABLES, views=[view for view in VIEWS if view.name == "touched"])
    for number, way in enumerate(Way):
        found.way = way
        found.step(Insert("l", {"id": number, "k": 1, "v": number, "x": 0.0}))
        told = f"{way}: limits.way says so"
        assert f"latest batch of touched: {told}" in str(found.warehouse.explain("touched"))
        assert found.warehouse.history.jobs(1)[0].ways["touched"] == told
        assert found.warehouse.status.ways[way] >= 1


def test_a_table_may_take_jobs_of_a_batch_that_changed_nothing_of_its_input(world: MakeWorld) -> None:
    views = [view for view in VIEWS if view.name in ("running", "on_a_view")]
    found = world(TABLES, views=views, limits={"way": "wide", "small_table_rows": 1})
    found.step(*(Insert("l", {"id": number, "k": 1, "v": number}) for number in range(3)))
    for number in (1, 2):
        found.commit(Insert("r", {"id": number, "k": 1}))
        found.close_job()
    found.commit(Update("l", {"id": 1, "v": 7}))
    found.close_job()
    executor = found.warehouse._engine.executor
    executor.bring(["running"], JobId(4))
    executor.bring(["on_a_view"], JobId(3))
    found.refresh()
    found.check_all()
