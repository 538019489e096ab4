"""Connections of clients, bounded in number and in the time that each may hold without a request.

    connected ── head of a request, whole ──▶ answering ── answer sent ──▶ idle ── first byte ──▶ sending a head …
       └─ limits.client ─▶ closed                            └─ keep-alive ─▶ closed    └─ limits.client ─▶ closed

The time for a head runs from its first byte (or from the connection) and is not prolonged by further bytes. When there are as many
connections as the limit, a new one takes the place of the one that has been without a request for longest; if all are being
answered, the new one is sent away.
"""

from __future__ import annotations

import asyncio
import json

from uvicorn.protocols.http.h11_impl import H11Protocol

from headgate.service.limits import ServiceLimits
from headgate.service.problems import TooManyConnections, error_to_json


class BoundedConnection(H11Protocol):
    """One connection; `limits` is set by `bounded_connections`."""

    limits: ServiceLimits
    _without_request_since: float = 0.0
    _head_timer: asyncio.TimerHandle | None = None

    @property
    def is_answering(self) -> bool:
        """Whether a request has come whose answer is not sent yet."""
        return self.cycle is not None and not self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        has_room = self._made_room()
        super().connection_made(transport)
        if not has_room:
            self._send_away()
            return
        self._wait_for_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.is_answering:
            self._end_waiting()
        elif self._head_timer is None:
            self._wait_for_head()

    def on_response_complete(self) -> None:
        self._without_request_since = self.loop.time()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_waiting()
        super().connection_lost(exc)

    def _wait_for_head(self) -> None:
        if self.transport.is_closing():
            return
        self._without_request_since = self.loop.time()
        self._head_timer = self.loop.call_later(self.limits.client.total_seconds(), self._close_unless_answering)

    def _end_waiting(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _close_unless_answering(self) -> None:
        self._head_timer = None
        if not self.is_answering:
            self.transport.abort()

    def _made_room(self) -> bool:
        """Whether one more connection can be held, if necessary in place of one that has no request."""
        if len(self.connections) < self.limits.connections:
            return True
        held = [other for other in self.connections if isinstance(other, BoundedConnection) and not other.is_answering]
        if not held:
            return False
        longest = min(held, key=lambda other: other._without_request_since)
        self.connections.discard(longest)
        longest.transport.abort()
        return True

    def _send_away(self) -> None:
        error = TooManyConnections(
            f"the service has {self.limits.connections} connections already", hint="ask again in a moment"
        )
        body = json.dumps({"error": error_to_json(error)})
        self.transport.write(
            "HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Type: application/json\r\n"
            f"Retry-After: 1\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()
        )
        self.connections.discard(self)
        self.transport.close()


def bounded_connections(limits: ServiceLimits) -> type[BoundedConnection]:
    """The kind of connection that has these limits, as uvicorn wants it: a class."""
    return type("BoundedConnection", (BoundedConnection,), {"limits": limits})
