"""A project and its service, shared by the tests of a file."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate.cli.main import run
from tests.cli.processes import Served, sell, start


@pytest.fixture(scope="module", autouse=True)
def _hangups() -> Iterator[None]:
    """Processes that are started here hear hangups, also where the tests run under `nohup`, which has them ignored."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    project = tmp_path_factory.mktemp("projects") / "shop"
    assert run(["init", str(project)]) == 0
    return project


@pytest.fixture(scope="module")
def served(project: Path) -> Iterator[Served]:
    """A service in which ten things are sold."""
    process, url = start(project)
    try:
        sell(project)
        yield process, url
    finally:
        process.kill()
        process.wait()
