"""Freshness over key ranges: each is as fresh as whoever reads it asks for, and no fresher."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from headgate import Warehouse
from headgate.clock import ManualClock
from headgate.errors import SnapshotGone, TooStale
from headgate.runtime.spark.sessions import SparkSessions
from headgate.scheduling.session import Session
from tests.scheduling.bank import open_bank
from tests.waiting import eventually

FLOWS = """
CREATE MATERIALIZED VIEW sums AS SELECT k, SUM(v) AS s FROM bank.facts GROUP BY k;
CREATE MATERIALIZED VIEW kept TBLPROPERTIES ('target_lag' = '1h') AS SELECT k, n, v FROM bank.moves;
"""
LOW, HIGH = "SELECT k, s FROM sums WHERE k < 10", "SELECT k, s FROM sums WHERE k >= 20"


class Bank:
    """A warehouse with three ranges, whose clock stands still unless it is moved."""

    def __init__(self, warehouse: Warehouse, clock: ManualClock) -> None:
        self.warehouse = warehouse
        self.clock = clock
        self.commits = 0
        """Of facts, each with a row of every range."""
        self._rows = 0

    def commit(self, table: str = "facts") -> None:
        """A row of 1 for a key of each range."""
        self._rows += 1
        self.commits += table == "facts"
        # What was cut at this moment does not hold the row.
        self.clock.advance(timedelta(milliseconds=1))
        with self.warehouse.source("bank").transaction() as transaction:
            for k in (1, 11, 21):
                transaction.insert(table, {"k": k, "n": self._rows, "v": 1})

    def jobs(self, table: str = "sums") -> list[int]:
        found = next(each for each in self.warehouse.ranges() if each.table == table)
        return [int(each.through) for each in found.ranges]

    def levelled(self) -> int:
        """All ranges at one job, which it gives."""
        self.commit()
        return int(self.warehouse.refresh())


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory, spark_sessions: SparkSessions) -> Iterator[Bank]:
    columns = {"columns": {"k": "bigint", "n": "int", "v": "int"}, "key": ["k", "n"]}
    facts = {**columns, "ranges": {"column": "k", "bounds": [10, 20]}}
    moves = {**columns, "ranges": {"column": "k", "family": "moves", "bounds": [10, 20]}}
    sources = {"bank": {"type": "memory", "tables": {"facts": facts, "moves": moves}}}
    background = {"system_jobs": True, "idle_after": "1d", "oldest_changes": "1000d"}
    clock = ManualClock(datetime(2026, 1, 2, tzinfo=UTC))
    folder: Path = tmp_path_factory.mktemp("bank")
    with open_bank(folder, FLOWS, clock=clock, sources=sources, background=background) as warehouse:
        yield Bank(warehouse, clock)


def rows(session: Session | Warehouse, text: str, **bound: Any) -> tuple[list[tuple[Any, ...]], Any]:
    with session.sql(text, **bound) as answer:
        return sorted(tuple(row.values()) for row in answer.to_arrow().to_pylist()), answer.receipt


def test_a_session_does_not_go_back_in_a_range_that_lags(bank: Bank) -> None:
    level, session, other = bank.levelled(), bank.warehouse.session(), bank.warehouse.session()
    had = bank.commits
    bank.commit()
    assert rows(session, HIGH)[0] == [(21, had + 1)]
    assert bank.jobs() == [level, level, level + 1]
    found, receipt = rows(other, f"{LOW} CURRENCY BOUND ANY")
    assert (found, receipt.job) == ([(1, had)], level)
    assert bank.jobs() == [level, level, level + 1]
    # Whatever bound it has, the session has seen the later job.
    found, receipt = rows(session, f"{LOW} CURRENCY BOUND ANY")
    assert (found, receipt.job) == ([(1, had + 1)], level + 1)
    assert bank.jobs() == [level + 1, level, level + 1]


def test_freshness_is_that_of_the_ranges_that_are_read(bank: Bank) -> None:
    level, session = bank.levelled(), bank.warehouse.session()
    had = bank.commits
    bank.clock.advance(timedelta(minutes=5))
    bank.commit()
    rows(session, HIGH)
    bank.clock.advance(timedelta(minutes=5))
    fresh, stale = (rows(bank.warehouse.session(), text, max_staleness="20m")[1] for text in (HIGH, LOW))
    assert (fresh.job, fresh.staleness) == (level + 1, timedelta(minutes=5))
    assert (stale.job, stale.staleness) == (level, timedelta(minutes=10, milliseconds=1))
    # Several ranges are read at one job, which the slowest of them has reached.
    both = "SELECT k, s FROM sums WHERE k < 10 OR k >= 20"
    found, receipt = rows(bank.warehouse.session(), both, max_staleness="20m")
    assert (found, receipt.job) == ([(1, had), (21, had)], level)
    found, receipt = rows(bank.warehouse.session(), both, max_staleness="6m")
    assert (found, receipt.job) == ([(1, had + 1), (21, had + 1)], level + 1)
    assert bank.jobs() == [level + 1, level, level + 1]


def test_a_missed_deadline_serves_what_the_range_has(bank: Bank) -> None:
    level = bank.levelled()
    had = bank.commits
    bank.commit()
    rows(bank.warehouse.session(), HIGH)
    bank.commit()
    for text, key in ((HIGH, 21), (LOW, 1)):
        found, receipt = rows(bank.warehouse.session(), f"{text} DEADLINE 1 MS WHEN STALE SERVE")
        assert receipt.missed
        # Exactly the rows of its job, whichever the range had by then.
        assert found == [(key, had + receipt.job - level)]
    with pytest.raises(TooStale, match=r"within 0\.001 s"):
        rows(bank.warehouse.session(), f"{LOW} DEADLINE 1 MS WHEN STALE FAIL")
    assert rows(bank.warehouse.session(), f"{LOW} DEADLINE 1 MS WHEN STALE WAIT")[0] == [(1, had + 2)]
    assert bank.jobs()[1] == level  # nobody asked for it


def test_an_answer_keeps_its_ranges_until_its_lease_ends(bank: Bank) -> None:
    level, had = bank.levelled(), bank.commits
    bank.commit()
    answer = bank.warehouse.session().sql(LOW)
    assert bank.jobs() == [level + 1, level, level]
    for _ in range(2):
        bank.commit()
        rows(bank.warehouse.session(), LOW)
    bank.warehouse.change_ranges("sums", bounds=["5", "10", "20"])
    bank.warehouse.materialize()
    assert answer.to_arrow().to_pylist() == [{"k": 1, "s": had + 1}]
    bank.warehouse.change_ranges("sums", bounds=["10", "20"])
    bank.warehouse.tuning.change("retention.lease", "100ms")
    eventually(lambda: not answer.is_open)
    bank.warehouse.tuning.reset("retention.lease")
    with pytest.raises(SnapshotGone, match="lease"):
        answer.to_arrow()


def test_a_target_lag_is_kept_for_every_range(bank: Bank) -> None:
    bank.commit("moves")
    level = int(bank.warehouse.refresh())
    bank.commit()
    bank.commit("moves")
    with bank.warehouse.sql("SELECT * FROM kept WHERE k >= 20") as answer:
        assert answer.receipt.job == level + 1
    assert bank.jobs("kept") == [level, level, level + 1]
    bank.clock.advance(timedelta(hours=1))
    eventually(lambda: min(bank.jobs("kept")) > level)
    assert "kept would fall behind its target_lag of 1h" in bank.warehouse.status.actions[-1].reason
    assert bank.jobs() == [level, level, level]  # it has no such goal


def test_an_idle_warehouse_brings_every_range_forward(bank: Bank) -> None:
    level, had = bank.levelled(), bank.commits
    bank.commit()
    rows(bank.warehouse.session(), HIGH)
    assert bank.jobs() == [level, level, level + 1]
    bank.clock.advance(timedelta(days=1))
    eventually(lambda: min(bank.jobs()) > level)
    found, receipt = rows(bank.warehouse.session(), LOW, max_staleness="any")
    assert found == [(1, had + 1)] and receipt.rows_processed == 0
    assert any("no query came for" in action.reason for action in bank.warehouse.status.actions)
