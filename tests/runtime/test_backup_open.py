"""A warehouse that works is backed up, and goes on elsewhere: exact at the backup's job, with its databases or read afresh."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import pytest

import headgate
from headgate.capture.postgres.private_server import PostgresServer
from headgate.capture.postgres.problems import SourceHistoryLost
from headgate.config.project import load_project
from headgate.runtime.recovery.backup import restore
from headgate.runtime.spark.sessions import SparkSessions
from tests.postgres.warehouses import CITIES, project, rows
from tests.scheduling.bank import deposit, open_bank
from tests.waiting import eventually


def content(warehouse: headgate.Warehouse, job: int) -> dict[str, list[str]]:
    """Every table at a job, for comparison."""
    found = {}
    for table in warehouse.tables:
        with warehouse.sql(f"SELECT * FROM {table}", job=job) as answer:
            found[table] = sorted(map(repr, answer.to_arrow().to_pylist()))
    return found


def test_a_warehouse_that_works_is_copied_at_one_of_its_jobs(tmp_path: Path, spark_sessions: SparkSessions) -> None:
    stop = threading.Event()
    with open_bank(tmp_path / "first", retention={"jobs": 1000}, limits={"segment_bytes": "4KiB"}) as bank:

        def commit() -> None:
            number = 0
            while not stop.wait(0.002):
                number += 1
                deposit(bank, (number, number % 3, 1))

        committing = threading.Thread(target=commit)
        committing.start()
        copies = []
        try:
            for number in range(3):
                bank.sql("SELECT * FROM totals").close()
                if number:
                    bank.refresh()
                    bank.materialize()
                copies.append(bank.backup(tmp_path / f"copy{number}"))
                bank.materialize()
        finally:
            stop.set()
            committing.join()
        expected = [content(bank, copy.job) for copy in copies]
        assert [copy.job for copy in copies] == sorted({copy.job for copy in copies})
        assert not list((tmp_path / "first/warehouse/_headgate/scratch").rglob("*.segment"))
    for number in (0, 2):
        report = restore(tmp_path / f"copy{number}", tmp_path / f"again{number}/warehouse")
        # It needs neither the backup nor what the backup was made of.
        shutil.rmtree(tmp_path / f"copy{number}")
        with open_bank(tmp_path / f"again{number}", retention={"jobs": 1000}) as again:
            assert again.newest_job == report.job == copies[number].job
            assert content(again, report.job) == expected[number]
            again.refresh()
            with again.sql("SELECT id FROM bank.accounts ORDER BY id") as answer:
                ids = [row.id for row in answer.collect()]
            # All that was committed up to one moment, and nothing twice.
            assert ids == list(range(1, report.sources[0].position + 1))


HISTORY = "SELECT id, name, __end_at IS NULL FROM city ORDER BY id, __start_at"


@pytest.mark.parametrize("capture", ["log", "trigger"])
def test_a_database_goes_on_from_a_backup_or_is_read_afresh(
    tmp_path: Path, spark_sessions: SparkSessions, capture: str
) -> None:
    with PostgresServer() as server:
        server.execute("CREATE TABLE cities (id int PRIMARY KEY, name text); INSERT INTO cities VALUES (1, 'Bern')")
        settings = project(tmp_path, server.dsn, capture, ["cities"], CITIES)
        with headgate.open(settings) as warehouse:
            warehouse.refresh()
            warehouse.backup(tmp_path / "copy")
        server.execute("UPDATE cities SET name = 'Thun'")

        first = {**settings, "storage": str(tmp_path / "first")}
        (bank,) = restore(tmp_path / "copy", tmp_path / "first", project=load_project(first)).sources
        assert bank.goes_on and bank.remedy is None
        with headgate.open(first) as warehouse:
            warehouse.refresh()
            assert rows(warehouse, HISTORY) == [(1, "Bern", False), (1, "Thun", True)]
            server.execute("UPDATE cities SET name = 'Genf'")
            warehouse.refresh()
            if capture == "trigger":
                # The audit table is cleared now and then; until it is, the source has all that follows the backup.
                with server.connect() as connection:
                    cleared = "SELECT acknowledged >= 2 FROM headgate.captures"
                    eventually(lambda: connection.execute(cleared).fetchone() == (True,))

        second = {**settings, "storage": str(tmp_path / "second")}
        (bank,) = restore(tmp_path / "copy", tmp_path / "second", project=load_project(second)).sources
        assert bank.goes_on is False and bank.remedy is not None and "`warehouse.refresh(full=True)`" in bank.remedy
        with headgate.open(second) as warehouse:
            with pytest.raises(
                SourceHistoryLost, match=r"this warehouse was restored.*`warehouse\.refresh\(full=True\)`"
            ):
                warehouse.refresh()
            assert rows(warehouse, HISTORY) == [(1, "Bern", True)]
            warehouse.refresh(full=True)
            server.execute("INSERT INTO cities VALUES (2, 'Sion')")
            warehouse.refresh()
            assert rows(warehouse, HISTORY) == [(1, "Bern", False), (1, "Genf", True), (2, "Sion", True)]

        server.stop()
        unasked = {**settings, "storage": str(tmp_path / "third")}
        (bank,) = restore(tmp_path / "copy", tmp_path / "third", project=load_project(unasked)).sources
        assert bank.goes_on is None and "could not be asked" in bank.what and "refresh(full=True)" in str(bank.remedy)
