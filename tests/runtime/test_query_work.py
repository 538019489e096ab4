"""Work for queries that is called off, late, or cannot be ended; Spark is played by the test."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark import SparkContext

from headgate.errors import Cancelled, SparkLost
from headgate.runtime.reading import query_work
from headgate.runtime.reading.query_work import DeadlineExceeded, Interruption, QueryWork
from headgate.runtime.spark.health import SparkHealth
from headgate.runtime.spark.pools import POOL_PROPERTY, QUERIES
from headgate.runtime.spark.threads import DaemonThreads
from tests.waiting import eventually


class PlayedSpark:
    """A context whose jobs end when they are cancelled, if they listen; on a cluster, so that nobody counts its tasks."""

    master = "spark://elsewhere"

    def __init__(self) -> None:
        self.properties: dict[str, object] = {}
        self.tags: list[str] = []
        self.cancelled = threading.Event()

    def setLocalProperty(self, key: str, value: str) -> None:  # noqa: N802
        self.properties[key] = value

    def setInterruptOnCancel(self, value: bool) -> None:  # noqa: N802
        self.properties["interrupt"] = value

    def addJobTag(self, tag: str) -> None:  # noqa: N802
        self.tags.append(tag)

    def removeJobTag(self, tag: str) -> None:  # noqa: N802
        self.tags.remove(tag)

    def cancelJobsWithTag(self, tag: str) -> None:  # noqa: N802
        if tag in self.tags:
            self.cancelled.set()

    def job(self) -> str:
        assert self.cancelled.wait(60)
        raise RuntimeError("the job was cancelled")


@pytest.fixture
def spark() -> PlayedSpark:
    return PlayedSpark()


@pytest.fixture
def health() -> SparkHealth:
    return SparkHealth(None)


@pytest.fixture
def work(spark: PlayedSpark, health: SparkHealth) -> QueryWork:
    return QueryWork(cast(SparkContext, spark), health)


def test_the_result_is_that_of_the_work_in_the_pool_of_queries(work: QueryWork, spark: PlayedSpark) -> None:
    interruption = Interruption()
    assert work.run(lambda: spark.tags[0], interruption) == interruption.tag
    assert spark.tags == [] and spark.properties == {POOL_PROPERTY: QUERIES, "interrupt": True}
    with pytest.raises(ZeroDivisionError):
        work.run(lambda: 1 // 0, interruption)


def test_work_is_called_off_from_another_thread(work: QueryWork, spark: PlayedSpark, health: SparkHealth) -> None:
    interruption = Interruption()
    with interruption.at_work(), pytest.raises(Cancelled):
        threading.Timer(0.1, interruption.set).start()
        work.run(spark.job, interruption)
    assert spark.cancelled.is_set() and health.lost is None
    with pytest.raises(Cancelled):
        work.run(lambda: 1, interruption)


def test_work_that_is_not_done_in_time_is_called_off(work: QueryWork, spark: PlayedSpark) -> None:
    with pytest.raises(DeadlineExceeded):
        work.run(spark.job, Interruption(), time.monotonic() + 0.1)
    assert spark.cancelled.is_set()


def test_an_answer_that_nobody_reads_is_not_called_off() -> None:
    interruption = Interruption()
    interruption.set()
    assert not interruption.is_set
    with interruption.at_work():
        interruption.set()
    assert interruption.is_set


def test_work_that_does_not_end_loses_spark_and_says_so(
    work: QueryWork, health: SparkHealth, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query_work, "ENDING_SECONDS", 0.3)
    may_end, told = threading.Event(), []
    health.on_lost(told.append)
    with pytest.raises(SparkLost, match="could not be ended within 0 s"):
        work.run(may_end.wait, Interruption(), time.monotonic())
    may_end.set()
    assert told == [health.lost]
    with pytest.raises(SparkLost):
        work.run(lambda: 1, Interruption())
    late: list[str] = []
    health.on_lost(late.append)
    assert late == told


def test_a_java_process_that_dies_is_noticed() -> None:
    with subprocess.Popen([sys.executable, "-c", "raise SystemExit(52)"]) as process:
        health = SparkHealth(cast(Any, process))
        eventually(lambda: health.lost == "its Java process ended with code 52")
        with pytest.raises(SparkLost, match="code 52"):
            health.require()


def test_what_happens_after_closing_is_expected() -> None:
    health = SparkHealth(cast(Any, SimpleNamespace(poll=lambda: None)))
    health.close()
    health.lose("it was stopped")
    assert health.lost is None


def test_threads_are_used_again_and_a_stuck_one_is_replaced() -> None:
    threads, may_end = DaemonThreads("test"), threading.Event()
    first = threads.submit(threading.get_ident).result(10)
    assert threads.submit(threading.get_ident).result(10) == first
    stuck = threads.submit(may_end.wait)
    assert threads.submit(lambda: 1).result(10) == 1 and not stuck.done()
    may_end.set()
    assert stuck.result(10)
