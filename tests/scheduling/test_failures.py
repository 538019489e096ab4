"""A stage that fails: what needs it is told why, everything else goes on, and a corrected flow continues without loss."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.errors import FlowFailed, TransientError, UnknownTable
from headgate.runtime.spark.retrying import is_transient, retried
from headgate.runtime.spark.sessions import SparkSessions
from tests.scheduling.bank import deposit, open_bank, totals

BAD = """
CREATE MATERIALIZED VIEW totals AS SELECT branch, SUM(balance) AS total FROM bank.accounts GROUP BY branch;

CREATE MATERIALIZED VIEW shares AS
SELECT id, 1000 DIV balance AS share FROM bank.accounts;
CREATE MATERIALIZED VIEW big AS SELECT id FROM shares WHERE share > 1;
"""


def test_a_failing_job_is_named_and_others_go_on(tmp_path: Path, spark_sessions: SparkSessions) -> None:
    with open_bank(tmp_path, BAD) as bank:
        deposit(bank, (1, 1, 10))
        bank.close_job()
        deposit(bank, (2, 1, 0))
        bank.close_job()
        deposit(bank, (3, 1, 20))
        for table in ("shares", "big"):
            with pytest.raises(FlowFailed, match=r"bank\.sql:5: flow shares failed in job 2: .*DIVIDE_BY_ZERO"):
                bank.sql(f"SELECT * FROM {table}")
        assert totals(bank.sql("SELECT branch, total FROM totals")) == {1: 30}
        assert {row.id for row in bank.session().sql("SELECT id FROM shares CURRENCY BOUND ANY").collect()} == {1}
        served = bank.session().sql("SELECT id FROM shares WHEN STALE SERVE")
        assert served.receipt.missed and "job 2" in str(served.receipt)
        failed = {table.name: table.failure for table in bank.status.tables}
        assert failed["totals"] is None and "job 2" in str(failed["shares"]) and "job 2" in str(failed["big"])
        corrected = BAD.replace("1000 DIV balance", "try_divide(1000, balance)")
        (tmp_path / "flows" / "bank.sql").write_text(corrected)
        bank.resume()
        assert {row.id: row.share for row in bank.sql("SELECT id, share FROM shares").collect()} == {
            1: 100,
            2: None,
            3: 50,
        }
        assert {row.id for row in bank.sql("SELECT id FROM big").collect()} == {1, 3}
        deposit(bank, (4, 1, 500))
        assert len(bank.sql("SELECT id FROM shares").collect()) == 4


def test_files_that_came_and_went_are_noticed(tmp_path: Path, spark_sessions: SparkSessions) -> None:
    rich = "CREATE MATERIALIZED VIEW rich AS SELECT id FROM bank.accounts WHERE balance > 100;"
    with open_bank(tmp_path) as bank:
        deposit(bank, (1, 1, 10), (2, 1, 500))
        (tmp_path / "flows" / "rich.sql").write_text(rich)
        bank.resume()
        assert [row.id for row in bank.sql("SELECT id FROM rich").collect()] == [2]
        (tmp_path / "flows" / "rich.sql").unlink()
        bank.resume()
        with pytest.raises(UnknownTable, match="rich"):
            bank.sql("SELECT id FROM rich")
        assert totals(bank.sql("SELECT branch, total FROM totals")) == {1: 510}


def test_passing_problems_are_tried_again() -> None:
    attempts: list[int] = []

    def work() -> str:
        attempts.append(1)
        if len(attempts) < 3:
            raise TransientError("not now")
        return "done"

    assert retried(work, "work", (0.0, 0.0, 0.0)) == "done"
    assert len(attempts) == 3
    attempts.clear()

    def lasting() -> None:
        attempts.append(1)
        raise ValueError("never")

    with pytest.raises(ValueError, match="never"):
        retried(lasting, "work", (0.0, 0.0))
    assert len(attempts) == 1
    assert not is_transient(FlowFailed("a cast"))
