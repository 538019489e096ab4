"""Producers in processes that die or stall, and the server that they find by its address."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from headgate.config.producers import ProducersSettings
from headgate.errors import (
    DefiniteError,
    EnvironmentProblem,
    ProducerBusy,
    TransientError,
)
from headgate.producing.remote import RemoteChannel
from headgate.producing.remote_server import RemoteServer
from headgate.producing.remote_values import Address
from headgate.warehouse.roles import Roles
from tests.producing.remote_shelf import Shelf, commit_lazily, sale, visit
from tests.waiting import eventually

MEASURED = pa.proxy_memory_pool(pa.default_memory_pool())
"""Lives as long as any buffer that was allocated from it."""


def said(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    return child.stdout.readline().strip()


def go_on(child: subprocess.Popen[str]) -> None:
    assert child.stdin is not None
    child.stdin.write("\n")
    child.stdin.flush()


def stop(child: subprocess.Popen[str]) -> None:
    """Returns once it does stand still."""
    child.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, child.pid, os.WSTOPPED)


# Processes that die or stall


@pytest.mark.parametrize("child", ["send"], indirect=True)
def test_a_producer_that_stalls_and_dies_within_a_transaction_holds_nobody_up_and_leaves_nothing_behind(
    child: subprocess.Popen[str], channel: RemoteChannel, shelf: Shelf, caplog: pytest.LogCaptureFixture
) -> None:
    assert said(child) == "sending"
    with pytest.raises(ProducerBusy, match=f"process {child.pid} on"):
        channel.claim(["sales"])
    stop(child)
    channel.commit([visit(7)])
    child.send_signal(signal.SIGKILL)
    eventually(lambda: len(shelf.attached) == 1)
    channel.claim(["sales"])
    assert shelf.ids == [7]
    assert f"process {child.pid} on" in caplog.text
    assert "went away without closing" in caplog.text


@pytest.mark.parametrize("child", ["send"], indirect=True)
def test_a_producer_in_another_process_commits_and_starts_no_java(child: subprocess.Popen[str], shelf: Shelf) -> None:
    assert said(child) == "sending"
    assert Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text() == ""
    go_on(child)
    assert said(child) == "closed"
    assert [commit.ids for commit in shelf.commits] == [(1, 2, 3)]
    assert (shelf.attached, shelf.owners) == ([], {})


@pytest.mark.parametrize("child", ["lazy"], indirect=True)
def test_what_a_killed_producer_committed_lazily_is_seen(child: subprocess.Popen[str], shelf: Shelf) -> None:
    assert said(child) == "committed"
    child.send_signal(signal.SIGKILL)
    eventually(lambda: shelf.attached == [])
    assert shelf.ids == [1, 2, 3] and shelf.unseen == 0


def test_someone_who_connects_and_says_nothing_holds_nobody_up(server: RemoteServer, address: Path) -> None:
    silent = [socket.socket(socket.AF_UNIX) for _ in range(3)]
    for one in silent:
        one.connect(json.loads(address.read_text())["socket"])
    channel = RemoteChannel(address, "feed")
    assert channel.count("sales") == 0
    channel.close()
    silent[0].settimeout(5)
    assert silent[0].recv(1) == b"", "it is sent away after a while"
    for one in silent:
        one.close()


@pytest.mark.parametrize("child", ["many"], indirect=True)
def test_the_warehouse_does_not_touch_the_rows_of_a_commit(child: subprocess.Popen[str], shelf: Shelf) -> None:
    shelf.keep = False
    size = int(said(child))
    assert size > 50e6
    usual = pa.default_memory_pool()
    pa.set_memory_pool(MEASURED)
    try:
        go_on(child)
        assert said(child) == "closed"
    finally:
        pa.set_memory_pool(usual)
    assert shelf.rows_seen == 2 << 20
    assert MEASURED.max_memory() < 1 << 20


# The server and its address


def test_only_the_owner_can_read_the_address_and_enter_the_folder(server: RemoteServer, address: Path) -> None:
    assert stat.S_IMODE(address.stat().st_mode) == 0o600
    folder = Path(json.loads(address.read_text())["socket"]).parent
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    server.close()
    assert not address.exists() and not folder.exists()
    server.close()


def test_a_server_leaves_the_address_of_its_successor(shelf: Shelf, address: Path, server: RemoteServer) -> None:
    successor = RemoteServer(shelf.channel, address)
    server.close()
    RemoteChannel(address, "feed").close()
    successor.close()
    assert not address.exists()


def test_a_producer_on_another_machine_makes_its_segments_in_the_storage(shelf: Shelf, address: Path) -> None:
    server = RemoteServer(shelf.channel, address, elsewhere=ProducersSettings(host="127.0.0.1", port=0))
    # A file system of another machine has no such socket.
    away = replace(Address.read(address), socket="/nowhere/socket")
    with ExitStack() as opened:
        opened.callback(server.close)
        channel = RemoteChannel(away, "feed")
        opened.callback(channel.close)
        channel.commit([sale(1, 2)])
        assert (shelf.ids, len(shelf.segments)) == ([1, 2], 1)
        with pytest.raises(DefiniteError, match="does not know this producer's secret"):
            RemoteChannel(replace(away, key="0" * 64), "feed")
        shelf.folder = shelf.folder / "elsewhere"
        other = RemoteChannel(away, "feed")
        opened.callback(other.close)
        with pytest.raises(
            EnvironmentProblem, match="storage cannot be written from this machine: No such file"
        ) as far:
            other.commit([visit(3)])
        assert "mount the storage at the same path" in str(far.value)
        shelf.folder.mkdir()
        other.commit([visit(4)])
        assert shelf.ids == [1, 2, 4]
    assert all(shelf.segments.values())


def test_a_port_that_is_taken_is_named(shelf: Shelf, address: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        settings = ProducersSettings(host="127.0.0.1", port=taken.getsockname()[1])
        with pytest.raises(EnvironmentProblem, match=r"producers cannot connect at 127\.0\.0\.1:"):
            RemoteServer(shelf.channel, address, elsewhere=settings)
    assert not address.exists()


@pytest.mark.parametrize("key", ["0" * 64, "", "ü"])
def test_a_wrong_secret_is_refused(server: RemoteServer, address: Path, tmp_path: Path, shelf: Shelf, key: str) -> None:
    forged = tmp_path / "forged.json"
    forged.write_text(json.dumps({**json.loads(address.read_text()), "key": key}))
    with pytest.raises(DefiniteError, match="does not know this producer's secret"):
        RemoteChannel(forged, "feed")
    assert shelf.attached == []


def test_a_role_that_can_produce_connects_with_its_token_and_one_that_can_read_does_not(
    shelf: Shelf, address: Path, tmp_path: Path
) -> None:
    roles = Roles(tmp_path)
    loader, analyst = roles.add("loader", "produce"), roles.add("analyst", "read")
    server = RemoteServer(shelf.channel, address, roles=Roles(tmp_path))
    try:
        place = Address.read(address).socket
        # Everyone can reach the socket, and sees nothing that lies beside it.
        assert stat.S_IMODE(Path(place).parent.stat().st_mode) == 0o711
        RemoteChannel(Address(place, loader), "feed").close()
        with pytest.raises(DefiniteError, match=r"the role analyst can read.*--can produce"):
            RemoteChannel(Address(place, analyst), "feed")
        roles.remove("loader")
        with pytest.raises(DefiniteError, match="does not know this producer's secret"):
            RemoteChannel(Address(place, loader), "feed")
        RemoteChannel(address, "feed").close()
    finally:
        server.close()


def test_strangers_who_show_nothing_do_not_use_up_threads(server: RemoteServer, address: Path) -> None:
    with ExitStack() as ends:
        for _ in range(100):
            stranger = ends.enter_context(socket.socket(socket.AF_UNIX))
            stranger.connect(json.loads(address.read_text())["socket"])
        assert len(server._unknown) <= 64
    eventually(lambda: not server._unknown)
    RemoteChannel(address, "feed").close()


@pytest.mark.parametrize("noise", [b"GET / HTTP/1.1\r\n\r\n", b"\x05\0\0\0\0\0\0\0\0\0\0\0[1,2]", os.urandom(4096)])
def test_noise_is_sent_away(server: RemoteServer, address: Path, noise: bytes) -> None:
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.settimeout(5)
        stranger.connect(json.loads(address.read_text())["socket"])
        stranger.sendall(noise)
        with suppress(ConnectionResetError):
            assert stranger.recv(1) == b""
    RemoteChannel(address, "feed").close()


def test_without_a_warehouse_connecting_says_so(address: Path, tmp_path: Path) -> None:
    with pytest.raises(EnvironmentProblem, match=r"no open warehouse takes producers here.*open it first"):
        RemoteChannel(address, "feed")
    address.write_text(json.dumps({"socket": str(tmp_path / "gone"), "key": "x"}))
    with pytest.raises(EnvironmentProblem, match="no open warehouse"):
        RemoteChannel(address, "feed")
    address.write_text("{}")
    with pytest.raises(EnvironmentProblem, match="does not hold the address"):
        RemoteChannel(address, "feed")


def test_a_producer_is_told_that_the_warehouse_went_away(
    channel: RemoteChannel, server: RemoteServer, shelf: Shelf
) -> None:
    commit_lazily(channel, 1)
    server.close()
    assert shelf.ids == [1] and shelf.attached == [] and shelf.unseen == 0
    with pytest.raises(TransientError, match=r"went away.*what it did not acknowledge may be missing"):
        channel.commit([sale(2)])


def test_a_server_that_closes_within_a_transaction_drops_it(
    channel: RemoteChannel, server: RemoteServer, shelf: Shelf
) -> None:
    def rows() -> Iterable[tuple[str, pa.RecordBatch]]:
        yield sale(1)
        server.close()
        yield sale(2)

    with pytest.raises(TransientError, match="went away"):
        channel.commit(rows())
    assert shelf.commits == []
