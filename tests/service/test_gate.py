"""Who may ask the service, before any warehouse is asked."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from headgate.errors import ConfigError, EnvironmentProblem
from headgate.service import Server
from tests.service.asking import Heard, ask
from tests.waiting import eventually

TOKEN = "a-long-secret-token"
PATHS = ["/readyz", "/v1/status", "/v1/tables", "/v1/history", "/metrics", "/openapi.json", "/", "/nowhere"]


@pytest.fixture(scope="module")
def open_server() -> Iterator[Server]:
    with Server(port=0, allowed_hosts=["shop.example"]) as server:
        yield server


@pytest.fixture(scope="module")
def server_with_token() -> Iterator[Server]:
    with Server(port=0, token=TOKEN) as server:
        yield server


def get(server: Server, path: str, **headers: str) -> Heard:
    return ask(server.url, "GET", path, headers=headers)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8765", "127.0.0.1.evil.example", "", "[::1", "localhost@x"]
)
def test_a_foreign_name_is_refused_on_every_route(open_server: Server, path: str, host: str) -> None:
    heard = get(open_server, path, Host=host)
    assert heard.status in (400, 403), heard
    if heard.status == 403:
        assert heard.error["kind"] == "ForeignRequest" and heard.error["hint"]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:1", "http://127.0.0.1", "file://"])
def test_a_page_of_another_site_is_refused_on_every_route(open_server: Server, path: str, origin: str) -> None:
    heard = get(open_server, path, Origin=origin)
    assert heard.status == 403 and heard.error["kind"] == "ForeignRequest"


def test_a_foreign_page_cannot_ask_a_query(open_server: Server) -> None:
    heard = ask(open_server.url, "POST", "/v1/query", {"sql": "SELECT 1"}, {"Origin": "http://evil.example"})
    assert heard.status == 403


def test_a_backup_is_for_the_machine_itself_or_a_token(open_server: Server, server_with_token: Server) -> None:
    heard = ask(open_server.url, "POST", "/v1/backup", {"folder": "/copy"}, {"Host": "shop.example"})
    assert heard.status == 403 and "token" in heard.error["what"] and heard.error["hint"]
    assert ask(server_with_token.url, "POST", "/v1/backup", {"folder": "/copy"}).status == 401
    for server in (open_server, server_with_token):
        # It passes, to a service whose warehouse is not open.
        heard = ask(server.url, "POST", "/v1/backup", {"folder": "/copy"}, {"Authorization": f"Bearer {TOKEN}"})
        assert heard.status == 503 and heard.error["kind"] == "NotReady"


def test_the_services_own_page_and_allowed_names_pass(open_server: Server) -> None:
    port = open_server.url.rpartition(":")[2]
    for host in (f"127.0.0.1:{port}", f"localhost:{port}", "LOCALHOST", f"[::1]:{port}", "shop.example"):
        for scheme in ("http", "https"):
            heard = get(open_server, "/openapi.json", Host=host, Origin=f"{scheme}://{host}")
            assert heard.status == 200, (host, heard)


def test_there_are_no_cors_headers_and_no_sniffing(open_server: Server) -> None:
    preflight = {"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"}
    for heard in (get(open_server, "/openapi.json"), ask(open_server.url, "OPTIONS", "/v1/query", headers=preflight)):
        assert not [name for name in heard.headers if name.startswith("access-control")]
        assert heard.headers["x-content-type-options"] == "nosniff"


def test_alive_is_said_to_everyone(server_with_token: Server) -> None:
    heard = get(server_with_token, "/healthz", Host="evil.example", Origin="http://evil.example")
    assert (heard.status, heard.body) == (200, b"alive\n")


@pytest.mark.parametrize(
    "said", [None, "", "Bearer", "Bearer ", "Bearer wrong", f"Basic {TOKEN}", TOKEN, f"Bearer {TOKEN}x"]
)
def test_without_the_token_nothing_is_told(server_with_token: Server, said: str | None) -> None:
    headers = {} if said is None else {"Authorization": said}
    for path in ("/v1/status", "/metrics", "/openapi.json", "/nowhere"):
        heard = ask(server_with_token.url, "GET", path, headers=headers)
        assert heard.status == 401 and heard.headers["www-authenticate"] == "Bearer"
        assert heard.error["kind"] == "Unauthorized" and TOKEN not in heard.body.decode()


def test_with_the_token_it_passes_and_readiness_needs_none(server_with_token: Server) -> None:
    for scheme in ("Bearer", "bearer"):
        assert get(server_with_token, "/openapi.json", Authorization=f"{scheme} {TOKEN}").status == 200
    heard = get(server_with_token, "/readyz")
    assert heard.status == 503 and heard.headers["retry-after"] and "being opened" in heard.error["what"]


def test_no_token_is_ever_logged(server_with_token: Server, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        get(server_with_token, f"/openapi.json?token={TOKEN}", Authorization=f"Bearer {TOKEN}")
        get(server_with_token, "/metrics", Authorization=f"Bearer {TOKEN}x")
        eventually(lambda: "path=/metrics status=401" in caplog.text)
    assert "path=/openapi.json status=200" in caplog.text
    assert TOKEN not in caplog.text


def test_a_line_break_in_a_path_does_not_make_a_line_in_the_log(
    open_server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        assert get(open_server, "/a%0Aid=1%20status=200").status == 404
        eventually(lambda: "path=/a%0Aid=1%20status=200 status=404" in caplog.text)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.com", ""])
def test_it_does_not_listen_beyond_this_machine_without_a_token(host: str) -> None:
    with pytest.raises(ConfigError, match="token"):
        Server(host=host, port=0)


@pytest.mark.parametrize("token", ["", "  ", "schlüssel"])
def test_a_token_that_is_none_is_refused(token: str) -> None:
    with pytest.raises(ConfigError, match="token"):
        Server(port=0, token=token)


def test_beyond_this_machine_it_listens_with_a_token() -> None:
    with Server(host="0.0.0.0", port=0, token=TOKEN) as server:
        assert server.url.startswith("http://127.0.0.1:")
        assert get(server, "/openapi.json").status == 401
        assert get(server, "/openapi.json", Authorization=f"Bearer {TOKEN}").status == 200


def test_a_port_that_is_taken_is_named(open_server: Server) -> None:
    port = int(open_server.url.rpartition(":")[2])
    with pytest.raises(EnvironmentProblem, match=rf"127\.0\.0\.1:{port}.*port"):
        Server(port=port).start()


def test_spark_may_die_after_the_service_has_stopped() -> None:
    server = Server(port=0).start()
    assert ask(server.url, "GET", "/healthz").status == 200
    server.stop()
    server.give_up("its Java process ended with code -9")
