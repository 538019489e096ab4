"""Tables that are loaded range by range: every range that is there is exact at every job, whatever changes and whatever is killed."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headgate.errors import ConfigError, DefiniteError, HeadgateError, TransientError
from headgate.runtime.stages.replica_stage import ReplicaStage
from headgate.runtime.stages.ways import Way
from tests.exactness.model import Change, Delete, Insert, Table, Truncate, Update
from tests.exactness.range_loading import Script, follow, scripted
from tests.exactness.world import View, World
from tests.seed import SEED

EXAMPLES = int(os.environ.get("HEADGATE_EXAMPLES", 1))
TABLES = {
    "heads": Table({"k": "bigint", "g": "int"}, ("k",)),
    "facts": Table({"k": "bigint", "n": "int", "v": "int"}, ("k", "n")),
    "refs": Table({"v": "int", "name": "string"}, ("v",)),
}
RANGES = {"heads": {"column": "k", "bounds": [3, 6]}, "facts": {"column": "k"}}
VIEWS = (
    View("copied", "SELECT k, n, v FROM s.facts"),
    View("summed", "SELECT k, sum(v) AS s, count(*) AS c FROM s.facts GROUP BY k"),
    View("joined", "SELECT h.k, h.g, f.n, f.v FROM s.heads h LEFT JOIN s.facts f ON h.k = f.k"),
    View("named", "SELECT f.k, f.n, r.name FROM s.facts f JOIN s.refs r ON f.v = r.v"),
    View("of_groups", "SELECT x.k, x.s, h.g FROM summed x JOIN s.heads h ON x.k = h.k"),
    View("total", "SELECT sum(v) AS s, count(*) AS c FROM s.facts"),
)
OF_HEADS = ("joined", "of_groups")


@pytest.fixture
def script() -> Script:
    return Script(("heads", "facts"))


@pytest.fixture
def world(oracle: SparkSession, tmp_path: Path, script: Script, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    scripted(monkeypatch, script)
    found = World(tmp_path, oracle, TABLES, (), VIEWS, {"small_table_rows": 1, "rows_per_file": 4}, RANGES)
    script.world = found
    with found:
        yield found


def replica(world: World, table: str) -> ReplicaStage:
    return world.warehouse._engine.replicas.stages[f"s.{table}"]


def load(world: World, table: str, *ranges: int) -> int:
    return world.warehouse._engine.loads._range_loads.load(replica(world, table), frozenset(ranges), lambda: False)


def finish(world: World) -> None:
    """All ranges have been read, and the source hears of it: again, where a kill came before."""
    for table in ("heads", "facts"):
        world.warehouse._engine.loads._load_ranges(replica(world, table))


def fact(k: int, v: int, n: int = 0) -> Insert:
    return Insert("facts", {"k": k, "n": n, "v": v})


def closed(world: World) -> int:
    world.close_job()
    return len(world.model.jobs)


def known(world: World, table: str) -> set[int]:
    """Ranges that are there, or enter when they are asked for."""
    stage, chain = replica(world, table), world.warehouse._engine.journal.chain
    missing = stage.target.missing
    return {
        number
        for number in stage.target.ranges
        if number not in missing or (stage.enters_at(missing[number], chain) or chain.newest + 1) <= chain.newest
    }


def ask(world: World, text: str, **bound: object) -> list[tuple[object, ...]]:
    with world.warehouse.sql(text, **({"max_staleness": "0s", "deadline": "60s"} | bound)) as answer:  # type: ignore[arg-type]
        return sorted(tuple(row.values()) for row in answer.to_arrow().to_pylist())


def test_a_range_answers_as_soon_as_it_is_loaded_and_the_others_are_named(world: World, script: Script) -> None:
    world.commit(fact(1, 10), fact(4, 40), fact(5, 50), fact(7, 70))
    closed(world)

    def change() -> None:
        world.commit(Update("facts", {"k": 4, "n": 0, "v": 41}), Delete("facts", {"k": 5, "n": 0}), fact(5, 51, n=1))
        world.commit(Update("facts", {"k": 4, "n": 2, "v": 42}, {"k": 1, "n": 0}))

    script.meanwhile = change
    assert load(world, "facts", 1) == 2
    script.meanwhile = lambda: None
    assert ask(world, "SELECT k, n, v FROM s.facts WHERE k >= 3 AND k < 6") == [(4, 0, 41), (4, 2, 42), (5, 1, 51)]
    assert ask(world, "SELECT k, s FROM summed WHERE k = 4") == [(4, 83)]
    world.model.close_job()
    world.bring("copied", [1])
    with pytest.raises(HeadgateError, match=r"s\.facts \(1 of 3 ranges are loaded\) is not loaded yet"):
        ask(world, "SELECT * FROM copied WHERE k = 7", deadline="100ms")
    # Delta clients see no part of a view; the source table's files are internal.
    world.materialize()
    assert world.stored("copied").main.rows == 0 and world.stored("s.facts").main.rows == 2
    with pytest.raises(DefiniteError, match="cannot be merged while some of them are being loaded"):
        world.warehouse.change_ranges("s.facts", merge=0)
    # The ranges that were read, and those that were not, are ranges of the next process, too.
    world.warehouse.close(fold_seconds=0)
    world.ranges = RANGES | {"heads": {"column": "k", "bounds": [4, 6]}}
    with pytest.raises(ConfigError, match="has other ranges in the project file now"):
        world.open()
    world.ranges = RANGES
    world.open()
    assert ask(world, "SELECT k, n, v FROM s.facts WHERE k = 5") == [(5, 1, 51)]
    script.is_failing = True
    with pytest.raises(ConnectionError):
        load(world, "facts", 0)
    script.is_failing = False
    assert replica(world, "facts").unread == {0, 2}
    assert load(world, "facts", 0, 2) == 1
    world.commit(fact(8, 80))
    job = closed(world)
    for name in ("copied", "summed", "named", "total"):
        world.bring(name, range(3) if name != "total" else [0], job)
    world.materialize()
    copied = world.stored("copied")
    assert copied.main.rows == copied.count(copied.main.base_through) > 0
    with pytest.raises(HeadgateError, match="does not hold job 1"):
        world.rows("copied", 1)


def test_ranges_that_become_one_while_they_are_read_are_read_again_and_parts_of_one_are_taken(
    world: World, script: Script
) -> None:
    world.commit(fact(1, 10), fact(4, 40), fact(7, 70))
    closed(world)
    script.meanwhile = lambda: world.warehouse.change_ranges("s.facts", merge=1)
    with pytest.raises(TransientError, match="were merged with others while they were read"):
        load(world, "facts", 1)
    assert replica(world, "facts").unread == {0, 1}
    script.meanwhile = lambda: world.warehouse.change_ranges("s.facts", split="6")
    assert load(world, "facts", 1) == 2
    script.meanwhile = lambda: None
    assert replica(world, "facts").unread == {0}
    assert ask(world, "SELECT k, v FROM s.facts WHERE k >= 3") == [(4, 40), (7, 70)]
    # The source has more transactions than the model knows of, and all is as the model has it.
    world.model.close_job()
    world.bring("summed", [1, 2])


def test_a_kill_at_every_step_of_a_load_costs_at_most_that_load(world: World, script: Script) -> None:
    world.commit(*[fact(k, k) for k in range(9)], *[Insert("heads", {"k": k, "g": k}) for k in range(9)])
    closed(world)
    load(world, "heads", 0, 1, 2)
    outcomes = set()
    for steps in range(6):
        number = steps % 3
        if number not in replica(world, "facts").unread:
            continue
        world.kill_in(lambda number=number: load(world, "facts", number), steps)  # type: ignore[misc]
        follow(world, world.warehouse.source("s").log.end)
        outcomes.add(number in replica(world, "facts").unread)
        world.commit(Update("facts", {"k": 3 * number, "n": 0, "v": 100 + steps}))
        closed(world)
        for each in known(world, "facts"):
            world.bring("joined", [each])
    assert outcomes == {True, False}
    load(world, "facts", *replica(world, "facts").unread)
    finish(world)
    world.commit(fact(2, 3, n=9))
    world.refresh()
    world.check(len(world.model.jobs))
    # Folded: nothing is left of the load.
    world.materialize()
    world.commit(fact(2, 4, n=9))
    world.refresh()
    world.materialize()
    world.reopen()
    assert not replica(world, "facts").target.gaps.open
    world.check(len(world.model.jobs))


def change(choice: random.Random) -> Change:
    k, n = choice.randint(0, 8), choice.randint(0, 2)
    match choice.randint(0, 9):
        case 0 | 1 | 2 | 3:
            return fact(k, choice.randint(0, 5), n)
        case 4:
            return Insert("heads", {"k": k, "g": choice.randint(0, 3)})
        case 5:
            return Insert("refs", {"v": choice.randint(0, 5), "name": choice.choice("abc")})
        case 6:
            moved = {"k": choice.randint(0, 8), "n": n, "v": choice.randint(0, 5)}
            return Update("facts", moved, {"k": k, "n": n})
        case 7:
            return Delete("facts", {"k": k, "n": n})
        case 8:
            return Delete("heads", {"k": k})
    return Truncate("facts") if choice.random() < 0.2 else Delete("facts", {"k": k, "n": n})


@pytest.mark.slow
@pytest.mark.parametrize("number", range(EXAMPLES))
def test_whatever_happens_during_a_load_loaded_ranges_are_exact(world: World, script: Script, number: int) -> None:
    choice = random.Random(f"range loads {SEED} {number}")

    def commit() -> None:
        world.commit(*[change(choice) for _ in range(choice.randint(1, 6))])

    def meanwhile() -> None:
        for _ in range(choice.randint(0, 2)):
            commit()

    script.meanwhile = meanwhile
    world.commit(*[change(choice) for _ in range(30)])
    closed(world)
    while unread := [(table, each) for table in ("heads", "facts") for each in replica(world, table).unread]:
        table, first = choice.choice(unread)
        group = {each for name, each in unread if name == table and (each == first or choice.random() < 0.3)}
        commit()
        if choice.random() < 0.3:
            closed(world)
        if choice.random() < 0.3:
            script.meanwhile = lambda: None  # a copy of the disk lacks what comes behind it
            world.kill_in(lambda table=table, group=group: load(world, table, *group), choice.randint(0, 6))  # type: ignore[misc]
            script.meanwhile = meanwhile
            follow(world, world.warehouse.source("s").log.end)
        else:
            load(world, table, *group)
        for _ in range(choice.randint(1, 2)):
            commit()
            closed(world)
        world.way = choice.choice([*Way, None, None])
        there, with_heads = known(world, "facts"), known(world, "facts") & known(world, "heads")
        for view in choice.sample(VIEWS[:5], 2):
            for each in with_heads if view.name in OF_HEADS else there:
                if choice.random() < 0.7:
                    world.bring(view.name, [each])
        if len(there) == 3:
            world.bring("total", [0])
        if choice.random() < 0.4:
            world.materialize()
        if choice.random() < 0.2:
            world.kill_in(world.materialize, choice.randint(0, 12))
    finish(world)
    commit()
    world.refresh()
    world.check(len(world.model.jobs))
    commit()
    world.refresh()
    world.materialize()
    world.check(len(world.model.jobs))
