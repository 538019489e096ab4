"""What a query gets for its bound: reuse, join or close; only what it needs is done."""

from __future__ import annotations

import gc
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from headgate import Receipt, Warehouse
from headgate.capture.memory import MemorySource
from headgate.capture.postgres.problems import SourceHistoryLost, SourceUnreachable
from headgate.capture.source import SourceFreshness
from headgate.clock import ManualClock
from headgate.delta.changes import BEGINNING
from headgate.errors import Cancelled, DefiniteError, HeadgateError, SnapshotGone, StorageFull, TooStale
from headgate.runtime.reading.answer import SnapshotAnswer
from headgate.runtime.reading.reader import Reader
from headgate.runtime.reading.snapshot import Snapshot
from headgate.runtime.spark import views
from headgate.runtime.spark.sessions import SparkSessions
from headgate.runtime.stages.batch import Batch
from tests.scheduling.bank import deposit, open_bank, totals
from tests.waiting import PATIENCE, eventually

ALL = "SELECT branch, total FROM totals"


@pytest.fixture
def bank(tmp_path: Path, spark_sessions: SparkSessions) -> Iterator[Warehouse]:
    with open_bank(tmp_path) as warehouse:
        yield warehouse


def test_a_bound_of_0_holds_every_acknowledged_transaction_and_makes_no_job_without_one(bank: Warehouse) -> None:
    deposit(bank, (1, 1, 10))
    first = bank.sql(ALL)
    assert first.receipt.closed_job and first.receipt.rows_processed == 1 and first.receipt.jobs_run == 1
    assert totals(first) == {1: 10}
    again = bank.sql(ALL)
    assert again.job == first.job and not again.receipt.closed_job and again.receipt.rows_processed == 0
    assert again.receipt.staleness is not None and again.receipt.staleness.total_seconds() == 0
    deposit(bank, (2, 1, 5))
    later = bank.sql(ALL, max_staleness=0)
    assert later.job == first.job + 1 and totals(later) == {1: 15}


def test_before_the_first_commit_tables_are_empty(bank: Warehouse) -> None:
    answer = bank.sql(ALL)
    assert (answer.job, totals(answer)) == (0, {})
    assert not answer.receipt.missed and answer.receipt.staleness == timedelta(0)
    assert [row.one for row in bank.sql("SELECT 1 AS one").collect()] == [1]


def test_a_looser_bound_reuses_a_snapshot(bank: Warehouse) -> None:
    deposit(bank, (1, 1, 10))
    assert totals(bank.sql(ALL)) == {1: 10}
    deposit(bank, (2, 1, 5))
    stale = bank.sql(f"{ALL} CURRENCY BOUND 10 MIN")
    assert stale.receipt.rows_processed == 0 and not stale.receipt.missed
    assert totals(stale) == {1: 10}
    assert totals(bank.sql(f"{ALL} currency bound any")) == {1: 10}
    assert totals(bank.sql(ALL)) == {1: 15}


