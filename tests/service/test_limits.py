"""What the service takes upon itself: sizes, times, numbers; and what becomes of clients that are slow or gone."""

from __future__ import annotations

import json
import logging
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from urllib.parse import urlsplit

import pyarrow as pa
import pytest

from headgate.errors import TooStale
from headgate.service import Server, ServiceLimits
from tests.service.asking import ask, query
from tests.service.scripted import RECEIPT, ScriptedSession, ScriptedWarehouse
from tests.waiting import PATIENCE, eventually

SMALL = ServiceLimits(
    request_bytes=2000, rows=1000, time=timedelta(seconds=20), queries=3, client=timedelta(seconds=0.5)
)
LARGE_ROWS = 2_000_000


def by_its_text(session: ScriptedSession, text: str) -> pa.Table:
    """`wait` waits until it is called off, `stale` fails, a number gives that many rows."""
    word = text.removeprefix("SELECT ")
    if word == "wait":
        session.wait()
    if word == "stale":
        raise TooStale("no answer at most 0 s old could be made within 1 s", hint="wait longer")
    if word == "mistake":
        raise ZeroDivisionError("a secret of the inside")
    return pa.table({"x": pa.array(range(int(word) if word.isdigit() else 1), pa.int64())})


@contextmanager
def serving(limits: ServiceLimits = SMALL) -> Iterator[tuple[Server, ScriptedWarehouse]]:
    scripted = ScriptedWarehouse(by_its_text)
    with Server(scripted.as_warehouse, port=0, limits=limits) as server:
        yield server, scripted


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[Server, ScriptedWarehouse]]:
    with serving() as both:
        yield both


@pytest.fixture
def url(served: tuple[Server, ScriptedWarehouse]) -> str:
    return served[0].url


def send_query(server: Server, sql: str) -> socket.socket:
    """Sends a query and reads nothing."""
    place = urlsplit(server.url)
    body = json.dumps({"sql": sql, "format": "arrow"})
    client = socket.create_connection((str(place.hostname), place.port or 0), timeout=20)
    head = f"POST /v1/query HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n\r\n"
    client.sendall((head + body).encode())
    return client


@pytest.mark.parametrize("path", ["/v1/query", "/v1/refresh", "/v1/settings"])
def test_a_request_that_is_too_large_is_refused(url: str, path: str) -> None:
    body = {"sql": "SELECT " + "1" * 3000}
    heard = ask(url, "PATCH" if path == "/v1/settings" else "POST", path, body)
    assert heard.status == 413 and heard.error["kind"] == "RequestTooLarge"


def test_a_large_request_without_a_length_is_refused(url: str) -> None:
    heard = ask(url, "POST", "/v1/query", iter([b"x" * 3000]))
    assert heard.status == 413


@pytest.mark.parametrize(
    ("body", "telling"),
    [
        ("", "no query"),
        ("{", "not JSON"),
        ("[]", "not a JSON object"),
        ("[" * 1500, "not JSON"),
        ({}, "no query"),
        ({"sql": "  "}, "no query"),
        ({"sql": 1}, "sql cannot be 1"),
        ({"sql": "SELECT 1", "speed": 1}, "unknown field 'speed'"),
        ({"sql": "SELECT 1", "job": "1"}, "job cannot be"),
        ({"sql": "SELECT 1", "job": -1}, "negative"),
        ({"sql": "SELECT 1", "job": True}, "job cannot be true"),
        ({"sql": "SELECT 1", "limit": 1.5}, "limit cannot be"),
        ({"sql": "SELECT 1", "deadline": []}, "deadline cannot be"),
        ({"sql": "SELECT 1", "format": "xml"}, "format cannot be 'xml'"),
        ({"sql": "SELECT 1", "session": ""}, "name of the session"),
        (b"\xff\xfe", "not JSON"),
        ({"sql": "SELECT '\ud800'"}, "U+D800, at character 9"),
        ({"sql": "SELECT '\0'"}, "a NUL"),
        ({"sql": "SELECT 1", "session": "\udfff"}, "U+DFFF"),
        ({"\ud800": 1}, "U+D800"),
        ('{"sql": "SELECT 1", "job": ' + "1" * 1500 + "}", "more than 18 digits"),
        ('{"sql": "SELECT 1", "deadline": 1e999}', "1e999 is not a number"),
        ('{"sql": "SELECT 1", "deadline": NaN}', "NaN is not a number"),
        ({"sql": [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]}, "more than 32 levels"),
    ],
)
def test_a_request_that_is_wrong_says_how(url: str, body: object, telling: str) -> None:
    heard = ask(url, "POST", "/v1/query", body)
    assert heard.status == 400 and telling in heard.error["what"] and heard.error["hint"], heard


