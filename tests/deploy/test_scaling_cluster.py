"""Parts and executors grow and shrink on a real cluster, an executor and the driver are killed meanwhile, and nothing is lost or
doubled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.deploy.scaled import prepare, run, surroundings
from tests.deploy.scaling_process import Plan

pytestmark = pytest.mark.slow

LOW, HIGH = 20, 300


def test_sizes_follow_two_sources_and_nothing_is_lost_or_doubled(tmp_path: Path) -> None:
    with surroundings(tmp_path) as (cluster, server):
        prepare(server)
        plan = Plan(str(tmp_path / "scaled"), cluster.url, server.dsn, [(4, LOW), (60, HIGH)])
        high: list[dict[str, Any]] = []

        def hear(told: dict[str, Any]) -> bool:
            if told["phase"] == 1:
                high.append(told)
                if len(high) == 12:
                    cluster.kill_executor(0)
            # The driver dies while it grows.
            return len(high) < 24 or told["executors"] < 2

        first = run(plan, hear)
        assert first.result is None
        assert max(moment["transform"] for moment in first.moments) > 1
        plan.phases, plan.patience = [(6, HIGH), (10, LOW)], 180
        second = run(plan)
    assert second.result is not None
    assert second.result["rows"] >= first.moments[-1]["last"], "what was acknowledged is there"
    assert (second.result["lost"], second.result["doubled"], second.result["sold"]) == (0, 0, True)
    changes = [change.split() for change in second.result["changes"]]
    assert {"transform", "executors"} <= {part for part, before, after in changes if int(after) > int(before)}
    assert {"transform", "executors"} <= {part for part, before, after in changes if int(after) < int(before)}
