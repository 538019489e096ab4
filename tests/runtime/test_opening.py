"""Opening: nothing is run again after a clean stop, and after any other end only what is asked for, or what time is left for."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import pytest

from headgate import Warehouse
from headgate.errors import FlowFailed, StorageFull, TooStale
from headgate.runtime.spark.sessions import SparkSessions
from headgate.runtime.upkeep import upkeep
from tests.scheduling.bank import deposit, open_bank, totals
from tests.waiting import PATIENCE, eventually

FLOWS = """
CREATE MATERIALIZED VIEW totals AS SELECT branch, SUM(balance) AS total FROM bank.accounts GROUP BY branch;
CREATE MATERIALIZED VIEW rich AS SELECT branch, total FROM totals WHERE total > 10;
CREATE MATERIALIZED VIEW lowest AS SELECT branch, MIN(balance) AS total FROM bank.accounts GROUP BY branch;
"""
TABLES = ("totals", "rich", "lowest")


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory, spark_sessions: SparkSessions) -> Path:
    """A bank with three jobs, of which the first is folded, whose process is gone without having folded the others."""
    folder = tmp_path_factory.mktemp("bank")
    bank = open_bank(folder, FLOWS)
    for number in range(1, 4):
        deposit(bank, (number, number % 2, 10 * number))
        bank.refresh()
        if number == 1:
            bank.materialize()
    bank.close(fold_seconds=0)
    return folder


@pytest.fixture
def folder(left: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return shutil.copytree(left, tmp_path / "bank")


@pytest.fixture
def without_background(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody but queries brings tables on."""
    monkeypatch.setattr("headgate.scheduling.background.Background._make_again", lambda self: None)


def content(bank: Warehouse, **bound: object) -> list[dict[int, int]]:
    return [totals(bank.sql(f"SELECT branch, total FROM {table}", **bound)) for table in TABLES]  # type: ignore[arg-type]


NEWEST = [{0: 20, 1: 40}, {0: 20, 1: 40}, {0: 20, 1: 10}]


def test_after_a_clean_stop_nothing_is_run_again_and_spark_is_asked_for_no_types(folder: Path) -> None:
    with open_bank(folder, FLOWS) as bank:
        bank.refresh()
    with open_bank(folder, FLOWS) as bank:
        assert bank.status.opening is None
        assert content(bank, max_staleness="any") == NEWEST
        assert bank.status.executions == 0
        assert bank._engine.defining.analyses.asked == 0


def test_a_block_that_fails_folds_nothing(folder: Path, without_background: None) -> None:
    with pytest.raises(ZeroDivisionError), open_bank(folder, FLOWS) as bank:
        bank.refresh()
        raise ZeroDivisionError
    with open_bank(folder, FLOWS) as bank:
        assert bank.status.complete == 1


def test_any_snapshot_is_answered_before_anything_is_run_again(folder: Path, without_background: None) -> None:
    with open_bank(folder, FLOWS) as bank:
        assert content(bank, max_staleness="any") == [{1: 10}, {}, {1: 10}]
        assert bank.status.executions == 0
        opening = bank.status.opening
        assert opening is not None and (opening.job, opening.done, opening.of) == (3, 0, 5)
        # A query with a bound runs what it needs, and no more.
        assert totals(bank.sql("SELECT branch, total FROM lowest")) == NEWEST[2]
        behind = {table.name for table in bank.status.tables if table.through < 3}
        assert behind == {"bank.branches", "totals", "rich"}
        assert content(bank) == NEWEST


def test_the_rest_is_run_again_while_nobody_asks(folder: Path) -> None:
    with open_bank(folder, FLOWS) as bank:
        eventually(lambda: bank.status.opening is None)
        assert bank.status.complete == 3
        assert content(bank, max_staleness="any") == NEWEST


def test_a_stop_that_has_no_time_for_all_tables_keeps_those_that_it_folded(
    folder: Path, monkeypatch: pytest.MonkeyPatch, without_background: None
) -> None:
    bank = open_bank(folder, FLOWS)
    bank.refresh()

    class Clock:
        ticks: Iterator[int] = count()

        @classmethod
        def monotonic(cls) -> int:
            return next(cls.ticks)

    monkeypatch.setattr(upkeep, "_FOLDED_AT_ONCE", 1)
    monkeypatch.setattr(upkeep, "time", Clock)
    bank.close(fold_seconds=3)
    with open_bank(folder, FLOWS) as bank:
        jobs = {table.name: table.through for table in bank.status.tables}
        assert jobs == {"lowest": 3, "rich": 3, "totals": 1, "bank.accounts": 1, "bank.branches": 1}
        deposit(bank, (9, 0, 1))
        assert content(bank) == [{0: 21, 1: 40}, {0: 21, 1: 40}, {0: 1, 1: 10}]


