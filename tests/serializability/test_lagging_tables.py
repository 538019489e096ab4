"""Tables that nobody asked for lag behind: queries over them and others get one snapshot all the same, or are told."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import headgate
from headgate import Warehouse
from headgate.errors import TooStale
from headgate.runtime.spark.sessions import SparkSessions
from tests.scheduling.bank import SPARK, deposit, open_bank

JOBS = 5
BOTH = "SELECT t.total, n.name FROM totals t JOIN names n ON n.branch = t.branch"


@pytest.fixture
def bank(spark_sessions: SparkSessions, tmp_path: Path) -> Iterator[Warehouse]:
    """Totals are at job 5 and hold the last two jobs; names are at job 1."""
    with open_bank(tmp_path, retention={"jobs": 2}) as warehouse:
        with warehouse.source("bank").transaction() as transaction:
            transaction.insert("branches", {"branch": 1, "name": "main"})
        warehouse.refresh()
        for account in range(2, JOBS + 1):
            deposit(warehouse, (account, 1, 100))
            with warehouse.sql("SELECT total FROM totals") as answer:
                assert answer.job == account
        warehouse._engine.upkeep.release()
        yield warehouse


def test_a_table_that_was_left_far_behind_catches_up_to_what_the_others_hold(bank: Warehouse) -> None:
    with bank.session().sql(BOTH, max_staleness="any") as answer:
        assert answer.job >= JOBS - 1
        assert [tuple(row) for row in answer.collect()] == [(100 * (answer.job - 1), "MAIN")]


def test_without_a_common_snapshot_nothing_is_served(bank: Warehouse) -> None:
    with (
        bank._engine.executor.paused(),
        pytest.raises(TooStale, match="there is no snapshot that all of totals, names hold"),
    ):
        bank.session().sql(BOTH, max_staleness=0, deadline=0.1, when_stale="serve")


def test_a_session_that_would_go_back_is_refused_or_told(bank: Warehouse) -> None:
    with bank._engine.executor.paused():
        with pytest.raises(TooStale, match=f"the session has seen job {JOBS} already"):
            bank.sql("SELECT name FROM names", max_staleness="any", deadline=0.1)
        with bank.sql("SELECT name FROM names", max_staleness="any", deadline=0.1, when_stale="serve") as answer:
            assert answer.receipt.missed and answer.job == 1
            assert f"the session has seen job {JOBS} already, this is job 1" in str(answer.receipt.why_missed)
        with bank.session().sql("SELECT name FROM names", max_staleness="any") as answer:
            assert answer.job == 1 and not answer.receipt.missed
    with bank.sql("SELECT name FROM names", max_staleness="any") as answer:
        assert answer.job >= JOBS


def test_a_table_catches_up_after_another_source_let_its_changes_go(
    spark_sessions: SparkSessions, tmp_path: Path
) -> None:
    table = {"columns": {"id": "bigint"}, "key": ["id"]}
    sources = {name: {"type": "memory", "tables": {"things": table}} for name in ("hot", "cold")}
    project = {"name": "two", "storage": str(tmp_path), "spark": SPARK, "sources": sources}
    with headgate.open({**project, "background": {"system_jobs": False}}) as warehouse:
        for name in sources:
            warehouse.flow(f"{name}_count", f"SELECT COUNT(*) AS c FROM {name}.things")
        for number in range(1, JOBS + 1):
            for name in sources:
                with warehouse.source(name).transaction() as transaction:
                    transaction.insert("things", {"id": number})
            with warehouse.sql("SELECT c FROM hot_count") as answer:
                assert answer.collect()[0].c == number
        warehouse.materialize()
        assert warehouse.source("hot").log.trimmed > warehouse.source("cold").log.trimmed
        with warehouse.sql("SELECT c FROM cold_count") as answer:
            assert answer.collect()[0].c == JOBS and answer.receipt.rows_processed == JOBS
