"""Every operator over rows in files, in batches of many jobs: exact at each job, and none of the rows comes to the driver."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
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
from headgate.runtime.stages.dimension_stage import DimensionStage
from headgate.runtime.stages.replica_stage import ReplicaStage
from headgate.runtime.stages.view_stage import ViewStage
from headgate.runtime.stages.ways import Way
from headgate.warehouse.changes import ChangeSet
from headgate.warehouse.files import FileReader
from headgate.warehouse.versioned import VersionedTable
from tests.exactness.conftest import MakeWorld
from tests.exactness.model import Delete, Dimension, Insert, Table, Truncate, Update
from tests.exactness.test_lookups import as_of
from tests.exactness.world import View, World

MOST_ROWS = 1_000
"""That the driver may be given of a batch in files."""
FEW_ROWS = 300
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
    View("repeated", "(SELECT k, v FROM s.l UNION ALL SELECT k, qty FROM s.f) EXCEPT ALL SELECT k, w FROM s.r"),
    View("outside", "SELECT id, k FROM s.l WHERE k NOT IN (SELECT k FROM s.r WHERE w > 3)"),
    View("generated", "SELECT id, e FROM s.l LATERAL VIEW explode(sequence(0, v)) g AS e"),
    View("on_a_view", "SELECT s, count(*) AS n FROM running GROUP BY s"),
]  # fmt: skip


def _load(world: World, rows: int) -> None:
    world.commit(*(Insert("d", {"k": number, "name": f"n{number}"}) for number in range(rows // 10)), initial=True)
    world.commit(
        *(Insert("l", {"id": n, "k": n % (rows // 2), "v": n % 7, "x": n / 7}) for n in range(rows)),
        *(Insert("r", {"id": n, "k": n % (rows // 2), "w": n % 5}) for n in range(rows)),
        *(Insert("f", {"id": n, "k": n % (rows // 9), "qty": n % 5}) for n in range(rows)),
    )
    world.refresh()
    world.materialize()


def _change(world: World, rows: int, jobs: int) -> None:
    """Some of the rows change in each of several jobs that one batch takes."""
    for job in range(jobs):
        if job:
            world.close_job()
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
    world.commit(Delete("l", {"id": 1}), Insert("l", {"id": 10, "k": 1, "v": 4, "x": 0.2}), Truncate("d"))
    world.refresh()
    world.check_new_jobs()


def _change_all(world: World, rows: int) -> None:
    """Every row changes in one job: whoever collected the changes of a table would have more than the driver may be given."""
    world.commit(
        *(Update("l", {"id": n, "v": (n + 3) % 7, "x": n / 5}) for n in range(rows)),
        *(Update("r", {"id": n, "w": (n + 2) % 5}) for n in range(rows)),
        *(Update("f", {"id": n, "qty": (n + 1) % 5}) for n in range(rows)),
    )
    world.refresh()
    world.check_new_jobs()


class Driver:
    """Counts the rows that batches, folds and frames bring to the driver."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.found: dict[str, int] = {}
        """The most in one batch, fold or frame of each kind."""
        self._inside = threading.local()
        for owner, name in (
            (DataFrame, "toArrow"),
            (DataFrame, "collect"),
            (Views, "collect"),
            (Collector, "collect"),
            (ChangeSet, "read"),
            (FileReader, "rows"),
        ):
            patch.setattr(owner, name, self._counting(getattr(owner, name)))
        for owner, name in (
            (ReplicaStage, "advance"),
            (DimensionStage, "advance"),
            (ViewStage, "advance"),
            (VersionedTable, "apply"),
            (VersionedTable, "prepare"),
            (VersionedTable, "frame"),
        ):
            patch.setattr(owner, name, self._watched(getattr(owner, name)))

    def most(self, where: str) -> int:
        return max(rows for name, rows in self.found.items() if where in name)

    def _watched(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*arguments: Any, **more: Any) -> Any:
            if hasattr(self._inside, "rows"):
                return method(*arguments, **more)
            self._inside.rows = 0
            try:
                return method(*arguments, **more)
            finally:
                name = method.__qualname__
                self.found[name] = max(self._inside.rows, self.found.get(name, 0))
                del self._inside.rows

        return watched

    def _counting(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **more: Any) -> Any:
            if getattr(self._inside, "is_counting", False):
                return method(*arguments, **more)
            self._inside.is_counting = True
            try:
                found = method(*arguments, **more)
            finally:
                self._inside.is_counting = False
            if hasattr(self._inside, "rows"):
                rows = found[0] if isinstance(found, tuple) else found
                self._inside.rows += rows.num_rows if isinstance(rows, pa.Table) else len(rows)
            return found

        return counted


