"""Transfers between accounts go on while capture and the server are killed: nothing is lost, doubled or torn."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import IO

from headgate.capture.locallog import LocalLog
from headgate.capture.postgres.log_tables import TableDefinition
from headgate.capture.postgres.private_server import PostgresServer
from headgate.capture.postgres.trigger import TriggerMethod
from headgate.capture.postgres.trigger_batch import AuditBatch
from headgate.clock import SystemClock
from tests.postgres.bank import check, create, transfers

TABLES = [TableDefinition("accounts", "accounts"), TableDefinition("moves", "moves")]
ROOT = Path(__file__).parents[2]


def finish(dsn: str, folder: Path) -> LocalLog:
    """Captures what is left, as the next process would."""
    log = LocalLog(folder)
    method = TriggerMethod(dsn, "bank", TABLES, log=log, clock=SystemClock())
    while (task := method.plan(0)) is not None:
        method.publish(method.read(task))
    method.close()
    return log


def test_several_workers_tear_nothing(database: str, tmp_path: Path) -> None:
    create(database)
    log = LocalLog(tmp_path / "log")
    method = TriggerMethod(database, "bank", TABLES, log=log, clock=SystemClock(), trim_every=timedelta(0))
    under_way: deque[Future[AuditBatch]] = deque()
    samples = []
    with ThreadPoolExecutor(3) as workers:
        with transfers(database):
            until = time.monotonic() + 2
            while time.monotonic() < until:
                samples.append(method.sample())
                task = method.plan(0)
                if task is not None:
                    assert samples[-1].position <= task.upto
                    under_way.append(workers.submit(method.read, task))
                while len(under_way) > 4 or (under_way and under_way[0].done()):
                    method.publish(under_way.popleft().result())
        while (task := method.plan(0)) is not None:
            under_way.append(workers.submit(method.read, task))
        while under_way:
            method.publish(under_way.popleft().result())
    assert method.captured >= samples[-1].position
    method.close()
    assert check(log, database) > 50
    log.close()


@contextmanager
def capturing(dsn: str, folder: Path) -> Iterator[IO[bytes]]:
    """A process that captures, until it is killed at the end of the `with` block."""
    command = [sys.executable, "-m", "tests.postgres.trigger_process", dsn, str(folder)]
    path = {"PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}
    with subprocess.Popen(command, cwd=ROOT, env=path, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == b"opened\n"
            yield process.stdout
        finally:
            process.kill()


def test_killing_capture_loses_and_doubles_nothing(database: str, tmp_path: Path) -> None:
    create(database)
    choose = random.Random(7)
    with transfers(database):
        for _ in range(3):
            with capturing(database, tmp_path / "log"):
                time.sleep(choose.uniform(0, 1))
        # On a slow machine all of them may have died before they were there; this one has read the tables.
        with capturing(database, tmp_path / "log") as told:
            assert told.readline() == b"captures\n"
            time.sleep(1)
    log = finish(database, tmp_path / "log")
    assert check(log, database) > 50
    log.close()


def test_killing_the_server_loses_and_doubles_nothing(tmp_path: Path) -> None:
    with PostgresServer() as server:
        create(server.dsn)
        with capturing(server.dsn, tmp_path / "log") as told, transfers(server.dsn):
            assert told.readline() == b"captures\n"
            for pause in (0.4, 0.8):
                time.sleep(pause)
                server.kill()
                server.start()
            time.sleep(0.5)
        log = finish(server.dsn, tmp_path / "log")
        assert check(log, server.dsn) > 50
        log.close()


def test_reading_anew_while_everything_runs_tears_nothing(database: str, tmp_path: Path) -> None:
    create(database)
    log = LocalLog(tmp_path / "log")
    method = TriggerMethod(database, "bank", TABLES, log=log, clock=SystemClock(), trim_every=timedelta(0))
    stop = threading.Event()
    under_way: deque[Future[AuditBatch]] = deque()

    def capture(workers: ThreadPoolExecutor) -> None:
        while not stop.is_set():
            task = method.plan(0)
            if task is not None:
                under_way.append(workers.submit(method.read, task))
            while len(under_way) > 3:
                method.publish(under_way.popleft().result())

    with ThreadPoolExecutor(2) as workers, ThreadPoolExecutor(1) as agent, transfers(database):
        capturing = agent.submit(capture, workers)
        for tables in (None, ["accounts", "moves"], None):
            time.sleep(0.3)
            method.resnapshot(tables)
        time.sleep(0.3)
        stop.set()
        capturing.result()
    while under_way:
        method.publish(under_way.popleft().result())
    while (task := method.plan(0)) is not None:
        method.publish(method.read(task))
    method.close()
    assert check(log, database) > 50
    log.close()
