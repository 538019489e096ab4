"""How a producer in another process and the warehouse talk over a Unix domain socket.

    length u32 | JSON, and beside its first byte an open file, if one belongs to it

It is a control channel: rows lie in files, and open files travel instead of rows. Nothing that is received is ever executed. A wire
that failed within a message is closed, so that nobody reads the rest of it as something else.
"""

from __future__ import annotations

import json
import os
import socket
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

PROTOCOL = 3
"""Changes whenever the messages do."""
HELLO_BYTES = 64 << 10
"""What a message may have before its sender is known."""
_MESSAGE_BYTES = 256 << 20
_PREFIX = struct.Struct("<I")

Message = dict[str, Any]


class Gone(Exception):
    """The other side closed the wire, said nothing in time, or does not speak as this one does."""


class Wire:
    """One connection; `patience` is how many seconds it waits for the other side, None for ever."""

    def __init__(self, connection: socket.socket, patience: float | None) -> None:
        self._socket = connection
        self._socket.settimeout(patience)

    def be_patient(self) -> None:
        """From now on waits as long as it takes."""
        self._socket.settimeout(None)

    def send(self, message: Mapping[str, Any], descriptor: int | None = None) -> None:
        """A message, and with it an open file."""
        text = json.dumps(message, separators=(",", ":")).encode()
        whole = _PREFIX.pack(len(text)) + text
        with self._closed_if_it_fails():
            sent = socket.send_fds(self._socket, [whole], [] if descriptor is None else [descriptor])
            if sent < len(whole):
                self._socket.sendall(whole[sent:])

    def receive(self, limit: int = _MESSAGE_BYTES) -> tuple[Message, int | None]:
        """The next message, and the open file that came with it."""
        with self._closed_if_it_fails():
            # Open files come with a message's first byte.
            first, descriptors, _, _ = socket.recv_fds(self._socket, 1, 1)
            try:
                (length,) = _PREFIX.unpack(first + self._read(_PREFIX.size - 1)) if first else (0,)
                if not 0 < length <= limit:
                    raise ConnectionError("the other side closed the connection, or sends no messages")
                message = json.loads(self._read(length))
                if not isinstance(message, dict):
                    raise ConnectionError("a message is not a JSON object")
            except BaseException:
                for descriptor in descriptors:
                    os.close(descriptor)
                raise
            return message, next(iter(descriptors), None)

    @property
    def is_closed(self) -> bool:
        return self._socket.fileno() < 0

    def stop_receiving(self) -> None:
        """Whoever waits for a message finds the wire closed; answers can still be sent."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RD)

    def close(self) -> None:
        """Also wakes a thread that waits for a message."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _read(self, length: int) -> bytes:
        found = bytearray()
        while len(found) < length:
            received = self._socket.recv(min(length - len(found), 1 << 20))
            if not received:
                raise ConnectionError("the other side closed the connection")
            found += received
        return bytes(found)

    @contextmanager
    def _closed_if_it_fails(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            self.close()
            if isinstance(error, OSError | ValueError):
                raise Gone(str(error)) from error
            raise
