"""Many threads ask at random bounds while money moves in two databases: a judge outside finds nothing wrong.

HEADGATE_SOAK_SECONDS says for how long. The histories lie in the test's folder, one JSON object per line.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from headgate.capture.postgres.private_server import PostgresServer
from headgate.runtime.spark.sessions import SparkSessions
from tests.faults.processes import start
from tests.serializability import history, world
from tests.serializability.judge import Verdict, judge
from tests.serializability.observing import Run, observe

SECONDS = float(os.environ.get("HEADGATE_SOAK_SECONDS", "8"))
PATIENCE = 240.0
"""Seconds; a machine may be busy with other things."""
CLUSTER = "local-cluster[2,1,1024]"
THOROUGH = pytest.mark.thorough


@pytest.fixture
def dsns() -> Iterator[dict[str, str]]:
    with PostgresServer() as server:
        yield world.create(server)


def check(folder: Path) -> Verdict:
    verdict = judge(history.read(sorted(folder.glob("*.jsonl"))))
    assert not verdict.problems, f"{len(verdict.problems)} problems: " + "\n".join(verdict.problems[:10])
    return verdict


def check_that_something_happened(verdict: Verdict) -> None:
    counts = verdict.counts
    assert not counts["trouble"]
    assert counts["commit"] > 50 and counts["answer"] > 10 and counts["jobs"] > 2, counts
    for kind in ("bound 0.0", "bound 0.2", "bound 2.0", "bound None", "closed_job", "shared_cut", "untouched"):
        assert counts[kind], f"no answer with {kind}: {counts}"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("capture", "clock_shift"),
    [
        ("log", 0.0),
        ("log", 7.0),
        pytest.param("log", -7.0, marks=THOROUGH),
        pytest.param("trigger", 0.0, marks=THOROUGH),
        pytest.param("trigger", -0.5, marks=THOROUGH),
    ],
)
def test_every_answer_is_a_state_of_the_sources_and_every_receipt_is_true(
    spark_sessions: SparkSessions, dsns: dict[str, str], tmp_path: Path, capture: str, clock_shift: float
) -> None:
    run = Run(str(tmp_path), dsns, SECONDS, capture=capture, clock_shift=clock_shift)
    written = history.History(tmp_path / "world.jsonl")
    world.describe(written, clock_shift)
    with world.transfers(dsns, written):
        observe(run)
    verdict = check(tmp_path)
    check_that_something_happened(verdict)
    assert not clock_shift or abs(clock_shift) < 1 or verdict.counts["clock warnings"]


# Every run of the tests has a cluster in `tests/deploy/test_standalone_cluster.py`.
@pytest.mark.thorough
def test_the_same_holds_on_a_cluster(dsns: dict[str, str], tmp_path: Path) -> None:
    run = Run(str(tmp_path), dsns, SECONDS, master=CLUSTER)
    written = history.History(tmp_path / "world.jsonl")
    world.describe(written)
    with world.transfers(dsns, written), start("tests.serializability.observing", json.dumps(asdict(run))) as process:
        process.communicate(timeout=SECONDS + PATIENCE)
    assert process.returncode == 0
    check_that_something_happened(check(tmp_path))
