"""User procedures: what they get, in which order they run, and what is called again after a crash."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame

from headgate import Call, Procedure
from headgate.errors import ConfigError, DefiniteError, FlowFailed
from headgate.runtime.spark.sessions import SparkSessions
from headgate.runtime.stages.procedures import ProcedureStage
from tests.scheduling.bank import deposit, open_bank


class Recorder:
    """Remembers its calls, and how many were under way at once."""

    def __init__(self, seconds: float = 0.0, fail_in: int | None = None) -> None:
        self.calls: list[int] = []
        self.commits: list[int] = []
        self.most = 0
        self._now = 0
        self._seconds = seconds
        self.fail_in = fail_in
        self._lock = threading.Lock()

    def __call__(self, changes: DataFrame, call: Call):  # type: ignore[no-untyped-def]
        with self._lock:
            self._now += 1
            self.most = max(self.most, self._now)
            self.calls.append(call.job)
        # Later jobs are quicker, so that they would overtake.
        time.sleep(self._seconds / call.job)
        with self._lock:
            self._now -= 1
        if call.job == self.fail_in:
            raise RuntimeError("the other side said no")
        return lambda: self.commits.append(call.job)


def _jobs(bank, count: int) -> None:  # type: ignore[no-untyped-def]
    for number in range(count):
        deposit(bank, (100 + bank.newest_job * 10 + number, 1, 1))
        bank.close_job()


def test_write_only_jobs_run_at_once_and_commit_in_order(tmp_path: Path, spark_sessions: SparkSessions) -> None:
    sink = Recorder(seconds=0.4)
    procedure = Procedure("mail", "bank.accounts", sink, writes=["mailbox"])
    with open_bank(tmp_path, procedures=[procedure]) as bank:
        _jobs(bank, 4)
        with bank.sql("SELECT job, rows FROM mail") as log:
            assert sorted(tuple(row) for row in log.collect()) == [(1, 1), (2, 1), (3, 1), (4, 1)]
    assert sink.most > 1 and sink.commits == [1, 2, 3, 4]


def test_a_procedure_takes_each_job_of_all_ranges_and_has_one_itself(
    tmp_path: Path, spark_sessions: SparkSessions
) -> None:
    taken: list[tuple[int, list[int]]] = []

    def remember(changes: DataFrame, call: Call) -> None:
        taken.append((call.job, sorted(row.id for row in changes.collect())))

    columns = {"id": "bigint", "branch": "int", "balance": "bigint"}
    accounts = {"columns": columns, "key": ["id"], "ranges": {"column": "id", "bounds": [10]}}
    sources = {"bank": {"type": "memory", "tables": {"accounts": accounts}}}
    flows = "CREATE MATERIALIZED VIEW doubled AS SELECT id, 2 * balance AS twice FROM bank.accounts;"
    procedure = Procedure("mail", "bank.accounts", remember, writes=["mailbox"])
    with open_bank(tmp_path, flows, procedures=[procedure], sources=sources) as bank:
        for first in (1, 2):
            deposit(bank, (first, 1, 1), (10 + first, 1, 1))
            with bank.sql("SELECT id FROM doubled WHERE id < 10", max_staleness="0s") as answer:
                answer.collect()
        counts = {each.table: len(each.ranges) for each in bank.ranges()}
        assert counts["doubled"] == 2 and counts["mail"] == 1
        with bank.sql("SELECT job, rows FROM mail", max_staleness="0s") as log:
            assert sorted(tuple(row) for row in log.collect()) == [(1, 2), (2, 2)]
    assert sorted(taken) == [(1, [1, 11]), (2, [2, 12])]


def test_procedures_of_a_zone_take_each_job_together_in_order(tmp_path: Path, spark_sessions: SparkSessions) -> None:
    order: list[tuple[str, int]] = []

    def remember(changes: DataFrame, call: Call) -> None:
        time.sleep(0.05 / call.job)
        order.append((call.procedure, call.job))

    one = Procedure("one", "bank.accounts", remember, reads=["crm"], writes=["crm"])
    two = Procedure("two", "bank.accounts", remember, reads=["crm"], writes=["crm"])
    with open_bank(tmp_path, procedures=[one, two]) as bank:
        _jobs(bank, 3)
        bank.sql("SELECT * FROM one").close()
        bank.sql("SELECT * FROM two").close()
        bank.sql("SELECT * FROM totals").close()
        batches = [(run.stage, run.after, run.upto) for run in bank._engine.executor.runs]
    assert [job for _, job in order] == [1, 1, 2, 2, 3, 3]
    # Stages outside of the zone are not held back by it.
    assert batches.count(("bank.accounts", 0, 3)) == batches.count(("totals", 0, 3)) == 1


def test_rows_that_a_procedure_returns_are_a_table_by_key(tmp_path: Path, spark_sessions: SparkSessions) -> None:
    def scored(changes: DataFrame, call: Call) -> DataFrame:
        return changes.where("__weight > 0 AND balance > 0").selectExpr(
            "id", "balance * 2 AS score", f"{call.job} AS job"
        )

    procedure = Procedure(
        "scores", "bank.accounts", scored, columns={"id": "bigint", "score": "bigint", "job": "bigint"}, key=["id"]
    )
    flows = "CREATE MATERIALIZED VIEW best AS SELECT MAX(score) AS best FROM scores;"
    with open_bank(tmp_path, flows, procedures=[procedure]) as bank:
        deposit(bank, (1, 1, 10), (2, 1, 20))
        with bank.sql("SELECT id, score FROM scores") as rows:
            assert sorted(tuple(row) for row in rows.collect()) == [(1, 20), (2, 40)]
        with bank.source("bank").transaction() as transaction:
            transaction.update("accounts", {"id": 2, "branch": 1, "balance": -5})
            transaction.delete("accounts", {"id": 1})
            transaction.insert("accounts", {"id": 3, "branch": 1, "balance": 7})
        with bank.sql("SELECT id, score FROM scores") as rows:
            assert [tuple(row) for row in rows.collect()] == [(3, 14)]
        with bank.sql("SELECT best FROM best") as rows:
            assert [row.best for row in rows.collect()] == [14]


@pytest.mark.parametrize("copies", [5, 30], ids=["of several jobs", "of one job"])
def test_rows_that_are_too_many_for_the_driver_are_stored_in_parts(
    tmp_path: Path, spark_sessions: SparkSessions, monkeypatch: pytest.MonkeyPatch, copies: int
) -> None:
    applied: list[int] = []
    apply = ProcedureStage._apply

    def noting(stage: ProcedureStage, made: dict[int, Any], *rest: Any) -> None:
        applied.append(sum(found.rows.num_rows for found in made.values()))
        apply(stage, made, *rest)  # type: ignore[arg-type]

    def copied(changes: DataFrame, call: Call) -> DataFrame:
        rows = changes.where("__weight > 0").selectExpr("id", f"explode(sequence(1, {copies})) AS n", "balance")
        return rows.where("n < 30 OR balance > 1")

    monkeypatch.setattr(ProcedureStage, "_apply", noting)
    columns = {"id": "bigint", "n": "int", "balance": "bigint"}
    procedure = Procedure("copied", "bank.accounts", copied, columns=columns, key=["id", "n"])
    with open_bank(tmp_path, procedures=[procedure], limits={"batch_rows": 12}) as bank:
        for number in range(4):
            deposit(bank, (number, 1, 1))
            bank.close_job()
        deposit(bank, (9, 1, 4))
        with bank.source("bank").transaction() as transaction:
            transaction.update("accounts", {"id": 1, "branch": 1, "balance": 5})
        with bank.sql("SELECT id, count(*) AS n, max(balance) AS balance FROM copied GROUP BY id") as rows:
            found = sorted(tuple(row) for row in rows.collect())
        one = min(copies, 29)
        assert found == [(0, one, 1), (1, copies, 5), (2, one, 1), (3, one, 1), (9, copies, 4)]
    assert max(applied) <= 12


def test_a_procedure_that_raises_is_named_and_goes_on_when_resumed(
    tmp_path: Path, spark_sessions: SparkSessions
) -> None:
    sink = Recorder(fail_in=2)
    procedure = Procedure("mail", "bank.accounts", sink, reads=["mailbox"])
    with open_bank(tmp_path, procedures=[procedure]) as bank:
        _jobs(bank, 3)
        with pytest.raises(FlowFailed, match="procedure mail failed in job 2: RuntimeError: the other side said no"):
            bank.sql("SELECT * FROM mail")
        assert sink.commits == [1]
        sink.fail_in = None
        bank.resume()
        bank.sql("SELECT * FROM mail").close()
        assert sink.commits == [1, 2, 3] and sink.calls == [1, 2, 2, 3]


def test_what_was_not_durable_is_called_again_and_no_job_is_left_out(
    tmp_path: Path, spark_sessions: SparkSessions
) -> None:
    sink = Recorder()
    procedure = Procedure("mail", "bank.accounts", sink, writes=["mailbox"])
    with open_bank(tmp_path, procedures=[procedure]) as bank:
        _jobs(bank, 2)
        bank.refresh()
        bank.materialize()
        deposit(bank, (9, 1, 1))
        bank.refresh()
        assert sorted(sink.calls) == [1, 2, 3]
        bank.close(fold_seconds=0)
    with open_bank(tmp_path, procedures=[procedure]) as bank:
        bank.refresh()
        assert sorted(sink.calls) == [1, 2, 3, 3]
    with open_bank(tmp_path) as bank, pytest.raises(DefiniteError, match="no table mail"):
        bank.sql("SELECT * FROM mail")
    with open_bank(tmp_path, procedures=[procedure]) as bank:
        # It was archived, so it begins anew with all that there is.
        assert sorted(sink.calls) == [1, 2, 3, 3, 3]
        assert [row.rows for row in bank.sql("SELECT rows FROM mail").collect()] == [3]


def test_declarations_that_cannot_work_are_refused(tmp_path: Path, spark_sessions: SparkSessions) -> None:
    def nothing(changes: DataFrame, call: Call) -> None: ...

    with pytest.raises(ConfigError, match="without a key"):
        Procedure("p", "bank.accounts", nothing, columns={"id": "bigint"})
    with pytest.raises(ConfigError, match="key column b"):
        Procedure("p", "bank.accounts", nothing, columns={"id": "bigint"}, key=["b"])
    reader = Procedure("r", "bank.accounts", nothing, reads=["crm"])
    writer = Procedure("w", "bank.accounts", nothing, writes=["crm"])
    with pytest.raises(DefiniteError, match="which w writes, in another zone"):
        open_bank(tmp_path, procedures=[reader, writer])
    with pytest.raises(DefiniteError, match="is on nowhere"):
        open_bank(tmp_path, procedures=[Procedure("p", "nowhere", nothing)])
