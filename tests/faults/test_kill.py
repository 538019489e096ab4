"""The process dies at a step of a materialization, or at any time: opening again gives what an undisturbed run has.

What a kill at a step leaves is what lies on the disk at that step: every run copies that at every step of one script, and
opens one copy of each kind of step, another one for every commit. Three processes are really killed; in `make thorough` one at
every step.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

import headgate
from tests.faults import shop
from tests.faults.conftest import MakeShop
from tests.faults.processes import check_recovery, start
from tests.seed import SEED

STEPS = {"data-files", "before-commit", "after-commit", "before-ledger", "after-ledger"}
WIDE_STEPS = ("spooled", "batch-files")
"""Events are in files; what a batch made is in files that are not applied."""


def passed_steps(folder: Path, way: str) -> list[str]:
    steps: list[str] = []
    with headgate.open(shop.project(folder, way=way), step=steps.append) as warehouse:
        shop.run(warehouse)
    return steps


def die(folder: Path, step: str, number: int, *way: str) -> None:
    child = start("tests.faults.shop", folder, step, number, *way)
    child.communicate()
    assert child.returncode == -signal.SIGKILL


def copies_at_every_step(folder: Path, copies: Path, **limits: object) -> dict[str, list[Path]]:
    """Runs the script, and copies what lies on the disk at each step; by kind of step, in order."""
    found: dict[str, list[Path]] = {}

    def copy(step: str) -> None:
        places = found.setdefault(step, [])
        places.append(copies / f"{step}-{len(places) + 1}")
        try:
            shutil.copytree(folder, places[-1])
        except shutil.Error as error:
            # Files of other stages that write at the same time may go meanwhile; tables and ledger are still then.
            for source, _, why in error.args[0]:
                place = os.fspath(source)
                assert "No such file" in why and "_delta_log" not in place and "ledger" not in place, (place, why)

    lock = threading.Lock()

    def one_by_one(step: str) -> None:
        # Stages work at the same time.
        with lock:
            copy(step)

    shop.main(folder, one_by_one, **limits)
    return found


@pytest.mark.slow
def test_what_lies_on_the_disk_at_a_step_is_enough(
    make_shop: MakeShop, expected: dict[int, shop.Content], tmp_path: Path
) -> None:
    found = copies_at_every_step(make_shop(), tmp_path / "copies")
    assert found.keys() == STEPS
    chance = random.Random(SEED)
    for places in found.values():
        assert len(places) > 1
        check_recovery(chance.choice(places), expected)


@pytest.mark.slow
def test_what_lies_on_the_disk_at_a_step_of_a_wide_batch_is_enough(
    make_shop: MakeShop, expected: dict[int, shop.Content], tmp_path: Path
) -> None:
    # Of more changes than one, executors write a fold.
    found = copies_at_every_step(make_shop(), tmp_path / "copies", way="wide", batch_rows=1)
    assert found.keys() == {*STEPS, *WIDE_STEPS}
    chance = random.Random(SEED)
    for step in WIDE_STEPS:
        check_recovery(chance.choice(found[step]), expected)
    check_recovery(found["data-files"][-1], expected)


@pytest.mark.slow
def test_a_kill_before_the_files_of_a_wide_batch_are_applied_is_survived(
    make_shop: MakeShop, expected: dict[int, shop.Content]
) -> None:
    folder = make_shop()
    die(folder, "batch-files", 6, "wide")
    check_recovery(folder, expected)


@pytest.mark.slow
def test_a_kill_while_materializing_is_survived(make_shop: MakeShop, expected: dict[int, shop.Content]) -> None:
    folder = make_shop()
    die(folder, "after-commit", 5)
    check_recovery(folder, expected)


@pytest.mark.slow
def test_a_kill_at_any_time_is_survived(make_shop: MakeShop, expected: dict[int, shop.Content]) -> None:
    folder = make_shop()
    child = start("tests.faults.shop", folder)
    while child.poll() is None and not (folder / "acknowledged").exists():
        time.sleep(0.01)
    time.sleep(random.Random(SEED).uniform(0, 3))
    child.kill()
    child.communicate()
    check_recovery(folder, expected)


# Every run has what such a kill leaves, for one step of each kind.
@pytest.mark.thorough
def test_a_kill_at_every_step_is_survived(make_shop: MakeShop, expected: dict[int, shop.Content]) -> None:
    for way in ("narrow", "wide"):
        for step, count in Counter(passed_steps(make_shop(), way)).items():
            for number in range(1, count + 1):
                folder = make_shop()
                die(folder, step, number, way)
                check_recovery(folder, expected)
