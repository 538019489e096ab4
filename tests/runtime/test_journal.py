"""The journal: a job counts at once, and is in the ledger as soon as what it holds is durable."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from headgate.delta.changes import JobId
from headgate.runtime.tables.jobs import Job
from headgate.runtime.tables.journal import Journal
from headgate.runtime.tables.records import JOB_CLOSED, STREAM_MARKED
from headgate.warehouse.ledger import Ledger

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


class Log:
    """A stream log whose newest transactions may be in memory alone."""

    def __init__(self, ledger: Ledger, durable: int) -> None:
        self.durable = durable
        self._ledger = ledger
        self.jobs_before_sync: list[int] = []

    def sync(self, upto: int) -> None:
        self.jobs_before_sync = written(self._ledger)
        self.durable = upto


def job(number: int) -> Job:
    return Job(JobId(number), NOON, {"shop": 10 * number}, None, {"shop": NOON}, NOON, 1)


def written(ledger: Ledger) -> list[int]:
    return [entry.body["id"] for entry in ledger.entries(JOB_CLOSED)]


def opened(ledger: Ledger, durable: int) -> tuple[Journal, Log]:
    journal, log = Journal(ledger), Log(ledger, durable)
    journal.logs["shop"] = cast(Any, log)
    return journal, log


def test_a_job_of_durable_transactions_is_written_at_once(tmp_path: Path) -> None:
    ledger = Ledger.open(str(tmp_path), "me", lambda: NOON)
    journal, _ = opened(ledger, durable=20)
    journal.close_job(job(1))
    journal.close_job(job(2))
    assert written(ledger) == [1, 2] and journal.chain.newest == 2
    ledger.close()
    ledger = Ledger.open(str(tmp_path), "me", lambda: NOON)
    assert Journal(ledger).chain.position("shop", JobId(2)) == 20
    ledger.close()


def test_a_job_of_transactions_in_memory_counts_at_once_and_is_written_after_them(tmp_path: Path) -> None:
    ledger = Ledger.open(str(tmp_path), "me", lambda: NOON)
    journal, log = opened(ledger, durable=10)
    journal.close_job(job(1))
    journal.close_job(job(2), [(STREAM_MARKED, {"source": "shop"})])
    assert journal.chain.newest == 2 and "shop" in journal.records.marked
    assert written(ledger) == [1] and log.durable == 10
    # The next entry that has to be there takes them along, the transactions first.
    journal.record([(STREAM_MARKED, {"source": "bank"})])
    assert written(ledger) == [1, 2] and log.durable == 20 and log.jobs_before_sync == [1]
    assert [entry.body["source"] for entry in ledger.entries(STREAM_MARKED)] == ["shop", "bank"]
    journal.close_job(job(3))
    journal.settle()
    assert written(ledger) == [1, 2, 3] and log.durable == 30
    ledger.close()
