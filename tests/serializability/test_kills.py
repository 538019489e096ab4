"""The process, one of its executors and PostgreSQL are killed at random moments while queries run and money moves.

Every answer of every process is judged, as one history: a job that a killed process had closed is the same job afterwards.
In the end every table equals its query over the source's tables and what PostgreSQL itself says. HEADGATE_SOAK_SECONDS
says for how long, HEADGATE_SOAK_SEED with which moments.
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psycopg
import pytest

import headgate
from headgate.capture.postgres.private_server import PostgresServer
from headgate.runtime.spark.sessions import SparkSessions
from tests.faults.processes import start
from tests.serializability import history, world
from tests.serializability.observing import Run
from tests.serializability.test_serializability import CLUSTER, PATIENCE, check

SECONDS = float(os.environ.get("HEADGATE_SOAK_SECONDS", "0"))
SEED = int(os.environ.get("HEADGATE_SOAK_SEED", "7"))
VICTIMS = ("executor", "server", "process")
FOREVER = 1e6
ANSWERS = 2
"""That many a process gives at least between two kills."""


class Observer:
    """The process that reads, started again whenever it is killed."""

    def __init__(self, folder: Path, dsns: Mapping[str, str]) -> None:
        self._folder = folder
        self._run = Run(str(folder), dsns, FOREVER, master=CLUSTER, threads=2)
        self._lives = 0
        self._start()

    def _start(self) -> None:
        self._lives += 1
        arguments = {**asdict(self._run), "name": f"life{self._lives}-"}
        self._process = start("tests.serializability.observing", json.dumps(arguments))

    @property
    def answers(self) -> int:
        """How many this process has given."""
        file = self._folder / f"life{self._lives}-.jsonl"
        return file.read_text().count('"event": "answer"') if file.exists() else 0

    def wait(self, answers: int) -> None:
        """Until the process has given so many."""
        until = time.monotonic() + PATIENCE
        while self.answers < answers:
            assert self._process.poll() is None, "the warehouse gave up"
            assert time.monotonic() < until, f"{self.answers} answers of life {self._lives}, {answers} were expected"
            time.sleep(0.1)

    def kill(self) -> None:
        self.close()
        self._start()

    def kill_executor(self, chance: random.Random) -> None:
        executors = [
            pid for pid in descendants(self._process.pid) if "CoarseGrainedExecutorBackend" in command_line(pid)
        ]
        assert executors
        os.kill(chance.choice(executors), signal.SIGKILL)

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


def descendants(pid: int) -> list[int]:
    """The processes that a process started, and those that they started."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in task.read_text().split():
            found += [int(child), *descendants(int(child))]
    return found


def command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


@pytest.mark.thorough
def test_nothing_is_lost_doubled_or_torn_whoever_is_killed(spark_sessions: SparkSessions, tmp_path: Path) -> None:
    chance = random.Random(SEED)
    written = history.History(tmp_path / "world.jsonl")
    world.describe(written)
    with PostgresServer() as server:
        dsns = world.create(server)
        observer = Observer(tmp_path, dsns)
        killed: Counter[str] = Counter()
        try:
            with world.transfers(dsns, written, pause=0.2):
                until = time.monotonic() + SECONDS
                while time.monotonic() < until or len(killed) < len(VICTIMS):
                    observer.wait(observer.answers + ANSWERS)
                    time.sleep(chance.uniform(0.0, 2.0))
                    left = [victim for victim in VICTIMS if victim not in killed]
                    victim = chance.choice(left or VICTIMS)
                    killed[victim] += 1
                    if victim == "executor":
                        observer.kill_executor(chance)
                    elif victim == "server":
                        server.kill()
                        time.sleep(chance.uniform(0.0, 1.0))
                        server.start()
                    else:
                        observer.kill()
                observer.wait(observer.answers + ANSWERS)
        finally:
            observer.close()
        compare(world.project(tmp_path, dsns), dsns)
    check(tmp_path)


def compare(project: dict[str, object], dsns: Mapping[str, str]) -> None:
    """Every table against its query over the source's tables, and against the source."""
    with headgate.open(project) as warehouse:
        warehouse.refresh()
        for database, dsn in dsns.items():
            for table in world.TABLES[database]:
                assert rows(warehouse, f"SELECT * FROM {database}.{table}") == at_source(dsn, f"SELECT * FROM {table}")
        check_dimension(warehouse, dsns["east"])
        for name, query in world.VIEWS.items():
            found = rows(warehouse, f"SELECT * FROM {name}")
            assert found and found == rows(warehouse, query)
            if name == "pairs":
                one, other = (dict(balances(dsn)) for dsn in dsns.values())
                assert [(key, east, west) for key, _, east, west in found] == [
                    (key, one[key], other[key]) for key in one
                ]
            else:
                database = name.partition("_")[0]
                assert found == at_source(dsns[database], query.replace(f"{database}.", ""))


def check_dimension(warehouse: headgate.Warehouse, dsn: str) -> None:
    """Every version since the first load is there once, each ends when the next begins, and the last is the source's."""
    found = rows(warehouse, "SELECT id, last, __start_at, __end_at FROM east_owner")
    for owner, last in at_source(dsn, "SELECT id, last FROM owners"):
        versions = sorted(row[1:] for row in found if row[0] == owner)
        numbers = [number for number, _, _ in versions]
        assert numbers == list(range(numbers[0], last + 1, world.OWNER_EVERY))
        ends = [end for _, _, end in versions]
        assert ends == [begin for _, begin, _ in versions[1:]] + [None]


def rows(warehouse: headgate.Warehouse, query: str) -> list[tuple[Any, ...]]:
    with warehouse.sql(query, max_staleness=0) as answer:
        return sorted(tuple(row.values()) for row in answer.to_arrow().to_pylist())


def at_source(dsn: str, query: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(dsn) as connection:
        # A sum of whole numbers is a decimal there.
        return sorted(tuple(map(int, row)) for row in connection.execute(query.encode()).fetchall())


def balances(dsn: str) -> list[tuple[Any, ...]]:
    return at_source(dsn, "SELECT id, balance FROM accounts")
