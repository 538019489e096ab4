"""Gates: never more tasks of a part than its size, whoever runs them."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark import SparkContext

from headgate.errors import ConfigError
from headgate.runtime.spark.executors import SETTINGS
from headgate.runtime.spark.gates import GateClosed, TaskGate
from headgate.runtime.spark.pools import QUERIES
from headgate.runtime.spark.sessions import SparkSessions
from tests.scheduling.bank import SPARK, deposit, open_bank
from tests.waiting import PATIENCE, eventually

FREE = {key: value for key, value in SPARK.items() if key in ("spark.master", "spark.driver.memory")}
SCALING = {"executors": {"min": 1, "max": 1, "ready": 0}, "hold": "1h"}
SLOW = "SELECT id % 7 AS part, SUM(hash(id)) FROM range(3000000) GROUP BY part"


def test_a_gate_without_a_size_lets_everybody_through() -> None:
    gate = TaskGate()
    with gate.taken(5) as first, gate.taken() as second:
        assert first is second is None


@settings(max_examples=20, deadline=None)
@given(size=st.integers(1, 4), wishes=st.lists(st.integers(1, 6), min_size=1, max_size=12))
def test_no_more_permits_are_out_than_there_are_and_all_are_served(size: int, wishes: list[int]) -> None:
    gate, lock, out = TaskGate(), threading.Lock(), [0]
    gate.resize(size)

    def work(permits: int) -> int:
        with gate.taken(permits) as mine:
            assert mine == min(permits, size)
            with lock:
                out[0] += mine
                assert out[0] <= size
            with lock:
                out[0] -= mine
        return permits

    with ThreadPoolExecutor(6) as threads:
        assert list(threads.map(work, wishes)) == wishes


def test_who_gives_up_lets_the_next_one_in() -> None:
    gate = TaskGate()
    gate.resize(1)
    cancelled: Future[None] = Future()

    def wait() -> None:
        with gate.taken(1, cancelled):
            raise AssertionError("it has no permit")

    with gate.taken(), ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(wait)
        eventually(lambda: len(gate._waiting) == 1)
        cancelled.set_result(None)
        with pytest.raises(GateClosed):
            waiting.result(PATIENCE)
        with pytest.raises(GateClosed), gate.taken(1, until=time.monotonic()):
            raise AssertionError("its time is over")
    with gate.taken() as mine:
        assert mine == 1


def test_a_smaller_gate_waits_for_what_was_taken_and_a_larger_one_lets_more_in() -> None:
    gate = TaskGate()
    gate.resize(3)
    with ThreadPoolExecutor(1) as threads, gate.taken(2):
        gate.resize(2)
        entered = threads.submit(lambda: gate.taken(1).__enter__())
        with pytest.raises(TimeoutError):
            entered.result(0.1)
        gate.resize(3)
        assert entered.result(PATIENCE) == 1


def test_settings_that_sizes_decide_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"spark.sql.shuffle.partitions cannot be given together with scaling"):
        SparkSessions({"spark.sql.shuffle.partitions": "8"}, "both", needed=SETTINGS)


@contextmanager
def watched(context: SparkContext) -> Iterator[Counter[str]]:
    """By pool of Spark the most tasks that ran at a time, as its status store tells."""
    most: Counter[str] = Counter()
    over = threading.Event()
    assert context._jsc is not None
    store = context._jsc.sc().statusStore()

    def watch() -> None:
        while not over.is_set():
            stages, now = store.activeStages(), Counter[str]()
            for place in range(stages.size()):
                stage = stages.apply(place)
                pool = stage.schedulingPool()
                now["queries" if pool == QUERIES else "maintenance"] += stage.numActiveTasks()
            for pool, tasks in now.items():
                most[pool] = max(most[pool], tasks)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield most
    finally:
        over.set()
        thread.join()


def test_spark_never_runs_more_tasks_of_a_part_than_its_size(tmp_path: Path, spark_sessions: SparkSessions) -> None:
    with open_bank(tmp_path, scaling=SCALING, spark=FREE) as bank:
        sessions = bank._engine.sessions
        deposit(bank, (1, 1, 10))
        for part in ("transform", "query"):
            bank.scaling.fix(part, 1)

        def ask() -> None:
            with bank.sql(SLOW, max_staleness="any") as answer:
                assert answer.collect()

        def maintain() -> None:
            frame = sessions.bulk.sql(SLOW)
            with sessions.execution(frame):
                assert frame.collect()

        with watched(sessions.context) as most:
            _together(ask, ask, ask, maintain, maintain, maintain)
    assert most == {"queries": 1, "maintenance": 1}


def _together(*works: Callable[[], None]) -> None:
    with ThreadPoolExecutor(len(works)) as threads:
        for future in [threads.submit(work) for work in works]:
            future.result()
