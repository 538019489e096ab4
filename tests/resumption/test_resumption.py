"""Connections are cut and either side is killed at random moments while two workloads run: nothing is lost, doubled or torn.

In a long run bytes of the stream log are flipped as well, of one that is written and of one whose process was killed: then a
job is exact, or the loss is named and its remedy makes the next one exact.

HEADGATE_SOAK_SECONDS says for how long, HEADGATE_SOAK_SEED with which moments.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from headgate.capture.postgres.private_server import PostgresServer
from tests.faults.processes import start
from tests.postgres import bank
from tests.resumption.keeping import TABLES

SECONDS = float(os.environ.get("HEADGATE_SOAK_SECONDS", "5"))
SEED = int(os.environ.get("HEADGATE_SOAK_SEED", "7"))
LONG = 60.0
"""From this many seconds on the stream log is damaged, too."""
PATIENCE = 600.0
JOBS = 5
"""That many at least are brought to their end and checked."""
RATE = 40
"""pgbench's transactions in a second."""


class Keeper:
    """The process that keeps the warehouse, started again whenever it is killed."""

    def __init__(self, *arguments: object) -> None:
        self._arguments = arguments
        self.jobs: list[int] = []
        self.losses: list[str] = []
        self._start()

    def kill(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Kills the process, does something and starts it again."""
        self._process.kill()
        self._end()
        meanwhile()
        self._start()

    def close(self) -> None:
        self._process.kill()
        self._end()

    @property
    def is_working(self) -> bool:
        """Whether this process has brought a job to its end."""
        return len(self.jobs) > self._before

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def _start(self) -> None:
        self._before = len(self.jobs)
        self._process = start("tests.resumption.keeping", *self._arguments)
        self._reader = threading.Thread(target=self._read, args=[self._process])
        self._reader.start()

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("job "):
                self.jobs.append(int(line.removeprefix("job ")))
            if line.startswith("lost "):
                self.losses.append(line)

    def _end(self) -> None:
        self._process.wait()
        self._reader.join()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


@contextmanager
def pgbench(server: PostgresServer) -> Iterator[None]:
    """pgbench at a fixed rate, begun again after the server was killed."""
    ended = threading.Event()
    command = ["pgbench", "--no-vacuum", "-c", "2", "-R", str(RATE), "-T", "3600", server.dsn]
    running: list[subprocess.Popen[bytes]] = []

    def work() -> None:
        while not ended.is_set():
            with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
                running[:] = [process]
                while process.poll() is None and not ended.wait(0.1):
                    pass
                process.kill()
            ended.wait(0.2)

    worker = threading.Thread(target=work)
    worker.start()
    try:
        yield
    finally:
        ended.set()
        worker.join()


def flip_a_byte(folder: Path, chance: random.Random, *, live: bool) -> None:
    """Damages the stream log: of a live one a segment, which is only ever appended to, else any file."""
    home = folder / "warehouse/_headgate/streams/bank"
    pattern = "*.segment" if live else "*"
    files = sorted(path for path in home.rglob(pattern) if path.is_file() and path.stat().st_size)
    if not files:
        return
    file = chance.choice(files)
    # Near the end, where what is not in a job yet lies, or anywhere.
    size = file.stat().st_size
    place = max(0, size - chance.randint(1, 2000)) if chance.random() < 0.5 else chance.randrange(size)
    with file.open("r+b") as stream:
        stream.seek(place)
        byte = stream.read(1)
        stream.seek(place)
        stream.write(bytes([byte[0] ^ 0xFF]))


def cut_connections(server: PostgresServer) -> None:
    server.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE application_name LIKE 'headgate%' AND pid <> pg_backend_pid()"
    )


@pytest.mark.slow
@pytest.mark.parametrize("capture", ["log", pytest.param("trigger", marks=pytest.mark.thorough)])
def test_nothing_is_lost_doubled_or_torn(tmp_path: Path, capture: str) -> None:
    chance = random.Random(f"{capture} {SEED}")
    with PostgresServer() as server:
        bank.create(server.dsn)
        subprocess.run(["pgbench", "-i", "-q", server.dsn], check=True, capture_output=True)
        keeper = Keeper(server.dsn, tmp_path, capture)
        happened = {"connection": 0, "server": 0, "warehouse": 0}
        victims = ["connection", "server", "warehouse", "warehouse", "nobody"]
        if SECONDS >= LONG:
            happened |= {"log": 0, "live log": 0}
            victims += ["log", "live log"]
        try:
            with bank.transfers(server.dsn, threads=2), pgbench(server):
                until, opening = time.monotonic() + SECONDS, 0
                while time.monotonic() < until or not all(happened.values()) or len(keeper.jobs) < JOBS:
                    assert time.monotonic() < until + PATIENCE, f"jobs {keeper.jobs} after {happened}"
                    time.sleep(chance.uniform(0.3, 3.0))
                    assert keeper.is_alive, "the warehouse gave up"
                    victim = chance.choice(victims)
                    if victim == "nobody" or (time.monotonic() > until and all(happened.values())):
                        continue
                    # Seldom while it opens: a process that never comes to its first job proves little.
                    opening = 0 if keeper.is_working else opening + 1
                    if opening > 2 or (opening and victim in ("warehouse", "log") and chance.random() > 0.15):
                        continue
                    if victim == "connection":
                        cut_connections(server)
                    elif victim == "server":
                        server.kill()
                        server.start()
                    elif victim == "log":
                        keeper.kill(partial(flip_a_byte, tmp_path, chance, live=False))
                    elif victim == "live log":
                        flip_a_byte(tmp_path, chance, live=True)
                    else:
                        keeper.kill()
                    happened[victim] += 1
        finally:
            keeper.close()
        assert all(happened.values()) and keeper.jobs == sorted(set(keeper.jobs))
        told = {"jobs": len(keeper.jobs), "happened": happened, "losses": keeper.losses}
        (tmp_path / "told.json").write_text(json.dumps(told, indent=2))
        compare(server.dsn, tmp_path, capture)


def compare(dsn: str, folder: Path, capture: str) -> None:
    """One more process: after its job, all rows are the source's, and no retained job is torn."""
    with start("tests.resumption.keeping", dsn, folder, capture, "finish") as process:
        said, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    found = json.loads(said.splitlines()[-1])
    assert found["checked"] > 0
    with psycopg.connect(dsn) as connection:
        connection.execute("SET TIME ZONE 'UTC'")
        for table in TABLES:
            expected = connection.execute(sql.SQL("TABLE {}").format(sql.Identifier(table))).fetchall()
            assert len(expected) > 0
            assert sorted(found["tables"][table]) == sorted([str(value) for value in row] for row in expected)