def test_without_the_file_of_types_spark_is_asked_again(folder: Path) -> None:
    file = folder / "warehouse" / "_headgate" / "analyses.json"
    for spoilt in (b"", b"{}\n00000000", file.read_bytes()[:-20]):
        file.write_bytes(spoilt)
        with open_bank(folder, FLOWS) as bank:
            assert bank._engine.defining.analyses.asked > 0
            assert content(bank) == NEWEST


CHANGED = """
CREATE MATERIALIZED VIEW totals AS SELECT branch, SUM(balance) + 1 AS total FROM bank.accounts GROUP BY branch;
CREATE MATERIALIZED VIEW rich AS SELECT branch, total FROM totals WHERE total > 10;
CREATE MATERIALIZED VIEW lowest AS SELECT branch, MIN(balance) AS total FROM bank.accounts GROUP BY branch;
CREATE MATERIALIZED VIEW counts AS SELECT branch, COUNT(*) AS total FROM bank.accounts GROUP BY branch;
"""
REBUILT = [{0: 21, 1: 41}, {0: 21, 1: 41}, {0: 20, 1: 10}]


class Held:
    """Holds commits to tables up until it is told to let them go."""

    def __init__(self) -> None:
        self.released = threading.Event()

    def __call__(self, step: str) -> None:
        if step == "before-commit":
            assert self.released.wait(PATIENCE)


def test_flows_that_have_to_be_built_keep_no_other_table_from_answering(folder: Path) -> None:
    held = Held()
    with ThreadPoolExecutor() as threads, open_bank(folder, CHANGED, step=held, build_later=True) as bank:
        try:
            assert totals(bank.sql("SELECT branch, total FROM lowest", max_staleness="any")) == {1: 10}
            assert totals(bank.sql("SELECT branch, total FROM lowest")) == NEWEST[2]
            opening = bank.status.opening
            assert opening is not None and opening.unbuilt == ("totals", "rich", "counts")
            # Who asks for one of the flows waits for it, as long as the query's deadline lets it.
            asked = threads.submit(lambda: content(bank, max_staleness="any"))
            with pytest.raises(TooStale, match="counts could not be built in time"):
                bank.sql("SELECT * FROM counts", max_staleness="any", deadline="50ms")
            cancelled = bank.session()
            waiting = threads.submit(lambda: cancelled.sql("SELECT * FROM counts"))
            eventually(lambda: len(cancelled._interruptions) == 1)
            cancelled.cancel()
            assert "cancelled" in str(waiting.exception(PATIENCE))
        finally:
            held.released.set()
        assert asked.result(PATIENCE) == REBUILT
        assert totals(bank.sql("SELECT branch, total FROM counts", max_staleness="any")) == {0: 1, 1: 2}
        eventually(lambda: bank.status.opening is None)
        assert bank.failures == ()
    with open_bank(folder, CHANGED) as bank:
        assert bank.status.opening is None and content(bank, max_staleness="any") == REBUILT


def test_a_flow_that_cannot_be_built_does_not_keep_the_warehouse_from_opening(folder: Path) -> None:
    problems: list[Exception] = [StorageFull("the disk is full")]

    def fail_once(step: str) -> None:
        if step == "before-commit" and problems:
            raise problems.pop()

    with open_bank(folder, CHANGED, step=fail_once, build_later=True) as bank:
        with pytest.raises(FlowFailed, match="flow counts could not be built: the disk is full"):
            bank.sql("SELECT * FROM counts")
        assert totals(bank.sql("SELECT branch, total FROM lowest")) == NEWEST[2]
        assert "the disk is full" in str(bank.failures)
        bank.resume()
        assert content(bank) == REBUILT and bank.failures == ()


def test_closing_breaks_off_what_is_built(folder: Path) -> None:
    held = Held()
    bank = open_bank(folder, CHANGED, step=held, build_later=True)
    with ThreadPoolExecutor() as threads:
        asked = threads.submit(lambda: bank.sql("SELECT * FROM counts"))
        closed = threads.submit(bank.close)
        eventually(lambda: bank._engine.defining.is_stopped)
        held.released.set()
        closed.result(PATIENCE)
        assert asked.exception(PATIENCE) is not None
    with open_bank(folder, CHANGED) as bank:
        assert content(bank, max_staleness="any") == REBUILT


def test_flows_that_are_declared_while_others_are_built_come_after_them(folder: Path) -> None:
    held = Held()
    with ThreadPoolExecutor() as threads, open_bank(folder, CHANGED, step=held, build_later=True) as bank:
        declared = threads.submit(lambda: bank.flow("poor", "SELECT branch FROM totals WHERE total < 30"))
        held.released.set()
        declared.result(PATIENCE)
        assert [row["branch"] for row in bank.sql("SELECT branch FROM poor").collect()] == [0]
        assert content(bank) == REBUILT
