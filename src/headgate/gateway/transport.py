"""The bytes of a connection: whole messages in, bounded in size; messages out, collected and sent when the client needs them.

A client that takes nothing for a while loses its connection. `pygwire` decodes and encodes all messages but rows, which `rows` makes
of Arrow's columns.
"""

from __future__ import annotations

import asyncio
import ssl
import struct
from collections.abc import Callable

from pygwire import ConnectionPhase, FrontendMessageDecoder, PygwireError
from pygwire.messages import PGMessage

from headgate.gateway.problems import PROTOCOL, FatalProblem
from headgate.service.limits import ServiceLimits

_COLLECTED = 64 << 10
"""Bytes of messages that are held before they are sent."""
_MOST_STARTUP = 10_000
_LENGTH = struct.Struct("!I")


class ClientGone(Exception):
    """The client has closed the connection, or takes nothing any more."""


class WireProtocol(asyncio.StreamReaderProtocol):
    """A stream that tells at once when its client is gone, also while a query runs."""

    def __init__(self, accept: Callable[[asyncio.StreamReader, asyncio.StreamWriter], None]) -> None:
        super().__init__(asyncio.StreamReader(limit=_COLLECTED), accept)
        self.on_lost: Callable[[], None] = lambda: None

    def connection_lost(self, exc: Exception | None) -> None:
        self.on_lost()
        super().connection_lost(exc)

    def eof_received(self) -> bool | None:
        self.on_lost()
        return super().eof_received()


class Transport:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, limits: ServiceLimits) -> None:
        self._reader = reader
        self._writer = writer
        self._limits = limits
        self._decoder = FrontendMessageDecoder()
        self._out = bytearray()

    async def startup(self) -> PGMessage:
        """The next message before the connection has begun."""
        head = await self._exactly(4)
        (length,) = _LENGTH.unpack(head)
        if not 8 <= length <= _MOST_STARTUP:
            raise FatalProblem(PROTOCOL, "invalid length of startup packet")
        return self._decoded(head + await self._exactly(length - 4), ConnectionPhase.STARTUP)

    async def message(self, phase: ConnectionPhase = ConnectionPhase.READY) -> PGMessage:
        head = await self._exactly(5)
        (length,) = _LENGTH.unpack_from(head, 1)
        if not 4 <= length <= self._limits.request_bytes:
            raise FatalProblem(
                PROTOCOL,
                f"a message has {length:,} bytes, and the limit is {self._limits.request_bytes:,}",
                hint="send rows by COPY, in parts",
            )
        return self._decoded(head + await self._exactly(length - 4), phase)

    def _decoded(self, data: bytes, phase: ConnectionPhase) -> PGMessage:
        self._decoder.phase = phase
        self._decoder.feed(data)
        try:
            found = next(self._decoder, None)
        except (PygwireError, ValueError, LookupError, struct.error) as error:
            raise FatalProblem(
                PROTOCOL, f"invalid message: {str(error).splitlines()[0] if str(error) else 'malformed'}"
            ) from None
        if found is None or self._decoder.buffered:
            raise FatalProblem(PROTOCOL, "invalid message format")
        return found

    async def _exactly(self, count: int) -> bytes:
        try:
            return await self._reader.readexactly(count)
        except (asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
            raise ClientGone from None

    def put(self, *messages: PGMessage) -> None:
        for message in messages:
            self._out += message.to_wire()

    async def send(self, data: memoryview) -> None:
        """Sends what was put and then these bytes; waits while the client takes them."""
        if len(self._out) + len(data) < _COLLECTED:
            self._out += data
            return
        await self.flush()
        self._writer.write(data)
        await self.flush()

    async def flush(self) -> None:
        if self._out:
            self._writer.write(bytes(self._out))
            self._out.clear()
        transport = self._writer.transport
        left = transport.get_write_buffer_size()
        if not left and not transport.is_closing():
            return
        while True:
            try:
                async with asyncio.timeout(self._limits.client.total_seconds()):
                    await self._writer.drain()
                return
            except TimeoutError:
                now = transport.get_write_buffer_size()
                if now >= left:
                    transport.abort()
                    raise ClientGone from None
                left = now
            except (ConnectionError, ssl.SSLError):
                raise ClientGone from None

    async def raw(self, data: bytes) -> None:
        self._writer.write(data)
        await self.flush()

    async def start_tls(self, context: ssl.SSLContext) -> None:
        if getattr(self._reader, "_buffer", b""):
            # Whoever stands between could have put it there.
            raise FatalProblem(PROTOCOL, "received unencrypted data after the request for TLS")
        try:
            await self._writer.start_tls(context)
        except (ConnectionError, ssl.SSLError, TimeoutError):
            raise ClientGone from None

    async def close(self) -> None:
        try:
            self._writer.close()
            async with asyncio.timeout(1):
                await self._writer.wait_closed()
        except (OSError, ssl.SSLError, TimeoutError):
            self._writer.transport.abort()

    def abort(self) -> None:
        self._writer.transport.abort()
