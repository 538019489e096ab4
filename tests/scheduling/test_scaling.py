"""Sizes of an open warehouse follow what its parts have to do, and can be set by hand on every surface."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.cli.main import run
from headgate.client import connect
from headgate.errors import DefiniteError
from headgate.runtime.spark.sessions import SparkSessions
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
        client.fix_size("transform", 3)
        assert bank._engine.sessions.bulk.conf.get("spark.sql.shuffle.partitions") == "3"
        assert sum(totals(bank.sql("SELECT branch, total FROM totals CURRENCY BOUND 0 SEC")).values()) == 20 * number
        # Taken and folded, there is little to do: given back to its policy, the part shrinks.
        bank.refresh()
        client.fix_size("transform", None)
        eventually(lambda: client.scale()["parts"]["transform"]["size"] == 1)

        page = ask(server.url, "GET", "/metrics").body.decode()
        assert 'headgate_part_load_ratio{part="transform"} ' in page
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


def test_a_warehouse_without_the_section_says_so(tmp_path: Path, spark_sessions: SparkSessions) -> None:
    with open_bank(tmp_path) as bank:
        assert bank.status.scaling is None
        with pytest.raises(DefiniteError, match="no part of this warehouse is scaled") as raised:
            _ = bank.scaling
        assert "add the section scaling" in str(raised.value.hint)
