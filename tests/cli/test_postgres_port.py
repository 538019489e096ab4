"""Where `headgate run` listens for PostgreSQL's clients: the command's option, the project's `gateway`, or a default."""

from __future__ import annotations

import contextlib

import pytest

from headgate.cli.run import POSTGRES_PORT, listen_for_postgres
from headgate.config.gateway import GatewaySettings
from headgate.errors import ConfigError, EnvironmentProblem
from headgate.service.listening import listen

HERE = "127.0.0.1"


def port_of(settings: GatewaySettings, port: int | None = None) -> int | None:
    found = listen_for_postgres(settings, HERE, port, None)
    if found is None:
        return None
    with found:
        return int(found.getsockname()[1])


def test_the_projects_port_holds_unless_the_command_names_one() -> None:
    with listen(HERE, 0) as one, listen(HERE, 0) as other:
        free, named = one.getsockname()[1], other.getsockname()[1]
    assert port_of(GatewaySettings(port=free)) == free
    assert port_of(GatewaySettings(port=free), named) == named
    assert port_of(GatewaySettings(host="::1", port=0)) is not None


def test_a_project_may_have_no_gateway() -> None:
    assert port_of(GatewaySettings(enabled=False, port=0)) is None
    assert port_of(GatewaySettings(enabled=False), 0) is not None


def test_a_named_port_has_to_be_free_and_the_default_need_not() -> None:
    with listen(HERE, 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(EnvironmentProblem, match=str(port)):
            port_of(GatewaySettings(port=port))
    with contextlib.ExitStack() as held:
        with contextlib.suppress(EnvironmentProblem):
            held.enter_context(listen(HERE, POSTGRES_PORT))
        assert port_of(GatewaySettings()) not in (None, POSTGRES_PORT)


def test_an_address_beyond_this_machine_needs_a_token() -> None:
    settings = GatewaySettings(host="0.0.0.0", port=0)
    with pytest.raises(ConfigError, match="without a token"):
        listen_for_postgres(settings, HERE, None, None)
    found = listen_for_postgres(settings, HERE, None, "a-token")
    assert found is not None
    found.close()