@pytest.mark.parametrize("limit", ["0", "-1", "x", "1001", "1e2", "²", "1" * 5000])
def test_a_wrong_length_of_history_is_refused(url: str, limit: str) -> None:
    heard = ask(url, "GET", f"/v1/history?limit={limit.encode().hex() if limit == '²' else limit}")
    assert heard.status == 400 and "1000" in heard.error["hint"]


def test_unknown_paths_and_methods_are_told_as_errors(url: str) -> None:
    assert ask(url, "GET", "/v2").status == 404
    heard = ask(url, "GET", "/v1/query")
    assert heard.status == 405 and heard.headers["allow"] == "POST" and heard.error["hint"]


def test_an_answer_with_too_many_rows_is_refused_and_with_a_limit_ends(url: str) -> None:
    assert len(query(url, "SELECT 1000").json["rows"]) == 1000
    heard = query(url, "SELECT 1001")
    assert heard.status == 400 and "more than 1,000 rows" in heard.error["what"] and "LIMIT" in heard.error["hint"]
    assert query(url, "SELECT 1001", limit=2).json["rows"] == [[0], [1]]
    assert query(url, "SELECT 5", limit=0).json["rows"] == []
    assert query(url, "SELECT 1001", limit=2000).status == 400


def test_the_format_is_what_is_asked_for(url: str) -> None:
    arrow = "application/vnd.apache.arrow.stream"
    said = query(url, "SELECT 2", format="arrow")
    accepted = ask(url, "POST", "/v1/query", {"sql": "SELECT 2"}, {"Accept": f"{arrow}, */*"})
    for heard in (said, accepted):
        assert heard.headers["content-type"] == arrow
        assert pa.ipc.open_stream(heard.body).read_all().to_pydict() == {"x": [0, 1]}
        assert json.loads(heard.headers["headgate-receipt"]) == RECEIPT.to_json()
    plain = ask(url, "POST", "/v1/query", {"sql": "SELECT 2", "format": "json"}, {"Accept": arrow})
    assert plain.json == {
        "columns": [{"name": "x", "type": "bigint"}],
        "rows": [[0], [1]],
        "receipt": RECEIPT.to_json(),
    }


def test_an_answer_of_a_named_job_has_no_receipt(url: str) -> None:
    heard = query(url, "SELECT 1", job=3)
    assert heard.json["receipt"] is None and "headgate-receipt" not in heard.headers


def test_the_bound_is_passed_on(served: tuple[Server, ScriptedWarehouse]) -> None:
    server, scripted = served
    query(server.url, "SELECT 1", max_staleness="10m", deadline=1.5, when_stale="serve")
    assert scripted.bounds[-1] == {"max_staleness": "10m", "deadline": 1.5, "when_stale": "serve"}


def test_what_is_too_stale_is_a_timeout(url: str) -> None:
    heard = query(url, "SELECT stale")
    assert heard.status == 504 and heard.error == {
        "kind": "TooStale",
        "what": "no answer at most 0 s old could be made within 1 s",
        "where": None,
        "hint": "wait longer",
    }


def test_a_mistake_of_its_own_is_logged_and_not_shown(url: str, caplog: pytest.LogCaptureFixture) -> None:
    heard = query(url, "SELECT mistake")
    assert heard.status == 500 and heard.error["kind"] == "UnexpectedFailure" and "secret" not in heard.body.decode()
    identity = heard.error["hint"].partition("id=")[2].split()[0]
    eventually(lambda: f"id={identity} failed" in caplog.text and "a secret of the inside" in caplog.text)


