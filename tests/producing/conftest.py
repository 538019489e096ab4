"""Producers that reach a warehouse through its socket."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from headgate.clock import ManualClock
from headgate.producing.remote import RemoteChannel
from headgate.producing.remote_server import RemoteServer
from tests.faults.processes import start
from tests.producing.remote_shelf import START, Shelf


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


@pytest.fixture
def address(tmp_path: Path) -> Path:
    return tmp_path / "producers.json"


@pytest.fixture
def server(shelf: Shelf, address: Path, tmp_path: Path) -> Iterator[RemoteServer]:
    spool = tmp_path / "spool"
    spool.mkdir()
    server = RemoteServer(
        shelf.channel, address, spool_folder=spool, spool_bytes=1 << 20, patience=timedelta(seconds=0.5)
    )
    yield server
    server.close()
    assert not list(spool.iterdir())


@pytest.fixture
def channel(server: RemoteServer, address: Path) -> Iterator[RemoteChannel]:
    channel = RemoteChannel(address, "feed", clock=ManualClock(START))
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
