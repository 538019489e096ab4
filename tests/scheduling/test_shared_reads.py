"""The same query at the same snapshot is read once for all who ask it, and never for anyone who asks something else."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pytest

from headgate.errors import Cancelled, Location
from headgate.runtime.reading.query_work import DeadlineExceeded, Interruption
from headgate.runtime.reading.reads import Reads
from headgate.runtime.signal import Signal
from headgate.runtime.spark.partitions import Batches, ReadLimit
from headgate.runtime.spark.sessions import SparkSessions
from headgate.sql.references import read_tables
from tests.scheduling.bank import deposit, open_bank
from tests.service.scripted import batches_of

ALL = "SELECT branch, total FROM totals"
DATED = "CREATE MATERIALIZED VIEW dated AS SELECT id, {} AS factor, current_date() AS day FROM bank.accounts;"


def test_open_answers_to_the_same_query_share_their_rows(tmp_path: Path, spark_sessions: SparkSessions) -> None:
    with open_bank(tmp_path) as bank:
        deposit(bank, (1, 1, 10))
        first, second = bank.sql(ALL), bank.session().sql(f"{ALL} CURRENCY BOUND ANY")
        rows = first.read()
        assert second.job == first.job and second.read() is rows
        assert rows.to_arrow().to_pylist() == second.to_arrow().to_pylist() == [{"branch": 1, "total": 10}]
        first.close()
        assert second.read() is rows and second.read(ReadLimit(rows=1)) is not rows
        with bank.sql(f"{ALL} WHERE branch = 1") as other:
            assert other.read() is not rows
        deposit(bank, (2, 1, 5))
        with bank.sql(ALL) as later:
            assert later.to_arrow().to_pylist() == [{"branch": 1, "total": 15}]
        with (
            bank.sql("SELECT branch, rand() AS r FROM totals") as one,
            bank.sql("SELECT branch, rand() AS r FROM totals") as two,
        ):
            assert one.job == two.job and one.to_arrow() != two.to_arrow()


def test_readers_crowd_spark_when_they_are_more_than_its_slots(tmp_path: Path, spark_sessions: SparkSessions) -> None:
    with open_bank(tmp_path) as bank, ExitStack() as reading:
        for crowded in (False, False, True):
            reading.enter_context(bank._engine.reader.reads.counted())
            assert bank._engine.is_saturated() is crowded
        reading.close()
        assert not bank._engine.is_saturated()


def test_what_is_defined_anew_is_not_shared_with_what_was(tmp_path: Path, spark_sessions: SparkSessions) -> None:
    text = "SELECT id, factor FROM dated"
    kept = "SELECT branch, total FROM totals"
    flows = "CREATE MATERIALIZED VIEW totals AS SELECT branch, SUM({} * balance) AS total FROM bank.accounts GROUP BY branch;"
    with open_bank(tmp_path, DATED.format(1) + flows.format(1)) as bank:
        deposit(bank, (1, 1, 10))
        with bank.sql(text) as before, bank.sql(kept) as stored:
            assert before.to_arrow().column("factor").to_pylist() == [1]
            assert stored.to_arrow().column("total").to_pylist() == [10]
            (tmp_path / "flows" / "bank.sql").write_text(DATED.format(2) + flows.format(2))
            bank.resume()
            with bank.sql(text) as after, bank.sql(kept) as rebuilt:
                assert after.job == before.job == rebuilt.job == stored.job
                assert after.to_arrow().column("factor").to_pylist() == [2]
                assert rebuilt.to_arrow().column("total").to_pylist() == [20]


@pytest.mark.parametrize(
    ("query", "repeatable"),
    [
        ("SELECT a, SUM(b) FROM t GROUP BY a", True),
        ("SELECT a FROM t WHERE d < current_date()", False),
        ("SELECT * FROM (SELECT uuid() AS u FROM t)", False),
        ("SELECT a FROM t TABLESAMPLE (10 PERCENT)", False),
        ("SELECT a FROM t WHERE d = DATE 'today'", False),
        ("SELECT a FROM t WHERE d >= ' Yesterday'", False),
        ("SELECT a FROM t WHERE d < TIMESTAMP '12:30'", False),
        ("SELECT a FROM t WHERE d = DATE '\\u0074oday'", False),
        ("SELECT a FROM t WHERE d = DATE '2024-01-01' AND e = 'none of today'", True),
    ],
)
def test_what_can_come_out_otherwise_is_not_shared(query: str, repeatable: bool) -> None:
    assert read_tables(query, Location("query")).is_repeatable is repeatable


LIMIT = ReadLimit()


def batches(value: int) -> Batches:
    return batches_of(pa.table({"a": [value]}), LIMIT)


def test_many_at_once_read_once_and_count_as_one() -> None:
    reads, may_go, calls, running = Reads(Signal()), threading.Event(), [], []
    held = [reads.rows("q") for _ in range(8)]

    def read() -> Batches:
        assert may_go.wait(60)
        calls.append(1)
        running.append(reads.running)
        return batches(1)

    with ThreadPoolExecutor(8) as pool:
        found = [pool.submit(rows.batches, LIMIT, read, Interruption()) for rows in held]
        may_go.set()
        assert len({id(each.result(60)) for each in found}) == 1
    assert calls == [1] and running == [1] and reads.running == 0
    assert reads.rows("q") is held[0] and reads.rows() is not reads.rows()


def test_who_waits_for_a_read_that_fails_reads_by_itself() -> None:
    reads = Reads(Signal())
    mine, others = reads.rows("q"), reads.rows("q")

    def fail() -> Batches:
        raise RuntimeError("called off")

    with pytest.raises(RuntimeError, match="called off"):
        mine.batches(LIMIT, fail, Interruption())
    assert others.batches(LIMIT, lambda: batches(1), Interruption()).rows == 1
    assert reads.running == 0


def test_who_is_called_off_does_not_wait_for_the_read_of_another() -> None:
    rows, reading, may_go = Reads(Signal()).rows("q"), threading.Event(), threading.Event()

    def read() -> Batches:
        reading.set()
        assert may_go.wait(60)
        return batches(1)

    called_off = Interruption()
    with ThreadPoolExecutor(1) as pool, called_off.at_work():
        other = pool.submit(rows.batches, LIMIT, read, Interruption())
        assert reading.wait(60)
        with pytest.raises(DeadlineExceeded):
            rows.batches(LIMIT, lambda: batches(2), called_off, time.monotonic())
        waiting = threading.Timer(0.05, called_off.set)
        waiting.start()
        with pytest.raises(Cancelled):
            rows.batches(LIMIT, lambda: batches(2), called_off)
        may_go.set()
        assert other.result(60).to_arrow().to_pydict() == {"a": [1]}


def test_rows_go_with_the_last_answer() -> None:
    reads = Reads(Signal())
    held = reads.rows("q")
    held.batches(LIMIT, lambda: batches(1), Interruption())
    del held
    assert reads.rows("q").batches(LIMIT, lambda: batches(2), Interruption()).to_arrow().to_pydict() == {"a": [2]}
