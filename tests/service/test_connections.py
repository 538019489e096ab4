"""Connections that send nothing, or too little, do not stay, and there are never more than the limit."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from urllib.parse import urlsplit

import pytest

from headgate.service import Server, ServiceLimits
from tests.service.asking import ask, query
from tests.service.scripted import ScriptedWarehouse
from tests.service.test_limits import by_its_text

PATIENT = timedelta(minutes=10)
HEAD = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n"


@contextmanager
def serving(connections: int, client: timedelta) -> Iterator[tuple[Server, ScriptedWarehouse]]:
    scripted = ScriptedWarehouse(by_its_text)
    limits = ServiceLimits(connections=connections, client=client)
    with Server(scripted.as_warehouse, port=0, limits=limits) as server:
        yield server, scripted


def connected(server: Server) -> socket.socket:
    place = urlsplit(server.url)
    return socket.create_connection((str(place.hostname), place.port or 0), timeout=20)


def is_answered(client: socket.socket) -> bool:
    client.sendall(HEAD + b"\r\n")
    received = b""
    while not received.endswith(b"alive\n") and (part := client.recv(1000)):
        received += part
    return received.startswith(b"HTTP/1.1 200 ")


def is_closed(client: socket.socket) -> bool:
    """Waits for the other side; whether it closed the connection without an answer."""
    try:
        return client.recv(100) == b""
    except ConnectionError:
        return True


@pytest.mark.parametrize("sent", [b"", b"GET", HEAD, HEAD + b"X: " + b"x" * 500])
def test_a_connection_without_a_whole_head_is_closed(sent: bytes) -> None:
    with serving(10, timedelta(seconds=0.3)) as (server, _), connected(server) as client:
        client.sendall(sent)
        assert is_closed(client)


def test_bytes_that_trickle_in_win_no_time() -> None:
    with serving(10, timedelta(seconds=0.5)) as (server, _), connected(server) as client:
        client.settimeout(0.05)
        began = time.monotonic()
        client.sendall(HEAD + b"X: ")
        with pytest.raises(ConnectionError):
            while time.monotonic() < began + 20:
                client.sendall(b"x")
                try:
                    if client.recv(1) == b"":
                        raise ConnectionError
                except TimeoutError:
                    pass


def test_what_follows_an_early_answer_wins_no_time_either() -> None:
    with serving(10, timedelta(seconds=0.5)) as (server, _), connected(server) as client:
        client.sendall(b"POST /nowhere HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000000\r\n\r\n{")
        assert client.recv(1000).startswith(b"HTTP/1.1 404 ")
        client.settimeout(0.05)
        began = time.monotonic()
        with pytest.raises(ConnectionError):
            while time.monotonic() < began + 20:
                client.sendall(b"x")
                try:
                    if client.recv(1000) == b"":
                        raise ConnectionError
                except TimeoutError:
                    pass


def test_a_connection_is_used_again_after_a_pause_that_is_longer_than_a_head_may_take() -> None:
    with serving(10, timedelta(seconds=0.2)) as (server, _), connected(server) as client:
        for _ in range(2):
            assert is_answered(client)
            time.sleep(0.3)


def test_a_new_connection_takes_the_place_of_the_one_that_is_idle_longest() -> None:
    with serving(3, PATIENT) as (server, _), ExitStack() as ends:
        idle = [ends.enter_context(connected(server)) for _ in range(3)]
        for client in idle:
            assert is_answered(client)
        with connected(server) as fourth:
            assert is_answered(fourth)
        assert is_closed(idle[0])
        assert is_answered(idle[2])


def test_hundreds_of_half_heads_do_not_keep_others_out() -> None:
    with serving(20, PATIENT) as (server, _), ExitStack() as ends:
        for _ in range(200):
            ends.enter_context(connected(server)).sendall(HEAD)
        assert [ask(server.url, "GET", "/healthz").status for _ in range(30)] == [200] * 30
        assert server._uvicorn is not None and len(server._uvicorn.server_state.connections) <= 20


def test_while_all_connections_are_answered_one_more_is_sent_away_and_none_is_lost() -> None:
    with serving(2, PATIENT) as (server, scripted), ThreadPoolExecutor(2) as threads:
        running = [threads.submit(query, server.url, "SELECT wait") for _ in range(2)]
        for _ in running:
            assert scripted.waiting.acquire(timeout=10)
        heard = ask(server.url, "GET", "/healthz")
        assert heard.status == 503 and heard.headers["retry-after"] == "1"
        assert heard.error["kind"] == "TooManyConnections" and heard.error["hint"]
        for session in scripted.sessions:
            session.cancel()
        assert [each.result().status for each in running] == [503] * 2
        assert scripted.cancelled == 2
        assert ask(server.url, "GET", "/healthz").status == 200
