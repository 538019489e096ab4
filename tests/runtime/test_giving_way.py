"""Work that nobody waits for rests while queries are there, and is done in the end."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.errors import PySparkException

from headgate.delta.changes import JobId
from headgate.runtime.signal import Signal
from headgate.runtime.spark.giving_way import GiveWay
from headgate.runtime.spark.sessions import SparkSessions
from headgate.warehouse.base import FileLimits
from headgate.warehouse.versioned import VersionedTable
from tests.scheduling.bank import deposit, open_bank, totals
from tests.waiting import eventually
from tests.warehouse.model import BY_KEY, Model, change_set

ENDLESS = "SELECT count(*) FROM range(100000000000000) WHERE hash(id) = hash(id + 1)"
LONG = 600.0


class Queries:
    """Queries that come and go."""

    def __init__(self) -> None:
        self.signal = Signal()
        self.are_there = False

    def set(self, are_there: bool) -> None:
        self.are_there = are_there
        self.signal.notify()

    def giving_way(self, sessions: SparkSessions, rest_seconds: float = LONG) -> GiveWay:
        return GiveWay(lambda: self.are_there, self.signal, sessions.context, rest_seconds)


def test_a_step_is_called_off_when_a_query_comes_and_done_again_when_it_has_gone(spark_sessions: SparkSessions) -> None:
    queries = Queries()
    give_way = queries.giving_way(spark_sessions)
    session, tracker = spark_sessions.background, spark_sessions.context.statusTracker()
    texts = iter([ENDLESS, "SELECT 1"])
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(lambda: give_way.run(lambda: session.sql(next(texts)).collect()))
        eventually(lambda: bool(tracker.getActiveJobsIds()))
        queries.set(True)
        eventually(lambda: give_way.interruptions == 1)
        assert not done.done(), "rests while the query is there"
        queries.set(False)
        assert done.result(60)[0][0] == 1
    assert give_way.interruptions == 1


def test_a_step_that_was_called_off_twice_is_left_alone(spark_sessions: SparkSessions) -> None:
    queries = Queries()
    give_way = queries.giving_way(spark_sessions)
    session, tracker = spark_sessions.background, spark_sessions.context.statusTracker()
    texts = iter([ENDLESS, ENDLESS, "SELECT 3"])

    def step() -> int:
        text = next(texts)
        if text != ENDLESS:
            queries.set(True)
        return int(session.sql(text).collect()[0][0])

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(lambda: give_way.run(step))
        for number in (1, 2):
            eventually(lambda: bool(tracker.getActiveJobsIds()))
            queries.set(True)
            eventually(lambda number=number: give_way.interruptions == number)
            queries.set(False)
        assert done.result(60) == 3
    assert give_way.interruptions == 2


def test_a_step_that_fails_by_itself_is_not_done_again(spark_sessions: SparkSessions) -> None:
    calls = []

    def step() -> None:
        calls.append(1)
        spark_sessions.background.sql("SELECT raise_error('no')").collect()

    with pytest.raises(PySparkException, match="no"):
        Queries().giving_way(spark_sessions).run(step)
    assert len(calls) == 1


def test_rests_have_an_end(spark_sessions: SparkSessions) -> None:
    queries = Queries()
    queries.set(True)
    give_way = queries.giving_way(spark_sessions, rest_seconds=0.01)
    assert give_way.run(lambda: "done") == "done"
    assert (give_way.rests, give_way.interruptions) == (1, 0)


def test_a_fold_rests_before_every_file(tmp_path: Path) -> None:
    table = VersionedTable.open(str(tmp_path / "t"), BY_KEY, limits=FileLimits(rows_per_file=20, rows_per_group=8))
    model = Model(BY_KEY)
    table.apply(change_set(BY_KEY, model.run({(number, "x"): 0 for number in range(200)}), 0, 1), JobId(1))
    table.materialize(None, JobId(1))
    assert len(table.store.index.paths) == 10
    table.apply(change_set(BY_KEY, model.run({(number, "x"): 1 for number in range(0, 200, 20)}), 1, 2), JobId(2))
    resting, may_go, rests = threading.Event(), threading.Event(), []

    def rest() -> None:
        rests.append(1)
        resting.set()
        assert may_go.wait(60)

    with ThreadPoolExecutor(1) as pool:
        prepared = pool.submit(lambda: table.prepare(None, JobId(2), rest))
        assert resting.wait(60)
        assert table.collected(JobId(2)).num_rows == 200, "others read meanwhile"
        assert not prepared.done()
        may_go.set()
        table.commit(prepared.result(60))
    assert len(rests) == 10
    assert table.base_through == 2


def test_queries_are_answered_while_a_fold_rests_for_them(tmp_path: Path, spark_sessions: SparkSessions) -> None:
    with open_bank(tmp_path) as bank, ThreadPoolExecutor(1) as pool:
        deposit(bank, (1, 1, 10), (2, 2, 5))
        bank.refresh()
        queries = Queries()
        queries.set(True)
        folded = pool.submit(bank._engine.upkeep.materialize, queries.giving_way(spark_sessions))
        assert totals(bank.sql("SELECT branch, total FROM totals")) == {1: 10, 2: 5}
        assert not folded.done() and bank._engine.upkeep.unmaterialized_bytes > 0
        queries.set(False)
        folded.result(60)
        assert bank._engine.upkeep.unmaterialized_bytes == 0
        assert totals(bank.sql("SELECT branch, total FROM totals")) == {1: 10, 2: 5}
