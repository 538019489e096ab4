"""What happens when nobody asks."""

from __future__ import annotations

from pathlib import Path

from headgate.runtime.spark.sessions import SparkSessions
from tests.scheduling.bank import FLOWS, deposit, open_bank, totals
from tests.waiting import eventually

ALL = "SELECT branch, total FROM totals"
QUICK = {"system_jobs": True, "idle_after": "500ms", "oldest_changes": "1h"}


def test_an_idle_warehouse_processes_what_is_there(tmp_path: Path, spark_sessions: SparkSessions) -> None:
    with open_bank(tmp_path, background=QUICK) as bank:
        deposit(bank, (1, 1, 10))
        eventually(lambda: bank.status.complete == 1)
        assert bank.status.open.rows == 0
        assert [action.what for action in bank.status.actions][:1] == ["system job"]
        answer = bank.sql(f"{ALL} CURRENCY BOUND ANY")
        assert answer.receipt.rows_processed == 0
        assert totals(answer) == {1: 10}


def test_nothing_is_transformed_without_need(tmp_path: Path, spark_sessions: SparkSessions) -> None:
    with open_bank(tmp_path) as bank:
        deposit(bank, (1, 1, 10))
        status = bank.status
        assert (status.open.rows, status.open.transactions, status.executions) == (1, 1, 0)
        assert status.complete == 0 and not status.closed
        bank.close_job()
        assert [job.behind for job in bank.status.closed] == [("bank.accounts", "bank.branches", "totals", "names")]


def test_a_target_lag_is_kept_for_that_table_alone(tmp_path: Path, spark_sessions: SparkSessions) -> None:
    flows = FLOWS.replace("VIEW totals AS", "VIEW totals TBLPROPERTIES ('target_lag' = '2s') AS")
    with open_bank(tmp_path, flows) as bank:
        deposit(bank, (1, 1, 10))
        eventually(lambda: {table.name: table.through for table in bank.status.tables}["totals"] == 1)
        tables = {table.name: table for table in bank.status.tables}
        assert tables["totals"].target_lag is not None and tables["names"].through == 0
        assert "target_lag" in bank.status.actions[-1].reason


def test_an_idle_source_is_not_behind(tmp_path: Path, spark_sessions: SparkSessions) -> None:
    """Nothing is done for it either: capture has looked, and there is nothing that the table lacks."""
    flows = FLOWS.replace("VIEW totals AS", "VIEW totals TBLPROPERTIES ('target_lag' = '1h') AS")
    with open_bank(tmp_path, flows) as bank:
        deposit(bank, (1, 1, 10))
        bank.refresh()
        done, before = len(bank.status.actions), bank._scheduler.backlog.as_of("totals")
        assert before is not None
        eventually(lambda: (bank._scheduler.backlog.as_of("totals") or before) > before)
        assert len(bank.status.actions) == done and bank.newest_job == 1
        # Something that the table lacks keeps it as old as it is, until it is taken.
        deposit(bank, (2, 1, 10))
        lacking = bank._scheduler.backlog.as_of("totals")
        assert bank._scheduler.backlog.as_of("totals") == lacking


def test_changes_are_materialized_when_they_are_many_while_readers_read(
    tmp_path: Path, spark_sessions: SparkSessions
) -> None:
    with open_bank(tmp_path, limits={"overlay_bytes": "64KiB"}) as bank:
        deposit(bank, (0, 0, 1))
        held = bank.sql(ALL)
        with bank.source("bank").transaction() as transaction:
            for number in range(1, 4000):
                transaction.insert("accounts", {"id": number, "branch": number % 7, "balance": 1})
        assert sum(totals(bank.sql(ALL)).values()) == 4000
        eventually(lambda: any(action.what == "materialization" for action in bank.status.actions))
        eventually(lambda: bank._engine.upkeep.unmaterialized_bytes == 0)
        assert totals(held) == {0: 1}
        assert sum(totals(bank.sql(ALL)).values()) == 4000


def test_a_stream_past_its_limit_forces_a_job_that_lets_it_go(tmp_path: Path, spark_sessions: SparkSessions) -> None:
    with open_bank(tmp_path, limits={"stream_bytes": "32KiB", "segment_bytes": "16KiB"}) as bank:
        log = bank.source("bank").log
        for number in range(60):
            rows = [(number * 100 + place, place % 5, 1) for place in range(100)]
            deposit(bank, *rows)
        eventually(lambda: not log.over_limit)
        assert any("stream of bank" in action.reason for action in bank.status.actions)
        assert sum(totals(bank.sql(ALL)).values()) == 6000
