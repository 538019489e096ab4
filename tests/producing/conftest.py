"""Producers that reach a warehouse through its socket."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from headgate.producing.remote import RemoteChannel
from headgate.producing.remote_server import RemoteServer
from tests.faults.processes import start
from tests.producing.remote_shelf import Shelf


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    folder = tmp_path / "blocks"
    folder.mkdir()
    return Shelf(folder=folder)


@pytest.fixture
def address(tmp_path: Path) -> Path:
    return tmp_path / "producers.json"


@pytest.fixture
def server(shelf: Shelf, address: Path) -> Iterator[RemoteServer]:
    server = RemoteServer(shelf.channel, address, patience=timedelta(seconds=0.5))
    yield server
    server.close()
    assert all(shelf.segments.values())


@pytest.fixture
def channel(server: RemoteServer, address: Path) -> Iterator[RemoteChannel]:
    channel = RemoteChannel(address, "feed")
    yield channel
    channel.close()


@pytest.fixture
def child(server: RemoteServer, address: Path, request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[str]]:
    child = start("tests.producing.remote_shelf", address, request.param)
    yield child
    if child.poll() is None:
        child.send_signal(signal.SIGCONT)
        child.kill()
    child.communicate()
