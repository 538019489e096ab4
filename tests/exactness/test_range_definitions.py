"""Ranges while what they are told from changes: flows, bounds and jobs that are asked for by their numbers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headgate.delta.changes import JobId
from headgate.ranges.key_set import above
from headgate.scheduling.scheduler import Scheduler
from headgate.warehouse.divided import Division
from headgate.warehouse.versioned import VersionedTable
from tests.exactness.model import Insert, Table
from tests.exactness.world import View, World

TABLES = {"facts": Table({"k": "bigint", "n": "int", "v": "int"}, ("k", "n"))}
RANGES = {"facts": {"column": "k", "bounds": [10, 20]}}
# Run when it is read, with the condition.
FIRST = "SELECT k, first(v) AS v FROM s.facts GROUP BY k HAVING k {}"
VIEWS = (
    View("sums", "SELECT k, sum(v) AS s FROM s.facts GROUP BY k"),
    View("firsts", FIRST.format("< 10")),
)


@pytest.fixture
def world(oracle: SparkSession, tmp_path: Path) -> Iterator[World]:
    with World(tmp_path, oracle, TABLES, (), VIEWS, {"rows_per_file": 4}, RANGES) as found:
        yield found


def fact(k: int, v: int = 1, n: int = 0) -> Insert:
    return Insert("facts", {"k": k, "n": n, "v": v})


def ask(world: World, text: str, job: int | None = None) -> list[tuple[object, ...]]:
    bound = {} if job is not None else {"max_staleness": "0s"}
    with world.warehouse.sql(text, job, **bound) as answer:  # type: ignore[arg-type]
        return sorted(tuple(row.values()) for row in answer.to_arrow().to_pylist())


def test_a_view_that_is_defined_anew_while_its_query_waits_is_read_whole(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.commit(fact(1, 1), fact(11, 2), fact(21, 3))
    assert ask(world, "SELECT * FROM firsts") == [(1, 1)]
    freshen, flows = Scheduler._freshen, world.folder / "flows" / "flows.sql"

    def defined_anew(scheduler: Scheduler, query: object) -> None:
        monkeypatch.setattr(Scheduler, "_freshen", freshen)
        freshen(scheduler, query)  # type: ignore[arg-type]
        text = flows.read_text(encoding="utf-8")
        flows.write_text(text.replace("k < 10", "k >= 10"), encoding="utf-8")
        world.warehouse.resume()

    monkeypatch.setattr(Scheduler, "_freshen", defined_anew)
    assert ask(world, "SELECT * FROM firsts") == [(11, 2), (21, 3)]


def test_nobody_sees_a_table_that_is_cut_half(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.commit(fact(1), fact(11), fact(21))
    ask(world, "SELECT * FROM sums")
    executor, reader = world.warehouse._engine.executor, world.warehouse._engine.reader
    keys, problems, threads = {"sums": above(25)}, [], []

    def look() -> None:
        try:
            executor.want(["sums"], JobId(1), keys)
            assert executor.arrived(["sums"], JobId(1), keys)
            assert reader.through("sums", keys) == 1
        except BaseException as problem:
            problems.append(problem)

    divide = VersionedTable.divide

    def divided(table: VersionedTable, division: Division | None) -> None:
        divide(table, division)
        threads.append(threading.Thread(target=look))
        threads[-1].start()
        threads[-1].join(0.1)  # whoever looks waits until all is done

    monkeypatch.setattr(VersionedTable, "divide", divided)
    world.warehouse.change_ranges("sums", bounds=[])
    for thread in threads:
        thread.join()
    assert threads
    assert not problems, problems


def test_queries_go_on_while_ranges_are_split_and_merged(world: World) -> None:
    world.commit(*[fact(k) for k in range(30)])
    ask(world, "SELECT * FROM sums")
    problems: list[BaseException] = []
    done = threading.Event()

    def asking(low: int) -> None:
        try:
            while not done.is_set():
                found = ask(world, f"SELECT k FROM sums WHERE k BETWEEN {low} AND {low + 2}")
                assert found == [(low,), (low + 1,), (low + 2,)]
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=asking, args=(low,)) for low in (0, 14, 25)]
    for thread in threads:
        thread.start()
    for number in range(5):
        world.commit(fact(number, n=number + 1), fact(15, n=number + 1), fact(26, n=number + 1))
        world.warehouse.change_ranges("sums", bounds=[str(bound) for bound in range(2, 28, 2)])
        world.warehouse.change_ranges("sums", bounds=["10", "20"] if number % 2 else [])
    done.set()
    for thread in threads:
        thread.join()
    assert not problems, problems


def test_whoever_asks_for_a_retained_job_gets_it_and_other_ranges_stay(world: World) -> None:
    world.commit(fact(1), fact(11), fact(21))
    ask(world, "SELECT * FROM sums")
    for n in (1, 2):
        world.commit(fact(1, n=n), fact(11, n=n), fact(21, n=n))
        ask(world, "SELECT * FROM sums WHERE k >= 20")
    throughs = world.stored("sums").throughs
    assert throughs == (1, 1, 3)
    assert ask(world, "SELECT k, s FROM sums WHERE k < 10", job=2) == [(1, 2)]
    assert world.stored("sums").throughs == (2, 1, 3)
    session = world.warehouse.session()
    with session.sql_at("SELECT k, s FROM sums WHERE k BETWEEN 10 AND 19", JobId(3)) as answer:
        assert answer.to_arrow().to_pylist() == [{"k": 11, "s": 3}]
    assert world.stored("sums").throughs == (2, 3, 3)
    with world.warehouse.sql("EXPLAIN SELECT k, s FROM sums WHERE k >= 10") as answer:
        told = answer.to_arrow().column(0).to_pylist()
    assert "reads 2 of 3 ranges of sums: [10, 20), [20, )" in told
    assert "reads sums at job 3" in told
