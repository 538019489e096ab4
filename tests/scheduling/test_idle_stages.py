"""Stages that a job has nothing for."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from headgate.delta.changes import JobId
from headgate.ranges.range_map import Ranges
from headgate.runtime.execution.executor import Executor
from headgate.runtime.spark.sessions import SparkSessions
from headgate.runtime.stages.batch import Batch
from headgate.runtime.stages.stage import Stage
from tests.scheduling.bank import FLOWS, deposit, open_bank, totals


def test_what_nothing_has_changed_for_is_brought_forward_together(
    tmp_path: Path, spark_sessions: SparkSessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = Executor._work
    turns: list[list[str]] = []

    def noted(executor: Executor, stages: Any, *weight: int) -> None:
        turns.append([stage.name for stage, *_ in stages])
        work(executor, stages, *weight)

    monkeypatch.setattr(Executor, "_work", noted)
    idle = [f"idle_{number}" for number in range(6)]
    more = "".join(f"CREATE MATERIALIZED VIEW {name} AS SELECT name FROM bank.branches;\n" for name in idle)
    with open_bank(tmp_path, FLOWS + more) as bank:
        deposit(bank, (1, 1, 10))
        bank.refresh()
        for account in range(2, 5):
            turns.clear()
            deposit(bank, (account, 1, 5))
            bank.refresh()
            assert sorted(map(sorted, turns)) == sorted(
                [["bank.accounts"], ["bank.branches"], sorted(["names", *idle]), ["totals"]]
            )
            assert {table.through for table in bank.status.tables} == {account}
        assert totals(bank.sql("SELECT * FROM totals CURRENCY BOUND ANY")) == {1: 25}


def test_a_stage_that_ends_has_only_its_readers_looked_at(
    tmp_path: Path, spark_sessions: SparkSessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    reach = Executor._reach
    looked: Counter[str] = Counter()

    def counted(executor: Executor, name: str, stage: Stage) -> tuple[Ranges, JobId] | None:
        looked[name] += 1
        return reach(executor, name, stage)

    monkeypatch.setattr(Executor, "_reach", counted)
    busy = "".join(
        f"CREATE MATERIALIZED VIEW busy_{number} AS SELECT branch, SUM(balance + {number}) AS total FROM bank.accounts"
        " GROUP BY branch;\n"
        for number in range(10)
    )
    with open_bank(tmp_path, FLOWS + busy) as bank:
        deposit(bank, (1, 1, 10))
        bank.refresh()
        looked.clear()
        deposit(bank, (2, 1, 5))
        bank.refresh()
        assert looked["names"] < 10, "it reads another table than those that have something to do"
        assert totals(bank.sql("SELECT * FROM busy_3 CURRENCY BOUND ANY")) == {1: 21}


def test_what_a_batch_takes_counts_without_those_that_it_waits_for(
    tmp_path: Path, spark_sessions: SparkSessions
) -> None:
    with open_bank(tmp_path) as bank:
        batches = bank._engine.batches
        slots = batches.sessions.slots
        alongside = [tuple(f"stage {number}" for number in range(count)) for count in (0, 1, 4 * slots)]
        assert [Batch(batches, alongside=each).share for each in alongside] == [1, 1, 0.25]
