"""Runs of `scaling_process`: started, listened to and killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from headgate.capture.postgres.private_server import PostgresServer
from tests.deploy.scaling_process import SLOTS, Plan
from tests.deploy.standalone import StandaloneCluster

ROOT = Path(__file__).parents[2]
MOST = 3
"""Executors that the cluster has room for."""


@dataclass
class Scaled:
    """What a process told."""

    moments: list[dict[str, Any]]
    result: dict[str, Any] | None
    """None of one that was killed."""


@contextmanager
def surroundings(folder: Path) -> Iterator[tuple[StandaloneCluster, PostgresServer]]:
    with PostgresServer() as server, StandaloneCluster(folder, workers=1, cores=MOST * SLOTS) as cluster:
        yield cluster, server


def prepare(server: PostgresServer) -> None:
    """An empty table of sales."""
    server.execute(
        "DROP TABLE IF EXISTS sales; CREATE TABLE sales"
        " (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, item int NOT NULL, amount bigint NOT NULL)"
    )


def run(plan: Plan, hear: Callable[[dict[str, Any]], bool] = lambda told: True) -> Scaled:
    """Runs the process to its end, or kills it when `hear` says so of a moment."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.deploy.scaling_process", json.dumps(asdict(plan))],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    scaled = Scaled([], None)
    try:
        assert process.stdout is not None
        for line in process.stdout:
            told = json.loads(line)
            if "lost" in told:
                scaled.result = told
            elif "phase" in told:
                scaled.moments.append(told)
                if not hear(told):
                    return scaled
        assert process.wait() == 0, f"the process ended with code {process.returncode}"
        return scaled
    finally:
        if process.poll() is None:
            # Spark's Java process, too.
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
