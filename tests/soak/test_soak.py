"""Writers and readers for long: memory, files and the time of an answer stay what they were, and every answer is right.

HEADGATE_SOAK_SECONDS says for how long. The rows stay about as many (writers delete old ones), the history of the
dimension and the chain of jobs grow. Compared are the medians of the second and the last quarter; in a short run they
differ for many reasons (the JVM is still warming up), so it only shows that the means to see more are in order.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import pytest

from headgate.capture.postgres.private_server import PostgresServer
from tests.faults.processes import start
from tests.serializability import history, world
from tests.serializability.history import Event
from tests.serializability.judge import judge
from tests.soak.soaking import THREADS

SECONDS = float(os.environ.get("HEADGATE_SOAK_SECONDS", "10"))
LONG = 600.0
PATIENCE = 240.0
KEPT = 100
"""Transfers that a writer leaves in the table."""
FACTORS = {"python": 1.25, "java": 1.25, "files": 1.3, "held_bytes": 2.0, "latency": 1.5}
"""How much larger the last quarter's median may be than the second's after a long run."""
SHORT_FACTORS = {"python": 1.5, "java": 3.0, "files": 6.0, "held_bytes": 16.0}
"""Of a run of seconds beside other tests: that all of it is measured, and that nothing runs away but time, which is not ours."""
SMALL = {"held_bytes": 4 << 20, "latency": 0.5}
"""Below this, larger is not worth a word."""


def quarters(events: Sequence[Event], at: str, values: str) -> tuple[float, float]:
    """The medians of the second and the last quarter of the time."""
    found = sorted((event[at], event[values]) for event in events)
    begin, end = found[0][0], found[-1][0]
    quarter = (end - begin) / 4
    second = [value for when, value in found if begin + quarter <= when < begin + 2 * quarter]
    last = [value for when, value in found if when >= end - quarter]
    return median(second or [value for _, value in found]), median(last)


def growth(events: Sequence[Event]) -> dict[str, tuple[float, float]]:
    """By what is measured, its medians."""
    samples = [event for event in events if event["event"] == "sample"]
    answers = [
        {"at": event["ended_at"], "latency": event["ended_at"] - event["began_at"]}
        for event in events
        if event["event"] == "answer"
    ]
    return {
        **{name: quarters(samples, "at", name) for name in ("python", "java", "files", "held_bytes")},
        "latency": quarters(answers, "at", "latency"),
    }


def too_much(grown: dict[str, tuple[float, float]], factors: dict[str, float]) -> list[str]:
    return [
        f"{name} went from {before:,.2f} to {after:,.2f}, allowed is {factors[name]} times"
        for name, (before, after) in grown.items()
        if name in factors and after > max(before * factors[name], SMALL.get(name, 0.0))
    ]


def test_growth_is_found() -> None:
    samples = [
        {"event": "sample", "at": at, "python": 100 + at, "java": 100, "files": 10, "held_bytes": 0}
        for at in range(100)
    ]
    answers = [{"event": "answer", "began_at": at, "ended_at": at + 1 + at // 50} for at in range(100)]
    found = too_much(growth([*samples, *answers]), FACTORS)
    assert [line.partition(" ")[0] for line in found] == ["python", "latency"]


@pytest.mark.slow
def test_memory_files_and_latency_stay_flat(tmp_path: Path) -> None:
    written = history.History(tmp_path / "world.jsonl")
    world.describe(written, kept=KEPT)
    with PostgresServer() as server:
        dsns = world.create(server)
        arguments = {"folder": str(tmp_path), "dsns": dsns, "seconds": SECONDS}
        with (
            world.transfers(dsns, written, kept=KEPT),
            start("tests.soak.soaking", json.dumps(arguments)) as process,
        ):
            process.communicate(timeout=SECONDS + PATIENCE)
        assert process.returncode == 0
    events = history.read(sorted(tmp_path.glob("*.jsonl")))
    verdict = judge(events)
    assert not verdict.problems, "\n".join(verdict.problems[:10])
    assert not verdict.counts["trouble"] and verdict.counts["answer"] >= 10
    grown = growth(events)
    report = {name: [round(before, 3), round(after, 3)] for name, (before, after) in grown.items()}
    (tmp_path / "growth.json").write_text(json.dumps({"growth": report, "counts": verdict.counts}, indent=2))
    assert not too_much(grown, FACTORS if SECONDS >= LONG else SHORT_FACTORS), f"{report} {dict(verdict.counts)}"
    # Every answer that was closed has let its snapshot go; at most one a reader is open at any time.
    assert max(event["answers"] for event in events if event["event"] == "sample") <= THREADS
    assert next(event for event in events if event["event"] == "closing")["answers"] == 0
