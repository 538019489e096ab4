"""Requests as any HTTP client makes them."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit


@dataclass(frozen=True)
class Heard:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        found: dict[str, Any] = self.json["error"]
        return found


def ask(
    url: str, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None, seconds: float = 30
) -> Heard:
    """Sends one request through a connection of its own; a body of other things than texts or bytes is sent as JSON."""
    place = urlsplit(url)
    connection = http.client.HTTPConnection(str(place.hostname), place.port, timeout=seconds)
    try:
        content: Any = body if body is None or isinstance(body, str | bytes | Iterator) else json.dumps(body)
        connection.request(method, path, content, dict(headers or {}))
        response = connection.getresponse()
        return Heard(response.status, {name.lower(): value for name, value in response.getheaders()}, response.read())
    finally:
        connection.close()


def query(url: str, sql: str, **fields: object) -> Heard:
    return ask(url, "POST", "/v1/query", {"sql": sql, **fields})
