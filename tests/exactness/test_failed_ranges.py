"""Ranges of views that fail on their data: they are given up, block nobody, and are made anew."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headgate.errors import DefiniteError, FlowFailed, HeadgateError
from tests.exactness.model import Delete, Insert, Table, Update
from tests.exactness.world import View, World
from tests.seed import SEED
from tests.waiting import eventually

EXAMPLES = int(os.environ.get("HEADGATE_EXAMPLES", 1))

TABLES = {"facts": Table({"k": "bigint", "n": "int", "v": "int"}, ("k", "n"))}
RANGES = {"facts": {"column": "k", "bounds": [10, 20]}}
VIEWS = (
    View(
        "inverse",
        "SELECT k, n, 60 DIV v AS q FROM s.facts",
        "SELECT k, n, 60 DIV nullif(v, 0) AS q FROM s.facts",  # where there is a 0, the range fails
    ),
    View("summed", "SELECT k, sum(q) AS s, count(*) AS c FROM inverse GROUP BY k"),
    View("total", "SELECT sum(q) AS s, count(*) AS c FROM inverse"),
    View("plain", "SELECT k, sum(v) AS s FROM s.facts GROUP BY k"),
)


@pytest.fixture
def world(oracle: SparkSession, tmp_path: Path) -> Iterator[World]:
    with World(tmp_path, oracle, TABLES, (), VIEWS, {"small_table_rows": 1, "rows_per_file": 4}, RANGES) as found:
        yield found


def fact(k: int, v: int, n: int = 0) -> Insert:
    return Insert("facts", {"k": k, "n": n, "v": v})


def ask(world: World, text: str, **options: Any) -> list[tuple[Any, ...]]:
    with world.warehouse.sql(text, **({"max_staleness": "0s"} | options)) as answer:
        return sorted(tuple(row.values()) for row in answer.to_arrow().to_pylist())


def settled(world: World) -> int:
    """Closes a job and brings every table as far as it gets."""
    world.close_job()
    job = len(world.model.jobs)
    engine = world.warehouse._engine
    engine.executor.settle([stage.name for stage in engine.flows.stages()], engine.journal.chain.newest)
    return job


def test_a_range_that_fails_is_given_up_and_made_anew(world: World) -> None:
    world.commit(fact(1, 2), fact(11, 3), fact(21, 4))
    settled(world)
    world.commit(fact(1, 0, n=1), fact(11, 6, n=1))
    settled(world)
    world.commit(fact(2, 5), fact(21, 5, n=1))
    job = settled(world)
    world.materialize()
    # What failed, and what reads it, is left out; nothing else is kept back.
    assert set(world.stored("inverse").missing) == set(world.stored("summed").missing) == {0}
    assert set(world.stored("total").missing) == {0}
    assert not world.stored("plain").missing
    assert world.stored("s.facts").main.base_through == job - 1  # of a divided view the newest job stays open
    assert world.stored("inverse").main.base_through == world.stored("summed").main.base_through == job - 1
    assert list(world.stored("inverse").throughs) == [1, job, job]

    # Other ranges go on, exactly.
    world.commit(fact(12, 4), Delete("facts", {"k": 21, "n": 0}))
    assert ask(world, "SELECT k, n, q FROM inverse WHERE k >= 10") == [
        (11, 0, 20),
        (11, 1, 10),
        (12, 0, 15),
        (21, 1, 12),
    ]
    world.model.close_job()
    world.bring("summed", [1, 2])
    assert ask(world, "SELECT k, s FROM plain WHERE k < 10") == [(1, 2), (2, 5)]
    for text in ("SELECT * FROM inverse WHERE k = 1", "SELECT * FROM summed", "SELECT * FROM total"):
        with pytest.raises(FlowFailed, match="inverse failed in job"):
            ask(world, text)
    with pytest.raises(DefiniteError, match="stand at different jobs"):
        world.warehouse.change_ranges("inverse", merge=0)
    # Jobs from before the failure are as they were; those behind it are not to be had.
    assert world.rows("inverse", 1) == {(1, 0, 30), (11, 0, 20), (21, 0, 15)}
    with pytest.raises(HeadgateError, match="inverse failed in job"):
        world.rows("inverse", job)

    # A killed process knows of it.
    world.warehouse.close(fold_seconds=0)
    world.open()
    assert set(world.stored("inverse").missing) == set(world.stored("summed").missing) == {0}
    with pytest.raises(HeadgateError):
        ask(world, "SELECT * FROM summed WHERE k = 1")
    assert len(ask(world, "SELECT * FROM inverse WHERE k >= 10")) == 4

    # Data heal it, also after somebody asked in vain again.
    world.warehouse._engine.executor.want(["inverse"], world.warehouse._engine.journal.chain.newest)
    world.commit(Update("facts", {"k": 1, "n": 1, "v": 3}))
    assert ask(world, "SELECT k, s, c FROM summed") == [(1, 50, 2), (2, 12, 1), (11, 30, 2), (12, 15, 1), (21, 12, 1)]
    assert ask(world, "SELECT s, c FROM total") == [(119, 7)]
    world.commit(fact(1, 1, n=5), fact(15, 1))
    assert ask(world, "SELECT s, c FROM total") == [(239, 9)]
    world.materialize()
    world.warehouse.close(fold_seconds=0)
    world.open()
    assert not world.stored("inverse").missing
    assert ask(world, "SELECT s, c FROM total") == [(239, 9)]
    assert ask(world, "SELECT k, s FROM summed WHERE k < 10") == [(1, 110), (2, 12)]


def test_a_missing_range_comes_back_after_resume_without_new_data(world: World) -> None:
    world.commit(fact(1, 2), fact(11, 3))
    settled(world)
    world.commit(fact(2, 0), fact(11, 1, n=1))
    settled(world)
    world.materialize()
    assert set(world.stored("inverse").missing) == {0}
    # The definition is corrected: the flow is another one, and has no gaps.
    flows = world.folder / "flows" / "flows.sql"
    flows.write_text(flows.read_text(encoding="utf-8").replace("60 DIV v", "if(v = 0, 0, 60 DIV v)"), encoding="utf-8")
    world.warehouse.resume()
    assert not world.stored("inverse").missing
    assert ask(world, "SELECT k, s FROM summed") == [(1, 30), (2, 0), (11, 80)]
    assert ask(world, "SELECT s FROM total") == [(110,)]


def test_missing_ranges_are_made_anew_each_at_its_own_job(world: World) -> None:
    world.commit(fact(1, 2), fact(11, 3))
    settled(world)
    world.commit(fact(1, 0, n=1), fact(11, 0, n=1))
    settled(world)
    world.materialize()
    assert set(world.stored("inverse").missing) == {0, 1}
    executor, chain = world.warehouse._engine.executor, world.warehouse._engine.journal.chain
    ranges = world.stored("inverse").range_map
    with executor.paused():
        for key in (1, 11):
            # The later job heals the second range, which would fail again at the earlier one.
            world.commit(Update("facts", {"k": key, "n": 1, "v": 3}))
            world.close_job()
            executor.want(["inverse"], chain.newest, {"inverse": ranges.keys_of([key // 10])})
        executor.run_here(chain.newest, leave=[view.name for view in VIEWS])
    eventually(lambda: not world.stored("inverse").missing)
    made = [(set(run.ranges), int(run.after), int(run.upto)) for run in executor.runs if run.stage == "inverse"]
    assert made[-2:] in ([({0}, 1, 3), ({1}, 1, 4)], [({1}, 1, 4), ({0}, 1, 3)]), made
    assert ask(world, "SELECT k, n, q FROM inverse") == [(1, 0, 30), (1, 1, 20), (11, 0, 20), (11, 1, 20)]


def change(choice: random.Random) -> Insert | Update | Delete:
    row = {"k": choice.randint(0, 29), "n": choice.randint(0, 1)}
    value = choice.choice((0, 1, 2, 3, 4, 5))
    match choice.randint(0, 3):
        case 0:
            return Delete("facts", row)
        case 1:
            return Update("facts", {"k": choice.randint(0, 29), "n": row["n"], "v": value}, row)
    return Insert("facts", {**row, "v": value})


@pytest.mark.slow
@pytest.mark.parametrize("number", range(EXAMPLES))
def test_whatever_fails_every_other_range_is_exact(world: World, number: int) -> None:
    choice = random.Random(f"failed ranges {SEED} {number}")
    world.commit(*[fact(k, 1 + k % 5) for k in range(0, 30, 2)])
    settled(world)
    for _ in range(5):
        world.commit(*[change(choice) for _ in range(choice.randint(1, 4))])
        world.close_job()
        job = len(world.model.jobs)
        bad = {min(2, row["k"] // 10) for row in world.model.at_job(job)["facts"].values() if row["v"] == 0}
        for flow in ("summed", "inverse", "plain"):
            for place in choice.sample(range(3), 2):
                if place in bad and flow != "plain":
                    with pytest.raises(FlowFailed, match="inverse failed in job"):
                        world.bring(flow, [place])
                else:
                    world.bring(flow, [place])
        if choice.random() < 0.6:
            world.materialize()
        if choice.random() < 0.3:
            world.kill_in(world.materialize, choice.randint(0, 12))
    zeros = [row for row in world.model.at_job(len(world.model.jobs))["facts"].values() if row["v"] == 0]
    world.commit(fact(30, 1), *[Delete("facts", {"k": row["k"], "n": row["n"]}) for row in zeros])
    world.close_job()
    for flow in ("summed", "inverse", "plain", "total"):
        world.bring(flow, range(3))
    world.materialize()
    assert not any(world.stored(flow).missing for flow in ("summed", "inverse", "plain", "total"))
