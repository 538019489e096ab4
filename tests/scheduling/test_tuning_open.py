"""Settings that change under a warehouse that works: each part goes on with them, and they are there after a restart."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

import headgate
from headgate import Warehouse
from headgate.capture.postgres.private_server import PostgresServer
from headgate.config.gears import LADDERS, Gear
from headgate.errors import DefiniteError, SnapshotGone
from headgate.runtime.spark.sessions import SparkSessions
from headgate.scheduling.tuning import SettingChange
from tests.postgres import warehouses
from tests.scheduling.bank import deposit, open_bank, totals
from tests.waiting import eventually

ALL = "SELECT branch, total FROM totals"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, spark_sessions: SparkSessions) -> Path:
    return tmp_path_factory.mktemp("bank")


@pytest.fixture(scope="module")
def bank(folder: Path) -> Iterator[Warehouse]:
    with open_bank(folder, background={"system_jobs": True, "idle_after": "1h", "oldest_changes": "1h"}) as warehouse:
        yield warehouse


def test_a_default_bound_holds_for_sessions_that_are_there(bank: Warehouse) -> None:
    session = bank.session()
    deposit(bank, (1, 1, 10))
    assert totals(session.sql(ALL)) == {1: 10}
    deposit(bank, (2, 1, 5))
    bank.tuning.change("freshness.max_staleness", "1h")
    assert totals(session.sql(ALL)) == {1: 10}
    bank.tuning.change("freshness.max_staleness", "0s")
    assert totals(session.sql(ALL)) == {1: 15}
    bank.tuning.reset("freshness.max_staleness")


def test_fewer_jobs_are_retained_at_once(bank: Warehouse) -> None:
    for number in range(10, 14):
        deposit(bank, (number, 9, 1))
        bank.sql(ALL).close()
    newest = bank.newest_job
    bank.sql(ALL, job=newest - 2).close()
    bank.tuning.change("retention.jobs", 1)
    with pytest.raises(SnapshotGone):
        bank.sql(ALL, job=newest - 2)
    bank.sql(ALL, job=newest).close()


def test_leases_stream_limits_and_background_work_follow_a_change(bank: Warehouse) -> None:
    answer = bank.sql(ALL)
    bank.tuning.change("retention.lease", "100ms")
    eventually(lambda: not answer.is_open)
    bank.tuning.reset("retention.lease")
    bank.tuning.change("limits.stream_bytes", 1)
    log = bank.source("bank").log
    assert log.limit_bytes == 1
    deposit(bank, (20, 1, 1))
    eventually(lambda: not log.over_limit)
    bank.tuning.reset("limits.stream_bytes")
    assert not log.over_limit and log.limit_bytes == 4 << 30
    deposit(bank, (21, 1, 1))
    before = bank.status.complete
    bank.tuning.change("background.idle_after", "100ms")
    eventually(lambda: bank.status.complete > before)


def test_changes_are_there_when_the_warehouse_is_opened_again(bank: Warehouse, folder: Path) -> None:
    bank.tuning.change("retention.jobs", 2, who="ann")
    bank.tuning.change("limits.stream_bytes", "1MiB", who="ann")
    bank.close()
    with pytest.raises(DefiniteError, match="closed"):
        bank.tuning.change("retention.jobs", 4)
    ended: list[SettingChange] = []
    with open_bank(folder, approve=lambda changes, flows, settings: ended.extend(settings)) as again:
        assert ended == [SettingChange("background.idle_after", "100ms", "30s")], "told before it is done"
        assert again.project.retention.jobs == 2 and again.source("bank").log.limit_bytes == 1 << 20
        # The file no longer says what it said about this one.
        assert again.project.background.idle_after == timedelta(seconds=30)
        assert again.tuning.changes()[-1].kind == "superseded"


def test_a_source_goes_on_at_another_pace(tmp_path: Path, spark_sessions: SparkSessions) -> None:
    gear = Gear(period=timedelta(milliseconds=77), workers=3)
    with PostgresServer() as server:
        server.execute("CREATE TABLE cities (id int PRIMARY KEY, name text); INSERT INTO cities VALUES (1, 'Bern')")
        settings = warehouses.project(tmp_path, server.dsn, "trigger", ["cities"], "")
        with headgate.open(settings) as warehouse:
            source = warehouse.sources["bank"]
            assert source.status.gear == LADDERS["trigger"][-1]
            warehouse.tuning.change("sources.bank.pace.gears", "[{period: 77ms, workers: 3}]")
            assert source.status.gear == gear
            server.execute("INSERT INTO cities VALUES (2, 'Genf')")
            warehouse.refresh()
            assert warehouses.rows(warehouse, "SELECT COUNT(*) FROM bank.cities") == [(2,)]
        server.stop()
        with headgate.open(settings) as warehouse:
            source = warehouse.sources["bank"]
            assert source.unopened is not None
            server.start()
            eventually(lambda: source.status.gear == gear)
