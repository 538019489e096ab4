"""Sizes of an open warehouse follow what its parts have to do, and can be set by hand on every surface."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from headgate.cli.main import run
from headgate.client import connect
from headgate.errors import DefiniteError, TooStale
from headgate.runtime.spark.sessions import SparkSessions
from headgate.scaling.scaler import SizeChange
from headgate.scheduling.scaling_records import ScalingRecords
from headgate.service import Server
from tests.scheduling.bank import SPARK, deposit, open_bank, totals
from tests.service.asking import ask
from tests.waiting import eventually

FREE = {key: value for key, value in SPARK.items() if key in ("spark.master", "spark.driver.memory")}
SCALING = {"executors": {"min": 1, "max": 4, "ready": 0}, "transform": {"queue": "50%"}, "hold": "2s"}


def test_sizes_follow_the_work_and_the_hand(
    tmp_path: Path, spark_sessions: SparkSessions, capsys: pytest.CaptureFixture[str]
) -> None:
    limits = {"stream_bytes": "16KiB"}
    with open_bank(tmp_path, scaling=SCALING, limits=limits, spark=FREE) as bank, Server(bank, port=0) as server:
        client = connect(server.url)
        assert bank.status.scaling is not None
        assert {part: each.size for part, each in bank.status.scaling.parts.items() if part != "executors"} == {
            "extract": 1, "transform": 1, "buffer": 1, "switch": 1, "load": 1, "query": 1
        }  # fmt: skip
        # More than half of what may wait: nobody asks, so nothing is taken, and the part that would take it grows.
        number = 0
        while bank.sources["bank"].log.held_bytes < 9 << 10:
            number += 1
            deposit(bank, *((100 * number + each, each % 3, 1) for each in range(20)))
        eventually(lambda: client.scale()["parts"]["transform"]["size"] > 1)
        grown = next(change for change in client.scale()["changes"] if change["part"] == "transform")
        assert "the queue of bank is" in grown["reason"] and "its limit is 50%" in grown["reason"]

        # What the size means: that many tasks of a large execution, and stages at once.
        client.fix_size("transform", 2)
        assert bank._engine.sessions.gates["transform"].size == 2
        assert sum(totals(bank.sql("SELECT branch, total FROM totals CURRENCY BOUND 0 SEC")).values()) == 20 * number
        # Taken and folded, there is little to do: given back to its policy, the part shrinks.
        bank.refresh()
        client.fix_size("transform", None)
        eventually(lambda: client.scale()["parts"]["transform"]["size"] == 1)

        page = ask(server.url, "GET", "/metrics").body.decode()
        assert 'headgate_part_load_ratio{part="transform"} ' in page
        assert 'headgate_part_changes_total{part="transform"} ' in page
        assert 'headgate_part_size{part="transform"} 1.0' in page and "headgate_executors 1.0" in page
        assert run(["scale", "query", "2", "--url", server.url]) == 0
        said = capsys.readouterr().out
        assert "query" in said and "(set by hand)" in said and "executor hours today" in said
        assert run(["scale", "query", "many", "--url", server.url]) == 2
        assert run(["scale", "query", "--url", server.url]) == 2
        assert run(["scale", "question", "2", "--url", server.url]) == 1
        assert "there is no part question" in capsys.readouterr().err
        with pytest.raises(DefiniteError, match="cannot have the size 99"):
            bank.scaling.fix("query", 99)


def test_changes_and_hours_outlive_the_process(tmp_path: Path, spark_sessions: SparkSessions) -> None:
    with open_bank(tmp_path, scaling=SCALING, spark=FREE) as bank:
        bank.scaling.fix("query", 2)
        changes = bank.scaling.status.changes
        assert [(change.part, change.before, change.after) for change in changes] == [("query", 1, 2)]
        eventually(lambda: bank.scaling.status.executor_hours > 0)
    used = bank.scaling.status.executor_hours
    with open_bank(tmp_path, scaling=SCALING, spark=FREE) as bank:
        status = bank.scaling.status
        assert status.changes[: len(changes)] == changes and status.changed.get("query", 0) == 0
        assert status.executor_hours >= used - 1e-6


def test_yesterdays_hours_do_not_count(tmp_path: Path) -> None:
    records = ScalingRecords(tmp_path)
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    change = SizeChange(noon, "query", 1, 2, "a user set it")
    records.write([change], 3.0, noon)
    assert ScalingRecords(tmp_path).read(noon + timedelta(hours=1)) == ([change], 3.0)
    assert ScalingRecords(tmp_path).read(noon + timedelta(hours=12)) == ([change], 0.0)


def test_what_is_observed_is_what_the_parts_do(tmp_path: Path, spark_sessions: SparkSessions) -> None:
    with open_bank(tmp_path, scaling=SCALING, spark=FREE) as bank:
        deposit(bank, (1, 1, 10))
        assert bank._scheduler.backlog.waiting_bytes() == {"bank": bank.sources["bank"].log.held_bytes}
        before = bank.history.query_times.count
        with bank.sql("SELECT branch, SUM(total) FROM totals GROUP BY branch CURRENCY BOUND 0 SEC") as answer:
            assert bank.history.query_times.count == before
            answer.collect()
            answer.collect()
        # Once for a query, from its arrival on, waiting included.
        count, times = bank.history.query_times.after(before)
        assert count == before + 1
        assert times[0].total_seconds() >= answer.receipt.waited.queue + answer.receipt.waited.spark
        with pytest.raises(TooStale):
            bank.sql("SELECT sum(a.id * b.id) FROM range(1000000000) a, range(1000) b", deadline="0.2s").collect()
        assert bank.history.query_times.count == before + 2
        # What is held but taken by all does not wait.
        bank.refresh()
        log = bank.sources["bank"].log
        assert log.held_bytes > 0 and bank._scheduler.backlog.waiting_bytes() == {"bank": 0}
        first = log.held_bytes
        deposit(bank, (2, 1, 10))
        assert bank._scheduler.backlog.waiting_bytes() == {"bank": log.held_bytes - first}


def test_commits_in_memory_are_written_from_the_buffers_share_on(tmp_path: Path, spark_sessions: SparkSessions) -> None:
    for scaling, kept in (({**SCALING, "buffer": {"memory": "25%"}}, 1 << 18), (None, 1 << 20)):
        place = tmp_path / str(kept)
        with open_bank(place, scaling=scaling, spark=FREE, limits={"unwritten_bytes": "1MiB"}) as bank:
            assert bank.sources["bank"].log.unwritten_bytes == kept


def test_a_warehouse_without_the_section_says_so(tmp_path: Path, spark_sessions: SparkSessions) -> None:
    with open_bank(tmp_path) as bank:
        assert bank.status.scaling is None
        with pytest.raises(DefiniteError, match="no part of this warehouse is scaled") as raised:
            _ = bank.scaling
        assert "add the section scaling" in str(raised.value.hint)
