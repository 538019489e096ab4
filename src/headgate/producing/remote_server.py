"""Lets producers in other processes write to the warehouse: of this machine, and of others if the project says where.

Whoever connects shows the secret of the address file, which only this user can read, or the token of a role that can produce; without
roles the socket lies in a folder that only this user can enter. Producers on other machines find the address file in the
storage. Every connection has a thread of its own, from its first byte on, so that one that stalls holds nobody up; of those that
have not shown anything yet there are only so many.
"""

from __future__ import annotations

import hmac
import logging
import os
import secrets
import shutil
import socket
import struct
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path

from headgate.config.producers import ProducersSettings
from headgate.errors import ConfigError, DefiniteError, EnvironmentProblem, HeadgateError, TransientError
from headgate.producing.remote_producer import MakeChannel, RemoteProducer
from headgate.producing.remote_values import (
    HELLO_BYTES,
    PROTOCOL,
    Address,
    Gone,
    Message,
    error_to_json,
    hang_up,
    hear,
    keep_alive,
    say,
)
from headgate.warehouse.roles import Role, Roles

_LOGGER = logging.getLogger(__name__)
_MOST_UNKNOWN = 64
_ADDRESS_BYTES = 100
"""Systems allow a socket's path from 104 bytes on."""


class RemoteServer:
    """Serves producers until it is closed."""

    def __init__(
        self,
        make_channel: MakeChannel,
        address_file: Path,
        *,
        roles: Roles | None = None,
        elsewhere: ProducersSettings | None = None,
        patience: timedelta = timedelta(seconds=10),
    ) -> None:
        self._make_channel = make_channel
        self._address_file = address_file
        self._roles = roles
        self._folder = Path(tempfile.mkdtemp(prefix="headgate-"))
        self._patience = patience.total_seconds()
        self._address = Address(str(self._folder / "socket"), secrets.token_hex(32))
        self._sockets: list[socket.socket] = []
        self._lock = threading.Lock()
        self._is_closed = False
        self._wires: dict[threading.Thread, Connection] = {}
        self._unknown: set[threading.Thread] = set()
        """Connections whose secret has not been seen yet."""
        self._producers: set[RemoteProducer] = set()
        try:
            self._listen()
            if elsewhere is not None:
                self._address = replace(self._address, elsewhere=self._listen_elsewhere(elsewhere))
            self._address.write(address_file)
        except BaseException:
            for each in self._sockets:
                each.close()
            shutil.rmtree(self._folder)
            raise
        self._accepting = [
            threading.Thread(target=self._accept, args=(each,), name="headgate-producers", daemon=True)
            for each in self._sockets
        ]
        for thread in self._accepting:
            thread.start()

    def close(self) -> None:
        """Gives the producers' tables back, and disappears. May be called again."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            producers = list(self._producers)
        with suppress(HeadgateError):
            if Address.read(self._address_file) == self._address:
                self._address_file.unlink()
        for each, thread in zip(self._sockets, self._accepting, strict=True):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            thread.join()
            each.close()
        for producer in producers:
            producer.stop()
        self._end_connections()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _listen(self) -> None:
        if len(os.fsencode(self._address.socket)) > _ADDRESS_BYTES:
            raise EnvironmentProblem(
                f"the path {self._address.socket} is too long for a socket",
                hint="set the environment variable TMPDIR to a folder with a shorter path",
            )
        here = socket.socket(socket.AF_UNIX)
        self._sockets.append(here)
        here.bind(self._address.socket)
        if self._roles is not None:
            # Other users can reach the socket, but see nothing else that lies beside it.
            Path(self._address.socket).chmod(0o666)
            self._folder.chmod(0o711)
        here.listen(128)

    def _listen_elsewhere(self, settings: ProducersSettings) -> tuple[str, int]:
        """Listens to other machines; gives the host and port that they are told."""
        try:
            found = socket.create_server((settings.host, settings.port), backlog=128)
        except OSError as error:
            raise EnvironmentProblem(
                f"producers cannot connect at {settings.host}:{settings.port}: {error.strerror}",
                hint="change `producers` in the project file; port 0 takes a free one",
            ) from error
        self._sockets.append(found)
        is_any = settings.host in ("0.0.0.0", "")
        return socket.gethostname() if is_any else settings.host, int(found.getsockname()[1])

    def _accept(self, listening: socket.socket) -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                if self._is_closed:
                    return
                _LOGGER.exception("a producer could not connect")
                time.sleep(0.1)
                continue
            # Whoever says nothing in time, or stops within a message, is sent away.
            _wait_at_most(connection, self._patience)
            is_near = connection.family == socket.AF_UNIX
            wire = Connection(connection.detach())
            if not is_near:
                keep_alive(wire)
            thread = threading.Thread(target=self._serve, args=(wire,), name="headgate-producer", daemon=True)
            with self._lock:
                has_room = len(self._unknown) < _MOST_UNKNOWN
                if has_room:
                    self._wires[thread] = wire
                    self._unknown.add(thread)
            thread.start() if has_room else wire.close()

    def _serve(self, wire: Connection) -> None:
        try:
            hello, _ = hear(wire, HELLO_BYTES)
            try:
                producer = self._greet(hello, wire)
            except Exception as error:
                if not isinstance(error, HeadgateError):
                    _LOGGER.exception("a producer could not be attached")
                say(wire, {"error": error_to_json(error), "archives": 0, "flushed": []})
                wire.close()
                return
            try:
                producer.serve()
            finally:
                with self._lock:
                    self._producers.discard(producer)
        except Gone:
            wire.close()
        except Exception:
            _LOGGER.exception("a producer's connection failed")
            wire.close()
        finally:
            with self._lock:
                del self._wires[threading.current_thread()]
                self._unknown.discard(threading.current_thread())

    def _greet(self, hello: Message, wire: Connection) -> RemoteProducer:
        """Attaches a producer."""
        role = self._role(str(hello.get("key")))
        with self._lock:
            self._unknown.discard(threading.current_thread())
        if hello.get("protocol") != PROTOCOL:
            raise ConfigError(
                "the producer and the warehouse run different versions of headgate",
                hint="install the same version for both",
            )
        who = hello["who"] if role is None else f"{hello['who']}, role {role.name}"
        producer = RemoteProducer(who, hello["source"], self._make_channel, wire)
        with socket.socket(fileno=os.dup(wire.fileno())) as known:
            _wait_at_most(known, 0)
        with self._lock:
            if not self._is_closed:
                self._producers.add(producer)
                return producer
        producer.detach()
        raise TransientError("the warehouse is being closed", hint="connect when it is open again")

    def _role(self, secret: str) -> Role | None:
        """The role that may produce and whose token this is; None for who has the server's own secret."""
        if hmac.compare_digest(secret.encode("utf-8", "replace"), self._address.key.encode()):
            return None
        role = self._roles.of_token(secret) if self._roles is not None else None
        if role is None:
            raise DefiniteError(
                "the warehouse does not know this producer's secret",
                hint="connect with the warehouse's present address file, or with the token of a role",
            )
        if not role.may("produce"):
            raise DefiniteError(
                f"the role {role.name} can {role.can}, and this needs a role that can produce",
                hint="use the token of one that can: `headgate role add NAME --can produce`",
            )
        return role

    def _end_connections(self) -> None:
        """Waits a while for the last answers, then ends the connections."""
        deadline = time.monotonic() + self._patience
        with self._lock:
            wires = dict(self._wires)
        for wire in wires.values():
            hang_up(wire, socket.SHUT_RD)
        for thread in wires:
            thread.join(max(0.0, deadline - time.monotonic()))
        for wire in wires.values():
            hang_up(wire)


def _wait_at_most(connection: socket.socket, seconds: float) -> None:
    """Ends a read or write that waits longer for the other side; 0: never."""
    limit = struct.pack("ll", int(seconds), int(seconds % 1 * 1e6))
    for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
        connection.setsockopt(socket.SOL_SOCKET, option, limit)
