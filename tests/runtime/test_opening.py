"""Opening: nothing is run again after a clean stop, and after any other end only what is asked for, or what time is left for."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from headgate import Warehouse
from headgate.runtime.spark.sessions import SparkSessions
from headgate.runtime.upkeep import upkeep
from tests.scheduling.bank import deposit, open_bank, totals
from tests.waiting import eventually

FLOWS = """
CREATE MATERIALIZED VIEW totals AS SELECT branch, SUM(balance) AS total FROM bank.accounts GROUP BY branch;
CREATE MATERIALIZED VIEW rich AS SELECT branch, total FROM totals WHERE total > 10;
CREATE MATERIALIZED VIEW lowest AS SELECT branch, MIN(balance) AS total FROM bank.accounts GROUP BY branch;
"""
TABLES = ("totals", "rich", "lowest")


@pytest.fixture
def folder(tmp_path: Path, spark_sessions: SparkSessions) -> Path:
    """A bank with three jobs, of which the first is folded, whose process is gone without having folded the others."""
    bank = open_bank(tmp_path, FLOWS)
    for number in range(1, 4):
        deposit(bank, (number, number % 2, 10 * number))
        bank.refresh()
        if number == 1:
            bank.materialize()
    bank.close(fold_seconds=0)
    return tmp_path


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
