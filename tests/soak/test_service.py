"""A service for long that is flooded and whose Java process is killed: it starts Spark again and answers rightly.

HEADGATE_SOAK_SECONDS says for how long, HEADGATE_SOAK_SEED what happens when.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headgate.cli.main import run
from tests.cli.processes import java_of, sell, start, worker_of
from tests.service.asking import ask
from tests.soak.soaking import resident_bytes
from tests.waiting import eventually

SECONDS = float(os.environ.get("HEADGATE_SOAK_SECONDS", "10"))
SEED = int(os.environ.get("HEADGATE_SOAK_SEED", "7"))
SOLD = 10
"""Things that one run of the seller sells."""
FLOOD = (
    "SELECT repeat('x', 100000) AS x FROM range(200000)",
    "SELECT repeat(CAST(id AS STRING), 2000000000) AS x FROM range(10)",
    "SELECT id, uuid() AS u FROM range(900000)",
    "SELECT SUM(hash(id)) AS n FROM range(0, 200000000000, 1, 20000)",
)
STATUSES = {200, 400, 429, 503, 504}
"""What a flood may be answered with: done, too large, too many, Spark lost, too late."""
KILL_SECONDS = 160
"""From one kill to the next: after five within ten minutes the service gives up."""
PYTHON_BYTES = 1 << 30
"""What the service's own process may take."""


@contextmanager
def flooded(url: str, number: random.Random) -> Iterator[list[int]]:
    """Twelve clients ask for too much until the block ends."""
    over, heard = threading.Event(), list[int]()

    def ask_for_much(sql: str) -> None:
        while not over.is_set():
            try:
                body = {"sql": sql, "deadline": "5s", "format": "arrow"}
                heard.append(ask(url, "POST", "/v1/query", body, seconds=60).status)
            except OSError:
                # The worker ended meanwhile.
                continue
            if heard[-1] == 503:
                over.wait(0.2)

    clients = [threading.Thread(target=ask_for_much, args=[number.choice(FLOOD)]) for _ in range(12)]
    for client in clients:
        client.start()
    try:
        yield heard
    finally:
        over.set()
        for client in clients:
            client.join()


def sold(url: str) -> int:
    heard = ask(url, "POST", "/v1/query", {"sql": "SELECT SUM(sales) AS sales FROM revenue"}, seconds=120)
    assert heard.status == 200, heard
    found: int = heard.json["rows"][0][0]
    return found


def restarts(url: str) -> int | None:
    """How often the service was started again; None while it opens its warehouse."""
    heard = ask(url, "GET", "/v1/status", seconds=60)
    return heard.json["restarts"]["count"] if heard.status == 200 else None


def wait_for_restart(url: str, count: int) -> None:
    eventually(lambda: restarts(url) == count, 120)


@pytest.mark.slow
@pytest.mark.skipif(SECONDS < 60, reason="make soak: the parts of it are tested in tests/cli")
def test_a_service_that_is_flooded_and_killed_comes_back_with_right_answers(tmp_path: Path) -> None:
    number, end = random.Random(SEED), time.monotonic() + SECONDS
    project = tmp_path / "shop"
    assert run(["init", str(project)]) == 0
    process, url = start(project)
    expected = killed = 0
    calm_until = 0.0
    try:
        while time.monotonic() < end:
            sell(project)
            expected += SOLD
            assert sold(url) == expected
            with flooded(url, number) as heard:
                calm = time.monotonic() + number.uniform(5, 15)
                while time.monotonic() < calm:
                    assert sold(url) == expected
                    assert resident_bytes(worker_of(process)) < PYTHON_BYTES
                if number.random() < 0.5 and time.monotonic() > calm_until:
                    calm_until = time.monotonic() + KILL_SECONDS
                    os.kill(java_of(process), signal.SIGKILL)
                    killed += 1
                    wait_for_restart(url, killed)
            assert set(heard) <= STATUSES, heard
            assert process.poll() is None and sold(url) == expected
        process.send_signal(signal.SIGTERM)
        assert process.wait(15) == 0
    except subprocess.TimeoutExpired:
        raise AssertionError((project / "log").read_text()[-4000:]) from None
    finally:
        process.kill()
        process.wait()
