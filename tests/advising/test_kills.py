"""A move that a kill ends at any step: the flow is stored as before or as after it, and exact either way."""

from __future__ import annotations

import shutil
from pathlib import Path

from headgate.runtime.spark.sessions import SparkSessions
from tests.advising.test_advice import FLOWS, QUIET, behind_join, check, name_branches, work
from tests.scheduling.bank import open_bank


def test_a_kill_at_any_step_of_a_move_loses_nothing(tmp_path: Path, spark_sessions: SparkSessions) -> None:
    left: dict[tuple[int, str], Path] = {}
    move = 0

    def step(name: str) -> None:
        """What a kill at this step would leave on the disk; of several in a move the last one counts."""
        if move:
            place = tmp_path / f"killed in {move} at {name}"
            shutil.rmtree(place, ignore_errors=True)
            left.pop((move, name), None)
            left[move, name] = Path(shutil.copytree(tmp_path / "bank", place))

    with open_bank(tmp_path / "bank", FLOWS, step=step, **QUIET) as warehouse:
        name_branches(warehouse)
        work(warehouse, 2)
        key, engine = behind_join(warehouse, "moved"), warehouse._engine
        for number, cut in enumerate(((key,), None), start=1):
            with engine.graph_lock:
                move = number
                engine.defining.move("moved", cut)
                move = 0
    assert {name for _, name in left} >= {
        "data-files",
        "before-commit",
        "after-commit",
        "before-ledger",
        "after-ledger",
    }
    seen = []
    for place in left.values():
        with open_bank(place, FLOWS, **QUIET) as warehouse:
            seen.append(warehouse._engine.flows.get("moved").plan.cut)
            assert warehouse._engine.journal.records.flows["moved"].former == ()
            work(warehouse, 1, first=5)
            check(warehouse, warehouse.newest_job)
            inputs = Path(warehouse.project.storage) / "_headgate" / "inputs"
            assert not inputs.exists() or len(list(inputs.iterdir())) <= 1
    # Whole, then behind the join, then whole again: each move counts at one step.
    assert [cut for number, cut in enumerate(seen) if not number or seen[number - 1] != cut] == [None, (key,), None]
