"""Bounds that change: nothing is written anew, a process that is killed meanwhile has the old ranges or the new ones."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headgate.runtime.stages.stage import tables_of
from tests.exactness.model import Insert, Table
from tests.exactness.world import View, World
from tests.waiting import eventually

TABLES = {
    "heads": Table({"k": "bigint", "w": "int"}, ("k",)),
    "facts": Table({"k": "bigint", "n": "int", "ref": "bigint", "v": "int"}, ("k", "n")),
    "refs": Table({"ref": "bigint", "name": "string"}, ("ref",)),
}
RANGES = {"facts": {"column": "k", "bounds": [10, 20]}, "heads": {"column": "k"}}
VIEWS = (
    View("sums", "SELECT k, sum(v) AS s FROM s.facts GROUP BY k"),
    # Its rows without a match depend on how many matches there are: a stored count.
    View("residual", "SELECT h.k, f.n FROM s.heads h LEFT JOIN s.facts f ON h.k = f.k AND f.v > h.w"),
    View(
        "totals",
        "SELECT f.k, f.n, t.c FROM s.facts f JOIN (SELECT w, count(*) AS c FROM s.heads GROUP BY w) t ON t.w = f.ref",
    ),
    # The rows of a name that changes are looked up by another column than the key.
    View("named", "SELECT f.k, f.n, r.name FROM s.facts f JOIN s.refs r ON f.ref = r.ref"),
)


@pytest.fixture
def world(oracle: SparkSession, tmp_path: Path) -> Iterator[World]:
    with World(tmp_path, oracle, TABLES, (), VIEWS, {"small_table_rows": 1, "rows_per_file": 4}, RANGES) as found:
        yield found


def fact(k: int, n: int = 0) -> Insert:
    return Insert("facts", {"k": k, "n": n, "ref": k % 3, "v": 1})


def load(world: World) -> None:
    keys = range(0, 30, 2)
    world.commit(
        *[Insert("heads", {"k": k, "w": k % 2}) for k in keys],
        *[fact(k) for k in keys],
        *[Insert("refs", {"ref": ref, "name": "abc"[ref]}) for ref in range(3)],
    )
    world.refresh()


def files(world: World) -> dict[Path, int]:
    """What lies in the folders of tables, with when it was written."""
    found = [Path(world.warehouse.location(each.table)) for each in world.warehouse.ranges()]
    return {file: file.stat().st_mtime_ns for folder in found for file in folder.rglob("*") if file.is_file()}


def throughs(world: World, table: str) -> list[int]:
    return [int(job) for job in world.stored(table).throughs]


def test_nothing_is_rewritten_when_ranges_are_split_merged_and_moved(world: World) -> None:
    load(world)
    world.materialize()
    before, bases = files(world), {name: world.stored(name).main.base_through for name in ("s.facts", "sums")}
    assert any(file.suffix == ".parquet" for file in before)
    world.warehouse.change_ranges("sums", split="15")
    world.warehouse.change_ranges("s.facts", merge=0)
    world.warehouse.change_ranges("sums", bounds=["4", "8", "16"])
    world.warehouse.change_ranges("sums", count=2)
    assert len(throughs(world, "named")) == 2
    assert files(world) == before
    assert {name: world.stored(name).main.base_through for name in bases} == bases
    world.check_new_jobs()


def test_states_and_arrangements_have_the_range_column_and_stand_per_range(world: World) -> None:
    load(world)
    world.commit(fact(5), Insert("refs", {"ref": 2, "name": "d"}))
    world.refresh()
    facts = world.stored("s.facts")
    eventually(lambda: len(facts.arrangements) > 0)
    residual = next(stage for stage in world.warehouse._engine.flows.stages() if stage.name == "residual")
    states = [table for table in tables_of(residual) if table is not residual.target]
    assert states
    world.commit(*[fact(k, 1) for k in (2, 12, 22)])
    world.close_job()
    for table in ("residual", "named"):
        world.bring(table, [1])
    for stored in (facts, *states, world.stored("residual"), world.stored("named")):
        division = stored.division
        assert division is not None
        for physical in stored.physical():
            assert division.column in physical.spec.columns, physical.spec.name
            assert [int(job) for job in physical.throughs] == [2, 3, 2], physical.spec.name


def test_a_state_without_the_range_column_is_a_stage_of_its_own_and_read_whole(world: World) -> None:
    load(world)
    heads = [Insert("heads", {"k": k, "w": 2}) for k in (1, 25)]
    world.commit(*heads, *[fact(k, 1) for k in (2, 12, 22)])
    world.close_job()
    flow = world.warehouse._engine.flows.get("totals")
    (state,) = [stage.target for stage in flow.state_stages]
    assert (state.division, list(tables_of(flow.stages[0]))) == (None, [world.stored("totals")])
    world.bring("totals", [1])
    # Heads of all ranges are in its sums.
    assert (throughs(world, "totals"), throughs(world, "s.heads"), int(state.through)) == ([1, 2, 1], [2, 2, 2], 2)
    assert throughs(world, "s.facts") == [1, 2, 1]
    assert "running sums of all ranges" in str(world.warehouse.explain("totals"))
    world.commit(Insert("heads", {"k": 3, "w": 2}), fact(13, 2))
    world.close_job()
    world.bring("totals", [2])
    # The table is folded up to its slowest range, and so is what it reads.
    world.materialize()
    assert (world.stored("totals").main.base_through, state.main.base_through) == (1, 1)
    world.reopen()
    world.bring("totals", [0])
    world.check_new_jobs()
    # A stop that had no time to fold the state, and a project file without ranges since.
    world.commit(fact(14, 2), Insert("heads", {"k": 4, "w": 2}))
    world.refresh()
    world.warehouse._engine.upkeep.materialize_stages(["totals", "sums"])
    world.ranges = {}
    world.reopen()
    flow = world.warehouse._engine.flows.get("totals")
    assert (flow.stages[0].target.division, len(flow.state_stages)) == (None, 1)
    world.step(Insert("heads", {"k": 5, "w": 2}), fact(15, 2))
    world.check_new_jobs()


def test_only_ranges_that_become_one_are_brought_to_one_job(world: World) -> None:
    load(world)
    world.commit(fact(1), fact(11), fact(21))
    world.close_job()
    world.bring("sums", [1])
    assert throughs(world, "sums") == throughs(world, "s.facts") == [1, 2, 1]
    # What is cut stands at one job anyway.
    world.warehouse.change_ranges("sums", split="5")
    assert throughs(world, "sums") == throughs(world, "s.facts") == [1, 1, 2, 1]
    world.warehouse.change_ranges("sums", merge=1)
    assert throughs(world, "sums") == throughs(world, "s.facts") == [1, 2, 1]
    assert world.stored("sums").range_map.bounds == (5, 20)
    world.refresh()
    world.check_new_jobs()


def test_a_process_killed_while_ranges_change_has_the_old_ones_or_the_new_ones(world: World) -> None:
    load(world)
    bounds, seen = [10, 20], set()
    for steps in range(4):
        world.commit(fact(1, steps + 1), fact(15, steps + 1), fact(21, steps + 1))
        world.close_job()
        world.bring("sums", [steps % len(bounds)])
        wanted = [5 + steps, 15 + steps]
        world.kill_in(lambda wanted=wanted: world.warehouse.change_ranges("sums", bounds=list(map(str, wanted))), steps)  # type: ignore[misc]
        found = list(world.stored("sums").range_map.bounds)
        assert found in (bounds, wanted)
        seen.add(found == wanted)
        assert all(
            list(world.stored(name).range_map.bounds) == found for name in ("s.facts", "s.heads", "residual", "named")
        )
        bounds = found
        with world.warehouse.sql("SELECT k, s FROM sums WHERE k IN (15, 21)", max_staleness="0s") as answer:
            rows = sorted(tuple(row.values()) for row in answer.to_arrow().to_pylist())
        assert rows == [(15, steps + 1), (21, steps + 1)]
    assert seen == {False, True}
    world.refresh()
    world.check_new_jobs()
