"""The socket that a service listens at, and its address. Imports nothing of the service: whoever only holds the socket stays small."""

from __future__ import annotations

import ipaddress
import socket

from headgate.errors import ConfigError, EnvironmentProblem

_BACKLOG = 2048


def listen(host: str, port: int) -> socket.socket:
    """A socket at which clients can connect from now on; port 0 takes a free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise EnvironmentProblem(
            f"the service cannot listen at {url_of(host, port)}: {error.strerror or error}",
            hint="another program may have the port: choose another one, or stop that program",
        ) from None


def is_loopback(host: str) -> bool:
    """Whether an address can be reached from this machine alone."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def require_token(host: str, token: str | None) -> None:
    """Without a token a service is for this machine alone."""
    if token is None and not is_loopback(host):
        raise ConfigError(
            f"the service would listen beyond this machine, at {host}, without a token",
            hint="give it a token, or let it listen at 127.0.0.1",
        )


def name_of(host: str) -> str:
    """What a host is called on this machine: all addresses together are no name."""
    return {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)


def address_of(host: str, port: int) -> str:
    """A host and port, as a URL has them."""
    name = name_of(host)
    return f"[{name}]:{port}" if ":" in name else f"{name}:{port}"


def url_of(host: str, port: int) -> str:
    """Where a service at this host and port answers."""
    return f"http://{address_of(host, port)}"
