"""The client: rows, receipts, errors, connections."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import timedelta

import pyarrow as pa
import pytest

import headgate.client
from headgate.client import Client, ServiceUnreachable
from headgate.errors import ConfigError, DefiniteError, FlowFailed, HeadgateError, Location, TooStale
from headgate.service import Server, ServiceLimits
from tests.service.scripted import RECEIPT, ScriptedSession, ScriptedWarehouse
from tests.waiting import PATIENCE, eventually

FAILURE = FlowFailed("flow x failed in job 2", where=Location("x.sql", 4), hint="correct it")


def script(session: ScriptedSession, text: str) -> pa.Table:
    word = text.removeprefix("SELECT ")
    if word == "wait":
        session.wait()
    if word == "failed":
        raise FAILURE
    if word == "stale":
        raise TooStale("too old", hint="wait")
    return pa.table({"x": pa.array(range(int(word)), pa.int64())})


@pytest.fixture(scope="module")
def scripted() -> ScriptedWarehouse:
    return ScriptedWarehouse(script)


@pytest.fixture(scope="module")
def server(scripted: ScriptedWarehouse) -> Iterator[Server]:
    with Server(scripted.as_warehouse, port=0, token="secret", limits=ServiceLimits(rows=10_000_000)) as server:
        yield server


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with headgate.client.connect(server.url, token="secret") as client:
        yield client


def test_it_needs_no_spark() -> None:
    code = "import sys, headgate.client, headgate; assert 'pyspark' not in sys.modules and 'open' in dir(headgate)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_names_of_the_package_are_there_when_used() -> None:
    for name in headgate.__all__:
        assert getattr(headgate, name) is getattr(headgate, name)
    with pytest.raises(AttributeError, match="'headgate' has no attribute 'nothing'"):
        headgate.nothing  # noqa: B018


def test_rows_come_as_arrow_and_as_dicts(client: Client) -> None:
    with client.sql("SELECT 3") as reply:
        assert reply.schema.names == ["x"] and reply.receipt == RECEIPT.to_json()
        assert reply.to_arrow().to_pydict() == {"x": [0, 1, 2]}
        assert list(reply.rows()) == [{"x": 0}, {"x": 1}, {"x": 2}] and reply.to_arrow().num_rows == 3
    assert list(client.sql("SELECT 2").rows()) == [{"x": 0}, {"x": 1}]
    assert client.sql("SELECT 0").to_arrow().num_rows == 0
    assert client.sql("SELECT 1", job=0).receipt is None


def test_a_long_answer_arrives_in_batches(client: Client) -> None:
    with client.sql("SELECT 3000000") as reply:
        batches = reply.batches()
        first = next(batches)
        assert first.num_rows < 100_000
        assert first.num_rows + sum(batch.num_rows for batch in batches) == 3_000_000
    assert client.sql("SELECT 1").to_arrow().num_rows == 1


def test_arguments_are_passed_on(client: Client, scripted: ScriptedWarehouse) -> None:
    client.sql("SELECT 1", max_staleness=timedelta(minutes=1), deadline="5s", when_stale="serve", limit=1).close()
    assert scripted.bounds[-1] == {"max_staleness": 60.0, "deadline": "5s", "when_stale": "serve"}


def test_a_session_is_named(client: Client, scripted: ScriptedWarehouse) -> None:
    before = len(scripted.sessions)
    for _ in range(2):
        client.sql("SELECT 1", session="mine").close()
    assert [session.asked for session in scripted.sessions[before:]] == [["SELECT 1", "SELECT 1"]]


def test_connections_are_used_again_and_renewed(scripted: ScriptedWarehouse) -> None:
    with Server(scripted.as_warehouse, port=0) as first:
        client = headgate.client.connect(first.url)
        for _ in range(3):
            client.sql("SELECT 1").to_arrow()
        (kept,) = client._connections._idle
        with pytest.raises(FlowFailed):
            client.sql("SELECT failed")
        assert client._connections._idle == [kept]
    port = int(first.url.rpartition(":")[2])
    with Server(scripted.as_warehouse, port=port):
        # The kept connection is closed by now.
        assert client.sql("SELECT 2").to_arrow().num_rows == 2
    client.close()


def test_a_short_answer_does_not_wait_for_the_network(client: Client) -> None:
    taken = []
    for _ in range(20):
        began = time.monotonic()
        client.sql("SELECT 1").to_arrow()
        taken.append(time.monotonic() - began)
    # Where headers and rows wait for each other, the system holds every single answer back for 40 ms.
    assert min(taken) < 0.03


def test_many_threads_share_a_client(client: Client) -> None:
    found: list[int] = []

    def work() -> None:
        found.extend(client.sql(f"SELECT {number}").to_arrow().num_rows for number in range(20))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(found) == sorted([*range(20)] * 8)


def test_closing_early_frees_the_service(client: Client, server: Server) -> None:
    reply = client.sql("SELECT 5000000")
    next(reply.batches())
    assert server._service.queries.running
    reply.close()
    eventually(lambda: not server._service.queries.running)


def test_errors_are_those_of_the_warehouse(client: Client) -> None:
    with pytest.raises(FlowFailed) as failed:
        client.sql("SELECT failed")
    assert str(failed.value) == str(FAILURE) and failed.value.hint == FAILURE.hint
    with pytest.raises(TooStale) as stale:
        client.sql("SELECT stale")
    assert stale.value.hint == "wait" and stale.value.sqlstate == "40001"
    with pytest.raises(DefiniteError, match="max_staleness"):
        client.sql("SELECT 1", max_staleness=[])  # type: ignore[arg-type]


def test_a_wrong_token_is_told(server: Server) -> None:
    for token in (None, "wrong"):
        with (
            headgate.client.connect(server.url, token) as client,
            pytest.raises(DefiniteError, match="token") as refused,
        ):
            client.status()
        assert type(refused.value).__name__ == "Unauthorized"


def test_a_service_that_is_not_there_is_told_with_how_to_start_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(ServiceUnreachable, match=rf"127\.0\.0\.1:{port}.*headgate run"):
        headgate.client.connect(f"http://127.0.0.1:{port}").status()


def test_a_service_that_does_not_answer_is_told(scripted: ScriptedWarehouse) -> None:
    with (
        Server(scripted.as_warehouse, port=0) as server,
        headgate.client.connect(server.url, timeout=0.3) as client,
        pytest.raises(ServiceUnreachable, match="in time"),
    ):
        client.sql("SELECT wait")


@pytest.mark.parametrize("answer", [b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", b"SSH-2.0-OpenSSH\r\n\r\n", b""])
def test_something_else_at_the_address_is_told(answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def talk() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(answer)

        talking = threading.Thread(target=talk)
        talking.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        with pytest.raises(HeadgateError, match=r"headgate|asked") as told:
            headgate.client.connect(url).status()
        talking.join(PATIENCE)
    assert told.value.hint


@pytest.mark.parametrize(
    "url", ["", "127.0.0.1:8765", "ftp://127.0.0.1", "http://", "http://x:port", "http://x:99999", "http://[::1"]
)
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="address"):
        headgate.client.connect(url)


def test_texts_that_cannot_be_sent_are_refused_before() -> None:
    with pytest.raises(DefiniteError, match=r"the address holds .*U\+D800"):
        headgate.client.connect("http://\ud800")
    for token in ("schlüssel", "a\nb", "\ud800"):
        with pytest.raises(ConfigError, match="the token is not ASCII"):
            headgate.client.connect(token=token)
    with headgate.client.connect() as client, pytest.raises(DefiniteError, match=r"the name holds .*U\+D800"):
        client.explain("\ud800")
