"""The service as a thread of this process: started, found by its address, and stopped without losing an answer."""

from __future__ import annotations

import asyncio
import logging
import secrets
import signal
import socket
import threading
from collections.abc import Callable, Sequence
from types import FrameType, TracebackType
from typing import Self

import uvicorn

from headgate.errors import ConfigError, EnvironmentProblem
from headgate.scheduling.warehouse import Warehouse
from headgate.service.app import Service, make_app
from headgate.service.connections import bounded_connections
from headgate.service.gate import is_loopback
from headgate.service.limits import ServiceLimits

_LOGGER = logging.getLogger("headgate.service")
_KEEP_ALIVE_SECONDS = 75
_AFTER_CALLING_OFF = 1
"""Seconds that queries which were called off have before they are left alone."""

_LONGEST_PATIENCE = (1 << 31) - 1
"""Milliseconds, as far as the system counts."""

DEFAULT_PORT = 8765


class Server:
    """Serves a warehouse in a thread, from `start` until `stop`; the warehouse is the caller's to close."""

    def __init__(
        self,
        warehouse: Warehouse | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = DEFAULT_PORT,
        token: str | None = None,
        limits: ServiceLimits | None = None,
        allowed_hosts: Sequence[str] = (),
    ) -> None:
        """Port 0 takes a free one. Without a warehouse the service is alive but not ready, until `attach`."""
        if token is not None and not (token.strip() and token.isascii()):
            raise ConfigError("the token is empty or not ASCII", hint="make one: openssl rand -hex 32")
        if token is None and not is_loopback(host):
            raise ConfigError(
                f"the service would listen beyond this machine, at {host}, without a token",
                hint="give it a token, or let it listen at 127.0.0.1",
            )
        self._host = host
        self._port = port
        self._limits = limits or ServiceLimits()
        self._service = Service(warehouse, self._limits)
        self.token = token if token is not None else secrets.token_urlsafe(32)
        """Administers. A service that is given none makes one, for the commands of the user who runs it."""
        self._app = make_app(self._service, self.token, (self._name, *allowed_hosts), is_open=token is None)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._uvicorn: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """Where it answers."""
        host = f"[{self._name}]" if ":" in self._name else self._name
        return f"http://{host}:{self._port}"

    @property
    def _name(self) -> str:
        """What it is called on this machine: all addresses together are no name."""
        return {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(self._host, self._host)

    def attach(self, warehouse: Warehouse) -> None:
        """From now on requests are about this warehouse."""
        self._service.attach(warehouse)

    def start(self) -> Self:
        listening = self._listen()
        config = uvicorn.Config(
            self._app,
            loop="asyncio",
            http=bounded_connections(self._limits),
            ws="none",
            lifespan="off",
            log_config=None,
            # The service logs by itself, in its own form.
            log_level="critical",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=_KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=int(self._limits.stop.total_seconds()) + _AFTER_CALLING_OFF,
        )
        self._uvicorn = server = uvicorn.Server(config)

        async def run() -> None:
            self._loop = asyncio.get_running_loop()
            await server.serve(sockets=[listening])

        self._thread = threading.Thread(target=asyncio.run, args=(run(),), name="headgate-service", daemon=True)
        self._thread.start()
        _LOGGER.info("listening url=%s", self.url)
        return self

    def stop(self) -> None:
        """Takes no more requests, gives those that run some time, and then calls them off. May be called again."""
        server, thread = self._uvicorn, self._thread
        if server is None or thread is None:
            return
        server.should_exit = True
        thread.join(self._limits.stop.total_seconds())
        if thread.is_alive() and self._loop is not None:
            self._loop.call_soon_threadsafe(self._service.queries.stop)
            thread.join(_AFTER_CALLING_OFF + 1)
        self._thread = None
        _LOGGER.info("stopped url=%s", self.url)

    def _listen(self) -> socket.socket:
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        try:
            listening = socket.create_server((self._host, self._port), family=family, backlog=2048)
        except OSError as error:
            raise EnvironmentProblem(
                f"the service cannot listen at {self.url}: {error.strerror or error}",
                hint="another program may have the port: choose another one, or stop that program",
            ) from None
        self._port = listening.getsockname()[1]
        # Connections take this over. Without it, a short answer's rows wait for the client's word that the headers came.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            # Of a client that takes no bytes, the connection would otherwise live on after its request was given up.
            patience = min(int(self._limits.client.total_seconds() * 1000), _LONGEST_PATIENCE)
            listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, patience)
        return listening

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def serve(
    warehouse: Warehouse,
    *,
    host: str = "127.0.0.1",
    port: int = DEFAULT_PORT,
    token: str | None = None,
    limits: ServiceLimits | None = None,
    allowed_hosts: Sequence[str] = (),
    started: Callable[[Server], None] | None = None,
) -> None:
    """Serves the warehouse until SIGINT or SIGTERM; to be called in the main thread. `started` hears of the server."""
    told = threading.Event()

    def stop(number: int, frame: FrameType | None) -> None:
        told.set()

    server = Server(warehouse, host=host, port=port, token=token, limits=limits, allowed_hosts=allowed_hosts)
    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with server:
            if started is not None:
                started(server)
            told.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
