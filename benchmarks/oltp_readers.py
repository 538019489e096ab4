"""Other readers of the log, to compare capture with: PostgreSQL's own, and one that costs nothing itself."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
from contextlib import suppress
from pathlib import Path

from psycopg import pq

from benchmarks.oltp import Oltp
from benchmarks.oltp_capture import NAME, clean_up
from headgate.capture.postgres.connection import connect


def receive(oltp: Oltp, database: str, slot: str, publication: str, file: Path) -> list[str]:
    """PostgreSQL's own reader of a slot, which copies the stream into a file."""
    return [
        *(str(oltp.server.binaries / "pg_recvlogical"), "--start", "--no-loop", "-d", oltp.server.dsn_of(database)),
        *("-S", slot, "-f", str(file), "-o", "proto_version=1", "-o", f"publication_names={publication}"),
    ]


def publish_all(oltp: Oltp, database: str) -> None:
    """A publication and a slot for the other readers; `clean_up` drops them."""
    with oltp.server.connect(database) as connection:
        connection.execute(f"CREATE PUBLICATION {NAME} FOR ALL TABLES".encode())
        connection.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [NAME])


class Emptying:
    """Has the server decode and send until `close`, and throws the stream away unread: what the server's side alone takes."""

    def __init__(self, oltp: Oltp, database: str) -> None:
        self._oltp = oltp
        self._database = database
        publish_all(oltp, database)
        self._connection = connect(oltp.server.dsn_of(database), application=NAME, replication=True)
        options = f"(proto_version '1', publication_names '{NAME}')"
        begun = self._connection.pgconn.exec_(f"START_REPLICATION SLOT {NAME} LOGICAL 0/0 {options}".encode())
        if begun.status != pq.ExecStatus.COPY_BOTH:
            raise SystemExit(f"the stream does not begin: {begun.error_message.decode(errors='replace').strip()}")
        self._socket = socket.socket(fileno=os.dup(self._connection.pgconn.socket))
        self._socket.setblocking(False)
        self._dropped = 0
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._empty)
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        self._thread.join()
        self._socket.close()
        self._connection.close()
        clean_up(self._oltp, self._database)
        if not self._dropped:
            raise SystemExit("the server sent nothing")

    def _empty(self) -> None:
        room = bytearray(4 << 20)
        while not self._closing.wait(0.02):
            with suppress(BlockingIOError):
                # Nothing is copied: Linux only drops what has come.
                while size := self._socket.recv_into(room, len(room), socket.MSG_TRUNC):
                    self._dropped += size


class Receiving:
    """PostgreSQL's own reader at work until `close`."""

    def __init__(self, oltp: Oltp, database: str) -> None:
        self._oltp = oltp
        self._database = database
        publish_all(oltp, database)
        command = receive(oltp, database, NAME, NAME, Path(os.devnull))
        self._process = subprocess.Popen(command, stderr=subprocess.DEVNULL)

    def close(self) -> None:
        self._process.send_signal(signal.SIGINT)
        self._process.wait()
        clean_up(self._oltp, self._database)
