"""The endpoint: accepts PostgreSQL's clients in the service's own thread and knows their connections."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import itertools
import logging
import socket
import ssl
from collections.abc import Callable
from typing import TypeVar

from pygwire.messages import CancelRequest

from headgate.clock import SystemClock
from headgate.errors import HeadgateError
from headgate.gateway.catalog.contents import contents_of, freshness_of
from headgate.gateway.catalog.engine import Catalog
from headgate.gateway.commands import Setting, startup_options
from headgate.gateway.comments import Comments
from headgate.gateway.connection import WireConnection
from headgate.gateway.metrics import GatewayMetrics
from headgate.gateway.problems import FatalProblem, error_message, state_of
from headgate.gateway.queries import Work
from headgate.gateway.session import WireSession
from headgate.gateway.startup import Authenticator, WireClient, negotiated
from headgate.gateway.transport import ClientGone, Transport, WireProtocol
from headgate.scheduling.warehouse import Warehouse
from headgate.service.app import Service
from headgate.service.listening import address_of
from headgate.service.problems import TooManyConnections
from headgate.service.queries import Queries
from headgate.warehouse.roles import Roles

_LOGGER = logging.getLogger("headgate.gateway")
_NOT_SETTINGS = frozenset(("user", "database", "options", "replication"))

Found = TypeVar("Found")


class Gateway:
    """Serves from `open` until `close`; implements the service's `Endpoint`."""

    def __init__(
        self, listening: socket.socket, token: str, *, is_open: bool, tls: ssl.SSLContext | None = None
    ) -> None:
        """`is_open`: without roles everyone who reaches the socket may connect."""
        self._listening = listening
        self._authenticator = Authenticator(token, is_open)
        self._tls = tls
        self._numbers = itertools.count(1)
        self._works = itertools.count(1)
        self._clock = SystemClock()
        self._connections: dict[int, WireConnection] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._catalogs: tuple[Warehouse, Catalog, Comments] | None = None

    @property
    def port(self) -> int:
        return int(self._listening.getsockname()[1])

    @property
    def address(self) -> str:
        """The host and port that clients connect to."""
        return address_of(self._listening.getsockname()[0], self.port)

    @property
    def clients(self) -> int:
        """Connections that have begun."""
        return len(self._connections)

    async def open(self, service: Service) -> None:
        self._service = service
        service.postgres = self.address
        self.metrics = GatewayMetrics(service.registry)
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: WireProtocol(self._accept), sock=self._listening)
        _LOGGER.info("listening port=%d tls=%s", self.port, self._tls is not None)

    def leave(self) -> None:
        if self._server is not None:
            self._server.close()

    async def close(self) -> None:
        self.leave()
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=1)

    @property
    def queries(self) -> Queries:
        return self._service.queries

    def work(self, text: str, cancel: Callable[[], None]) -> Work:
        self.metrics.statements.inc()
        return Work(f"postgres-{next(self._works)}", text, self._clock.now(), cancel)

    async def in_thread(self, call: Callable[[], Found]) -> Found:
        return await asyncio.wrap_future(self.queries.threads.submit(call))

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        transport = Transport(reader, writer, self._service.limits)
        protocol = writer.transport.get_protocol()
        try:
            try:
                async with asyncio.timeout(self._service.limits.client.total_seconds()):
                    connection = await self._begun(transport)
            except TimeoutError:
                self.metrics.refused.inc()
                return
            except ClientGone:
                raise
            except Exception:
                self.metrics.refused.inc()
                raise
            if connection is not None:
                if isinstance(protocol, WireProtocol):
                    protocol.on_lost = lambda: connection.cancel(ClientGone())
                await self._answered(connection)
        except ClientGone:
            pass
        except asyncio.CancelledError:
            await self._say(transport, FatalProblem("57P01", "terminating connection: the service stops"))
        except Exception as error:
            if not isinstance(error, FatalProblem):
                error = _fatal(error)
            await self._say(transport, error)
        finally:
            await transport.close()

    async def _say(self, transport: Transport, problem: Exception) -> None:
        transport.put(error_message(problem))
        with contextlib.suppress(ClientGone):
            await transport.flush()

    async def _begun(self, transport: Transport) -> WireConnection | None:
        message = await negotiated(transport, self._tls)
        if isinstance(message, CancelRequest):
            self._cancel(message)
            return None
        if len(self._connections) >= self._service.limits.connections:
            raise TooManyConnections("sorry, too many clients already", hint="close some connections, or use a pool")
        warehouse, roles = self._service.opened(), self._service.roles
        assert roles is not None
        client = await self._authenticator.authenticated(transport, message, roles)
        catalog, comments = self._catalog(warehouse, roles)
        number, limits = next(self._numbers), self._service.limits
        session = WireSession(
            warehouse,
            limits,
            catalog,
            comments,
            roles,
            client.user,
            client.can,
            number,
            self._service.subscriptions,
        )
        _begin_with(session, client)
        return WireConnection(self, transport, session, number)

    def _catalog(self, warehouse: Warehouse, roles: Roles) -> tuple[Catalog, Comments]:
        """One for all connections."""
        if self._catalogs is None or self._catalogs[0] is not warehouse:
            comments = Comments(warehouse.project.storage)
            made = Catalog(lambda: contents_of(warehouse, roles, comments), lambda: freshness_of(warehouse))
            self._catalogs = warehouse, made, comments
        return self._catalogs[1:]

    async def _answered(self, connection: WireConnection) -> None:
        self._connections[connection.number] = connection
        self.metrics.connected.inc()
        self.metrics.connections.set(len(self._connections))
        try:
            await connection.run()
        finally:
            del self._connections[connection.number]
            self.metrics.connections.set(len(self._connections))
            await self.in_thread(connection.session.close)

    def _cancel(self, message: CancelRequest) -> None:
        found = self._connections.get(message.process_id)
        if found is not None and hmac.compare_digest(found.key, message.secret_key):
            found.cancel()


def _begin_with(session: WireSession, client: WireClient) -> None:
    """What holds from the beginning: the role's settings, then those of the connection."""
    given = list(client.settings.items())
    given += [
        (name, value)
        for name, value in client.parameters.items()
        if name not in _NOT_SETTINGS and not name.startswith("_pq_.")
    ]
    given += startup_options(client.parameters.get("options", ""))
    for name, value in given:
        session.commands.apply(Setting(name, value))
    session.settings.keep_as_default()


def _fatal(error: Exception) -> FatalProblem:
    if isinstance(error, HeadgateError):
        return FatalProblem(state_of(error), error.what, hint=error.advice)
    _LOGGER.error("a connection failed", exc_info=error)
    return FatalProblem("XX000", "internal error", hint="see the service log")
