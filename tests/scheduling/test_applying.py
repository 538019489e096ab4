"""Files that change while the warehouse runs: what is built, what is left alone, and what is told before."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import headgate
from headgate import Warehouse
from headgate.errors import DefiniteError, HeadgateError, MultipleProblems
from headgate.runtime.defining.building import Builder
from headgate.runtime.spark.sessions import SparkSessions
from tests.scheduling.bank import SPARK, deposit, totals

TOTALS = "CREATE MATERIALIZED VIEW totals AS SELECT branch, SUM(balance) AS total FROM bank.accounts GROUP BY branch;\n"
RICH = "CREATE MATERIALIZED VIEW rich AS SELECT branch, total FROM totals WHERE total > 10;\n"
LOWEST = "CREATE MATERIALIZED VIEW lowest AS SELECT branch, MIN(balance) AS total FROM bank.accounts GROUP BY branch;\n"
PROJECT = f"""
name: bank
storage: warehouse
libraries: [{{glob: {{include: flows/**}}}}]
spark: {SPARK}
sources: {{bank: {{type: memory, tables: {{accounts: {{columns: {{id: bigint, branch: int, balance: bigint}}, key: [id]}}}}}}}}
background: {{system_jobs: false}}
"""


@pytest.fixture
def folder(tmp_path: Path, spark_sessions: SparkSessions) -> Path:
    (tmp_path / "flows").mkdir()
    (tmp_path / "headgate.yml").write_text(PROJECT)
    write(tmp_path, TOTALS, RICH, LOWEST)
    return tmp_path


@pytest.fixture
def bank(folder: Path) -> Iterator[Warehouse]:
    with headgate.open(folder) as warehouse:
        deposit(warehouse, (1, 1, 10), (2, 1, 30), (3, 2, 5))
        warehouse.refresh()
        yield warehouse


def write(folder: Path, *flows: str) -> None:
    (folder / "flows" / "bank.sql").write_text("".join(flows))


def rows(bank: Warehouse, table: str) -> dict[int, int]:
    return totals(bank.sql(f"SELECT branch, total FROM {table}"))


def test_only_what_changed_and_what_reads_it_is_built(bank: Warehouse, folder: Path) -> None:
    lowest = bank._engine.tables.get("lowest")
    most = LOWEST.replace("lowest", "most").replace("MIN", "MAX")
    write(folder, TOTALS.replace("SUM(balance)", "SUM(balance) + 1"), RICH, LOWEST, most)
    preview = bank.apply(dry_run=True, diff=True)
    told = {change.name: (change.kind, change.because_of) for change in preview.flows}
    assert told == {"totals": ("changed", ()), "rich": ("changed", ("totals",)), "most": ("new", ())}
    found = {change.name: (change.rows_read, change.rows_added, change.rows_removed) for change in preview.flows}
    assert found == {"totals": (3, 2, 2), "rich": (2, 1, 1), "most": (3, 2, 0)}
    assert (preview.untouched, preview.applied) == (1, False)
    assert rows(bank, "totals") == {1: 40, 2: 5}
    assert bank.apply(expected=preview.identity).applied
    assert (rows(bank, "totals"), rows(bank, "rich")) == ({1: 41, 2: 6}, {1: 41})
    assert rows(bank, "most") == {1: 30, 2: 5}
    assert bank._engine.tables.get("lowest") is lowest
    assert bank.apply().flows == ()


def test_a_flow_that_is_gone_is_archived(bank: Warehouse, folder: Path) -> None:
    write(folder, TOTALS, LOWEST)
    assert [(change.name, change.kind) for change in bank.apply().flows] == [("rich", "removed")]
    assert bank.tables == ("bank.accounts", "totals", "lowest")


def test_a_mistake_changes_nothing_and_all_mistakes_are_told(bank: Warehouse, folder: Path) -> None:
    wrong = LOWEST.replace("balance", "balanc") + RICH.replace("rich", "poor").replace("FROM totals", "FROM totlas")
    write(folder, TOTALS.replace("SUM", "MAX"), RICH, wrong)
    with pytest.raises(MultipleProblems) as told:
        bank.apply()
    file = folder / "flows" / "bank.sql"
    places = [(problem.where and (problem.where.file, problem.where.line)) for problem in told.value.problems]
    assert places == [(str(file), 3), (str(file), 4)]
    assert rows(bank, "totals") == {1: 40, 2: 5}


def test_what_cannot_be_built_changes_nothing(bank: Warehouse, folder: Path) -> None:
    write(folder, TOTALS.replace("SUM", "MAX"), RICH.replace("total > 10", "1 / (total - 30) > -1"), LOWEST)
    with pytest.raises(HeadgateError, match="rich could not be built"):
        bank.apply()
    deposit(bank, (4, 2, 30))
    assert (rows(bank, "totals"), rows(bank, "rich")) == ({1: 40, 2: 35}, {1: 40, 2: 35})
    write(folder, TOTALS.replace("SUM", "MAX"), RICH, LOWEST)
    bank.apply()
    assert (rows(bank, "totals"), rows(bank, "rich")) == ({1: 30, 2: 30}, {1: 30, 2: 30})


def test_files_that_changed_since_the_preview_are_not_applied(bank: Warehouse, folder: Path) -> None:
    write(folder, TOTALS.replace("SUM", "MAX"), RICH, LOWEST)
    preview = bank.apply(dry_run=True)
    write(folder, TOTALS.replace("SUM", "MIN"), RICH, LOWEST)
    with pytest.raises(DefiniteError, match="have changed since the preview"):
        bank.apply(expected=preview.identity)
    assert rows(bank, "totals") == {1: 40, 2: 5}


def test_everything_else_answers_while_a_flow_is_built(
    bank: Warehouse, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Jobs go on, are folded and let go of meanwhile; what was built then takes up all of them, also after a kill."""
    bank.tuning.change("retention.jobs", 1)
    building, go_on = threading.Event(), threading.Event()
    build = Builder._build

    def slow(self: Builder, *args: object) -> object:
        building.set()
        assert go_on.wait(60)
        return build(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(Builder, "_build", slow)
    write(folder, TOTALS.replace("SUM", "MAX"), RICH, LOWEST)
    applying = threading.Thread(target=bank.apply)
    applying.start()
    try:
        assert building.wait(60)
        for number in range(4, 7):
            deposit(bank, (number, 2, number))
            assert rows(bank, "lowest") == {1: 10, 2: 4}
            assert rows(bank, "totals")[2] == 5 + sum(range(4, number + 1))
            bank._engine.upkeep.release()
        bank.materialize()
    finally:
        go_on.set()
        applying.join()
    bank.close(fold_seconds=0)
    with headgate.open(folder) as again:
        assert (rows(again, "totals"), rows(again, "rich")) == ({1: 30, 2: 6}, {1: 30})


def test_settings_that_can_change_do_and_others_are_named(bank: Warehouse, folder: Path) -> None:
    bank.tuning.change("retention.jobs", 7)
    spark = PROJECT.replace("spark.driver.memory': '512m'", "spark.driver.memory': '640m'")
    (folder / "headgate.yml").write_text(spark + "retention: {jobs: 9}\nfreshness: {max_staleness: 1h}\n")
    preview = bank.apply()
    assert [(each.name, each.before, each.after, each.needs_restart) for each in preview.settings] == [
        ("freshness.max_staleness", "0s", "1h", False),
        ("retention.jobs", 7, 9, False),
        ("spark.spark.driver.memory", None, None, True),
    ]
    found = bank.tuning.current()
    assert (found["retention.jobs"], found["freshness.max_staleness"]) == (9, "1h")
    assert bank.tuning.changes()[-1].kind == "superseded"
    assert [each.name for each in bank.apply().settings] == ["spark.spark.driver.memory"]


def test_a_wrong_project_file_changes_nothing(bank: Warehouse, folder: Path) -> None:
    (folder / "headgate.yml").write_text(PROJECT + "retention: {jobs: many}\n")
    with pytest.raises(HeadgateError, match=r"retention\.jobs"):
        bank.apply()
    assert bank.tuning.current()["retention.jobs"] == 20
