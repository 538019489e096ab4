"""What each role may ask of the service, and that changes of roles hold at once."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.routing import Route

import headgate.client
from headgate.errors import DefiniteError
from headgate.service import Server, ServiceLimits
from headgate.service.app import Service
from headgate.service.openapi import document
from headgate.service.permissions import PERMISSIONS, permission
from headgate.service.restarts import Restarts
from headgate.warehouse.roles import ROLES, Roles
from tests.service.asking import Heard, ask
from tests.service.scripted import ScriptedWarehouse
from tests.service.test_limits import by_its_text
from tests.waiting import eventually

TOKEN = "the-service's-own-token"
ADMINISTERED = [
    ("PATCH", "/v1/settings"),
    ("POST", "/v1/refresh"),
    ("POST", "/v1/resume"),
    ("POST", "/v1/queue"),
    ("POST", "/v1/load"),
    ("POST", "/v1/backup"),
    ("GET", "/v1/nothing"),
    ("DELETE", "/v1/query"),
]


@pytest.fixture
def roles(tmp_path: Path) -> Roles:
    return Roles(tmp_path)


@pytest.fixture
def server(tmp_path: Path, roles: Roles) -> Iterator[Server]:
    scripted = ScriptedWarehouse(by_its_text, storage=tmp_path)
    with Server(scripted.as_warehouse, port=0, token=TOKEN) as server:
        yield server


@pytest.fixture
def open_server(tmp_path: Path, roles: Roles) -> Iterator[Server]:
    scripted = ScriptedWarehouse(by_its_text, storage=tmp_path)
    with Server(scripted.as_warehouse, port=0) as server:
        yield server


def asked(server: Server, token: str | None, method: str = "POST", path: str = "/v1/query") -> Heard:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    body = {"sql": "SELECT 1"} if path == "/v1/query" else {"folder": "relative"} if method != "GET" else None
    return ask(server.url, method, path, body, headers)


def test_every_route_says_what_it_needs() -> None:
    routes = [route for route in Service(None, ServiceLimits(), Restarts()).routes if isinstance(route, Route)]
    served = {(method, route.path) for route in routes for method in route.methods or () if method != "HEAD"}
    assert served == set(PERMISSIONS)
    for path, operations in document(ServiceLimits())["paths"].items():
        for method, operation in operations.items():
            needed = PERMISSIONS[method.upper(), path]
            assert operation["security"] == ([] if needed is None else [{}, {"token": [needed]}])


@pytest.mark.parametrize(
    ("method", "path", "needed"),
    [
        ("HEAD", "/v1/status", "read"),
        ("GET", "/v1/explain/a%20flow", "read"),
        ("GET", "/v1/explain/a/b", "administer"),
        ("GET", "/v1/statusx", "administer"),
        ("PUT", "/v1/status", "administer"),
        ("GET", "/nothing", "administer"),
        ("GET", "/healthz", None),
    ],
)
def test_what_nobody_thought_of_needs_to_administer(method: str, path: str, needed: str | None) -> None:
    assert permission(method, path) == needed


@pytest.mark.parametrize("can", ["read", "produce"])
def test_who_can_read_reads_and_changes_nothing(server: Server, roles: Roles, can: str) -> None:
    token = roles.add("analyst", can)  # type: ignore[arg-type]
    assert asked(server, token).json["rows"] == [[0]]
    assert asked(server, token, "GET", "/openapi.json").status == 200
    for method, path in ADMINISTERED:
        heard = asked(server, token, method, path)
        assert heard.status == 403 and heard.error["kind"] == "NotPermitted", (method, path)
        assert f"the role analyst can {can}" in heard.error["what"] and "administer" in heard.error["hint"]


def test_who_can_administer_can_do_all_that_the_services_own_token_can(server: Server, roles: Roles) -> None:
    for token in (roles.add("root", "administer"), TOKEN):
        assert asked(server, token).status == 200
        assert asked(server, token, "POST", "/v1/backup").error["what"].startswith("the request names no absolute")
        assert asked(server, token, "GET", "/v1/nothing").status == 404


def test_a_running_service_hears_of_roles_that_come_and_go(server: Server, roles: Roles) -> None:
    token = roles.add("analyst", "read")
    assert asked(server, token).status == 200
    roles.remove("analyst")
    heard = asked(server, token)
    assert heard.status == 401 and heard.headers["www-authenticate"] == "Bearer"
    assert asked(server, roles.add("analyst", "read")).status == 200
    assert asked(server, token).status == 401


def test_without_a_token_of_its_own_it_is_open_until_the_first_role(open_server: Server, roles: Roles) -> None:
    assert asked(open_server, None).status == 200
    token = roles.add("analyst", "read")
    assert asked(open_server, None).status == 401 and asked(open_server, "wrong").status == 401
    assert asked(open_server, token).status == 200
    # Commands of the user who runs the service have this one.
    assert asked(open_server, open_server.token).status == 200
    roles.remove("analyst")
    assert asked(open_server, None).status == 200


def test_a_damaged_file_of_roles_shuts_out_all_but_the_administrator(
    server: Server, roles: Roles, tmp_path: Path
) -> None:
    token = roles.add("analyst", "read")
    (tmp_path / ROLES).write_text("{")
    heard = asked(server, token)
    assert heard.status == 500 and str(tmp_path / ROLES) in heard.error["where"]
    assert asked(server, TOKEN).status == 200


def test_while_the_warehouse_is_opened_a_role_is_told_to_wait(roles: Roles) -> None:
    with Server(port=0, token=TOKEN) as server:
        heard = asked(server, roles.add("analyst", "read"))
        assert heard.status == 503 and "opened" in heard.error["what"]


def test_sessions_of_the_same_name_are_not_shared_between_roles(tmp_path: Path, roles: Roles) -> None:
    scripted = ScriptedWarehouse(by_its_text, storage=tmp_path)
    with Server(scripted.as_warehouse, port=0, token=TOKEN) as server:
        tokens = [roles.add("ann", "read"), roles.add("bob", "read"), TOKEN]
        for token in tokens * 2:
            with headgate.client.connect(server.url, token) as client:
                client.sql("SELECT 1", session="mine").to_arrow()
        assert [len(session.asked) for session in scripted.sessions] == [2, 2, 2]


def test_the_client_tells_what_a_role_may_not(server: Server, roles: Roles) -> None:
    with headgate.client.connect(server.url, roles.add("analyst", "read")) as client:
        assert client.sql("SELECT 3").to_arrow().num_rows == 3
        with pytest.raises(DefiniteError, match=r"the role analyst can read.*headgate role add") as caught:
            client.refresh()
        assert type(caught.value).__name__ == "NotPermitted"


def test_the_log_names_the_role_and_never_the_token(
    server: Server, roles: Roles, caplog: pytest.LogCaptureFixture
) -> None:
    token = roles.add("analyst", "read")
    with caplog.at_level(logging.DEBUG):
        asked(server, token)
        asked(server, token, "POST", "/v1/resume")
        eventually(lambda: caplog.text.count("role=analyst") == 2)
    assert token.partition(".")[2] not in caplog.text
