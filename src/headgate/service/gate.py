"""Who may ask: by which name, from which page, with which token; and one line in the log about every request.

The service's own token administers; each named role (`warehouse/roles.py`) has another. A service that was given no token, and whose
warehouse has no roles, lets everyone who reaches it administer.

A page of another site can make a browser send requests to this machine. Its own name then stands in Origin, or, if it
lets its name point here, in Host; so both are checked, on loopback too.
"""

from __future__ import annotations

import hmac
import logging
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from urllib.parse import urlsplit

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headgate.errors import HeadgateError
from headgate.service.listening import is_loopback
from headgate.service.permissions import ALIVE, BACKUP, permission
from headgate.service.problems import (
    ForeignRequest,
    NotPermitted,
    NotReady,
    Unauthorized,
    error_to_json,
    headers_of,
    in_words_for,
    status_of,
)
from headgate.warehouse.roles import Can, Roles

_LOGGER = logging.getLogger("headgate.service")

LOOPBACK = ("localhost", "127.0.0.1", "::1")
ROLE = "headgate.role"
"""In a request's scope: the name of the role that asks; None for who has the service's own token, or needs none."""
VANISHED = 499
"""The status in the log of a request whose client went away."""

_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-resource-policy", b"same-origin"),
]


class Gate:
    """Lets through what may pass; stands before everything else."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        token: str,
        is_open: bool,
        roles: Callable[[], Roles | None],
        hosts: Iterable[str],
        page: Iterable[str] = (),
    ) -> None:
        """`token` administers; `is_open` lets everyone do so while there are no roles. `roles` are unknown (None) until the
        warehouse is open. `hosts` are names that the service has besides loopback's, `page` the paths of what a browser
        loads first."""
        self._app = app
        self._token = token.encode()
        self._is_open = is_open
        self._roles = roles
        self._hosts = frozenset(host.lower() for host in (*LOOPBACK, *hosts))
        self._page = frozenset(page)

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

        headers = Headers(scope=scope)
        try:
            problem = await self._problem(scope, headers)
            if problem is None:
                await self._app(scope, receive, sending)
            else:
                await error_response(problem, headers)(scope, receive, sending)
        except Exception:
            status = HTTPStatus.INTERNAL_SERVER_ERROR
            raise
        finally:
            # The path as it was sent: what it stands for may contain line breaks.
            path = scope.get("raw_path", b"").decode("ascii", "replace")
            told = {**({"role": scope[ROLE]} if scope.get(ROLE) else {}), **scope.get("headgate.log", {})}
            more = "".join(f" {name}={value}" for name, value in told.items())
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

    async def _problem(self, scope: Scope, headers: Headers) -> HeadgateError | None:
        path = scope["path"]
        if path == ALIVE:
            return None
        host = headers.get("host", "")
        if _name(host) not in self._hosts:
            return ForeignRequest(
                f"Host header not allowed: {host!r}",
                hint="use http://127.0.0.1, or name the host as allowed where the service is started",
            )
        origin = headers.get("origin")
        if origin is not None and not _is_own(origin, host):
            return ForeignRequest(
                f"pages of {origin!r} may not use the service", hint="use the service's own page, or a program"
            )
        needed = None if path in self._page else permission(scope["method"], path)
        return None if needed is None else await self._unpermitted(scope, headers, needed)

    async def _unpermitted(self, scope: Scope, headers: Headers, needed: Can) -> HeadgateError | None:
        """Why who asks may not; notes the role in the scope."""
        scheme, _, said = headers.get("authorization", "").partition(" ")
        token = said.strip() if scheme.lower() == "bearer" else ""
        if hmac.compare_digest(token.encode(), self._token):
            return None
        roles = self._roles()
        try:
            if self._is_open and not (roles and roles.all()):
                return self._remote_backup(scope["path"], headers)
            if roles is None and "." in token:
                return NotReady("the warehouse is being opened, and with it its roles", hint="ask again in a moment")
            role = await run_in_threadpool(roles.of_token, token) if roles and token else None
        except HeadgateError as error:
            return error
        if role is None:
            return Unauthorized(
                "the token is wrong" if said else "the service asks for a token",
                hint="send it as the header Authorization: Bearer …",
            )
        scope[ROLE] = role.name
        if role.may(needed):
            return None
        return NotPermitted(
            f"the role {role.name} can {role.can}, and this needs a role that can {needed}",
            hint=f"use the token of one that can; who administers the service makes one: `headgate role add NAME --can {needed}`",
        )

    def _remote_backup(self, path: str, headers: Headers) -> HeadgateError | None:
        if path == BACKUP and not is_loopback(_name(headers.get("host", "")) or ""):
            return ForeignRequest(
                "a backup is made for those who have a token, and the service asks for none",
                hint="give the service a token, or ask from its own machine: http://127.0.0.1",
            )
        return None


def error_response(error: BaseException, headers: Mapping[str, str]) -> JSONResponse:
    """The answer to a request, which has these headers, that failed."""
    return JSONResponse(in_words_for(headers, {"error": error_to_json(error)}), status_of(error), headers_of(error))


def _name(host: str) -> str | None:
    """The name in a Host header, without its port."""
    try:
        return urlsplit(f"//{host}").hostname
    except ValueError:
        return None


def _is_own(origin: str, host: str) -> bool:
    scheme, _, place = origin.partition("://")
    return scheme in ("http", "https") and place.lower() == host.lower()
