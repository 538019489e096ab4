"""A view whose query fails on the data of a job goes on when later data heal it, and what was wrong is never read."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from headgate.errors import FlowFailed, SnapshotGone
from headgate.runtime.spark.sessions import SparkSessions
from headgate.runtime.stages import maintenance
from tests.scheduling.bank import deposit, open_bank
from tests.waiting import eventually

SHARES = """
CREATE MATERIALIZED VIEW shares AS SELECT id, 1000 DIV balance AS share FROM bank.accounts;
CREATE MATERIALIZED VIEW counted AS SELECT COUNT(*) AS n, SUM(share) AS s FROM shares;
"""


def test_a_view_goes_on_at_the_job_that_heals_it(tmp_path: Path, spark_sessions: SparkSessions) -> None:
    with open_bank(tmp_path, SHARES) as bank:
        deposit(bank, (1, 1, 10))
        assert bank.sql("SELECT n, s FROM counted").collect() == [(1, 100)]
        deposit(bank, (2, 1, 0))
        with pytest.raises(FlowFailed, match="flow shares failed in job 2"):
            bank.sql("SELECT * FROM counted")
        with bank.source("bank").transaction() as transaction:
            transaction.update("accounts", {"id": 2, "branch": 1, "balance": 500})
        assert bank.sql("SELECT n, s FROM counted").collect() == [(2, 102)]
        for table in ("shares", "counted"):
            with pytest.raises(SnapshotGone, match="does not hold job 2"):
                bank.sql(f"SELECT * FROM {table}", 2)
        deposit(bank, (3, 1, 20))
        assert bank.sql("SELECT n, s FROM counted").collect() == [(3, 152)]
        bank.materialize()
    with open_bank(tmp_path, SHARES) as bank:
        assert bank.sql("SELECT n, s FROM counted").collect() == [(3, 152)]


def test_a_job_that_is_wanted_while_an_earlier_one_fails_is_tried(
    tmp_path: Path, spark_sessions: SparkSessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    fails, may_fail, advance = threading.Event(), threading.Event(), maintenance.advance

    def held(stage: Any, upto: int, *arguments: Any) -> None:
        if stage.name == "shares" and upto == 2:
            fails.set()
            assert may_fail.wait(60)
        advance(stage, upto, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(maintenance, "advance", held)
    with open_bank(tmp_path, SHARES) as bank, ThreadPoolExecutor(2) as threads:
        deposit(bank, (1, 1, 10))
        assert bank.sql("SELECT n, s FROM counted").collect() == [(1, 100)]
        deposit(bank, (2, 1, 0))
        early = threads.submit(lambda: bank.sql("SELECT n, s FROM counted").collect())
        assert fails.wait(60)
        with bank.source("bank").transaction() as transaction:
            transaction.update("accounts", {"id": 2, "branch": 1, "balance": 500})
        late = threads.submit(lambda: bank.sql("SELECT n, s FROM counted").collect())
        eventually(lambda: bank._engine.executor._wanted.jobs["shares"] == {0: 3})
        may_fail.set()
        assert late.result(60) == [(2, 102)]
        # Job 2 stays unknown: the earlier query gets the later job, or is told.
        assert early.exception(60) is not None or early.result() == [(2, 102)]


def test_a_flow_that_divides_by_nothing_yet_is_accepted(tmp_path: Path, spark_sessions: SparkSessions) -> None:
    flows = """
    CREATE MATERIALIZED VIEW mean AS SELECT 1000 DIV COUNT(*) AS mean FROM bank.accounts;
    CREATE MATERIALIZED VIEW compared AS
    SELECT branch, (SELECT 1000 DIV COUNT(*) FROM bank.accounts) AS mean FROM bank.branches;
    """
    with open_bank(tmp_path, flows) as bank:
        assert not bank.explain("mean").is_incremental and "DIVIDE_BY_ZERO" in str(bank.explain("mean"))
        assert bank.explain("compared").is_incremental
        assert bank.sql("SELECT * FROM compared").collect() == []
        with pytest.raises(Exception, match="DIVIDE_BY_ZERO"):
            bank.sql("SELECT mean FROM mean").collect()
        deposit(bank, (1, 1, 10), (2, 1, 30))
        assert bank.sql("SELECT mean FROM mean").collect() == [(500,)]
        bank.resume()
        assert bank.explain("mean").is_incremental
        assert bank.sql("SELECT mean FROM mean").collect() == [(500,)]


@pytest.mark.parametrize(
    "sql", ["SELECT 1 AS x", "VALUES (1), (2)", "SELECT explode(array(1, 2)) AS x", "SELECT id AS x FROM range(3)"]
)
def test_a_flow_that_reads_no_table_can_be_read(tmp_path: Path, spark_sessions: SparkSessions, sql: str) -> None:
    with open_bank(tmp_path, f"CREATE MATERIALIZED VIEW constant AS {sql};") as bank:
        expected = bank.sql(sql).collect()
        assert [tuple(row) for row in bank.sql("SELECT * FROM constant").collect()] == [tuple(row) for row in expected]
        deposit(bank, (1, 1, 10))
        bank.refresh()
        joined = bank.sql("SELECT COUNT(*) AS n FROM constant CROSS JOIN bank.accounts").collect()
        assert joined == [(len(expected),)]
        assert bank.table("constant").collect() == expected
