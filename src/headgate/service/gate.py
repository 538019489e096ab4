"""Who may ask: by which name, from which page, with which token; and one line in the log about every request.

A page of another site can make a browser send requests to this machine. Its own name then stands in Origin, or, if it
lets its name point here, in Host; so both are checked, on loopback too.
"""

from __future__ import annotations

import hmac
import ipaddress
import logging
import secrets
import time
from collections.abc import Iterable
from http import HTTPStatus
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headgate.errors import HeadgateError
from headgate.service.problems import Refused, Unauthorized, error_to_json, headers_of, status_of

_LOGGER = logging.getLogger("headgate.service")

LOOPBACK = ("localhost", "127.0.0.1", "::1")
ALIVE = "/healthz"
"""Open to everyone: it says nothing."""
READY = "/readyz"
"""Needs no token: it says yes or no."""
BACKUP = "/v1/backup"
"""Writes to the machine's disk: for those who have the token, or are on the machine."""
VANISHED = 499
"""The status in the log of a request whose client went away."""

_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-resource-policy", b"same-origin"),
]


def is_loopback(host: str) -> bool:
    """Whether an address can be reached from this machine alone."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


class Gate:
    """Lets through what may pass; stands before everything else."""

    def __init__(self, app: ASGIApp, *, token: str | None, hosts: Iterable[str], page: Iterable[str] = ()) -> None:
        """`hosts` are names that the service has besides loopback's, `page` the paths of what a browser loads first."""
        self._app = app
        self._token = None if token is None else token.encode()
        self._hosts = frozenset(host.lower() for host in (*LOOPBACK, *hosts))
        self._without_token = frozenset((ALIVE, READY, *page))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = time.monotonic()
        identity = scope["headgate.id"] = secrets.token_hex(6)
        status: int = VANISHED

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), *_HEADERS, (b"headgate-request", identity.encode())]
            await send(message)

        problem = self._problem(scope["path"], Headers(scope=scope))
        try:
            if problem is None:
                await self._app(scope, receive, sending)
            else:
                await error_response(problem)(scope, receive, sending)
        except Exception:
            status = HTTPStatus.INTERNAL_SERVER_ERROR
            raise
        finally:
            # The path as it was sent: what it stands for may contain line breaks.
            path = scope.get("raw_path", b"").decode("ascii", "replace")
            more = "".join(f" {name}={value}" for name, value in scope.get("headgate.log", {}).items())
            seconds = time.monotonic() - began
            _LOGGER.info(
                "id=%s method=%s path=%s status=%d seconds=%.4f%s",
                identity,
                scope["method"],
                path,
                status,
                seconds,
                more,
            )

    def _problem(self, path: str, headers: Headers) -> HeadgateError | None:
        if path == ALIVE:
            return None
        host = headers.get("host", "")
        if _name(host) not in self._hosts:
            return Refused(
                f"the service does not go by the name {host!r}",
                hint="use http://127.0.0.1, or name the host as allowed where the service is started",
            )
        origin = headers.get("origin")
        if origin is not None and not _is_own(origin, host):
            return Refused(
                f"pages of {origin!r} may not use the service", hint="use the service's own page, or a program"
            )
        if self._token is None and path == BACKUP and not is_loopback(_name(host) or ""):
            return Refused(
                "a backup is made for those who have a token, and the service asks for none",
                hint="give the service a token, or ask from its own machine: http://127.0.0.1",
            )
        if self._token is None or path in self._without_token:
            return None
        scheme, _, said = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not hmac.compare_digest(said.strip().encode(), self._token):
            return Unauthorized(
                "the token is wrong" if said else "the service asks for a token",
                hint="send it as the header Authorization: Bearer …",
            )
        return None


def error_response(error: BaseException) -> JSONResponse:
    """The answer to a request that failed."""
    return JSONResponse({"error": error_to_json(error)}, status_of(error), headers_of(error))


def _name(host: str) -> str | None:
    """The name in a Host header, without its port."""
    try:
        return urlsplit(f"//{host}").hostname
    except ValueError:
        return None


def _is_own(origin: str, host: str) -> bool:
    scheme, _, place = origin.partition("://")
    return scheme in ("http", "https") and place.lower() == host.lower()
