"""The process dies at a step of a materialization, or at any time: opening again gives what an undisturbed run has.

In `make thorough` it dies at every step in turn, which takes long.
"""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

import headgate
from tests.faults import shop
from tests.faults.conftest import MakeShop
from tests.faults.processes import check_recovery, start

CHOSEN = [
    ("after-commit", 5),
    ("before-ledger", 4),
]
"""The fourth entry of the ledger is the checkpoint of the tables' versions, after the owner and two jobs."""


def passed_steps(folder: Path) -> list[str]:
    steps: list[str] = []
    with headgate.open(shop.project(folder), step=steps.append) as warehouse:
        shop.run(warehouse)
    return steps


def die(folder: Path, step: str, number: int) -> None:
    child = start("tests.faults.shop", folder, step, number)
    child.communicate()
    assert child.returncode == -signal.SIGKILL


def test_the_script_passes_every_kind_of_step(make_shop: MakeShop) -> None:
    steps = passed_steps(make_shop())
    counts = Counter(steps)
    assert all(counts[step] >= number for step, number in CHOSEN)
    ledger = [place for place, step in enumerate(steps) if step == "before-ledger"]
    assert steps[ledger[3] - 1] == "after-commit"


@pytest.mark.slow
@pytest.mark.parametrize(("step", "number"), CHOSEN)
def test_a_kill_while_materializing_is_survived(
    make_shop: MakeShop, expected: dict[int, shop.Content], step: str, number: int
) -> None:
    folder = make_shop()
    die(folder, step, number)
    check_recovery(folder, expected)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1])
def test_a_kill_at_any_time_is_survived(make_shop: MakeShop, expected: dict[int, shop.Content], seed: int) -> None:
    folder = make_shop()
    child = start("tests.faults.shop", folder)
    while child.poll() is None and not (folder / "acknowledged").exists():
        time.sleep(0.01)
    time.sleep(random.Random(seed).uniform(0, 3))
    child.kill()
    child.communicate()
    check_recovery(folder, expected)


@pytest.mark.thorough
def test_a_kill_at_every_step_is_survived(make_shop: MakeShop, expected: dict[int, shop.Content]) -> None:
    for step, count in Counter(passed_steps(make_shop())).items():
        for number in range(1, count + 1):
            folder = make_shop()
            die(folder, step, number)
            check_recovery(folder, expected)