def test_more_queries_than_allowed_are_sent_away() -> None:
    with serving() as (server, scripted), ThreadPoolExecutor(3) as threads:
        running = [threads.submit(query, server.url, "SELECT wait") for _ in range(3)]
        for _ in running:
            assert scripted.waiting.acquire(timeout=PATIENCE)
        heard = query(server.url, "SELECT 1")
        assert heard.status == 429 and heard.headers["retry-after"] == "1" and "3 queries" in heard.error["what"]
        for session in scripted.sessions:
            session.cancel()
        assert [each.result().status for each in running] == [503] * 3
        assert query(server.url, "SELECT 1").status == 200


def test_a_query_that_takes_too_long_is_called_off() -> None:
    with serving(replace(SMALL, time=timedelta(seconds=0.3))) as (server, scripted):
        heard = query(server.url, "SELECT wait")
        assert heard.status == 504 and heard.error["kind"] == "QueryTimedOut"
        assert scripted.cancelled == 1
        assert query(server.url, "SELECT 1").status == 200


def test_a_client_that_goes_away_calls_its_query_off() -> None:
    with serving() as (server, scripted):
        client = send_query(server, "SELECT wait")
        assert scripted.waiting.acquire(timeout=PATIENCE)
        client.close()
        eventually(lambda: scripted.cancelled == 1)
        eventually(lambda: not server._service.queries.running)
        assert scripted.open_answers == 0


def test_a_client_that_does_not_read_holds_neither_a_snapshot_nor_a_place(caplog: pytest.LogCaptureFixture) -> None:
    with (
        serving(replace(SMALL, rows=LARGE_ROWS)) as (server, scripted),
        send_query(server, f"SELECT {LARGE_ROWS}") as client,
    ):
        client.recv(100)
        assert scripted.open_answers == 0
        eventually(lambda: not server._service.queries.running)
        assert "too slowly" in caplog.text
        received = b""
        while part := client.recv(1 << 20):
            received += part
        assert len(received) < 8 * LARGE_ROWS and not received.endswith(b"0\r\n\r\n")


def test_a_client_that_does_not_finish_its_request_is_sent_away() -> None:
    with serving() as (server, _):
        place = urlsplit(server.url)
        with socket.create_connection((str(place.hostname), place.port or 0), timeout=10) as client:
            client.sendall(b"POST /v1/query HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\n{")
            assert client.recv(100).startswith(b"HTTP/1.1 408 ")


def test_queries_of_one_session_take_turns_and_share_what_it_knows() -> None:
    with serving() as (server, scripted), ThreadPoolExecutor(2) as threads:
        first = threads.submit(query, server.url, "SELECT wait", session="mine")
        assert scripted.waiting.acquire(timeout=PATIENCE)
        second = threads.submit(query, server.url, "SELECT 1", session="mine")
        other = query(server.url, "SELECT 1", session="other")
        assert other.status == 200 and not second.done()
        assert scripted.sessions[0].asked == ["SELECT wait"]
        scripted.sessions[0].cancel()
        assert first.result().status == 503 and second.result().status == 200
        assert scripted.sessions[0].asked == ["SELECT wait", "SELECT 1"] and len(scripted.sessions) == 2


def test_stopping_gives_queries_time_and_then_calls_them_off() -> None:
    limits = replace(SMALL, stop=timedelta(seconds=0.5))
    with serving(limits) as (server, scripted), ThreadPoolExecutor(2) as threads:
        running = threads.submit(query, server.url, "SELECT wait")
        assert scripted.waiting.acquire(timeout=PATIENCE)
        stopping = threading.Thread(target=server.stop)
        stopping.start()
        heard = running.result(PATIENCE)
        assert heard.status == 503 and "stopping" in heard.error["what"]
        stopping.join(PATIENCE)
        assert not stopping.is_alive()
        with pytest.raises(ConnectionRefusedError):
            query(server.url, "SELECT 1")


def test_each_request_is_one_line_of_the_log(url: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "headgate.service"):
        heard = query(url, "SELECT 2")
        eventually(lambda: "path=/v1/query" in caplog.text)
    (line,) = [record.getMessage() for record in caplog.records if "path=/v1/query" in record.getMessage()]
    fields = dict(field.split("=", 1) for field in line.split())
    assert fields["id"] == heard.headers["headgate-request"]
    assert (fields["method"], fields["status"], fields["rows"], fields["job"]) == ("POST", "200", "2", "7")
    assert 0 <= float(fields["seconds"]) < 30
