"""How a producer in another process and the warehouse talk over a Unix domain socket.

    header length u32 | body length u64 | header JSON | body

A body is one Arrow IPC stream; nothing that is received is ever executed. Rows travel in pieces of a few megabytes, each a
message of its own. A wire that failed within a message is closed, so that nobody reads the rest of it as something else.
"""

from __future__ import annotations

import json
import select
import socket
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import pyarrow as pa

from headgate.capture.frames import decode_rows, encode_rows

PROTOCOL = 1
"""Changes whenever the messages do."""
HELLO_BYTES = 64 << 10
"""What a message may have before its sender is known."""
_MESSAGE_BYTES = 2 << 30
_PIECE_BYTES = 4 << 20
_PREFIX = struct.Struct("<IQ")

Message = dict[str, Any]


class Gone(Exception):
    """The other side closed the wire, or does not speak as this one does."""


class Silent(Gone):
    """The other side did nothing for longer than the wire's patience."""


class Wire:
    """One connection; `patience` is how many seconds it waits for the other side, None for ever."""

    def __init__(self, connection: socket.socket, patience: float | None) -> None:
        self._socket = connection
        self._socket.settimeout(patience)

    def be_patient(self) -> None:
        """From now on waits as long as it takes."""
        self._socket.settimeout(None)

    def send(self, header: Mapping[str, Any], body: bytes = b"") -> None:
        text = json.dumps(header, separators=(",", ":")).encode()
        with self._whole_message():
            self._socket.sendall(_PREFIX.pack(len(text), len(body)) + text)
            if body:
                self._socket.sendall(body)

    def receive(self, limit: int = _MESSAGE_BYTES) -> tuple[Message, Any]:
        """The next message: its header, and its body as a buffer."""
        with self._whole_message():
            header_bytes, body_bytes = _PREFIX.unpack(self._read(_PREFIX.size))
            if header_bytes + body_bytes > limit:
                raise ConnectionError(f"a message of {header_bytes + body_bytes} bytes is too long")
            header = json.loads(bytes(self._read(header_bytes)))
            if not isinstance(header, dict):
                raise ConnectionError("a message's header is not a JSON object")
            return header, self._read(body_bytes)

    def send_rows(self, batches: Iterable[tuple[str, pa.RecordBatch]]) -> None:
        """Batches with the names of their tables, a message for each piece."""
        for table, batch in batches:
            for piece in _pieces(batch):
                self.send({"rows": table}, encode_rows(pa.Table.from_batches([piece])))

    def receive_rows(self, keep: Callable[[str, pa.RecordBatch], None]) -> tuple[Message, Any, Exception | None]:
        """Keeps what `send_rows` sent; gives the message that follows it, and what went wrong with keeping.

        After an error the other batches are read and dropped, so that the two sides stay in step.
        """
        failure: Exception | None = None
        while True:
            header, body = self.receive()
            if "rows" not in header:
                return header, body, failure
            if failure is None:
                try:
                    for batch in decode_rows(body).to_batches():
                        keep(header["rows"], batch)
                except Exception as error:
                    failure = error

    @property
    def is_closed(self) -> bool:
        return self._socket.fileno() < 0

    @property
    def is_gone(self) -> bool:
        """Whether the other side has closed it, even if something that it sent is still to be read."""
        poll = select.poll()
        try:
            poll.register(self._socket, 0)
        except ValueError:  # closed on this side
            return True
        return bool(poll.poll(0))

    def stop_receiving(self) -> None:
        """Whoever waits for a message finds the wire closed; answers can still be sent."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RD)

    def close(self) -> None:
        """Also wakes a thread that waits for a message."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _read(self, length: int) -> Any:
        # From Arrow's memory: it is not cleared first, is aligned as Arrow wants it, and the rows can stay in it.
        buffer = pa.allocate_buffer(length)
        rest = memoryview(buffer)
        while rest:
            received = self._socket.recv_into(rest)
            if received == 0:
                raise ConnectionError("the other side closed the connection")
            rest = rest[received:]
        return buffer

    @contextmanager
    def _whole_message(self) -> Iterator[None]:
        try:
            yield
        except TimeoutError as error:
            self.close()
            raise Silent(str(error)) from error
        except (OSError, ValueError) as error:
            self.close()
            raise Gone(str(error)) from error
        except BaseException:
            self.close()
            raise


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    rows = max(1, batch.num_rows * _PIECE_BYTES // max(batch.nbytes, _PIECE_BYTES))
    for first in range(0, batch.num_rows, rows):
        yield batch.slice(first, rows)
