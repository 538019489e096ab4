"""HTTP as the client needs it: connections that are used again, and errors as those that the warehouse raised."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import cache
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa

from headgate import errors
from headgate.errors import ConfigError, DefiniteError, HeadgateError, Location, MultipleProblems, TransientError
from headgate.remedies import spoken
from headgate.text import require_text

DEFAULT_URL = "http://127.0.0.1:8765"

_CONNECT_SECONDS = 10.0
_TRANSIENT = frozenset((408, 429, 502, 503, 504))


class ServiceUnreachable(TransientError):
    """No service answers there, or it went away."""


class Connections:
    """Connections to one service; those that are idle are used again."""

    def __init__(self, url: str, token: str | None) -> None:
        if token is not None and not (token.isascii() and token.isprintable()):
            raise ConfigError("the token is not ASCII", hint="send it as it was made, without line breaks")
        try:
            place = urlsplit(require_text(url, "the address"))
            self._port = place.port
        except ValueError:
            place, self._port = urlsplit(""), 0
        if place.scheme not in ("http", "https") or not place.hostname or self._port == 0:
            raise ConfigError(f"{url!r} is not the address of a service", hint=f"it looks like {DEFAULT_URL}")
        self.url = url
        self._kind = http.client.HTTPSConnection if place.scheme == "https" else http.client.HTTPConnection
        self._host, self._path = place.hostname, place.path
        surface = "command-line" if spoken() == "command-line" else "client"
        self._headers = {"Content-Type": "application/json", "Headgate-Surface": surface}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        self._lock = threading.Lock()
        self._idle: list[http.client.HTTPConnection] = []

    def ask(
        self, method: str, path: str, body: Mapping[str, object] | None, timeout: float | None, *, may_repeat: bool
    ) -> Response:
        """The service's response; an error that it tells is raised."""
        content = None if body is None else json.dumps(body, default=timedelta.total_seconds)
        with self._problems():
            used = self._take() if may_repeat else None
            if used is not None:
                # The service may have closed it meanwhile.
                with suppress(ConnectionError):
                    return self._exchange(used, method, path, content, timeout)
            fresh = self._kind(self._host, self._port, timeout=_CONNECT_SECONDS)
            fresh.connect()
            return self._exchange(fresh, method, path, content, timeout)

    def give_back(self, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            self._idle.append(connection)

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _take(self) -> http.client.HTTPConnection | None:
        with self._lock:
            return self._idle.pop() if self._idle else None

    def _exchange(
        self, connection: http.client.HTTPConnection, method: str, path: str, content: str | None, timeout: float | None
    ) -> Response:
        try:
            connection.sock.settimeout(timeout)
            connection.request(method, self._path + path, content, self._headers)
            response = Response(self, connection, connection.getresponse())
        except BaseException:
            connection.close()
            raise
        response.raise_for_status()
        return response

    @contextmanager
    def _problems(self) -> Iterator[None]:
        try:
            yield
        except ConnectionRefusedError:
            raise ServiceUnreachable(f"no service answers at {self.url}", hint="start it: `headgate run`") from None
        except TimeoutError:
            raise ServiceUnreachable(
                f"the service at {self.url} did not answer in time", hint="give the query a deadline, or wait longer"
            ) from None
        except (OSError, http.client.HTTPException) as error:
            what = str(error) or type(error).__name__
            raise ServiceUnreachable(
                f"the service at {self.url} cannot be asked: {what}", hint="see that it runs and the address is right"
            ) from None


class Response:
    """A response and the connection that it comes through."""

    def __init__(
        self, owner: Connections, connection: http.client.HTTPConnection, response: http.client.HTTPResponse
    ) -> None:
        self._owner = owner
        self._connection: http.client.HTTPConnection | None = connection
        self._response = response

    def header(self, name: str) -> str | None:
        return self._response.getheader(name)

    def json(self) -> dict[str, Any]:
        with self.reading():
            body = self._response.read()
        self.finish()
        try:
            found = json.loads(body)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise DefiniteError(
                f"what answers at {self._owner.url} is not headgate", hint="see that the address and the port are right"
            )
        return found

    def raise_for_status(self) -> None:
        status = self._response.status
        if status != 200:
            raise error_of(self.json().get("error"), status)

    def content(self) -> Any:
        """What holds the rows: all of a short answer, else the stream."""
        if self._response.length is None:
            return self._response
        body = self._response.read()
        self.finish()
        return body

    def lines(self) -> Iterator[str]:
        """The lines of a stream, without their ends, as they come."""
        with self.reading():
            while line := self._response.readline():
                yield line.decode().rstrip("\r\n")

    @contextmanager
    def reading(self) -> Iterator[None]:
        try:
            yield
        except (OSError, http.client.HTTPException, pa.ArrowInvalid) as error:
            self.close()
            raise ServiceUnreachable(
                f"the answer of the service broke off: {error}", hint="ask again; the service's log says why"
            ) from None

    def finish(self) -> None:
        """All of the rows were read: the connection can be used again."""
        with self.reading():
            self._response.read()
        connection, self._connection = self._connection, None
        if connection is not None:
            if self._response.will_close:
                connection.close()
            else:
                self._owner.give_back(connection)

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            self._response.close()
            connection.close()


@cache
def _class_of(kind: str, is_transient: bool) -> type[HeadgateError]:
    """The class of that name; one that only the service knows becomes a kind of its family."""
    found = getattr(errors, kind, None)
    if isinstance(found, type) and issubclass(found, HeadgateError):
        return found
    return type(kind, (TransientError if is_transient else DefiniteError,), {"__module__": __name__})


def error_of(said: object, status: int) -> HeadgateError:
    """The error that the service told."""
    if not isinstance(said, dict):
        said = {"what": f"the service answered with status {status}"}
    where = said.get("where")
    place = None if where is None else Location(str(where))
    kind = _class_of(str(said.get("kind", "DefiniteError")), status in _TRANSIENT)
    if issubclass(kind, MultipleProblems):
        problems = [error_of(each, status) for each in said.get("problems", ())]
        return MultipleProblems(str(said.get("what")), where=place, hint=said.get("hint"), problems=problems)
    return kind(str(said.get("what")), where=place, hint=said.get("hint"))
