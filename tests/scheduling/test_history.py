"""What has been: jobs and queries, also after a restart."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headgate import Receipt, Warehouse
from headgate.clock import ManualClock
from headgate.errors import Cancelled, DefiniteError, TooStale
from headgate.runtime.spark.sessions import SparkSessions
from headgate.scheduling.bound import Bound
from headgate.scheduling.history import LONGEST_TEXT, History, QueryRecord
from tests.scheduling.bank import deposit, open_bank, totals
from tests.waiting import eventually

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
ALL = "SELECT branch, total FROM totals"


def receipt(missed: bool = False) -> Receipt:
    return Receipt(Bound(timedelta(0), None, "fail"), NOON, NOON, 3, missed=missed)


def opened(folder: Path, **limits: int) -> History:
    # Queries need no more of the scheduler than its clock.
    scheduler = SimpleNamespace(clock=ManualClock(NOON))
    return History(cast(Any, scheduler), folder, **limits)


def ask(history: History, text: str, problem: BaseException | None = None, missed: bool = False) -> None:
    try:
        with history.asking(text) as asking:
            if problem is not None:
                raise problem
            asking.receipt = receipt(missed)
    except BaseException as error:
        assert error is problem


def test_each_outcome_is_told_apart(tmp_path: Path) -> None:
    history = opened(tmp_path)
    ask(history, "SELECT 1")
    ask(history, "SELECT 2", missed=True)
    ask(history, "SELECT 3", TooStale("no answer in time"))
    ask(history, "SELECT 4", Cancelled("the query was cancelled"))
    ask(history, "SELECT 5", KeyboardInterrupt())
    ask(history, "SELECT 6", DefiniteError("there is no table x", hint="did you mean y?"))
    found = history.receipts()
    assert [query.outcome for query in found] == ["ok", "stale", "stale", "cancelled", "cancelled", "failed"]
    assert [query.id for query in found] == [1, 2, 3, 4, 5, 6]
    assert found[0].receipt == receipt() and found[0].at == NOON and found[0].problem is None
    assert found[2].receipt is None and found[2].problem == "no answer in time"
    assert found[5].problem == "there is no table x (did you mean y?)"


def test_texts_are_on_one_line_and_not_endless(tmp_path: Path) -> None:
    history = opened(tmp_path)
    ask(history, "SELECT a,\n\t b\nFROM t")
    ask(history, "SELECT " + "x, " * 10_000)
    short, long = (query.text for query in history.receipts())
    assert short == "SELECT a, b FROM t"
    assert long.startswith("SELECT x, x") and long.endswith("…") and len(long) == LONGEST_TEXT + 1


def test_queries_survive_a_restart_and_a_torn_line(tmp_path: Path) -> None:
    history = opened(tmp_path)
    ask(history, "SELECT 'ü'")
    ask(history, "SELECT 2", Cancelled("the query was cancelled"))
    assert not list(tmp_path.iterdir()), "a query writes nothing"
    history.write()
    before = history.receipts()
    (file,) = tmp_path.iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    with file.open("ab") as stream:
        stream.write(b'{"id": 3, "at": "2026-')
    again = opened(tmp_path)
    assert again.receipts() == before
    ask(again, "SELECT 3")
    again.write()
    assert [(query.id, query.text) for query in opened(tmp_path).receipts()] == [
        (1, "SELECT 'ü'"),
        (2, "SELECT 2"),
        (3, "SELECT 3"),
    ]


def test_memory_and_disk_are_bounded(tmp_path: Path) -> None:
    history = opened(tmp_path, limit=20, file_bytes=10_000)
    for number in range(400):
        ask(history, f"SELECT {number}")
        if number % 7 == 0:
            history.write()
    history.write()
    assert [query.text for query in history.receipts()] == [f"SELECT {number}" for number in range(380, 400)]
    assert [query.text for query in history.receipts(2)] == ["SELECT 398", "SELECT 399"]
    assert history.receipts(0) == []
    files = sorted(tmp_path.iterdir())
    assert len(files) <= 2 and sum(file.stat().st_size for file in files) < 4 * 10_000
    again = opened(tmp_path, limit=20).receipts()
    assert again[-1].text == "SELECT 399" and again[-1].id == 400 and len(again) > 7


def test_what_is_not_written_for_long_does_not_pile_up(tmp_path: Path) -> None:
    history = opened(tmp_path, limit=10)
    for number in range(100):
        ask(history, f"SELECT {number}")
    history.write()
    lines = (tmp_path / "receipts.jsonl").read_text().splitlines()
    assert [QueryRecord.from_json(json.loads(line)).id for line in lines] == list(range(91, 101))


def test_many_threads_ask_at_once(tmp_path: Path) -> None:
    history = opened(tmp_path, limit=10_000)
    threads = [
        threading.Thread(target=lambda: [ask(history, "SELECT 1") for _ in range(100)] and None) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        history.write()
    for thread in threads:
        thread.join()
    history.write()
    assert [query.id for query in history.receipts()] == list(range(1, 801))
    assert [query.id for query in opened(tmp_path, limit=10_000).receipts()] == list(range(1, 801))


@pytest.fixture(scope="module")
def bank_folder(tmp_path_factory: pytest.TempPathFactory, spark_sessions: SparkSessions) -> Path:
    return tmp_path_factory.mktemp("bank")


@pytest.fixture(scope="module")
def bank(bank_folder: Path) -> Iterator[Warehouse]:
    with open_bank(bank_folder) as warehouse:
        yield warehouse


def test_jobs_say_what_they_hold_and_who_has_reached_them(bank: Warehouse, bank_folder: Path) -> None:
    deposit(bank, (1, 1, 10), (2, 1, 5))
    assert totals(bank.sql(ALL)) == {1: 15}
    deposit(bank, (3, 2, 1))
    closed = bank.close_job()
    first, second = bank.history.jobs()
    assert (first.id, first.rows, first.cut) == (1, 2, {"bank": 1})
    assert set(first.reached) == {"bank.accounts", "totals"}
    assert set(first.seconds) == {"bank.accounts", "totals"} and min(first.seconds.values()) > 0
    assert first.closed_at is not None and first.closed_at >= first.data_timestamp
    assert (second.id, second.rows, second.reached, second.seconds) == (closed, 1, (), {})
    bank.refresh()
    bank.materialize()
    assert set(bank.history.jobs(1)[0].reached) == set(bank.tables)
    assert [job.rows for job in bank.history.jobs()] == [2, 1], "what the stream let go of is still counted"
    assert bank.history.jobs(0) == []


def test_queries_and_jobs_are_there_when_the_warehouse_is_opened_again(bank: Warehouse, bank_folder: Path) -> None:
    with pytest.raises(DefiniteError):
        bank.sql("SELECT * FROM nothing")
    deposit(bank, (4, 1, 1))
    with pytest.raises(TooStale):
        bank.sql(f"{ALL} DEADLINE 1 MS")
    answer = bank.sql(ALL, max_staleness="any")
    queries, jobs = bank.history.receipts(3), bank.history.jobs()
    assert [query.outcome for query in queries] == ["failed", "stale", "ok"]
    assert queries[-1].receipt is not None and queries[-1].receipt.job == answer.job
    eventually(lambda: (bank_folder / "warehouse/_headgate/receipts.jsonl").exists())
    bank.sql(ALL).close()
    bank.close()
    with open_bank(bank_folder) as again:
        assert again.history.receipts()[-4:-1] == queries
        assert again.history.receipts()[-1].outcome == "ok"
        assert [(job.id, job.closed_at, job.rows) for job in again.history.jobs()][: len(jobs)] == [
            (job.id, job.closed_at, job.rows) for job in jobs
        ]