def test_every_operator_is_exact_over_files_and_recomputed_and_brings_no_rows_to_the_driver(
    world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No table is so small that it is read whole.
    monkeypatch.setattr(wide_inputs, "ROWS_PER_CHANGE", 0)
    monkeypatch.setattr(wide_inputs, "MANY_ROWS", 0)
    views = [*VIEWS, View("mapped", "SELECT id, map(id, v) AS m FROM s.l")]
    found = world(TABLES, DIMENSIONS, views, {"small_table_rows": 1, "rows_per_file": 100})
    _load(found, 1_100)
    recomputed: list[str] = []
    recompute = ViewStage._recompute
    monkeypatch.setattr(
        ViewStage, "_recompute", lambda stage, *rest: (recomputed.append(stage.name), recompute(stage, *rest))[1]
    )
    found.way = Way.WIDE
    driver = Driver(monkeypatch)
    _change_all(found, 1_100)
    _change(found, 1_100, jobs=2)
    assert 0 < driver.most("Stage.advance") < MOST_ROWS, driver.found
    assert not recomputed, "a batch in files was recomputed"
    found.way = Way.RECOMPUTE
    _change(found, 1_200, jobs=1)
    assert {view.name for view in views} <= set(recomputed)
    assert driver.most("Stage.advance") < MOST_ROWS, driver.found


def test_overlays_in_files_are_read_spilled_and_folded_without_their_rows_in_the_driver(
    world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    views = [view for view in VIEWS if view.name in ("running", "touched")]
    limits = {"way": "wide", "small_table_rows": 1, "rows_per_file": FEW_ROWS, "batch_rows": FEW_ROWS}
    found = world({"l": TABLES["l"]}, [Dimension("versions", "l")], views, limits)
    # Whether something was folded unasked would depend on the pace of the machine.
    with found.warehouse._engine.upkeep.paused():
        _read_spill_and_fold(found, Driver(monkeypatch))


def _read_spill_and_fold(found: World, driver: Driver) -> None:
    tables = found.warehouse._engine.tables
    found.commit(*(Insert("l", {"id": n, "k": n % 450, "v": n % 7, "x": n / 7}) for n in range(900)))
    found.check(found.bring_all())
    assert all(table.has_files for _, table in tables.physical())
    found.materialize()
    found.commit(*(Update("l", {"id": n, "v": 8}) for n in range(0, 900, 2)))
    found.check(found.bring_all())
    assert all(tables.get("s.l").count(JobId(job)) == 900 for job in (1, 2)), "changes in files are counted by weight"
    assert driver.most("") < FEW_ROWS, driver.found
    found.way = Way.NARROW
    for step in range(3):
        found.commit(*(Update("l", {"id": n, "v": 9}) for n in range(step, 360, 3)))
        found.check(found.bring_all())
    replica = tables.get("s.l").main
    assert replica.overlay_rows > 5 * FEW_ROWS and replica._overlay.memory_rows <= FEW_ROWS, (
        "the driver has not spilled"
    )
    found.materialize()
    found.check(5)
    assert driver.most("VersionedTable.") <= FEW_ROWS, driver.found


def test_a_wide_lookup_reads_only_the_row_groups_and_columns_that_its_keys_need(
    world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wide_inputs, "ROWS_PER_CHANGE", 0)
    monkeypatch.setattr(wide_inputs, "MANY_ROWS", 0)
    joined = View("joined", "SELECT a.id, b.w FROM s.l a JOIN s.r b ON a.k = b.id")
    found = world(TABLES, views=[joined], limits={"small_table_rows": 1})
    main = found.warehouse._engine.tables.get("s.r").main
    main._state.limits = replace(main.limits, rows_per_group=100)
    found.step(*(Insert("r", {"id": number, "k": 1, "w": number}) for number in range(5_000)))
    found.materialize()
    assert len(main.newest_index) == 1, "the table is one file of many row groups"
    found.way = Way.WIDE
    # Keys lie in three row groups.
    found.commit(*(Insert("l", {"id": 9_000 + key, "k": key, "v": 1}) for key in (5, 95, 2_050, 4_903)))
    plans: list[str] = []
    to_files = Batch.to_files

    def noting(batch: Batch, frame: DataFrame) -> str:
        plans.append(frame._jdf.queryExecution().executedPlan().toString())
        return to_files(batch, frame)

    monkeypatch.setattr(Batch, "to_files", noting)
    before = _stages(found)
    job = found.bring_all()
    read = sum(rows for stage, rows in _stages(found).items() if stage > max(before))
    assert 300 <= read < 600, read
    assert any("ReadSchema: struct<id:int,w:int>" in plan for plan in plans), plans
    assert not any("k:bigint" in plan for plan in plans), plans
    found.check(job)


def _stages(world: World) -> dict[int, int]:
    """The latest stages of Spark, and how many rows of files their tasks have read."""
    context = world.spark.sparkContext
    assert context._jsc is not None and context._gateway is not None
    spark, nothing = context._jsc.sc(), context._gateway.jvm.java.util.ArrayList()
    spark.listenerBus().waitUntilEmpty()
    quantiles = context._gateway.new_array(context._gateway.jvm.double, 0)
    stages = spark.statusStore().stageList(nothing, False, False, quantiles, nothing)
    found = (stages.apply(place) for place in range(stages.size()))
    return {stage.stageId(): stage.inputRecords() for stage in found}


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


def test_jobs_that_together_are_too_many_for_the_driver_are_one_batch_in_files(world: MakeWorld) -> None:
    views = [view for view in VIEWS if view.name in ("running", "touched")]
    limits = {"batch_rows": 20, "small_table_rows": 1}
    found = world({"l": TABLES["l"]}, [Dimension("versions", "l")], views, limits)
    found.step(Insert("l", {"id": 0, "k": 0, "v": 0, "x": 0.0}))
    for job in range(3):
        found.commit(*(Insert("l", {"id": n % 11, "k": n % 4, "v": n + job, "x": 0.5}) for n in range(job, job + 9)))
        found.close_job()
    found.refresh()
    found.check_all()
    taken = {run.stage: run for run in found.warehouse._engine.executor.runs if run.upto > 1}
    assert {(run.after, run.upto) for run in taken.values()} == {(1, found.warehouse.newest_job)}
    told = f"27 changes, of {limits['batch_rows']} that the driver may hold (limits.batch_rows)"
    assert str(taken["s.l"].choice) == f"wide: {told}"
    assert str(taken["versions"].choice) == f"wide: as s.l, {told}"
    assert not any(str(run.choice).startswith("narrow") for run in taken.values())


def test_a_range_of_a_table_is_taken_in_files_when_all_events_are_too_many_for_the_driver(world: MakeWorld) -> None:
    # The driver would read all of them to find those of the range.
    table = Table({"k": "bigint", "v": "int"}, ("k",))
    summed = View("summed", "SELECT k, sum(v) AS s FROM s.t GROUP BY k")
    ranges = {"t": {"column": "k", "bounds": [10, 20]}}
    found = world({"t": table}, [], [summed], {"batch_rows": 20, "small_table_rows": 1}, ranges)
    found.commit(*(Insert("t", {"k": number, "v": 1}) for number in range(30)))
    found.close_job()
    found.bring("summed", [1])
    (taken,) = (run for run in found.warehouse._engine.executor.runs if run.stage == "s.t")
    assert taken.ranges == {1} and str(taken.choice).startswith("wide: 30 changes, of 20")
    found.refresh()
    found.check_all()


def test_few_rows_that_match_very_many_go_on_in_files(world: MakeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    # Each side, and what is looked up of it, is few: only what they make together is more than the driver may hold.
    most, each = 650, 32
    pairs = View("pairs", "SELECT a.id, b.id AS other FROM s.l a JOIN s.r b ON a.k = b.k")
    found = world(TABLES, views=[pairs], limits={"batch_rows": most, "small_table_rows": 1})
    found.way = Way.NARROW
    driver = Driver(monkeypatch)
    found.step(*(Insert("r", {"id": number, "k": 1, "w": 1}) for number in range(each)))
    found.step(*(Insert("l", {"id": number, "k": 1, "v": 1}) for number in range(each)))
    told = found.warehouse.history.jobs(1)[0].ways["pairs"]
    assert told == f"wide: {most + 1} rows of a batch, of {most} that the driver may hold (limits.batch_rows)"
    # Built over what is there, in a session for few rows.
    found.views = [pairs, View("built", pairs.text)]
    found.reopen()
    found.check(2)
    assert found.stored("built").count(JobId(2)) == each**2
    assert most < driver.most("Stage.advance") < each**2, driver.found


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