def test_a_receipt_is_fixed_when_its_snapshot_is_chosen(
    tmp_path: Path, spark_sessions: SparkSessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock(datetime(2026, 1, 2, tzinfo=UTC))
    with open_bank(tmp_path, clock=clock) as bank:
        deposit(bank, (1, 1, 10))
        job = bank.sql(ALL).job
        read = Reader.answer

        def read_while_jobs_are_closed(reader: Reader, text: str, snapshot: Snapshot, *more: Any) -> SnapshotAnswer:
            clock.advance(timedelta(hours=1))
            deposit(bank, (2, 1, 5))
            assert bank.close_job() == job + 1
            clock.advance(timedelta(hours=1))
            assert bank.close_job() == job + 1
            return read(reader, text, snapshot, *more)

        clock.advance(timedelta(hours=1))
        monkeypatch.setattr(Reader, "answer", read_while_jobs_are_closed)
        answer = bank.sql(ALL, max_staleness=0)
        receipt = answer.receipt
        assert answer.job == receipt.job == job and not receipt.missed
        assert receipt.staleness == timedelta(0) and receipt.data_timestamp == receipt.arrived_at
        assert totals(answer) == {1: 10}


def test_only_what_a_query_needs_is_brought_up_to_date(bank: Warehouse) -> None:
    deposit(bank, (1, 1, 10))
    with bank.source("bank").transaction() as transaction:
        transaction.insert("branches", {"branch": 1, "name": "north"})
    job = bank.sql(ALL).job
    through = {table.name: table.through for table in bank.status.tables}
    assert through["totals"] == through["bank.accounts"] == job
    assert through["names"] == through["bank.branches"] == 0
    deposit(bank, (2, 1, 10))
    bank.sql(ALL)
    with bank.sql("SELECT name FROM names") as names:
        assert [row.name for row in names.collect()] == ["NORTH"]


def test_a_query_does_not_wait_until_a_batch_is_cleaned_up(bank: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    answered, close = threading.Event(), Batch.close
    closed: list[bool] = []

    def close_once_answered(batch: Batch, *, failed: bool) -> None:
        if batch.has_views:
            closed.append(answered.wait(PATIENCE))
        close(batch, failed=failed)

    monkeypatch.setattr(Batch, "close", close_once_answered)
    try:
        deposit(bank, (1, 1, 10))
        assert totals(bank.sql(ALL, deadline=timedelta(seconds=PATIENCE / 2))) == {1: 10}
    finally:
        answered.set()
    eventually(lambda: not bank._engine.executor._running)
    assert closed and all(closed) and bank._engine.executor.failures == {}


def test_a_session_sets_its_bound_and_never_goes_back(bank: Warehouse) -> None:
    session, other = bank.session(), bank.session()
    deposit(bank, (1, 1, 10))
    session.sql("SET max_staleness = '1h'")
    assert {row.key: row.value for row in session.sql("SET deadline = '30s'").collect()} == {
        "max_staleness": "1h",
        "deadline": "30s",
        "when_stale": "fail",
    }
    assert totals(other.sql(ALL)) == {1: 10}
    deposit(bank, (2, 1, 5))
    assert totals(session.sql(ALL)) == {1: 10}
    assert totals(other.sql(ALL)) == {1: 15}
    assert totals(session.sql(ALL, max_staleness=0)) == {1: 15}
    # Branches are at an older job than the reader has seen.
    seen = session.seen
    with session.sql("SELECT name FROM names CURRENCY BOUND ANY") as answer:
        assert answer.job >= seen
    assert totals(session.sql(ALL, job=seen - 1)) == {1: 10}


def test_two_snapshots_are_read_at_once_and_one_twice(bank: Warehouse) -> None:
    deposit(bank, (1, 1, 10))
    old = bank.sql("SELECT a.total AS total, b.total AS again FROM totals a JOIN totals b ON a.branch = b.branch")
    deposit(bank, (2, 1, 5))
    new = bank.sql(ALL)
    bank.materialize()
    assert [(row.total, row.again) for row in old.collect()] == [(10, 10)]
    assert [row.total for row in new.collect()] == [15]
    assert [(row.total, row.again) for row in old.collect()] == [(10, 10)]
    old.close()
    with pytest.raises(SnapshotGone, match="was closed"):
        old.collect()


@pytest.mark.parametrize(
    "text",
    [
        "DROP TABLE totals",
        "SELECT * FROM parquet.`/tmp`",
        "SELECT reflect('java.lang.System', 'exit', 1)",
        "SELECT 1; SELECT 2",
        "SELECT * FROM spark_catalog.default.totals",
        "SELECT '${env:HOME}'",
    ],
)
def test_only_a_select_over_the_tables_is_answered(bank: Warehouse, text: str) -> None:
    with pytest.raises(DefiniteError):
        bank.sql(text)


def test_waiting_queries_share_cuts_and_executions(bank: Warehouse) -> None:
    deposit(bank, (0, 0, 1))
    bank.sql(ALL)
    before, jobs = bank.status.executions, bank.newest_job
    found: list[dict[int, int]] = []
    errors: list[Exception] = []

    def ask() -> None:
        try:
            found.append(totals(bank.session().sql(ALL, deadline="60s")))
        except Exception as error:
            errors.append(error)

    for number in range(1, 13):
        deposit(bank, (number, 0, 1))
        threading.Thread(target=ask).start()
    eventually(lambda: len(found) + len(errors) == 12)
    assert not errors
    assert max(rows[0] for rows in found) == 13
    # 2 stages are needed; a lone query would make 2 executions and a job each.
    assert bank.newest_job - jobs < 12
    assert bank.status.executions - before < 24


def test_a_missed_deadline_fails_serves_or_waits(bank: Warehouse) -> None:
    deposit(bank, (1, 1, 10))
    assert totals(bank.sql(ALL)) == {1: 10}
    deposit(bank, (2, 1, 5))
    with pytest.raises(TooStale, match=r"at most 0 s old .* within 0\.001 s.*\(bank\)") as missed:
        bank.sql(f"{ALL} DEADLINE 1 MS WHEN STALE FAIL")
    assert missed.value.sqlstate == "40001"
    served = bank.sql(f"{ALL} WHEN STALE SERVE DEADLINE 1 MS")
    assert served.receipt.missed and "deadline" in str(served.receipt)
    assert totals(served) == {1: 10}
    assert totals(bank.sql(f"{ALL} DEADLINE 1 MS WHEN STALE WAIT")) == {1: 15}


@pytest.mark.parametrize(
    "trouble",
    [
        StorageFull("no space left in /data", hint="free space there"),
        SourceUnreachable("PostgreSQL at bank cannot be reached", hint="it is tried again"),
    ],
)
def test_a_missed_bound_names_what_keeps_the_source_from_delivering(
    bank: Warehouse, monkeypatch: pytest.MonkeyPatch, trouble: HeadgateError
) -> None:
    deposit(bank, (1, 1, 10))
    assert totals(bank.sql(ALL)) == {1: 10}
    status = replace(bank.sources["bank"].status, trouble=trouble)
    monkeypatch.setattr(MemorySource, "status", status)
    monkeypatch.setattr(MemorySource, "captured", SourceFreshness(0, BEGINNING))
    monkeypatch.setattr(MemorySource, "capture", lambda self, upto, window: False)
    with pytest.raises(TooStale, match=rf"old \(bank\): {trouble.what}") as missed:
        bank.sql(f"{ALL} DEADLINE 0.1 SEC")
    assert str(missed.value.hint).startswith(f"{trouble.hint}; allow a longer deadline")
    served = bank.sql(f"{ALL} DEADLINE 0.1 SEC WHEN STALE SERVE")
    assert served.receipt.why_missed == f"the deadline passed: {trouble.what}"
    assert totals(served) == {1: 10}


def test_a_source_that_stopped_does_not_keep_anyone_from_what_there_is(
    bank: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    deposit(bank, (1, 1, 10))
    bank.sql(ALL).close()
    lost = SourceHistoryLost("the slot is gone", hint="`headgate refresh --full`")

    def fail(self: MemorySource, upto: object, window: object) -> bool:
        raise lost

    monkeypatch.setattr(MemorySource, "status", replace(bank.sources["bank"].status, trouble=lost))
    monkeypatch.setattr(MemorySource, "captured", SourceFreshness(0, BEGINNING))
    monkeypatch.setattr(MemorySource, "capture", fail)
    with pytest.raises(SourceHistoryLost):
        bank.sql(f"{ALL} DEADLINE 5 SEC")
    served = bank.sql(f"{ALL} DEADLINE 5 SEC WHEN STALE SERVE")
    assert served.receipt.why_missed == "the slot is gone" and totals(served) == {1: 10}


def test_a_cancelled_query_lets_go_of_everything(bank: Warehouse) -> None:
    session = bank.session()
    deposit(bank, (1, 1, 10))
    bank.sql(ALL).close()
    errors: list[Exception] = []

    def ask() -> None:
        try:
            session.sql(ALL)
        except Exception as error:
            errors.append(error)

    with bank._engine.executor.paused():
        deposit(bank, (2, 1, 5))
        waiting = threading.Thread(target=ask)
        waiting.start()
        eventually(lambda: bank._scheduler.waiting == 1)
        session.cancel()
        waiting.join(PATIENCE)
    assert isinstance(errors[0], Cancelled)
    assert bank._scheduler.waiting == 0 and not bank._cutter.waiting
    assert totals(session.sql(ALL)) == {1: 15}


def test_an_interrupted_query_lets_go_of_everything(bank: Warehouse) -> None:
    def interrupt(thread: int) -> None:
        # Not before the query waits: what is raised inside of a callback would be lost.
        eventually(lambda: bank._scheduler.waiting == 1)
        signal.pthread_kill(thread, signal.SIGINT)

    deposit(bank, (1, 1, 10))
    with bank._engine.executor.paused():
        # As Ctrl-C does: the signal reaches the main thread, which waits.
        main = threading.main_thread().ident
        assert main is not None
        # Whoever runs the tests may ignore the signal, or handle it.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            threading.Thread(target=interrupt, args=[main]).start()
            with pytest.raises(KeyboardInterrupt):
                bank.sql(ALL)
        finally:
            signal.signal(signal.SIGINT, before)
    assert bank._scheduler.waiting == 0 and not bank._cutter.waiting
    assert totals(bank.sql(ALL)) == {1: 10}


def test_an_answer_is_let_go_when_its_lease_ends(tmp_path: Path, spark_sessions: SparkSessions) -> None:
    with open_bank(tmp_path, retention={"lease": "300ms"}) as bank:
        deposit(bank, (1, 1, 10))
        answer = bank.sql(ALL)
        assert bank.status.answers == 1
        eventually(lambda: not answer.is_open)
        with pytest.raises(SnapshotGone, match="lease"):
            answer.collect()
        assert bank.status.answers == 0


def test_a_receipt_survives_json(bank: Warehouse) -> None:
    deposit(bank, (1, 1, 10))
    receipt = bank.sql(ALL).receipt
    assert Receipt.from_json(receipt.to_json()) == receipt


ENDLESS = "SELECT SUM(hash(id)) AS n FROM range(0, 20000000000, 1, 20000)"
"""Some hours of work, in tasks of less than a second: Spark without code generation ends none of them halfway."""


def test_the_deadline_bounds_reading_too(tmp_path: Path, spark_sessions: SparkSessions) -> None:
    with open_bank(tmp_path) as bank:
        deposit(bank, (1, 1, 10))
        with (
            bank.sql(f"{ENDLESS} DEADLINE 0.5 SEC") as answer,
            pytest.raises(TooStale, match=r"could not be read within 0.5 s: it took .*read") as problem,
        ):
            answer.to_arrow()
        assert problem.value.sqlstate == "40001"
        with bank.sql(f"{ALL} DEADLINE 60 SEC") as answer:
            assert answer.to_arrow().num_rows == 1 and not answer.receipt.missed
        with bank.sql(f"{ALL} CURRENCY BOUND ANY DEADLINE 0 SEC WHEN STALE SERVE") as answer:
            answer.to_arrow()
            assert answer.receipt.missed and "after the deadline" in str(answer.receipt.why_missed)
        with bank.sql(f"{ALL} DEADLINE 0 SEC WHEN STALE WAIT") as answer:
            answer.to_arrow()
            assert not answer.receipt.missed


def test_cancelling_a_session_ends_what_it_reads(tmp_path: Path, spark_sessions: SparkSessions) -> None:
    with open_bank(tmp_path) as bank, ThreadPoolExecutor(1) as threads:
        session, idle = bank.session(), bank.sql(ALL)
        with session.sql(ENDLESS) as answer:
            reading = threads.submit(answer.to_arrow)
            eventually(lambda: bank._engine.reader.reads.running == 1)
            session.cancel()
            with pytest.raises(Cancelled):
                reading.result(60)
        assert bank.spark_lost is None and idle.to_arrow().num_rows == 0


def test_the_garbage_collector_lets_an_answer_go_without_calling_spark(
    bank: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It runs in the middle of anything, a call of Spark too."""
    dropped: list[str] = []
    drop = views.drop_view
    monkeypatch.setattr(views, "drop_view", lambda session, name: (dropped.append(name), drop(session, name)))
    answer = bank.sql(ALL)
    dropped.clear()
    del answer
    gc.collect()
    assert dropped == []
    bank.sql(ALL).close()
    # That of the answer which was let go, and that of the closed one; the collector may have had others of before.
    assert len(dropped) >= 2
