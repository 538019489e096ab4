"""Where producers come in: `headgate.connect`, and the warehouse's ear for producers in other processes."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from datetime import timedelta
from functools import partial, wraps
from pathlib import Path
from typing import ParamSpec
from urllib.parse import urlsplit

from headgate.capture.producer import ProducerSource
from headgate.client import connect as connect_service
from headgate.config.project import load_project
from headgate.errors import EnvironmentProblem
from headgate.producing.channel import Channel
from headgate.producing.connection import Connection
from headgate.producing.local import LocalChannel
from headgate.producing.policies import AtOnce, Policy
from headgate.producing.remote import RemoteChannel
from headgate.producing.remote_server import RemoteServer
from headgate.producing.remote_values import Address
from headgate.runtime.tables.tables import INTERNAL
from headgate.scheduling.opening import open_warehouse
from headgate.scheduling.warehouse import Warehouse
from headgate.warehouse.roles import Roles

ADDRESS = "producers.json"

_Arguments = ParamSpec("_Arguments")


def _listening(opening: Callable[_Arguments, Warehouse]) -> Callable[_Arguments, Warehouse]:
    """The same, except that a warehouse with tables for producers listens to those in other processes."""

    @wraps(opening)
    def opened(*arguments: _Arguments.args, **options: _Arguments.kwargs) -> Warehouse:
        warehouse = opening(*arguments, **options)
        try:
            if any(isinstance(source, ProducerSource) for source in warehouse.sources.values()):
                address = Path(warehouse.project.storage) / INTERNAL / ADDRESS
                roles = Roles(warehouse.project.storage)
                server = RemoteServer(
                    partial(LocalChannel, warehouse), address, roles=roles, elsewhere=warehouse.project.producers
                )
                warehouse.on_close(server.close)
        except BaseException:
            warehouse.close()
            raise
        return warehouse

    return opened


open_for_producers = _listening(open_warehouse)


def connect(
    warehouse: Warehouse | str | Path | Mapping[str, object],
    *,
    tables: Collection[str] = (),
    source: str | None = None,
    token: str | None = None,
    policy: Policy | None = None,
    durable: bool = True,
    paramstyle: str = "pyformat",
    memory_bytes: int = 64 << 20,
    cache_rows: int = 1_000_000,
    check_every: timedelta = timedelta(seconds=1),
    part: tuple[str, int] | None = None,
) -> Connection:
    """A PEP 249 connection for a program that fills tables of a producer source.

    `warehouse` is an open one, a project (a file, its folder, or a dict), or the address of a service, with the
    `token` of a role that can produce. Of a project, the process that has its warehouse open is asked, which the same user runs;
    if none has, this one opens it, and closes it with the connection. That process may be on another machine if the
    project has `producers` and both reach the storage at the same path. `source` is needed when the project has
    several sources of type producer. Scalar INSERTs into `tables` are buffered, everything else goes to the warehouse. `policy`
    says when readers see what was committed (at once), `durable` whether a commit waits for the disk. With `part`, a
    transaction that another connection began and a number, the commit puts that part of it.
    """
    heard = policy if policy is not None else AtOnce()
    channel, close = _channel(warehouse, source, token, heard.flushed)
    try:
        return Connection(
            channel,
            tables,
            policy=heard,
            durable=durable,
            paramstyle=paramstyle,
            memory_bytes=memory_bytes,
            cache_rows=cache_rows,
            check_every=check_every,
            part=part,
            on_close=close,
        )
    except BaseException:
        channel.close()
        if close is not None:
            close()
        raise


def _channel(
    warehouse: Warehouse | str | Path | Mapping[str, object],
    source: str | None,
    token: str | None,
    flushed: Callable[[str], None],
) -> tuple[Channel, Callable[[], None] | None]:
    who = f"process {os.getpid()} on {socket.gethostname()}"
    if isinstance(warehouse, Warehouse):
        return LocalChannel(warehouse, source, who, flushed), None
    if isinstance(warehouse, str) and warehouse.startswith(("http://", "https://")):
        with connect_service(warehouse, token) as service:
            told = service.producers()
            elsewhere = (urlsplit(warehouse).hostname or "", told["port"]) if told["port"] else None
            return RemoteChannel(Address(told["socket"], token or "", elsewhere), source, flushed), None
    address = Path(load_project(warehouse).storage) / INTERNAL / ADDRESS
    if address.exists():
        # A process that died leaves its address behind.
        with suppress(EnvironmentProblem):
            return RemoteChannel(address, source, flushed), None
    opened = open_for_producers(warehouse)
    try:
        return LocalChannel(opened, source, who, flushed), opened.close
    except BaseException:
        opened.close()
        raise
