"""The service as a thread of this process: started, found by its address, and stopped without losing an answer."""

from __future__ import annotations

import asyncio
import logging
import secrets
import signal
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import FrameType
from typing import Protocol, Self

import uvicorn

from headgate.capture.source import Progress
from headgate.errors import ConfigError, SparkLost
from headgate.scheduling.warehouse import Warehouse
from headgate.service.app import Service, make_app
from headgate.service.connections import bounded_connections
from headgate.service.limits import ServiceLimits
from headgate.service.listening import listen, name_of, require_token, url_of
from headgate.service.restarts import Restarts

_LOGGER = logging.getLogger("headgate.service")
_KEEP_ALIVE_SECONDS = 75
_AFTER_CALLING_OFF = 1
"""Seconds that queries which were called off have before they are left alone."""

_AGAIN = "ask again in a moment: the service starts again"
_LONGEST_PATIENCE = (1 << 31) - 1
"""Milliseconds, as far as the system counts."""

DEFAULT_PORT = 8765


class Endpoint(Protocol):
    """Another protocol over which the service answers, in the service's own thread."""

    async def open(self, service: Service) -> None:
        """From now on clients are answered."""

    def leave(self) -> None:
        """Takes no new clients: the socket is for whoever serves next."""

    async def close(self) -> None:
        """Takes no more clients, lets running queries end, and closes all connections."""


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
        listening: socket.socket | None = None,
        own_token: str | None = None,
        restarts: Restarts | None = None,
        endpoints: Sequence[Endpoint] = (),
    ) -> None:
        """Port 0 takes a free one. Without a warehouse the service is alive but not ready, until `attach`. Limits are by default those
        of the warehouse's project.

        A service that is started again by a parent process gets from it the socket, which listens at `host` already, the
        token that administers without asking for one, and what to tell of the `restarts`.
        """
        if token is not None and not (token.strip() and token.isascii()):
            raise ConfigError("the token is empty or not ASCII", hint="make one: openssl rand -hex 32")
        require_token(host, token)
        self._host = host
        self._port = port
        project = ServiceLimits() if warehouse is None else ServiceLimits.of(warehouse.project.service)
        self._limits = limits or project
        self._listening = listening
        self._endpoints = tuple(endpoints)
        self._service = Service(warehouse, self._limits, restarts or Restarts())
        self.token = token if token is not None else own_token or secrets.token_urlsafe(32)
        """Administers. A service that is given none makes one, for the commands of the user who runs it."""
        self._app = make_app(self._service, self.token, (name_of(host), *allowed_hosts), is_open=token is None)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._uvicorn: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """Where it answers."""
        return url_of(self._host, self._port)

    def tell_opening(self, what: str) -> None:
        """Has clients that ask too early hear what opening the warehouse is about."""
        self._service.opening = f": {what}"

    def tell_load(self, source: str, progress: Progress) -> None:
        """Has clients hear how far a source's tables are read; from any thread."""
        self._service.tell_load(source, progress)

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
            for endpoint in self._endpoints:
                await endpoint.open(self._service)
            await server.serve(sockets=[listening])
            for endpoint in self._endpoints:
                await endpoint.close()

        self._thread = threading.Thread(target=asyncio.run, args=(run(),), name="headgate-service", daemon=True)
        self._thread.start()
        _LOGGER.info("listening url=%s", self.url)
        return self

    def stop(self) -> None:
        """Takes no more requests, gives those that run some time, and then calls them off. May be called again."""
        server, thread = self._uvicorn, self._thread
        if server is None or thread is None:
            return
        # A subscription does not end by itself.
        self._soon(self._service.subscriptions.stop)
        server.should_exit = True
        thread.join(self._limits.stop.total_seconds())
        if thread.is_alive():
            self._soon(self._service.queries.stop)
            thread.join(_AFTER_CALLING_OFF + 1)
        self._thread = None
        _LOGGER.info("stopped url=%s", self.url)

    def give_up(self, why: str) -> None:
        """Tells every query that Spark is lost, and leaves new connections to whoever has the socket next."""
        problem = SparkLost(f"Spark cannot be used any more: {why}", hint=_AGAIN)
        self._soon(lambda: self._leave(problem))

    def _soon(self, call: Callable[[], None]) -> None:
        """Has the service's own thread make the call, unless that thread has ended."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop was closed: nobody waits any more
                self._loop.call_soon_threadsafe(call)

    def _leave(self, problem: SparkLost) -> None:
        for accepting in self._uvicorn.servers if self._uvicorn is not None else ():
            accepting.close()
        for endpoint in self._endpoints:
            endpoint.leave()
        self._service.queries.stop(problem)
        self._service.subscriptions.stop(problem)

    def _listen(self) -> socket.socket:
        listening = self._listening or listen(self._host, self._port)
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

    def __exit__(self, *_: object) -> None:
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
