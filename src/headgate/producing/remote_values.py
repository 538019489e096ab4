"""How a producer in another process and the warehouse talk: messages over a socket, and what they hold.

    JSON, then the rows that belong to it as Arrow IPC, each with its length (`multiprocessing.connection` frames them)

It is a control channel: a producer's own rows lie in segments, of which open files travel. Nothing that is received is ever executed.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import datetime
from multiprocessing.connection import Client, Connection
from multiprocessing.reduction import recv_handle, send_handle
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import pyarrow as pa
from pyspark.sql.types import StructType

from headgate import errors
from headgate.capture.block_writer import Put
from headgate.capture.events import from_micros, to_micros
from headgate.capture.frames import Block, decode_rows, encode_rows
from headgate.capture.source import SourceTable
from headgate.errors import DefiniteError, EnvironmentProblem, HeadgateError, Location

PROTOCOL = 5
"""Changes whenever the messages do."""
HELLO_BYTES = 64 << 10
"""What a message may have before its sender is known."""
_MESSAGE_BYTES = 256 << 20

Message = dict[str, Any]


class Gone(Exception):
    """The other side closed the connection, said nothing in time, or does not speak as this one does."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server listens, and what shows who may talk to it."""

    socket: str
    key: str = field(repr=False)
    """The secret of the server, or the token of a role that can produce."""
    elsewhere: tuple[str, int] | None = None
    """Host and port for producers on other machines."""

    def connect(self) -> tuple[Connection, bool]:
        """A connection, and whether the server is on this machine."""
        if self.elsewhere is None or Path(self.socket).exists():
            return Client(self.socket, "AF_UNIX"), True
        wire = Client(self.elsewhere, "AF_INET")
        keep_alive(wire)
        return wire, False

    def write(self, file: Path) -> None:
        """Puts the file in place whole; only its owner can read it."""
        fresh = file.with_name(f"{file.name}.{os.getpid()}.new")
        fresh.unlink(missing_ok=True)
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as content:
            json.dump(asdict(self), content)
        fresh.replace(file)

    @staticmethod
    def read(file: Path) -> Address:
        try:
            content = json.loads(file.read_text())
            host_and_port = content.get("elsewhere")
            return Address(content["socket"], content["key"], host_and_port and tuple(host_and_port))
        except FileNotFoundError:
            raise closed_warehouse(file) from None
        except OSError as error:
            raise EnvironmentProblem(
                f"the address of the warehouse cannot be read: {error.strerror}",
                where=Location(str(file)),
                hint="run the producer as the user who runs the warehouse",
            ) from error
        except (ValueError, TypeError, KeyError, AttributeError):
            raise EnvironmentProblem(
                "this file does not hold the address of a warehouse", where=Location(str(file)), hint="give another one"
            ) from None


def closed_warehouse(place: Path | str) -> EnvironmentProblem:
    return EnvironmentProblem(
        "no open warehouse takes producers here", where=Location(str(place)), hint="open it first, then connect"
    )


def error_to_json(error: Exception) -> dict[str, Any]:
    """An error by the name of its nearest class that the other side has, too."""
    if not isinstance(error, HeadgateError):
        error = DefiniteError(f"the warehouse failed: {type(error).__name__}: {error}", hint="its log says where")
    known = next(kind for kind in type(error).__mro__ if getattr(errors, kind.__name__, None) is kind)
    where = None if error.where is None else [error.where.file, error.where.line]
    return {"class": known.__name__, "what": error.what, "where": where, "hint": error.advice}


def error_from_json(body: dict[str, Any]) -> HeadgateError:
    kind = getattr(errors, body["class"], None)
    if not (isinstance(kind, type) and issubclass(kind, HeadgateError)):
        kind = DefiniteError
    return kind(body["what"], where=None if body["where"] is None else Location(*body["where"]), hint=body["hint"])


def table_to_json(table: SourceTable) -> dict[str, Any]:
    return {"name": table.name, "schema": table.schema.jsonValue(), "key": list(table.key)}


def table_from_json(body: dict[str, Any]) -> SourceTable:
    return SourceTable(body["name"], StructType.fromJson(body["schema"]), tuple(body["key"]))


def tables_from_json(body: Iterable[dict[str, Any]]) -> dict[str, SourceTable]:
    return {table["name"]: table_from_json(table) for table in body}


def instant_to_json(at: datetime | None) -> int | None:
    return None if at is None else to_micros(at)


def instant_from_json(micros: int | None) -> datetime | None:
    return None if micros is None else from_micros(micros)


def puts_to_json(puts: Iterable[Put]) -> list[list[Any]]:
    return [[table, *block] for table, block in puts]


def puts_from_json(body: Iterable[list[Any]], segments: Collection[str]) -> list[Put]:
    """References to blocks, which lie in the segments that the producer was given."""
    puts = []
    for table, segment, *numbers in body:
        block = Block(segment, *numbers)
        if segment not in segments or min(block.offset, block.length, block.rows) < 0:
            raise DefiniteError("a commit refers to rows that this producer did not write", hint="connect again")
        puts.append((str(table), block))
    return puts


def say(connection: Connection, message: Mapping[str, Any], rows: pa.Table | None = None) -> None:
    """Sends a message, and rows behind it."""
    with _GoneIfItFails(connection):
        connection.send_bytes(json.dumps(message if rows is None else {**message, "has_rows": True}).encode())
        if rows is not None:
            connection.send_bytes(encode_rows(rows))


def hear(connection: Connection, limit: int = _MESSAGE_BYTES) -> tuple[Message, pa.Table | None]:
    """The next message, and the rows behind it."""
    with _GoneIfItFails(connection):
        message = json.loads(connection.recv_bytes(limit))
        if not isinstance(message, dict):
            raise ValueError("a message is not a JSON object")
        return message, decode_rows(connection.recv_bytes()) if message.get("has_rows") else None


def say_file(connection: Connection, descriptor: int) -> None:
    """Sends an open file."""
    with _GoneIfItFails(connection):
        send_handle(connection, descriptor, None)


def hear_file(connection: Connection) -> int:
    """The open file that comes next."""
    with _GoneIfItFails(connection):
        return int(recv_handle(connection))


def keep_alive(connection: Connection) -> None:
    """Of a connection between machines: one that has vanished is noticed, and small messages go at once."""
    with socket.socket(fileno=os.dup(connection.fileno())) as end:
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if hasattr(socket, "TCP_KEEPIDLE"):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30)
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10)
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)


def hang_up(connection: Connection, how: int = socket.SHUT_RDWR) -> None:
    """Wakes whoever waits for a message: after this none comes, and unless only receiving ends (`SHUT_RD`), none goes."""
    with suppress(OSError), socket.socket(fileno=os.dup(connection.fileno())) as end:
        end.shutdown(how)


class _GoneIfItFails:
    """Who failed within a message must not read the rest of it as something else."""

    __slots__ = ("_connection",)

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: TracebackType | None) -> Literal[False]:
        if error is not None:
            hang_up(self._connection)
            self._connection.close()
            if isinstance(error, OSError | EOFError | ValueError | RuntimeError):
                raise Gone(str(error)) from error
        return False
