"""Loaded shops on the one Spark of the run, and what their tables must hold."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import headgate
from headgate.runtime.spark.sessions import SparkSessions
from tests.disks import mount_disk, unmount_disk
from tests.faults import shop

MakeShop = Callable[[], Path]


@pytest.fixture(scope="session")
def loaded(spark_sessions: SparkSessions, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A shop before the script; to be copied."""
    folder = tmp_path_factory.mktemp("loaded")
    with headgate.open(shop.project(folder)) as warehouse:
        shop.load(warehouse)
    return folder


@pytest.fixture
def make_shop(loaded: Path, tmp_path: Path) -> MakeShop:
    """Makes a loaded shop in a new folder."""
    numbers = itertools.count()

    def make() -> Path:
        return Path(shutil.copytree(loaded, tmp_path / f"shop{next(numbers)}"))

    return make


@pytest.fixture(scope="session")
def expected(loaded: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[int, shop.Content]:
    """By number of transactions, what an undisturbed run holds."""
    folder = tmp_path_factory.mktemp("undisturbed") / "shop"
    shutil.copytree(loaded, folder)
    found: dict[int, shop.Content] = {}
    with headgate.open(shop.project(folder)) as warehouse:
        found[shop.LOADED] = shop.content(warehouse)
        for number in range(shop.LOADED + 1, shop.TRANSACTIONS + 1):
            shop.commit(warehouse, number)
            warehouse.refresh()
            found[number] = shop.content(warehouse)
    return found


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Mounts a small disk with the given options; skips where that is not allowed."""
    mounted: list[Path] = []

    def make(options: str) -> Path:
        mounted.append(mount_disk(tmp_path / f"disk{len(mounted)}", options))
        return mounted[-1]

    yield make
    for place in mounted:
        unmount_disk(place)
