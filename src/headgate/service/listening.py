"""The socket that a service listens at, and its address. Imports nothing of the service: whoever only holds the socket stays small."""

from __future__ import annotations

import socket

from headgate.errors import EnvironmentProblem

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


def name_of(host: str) -> str:
    """What a host is called on this machine: all addresses together are no name."""
    return {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)


def url_of(host: str, port: int) -> str:
    """Where a service at this host and port answers."""
    name = name_of(host)
    return f"http://[{name}]:{port}" if ":" in name else f"http://{name}:{port}"
