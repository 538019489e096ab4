"""The way to a warehouse: the service that runs for the project, or one that this process runs for the time of a command."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

import click

from headgate.cli.options import Place
from headgate.cli.running import find_service, storage_of
from headgate.cli.waiting import WaitingLine, waiting
from headgate.errors import TransientError, WarehouseBusy

if TYPE_CHECKING:
    from headgate.capture.source import Progress
    from headgate.client import Client, Reply
    from headgate.runtime.sources.progress import OnProgress
    from headgate.scheduling.applying import ApproveOpening
    from headgate.scheduling.warehouse import Warehouse

Address = tuple[str, str | None]
"""A service's address and token."""

_OPENING_SECONDS = 60.0
_AGAIN_SECONDS = 1.0
_ANY_SIZE = 1 << 62
_ALONE = timedelta(days=365)
"""Limits protect a service from its clients; a command that is alone has none to be protected from."""


@contextmanager
def reach(place: Place) -> Iterator[Client]:
    """A client of the service that is named, of the one that runs for the project, or of one that ends with the command."""
    from headgate.client import connect

    with ExitStack() as ends:
        url, token = address_of(place) or ends.enter_context(_served_here(place))
        # A query without a deadline may take as long as it takes; Ctrl-C ends it.
        yield ends.enter_context(connect(url, token, timeout=None))


def when_open(ask: Callable[[], Reply], line: WaitingLine) -> Reply:
    """The reply of the service. One that opens its warehouse, because Spark died for example, is asked again for a minute."""
    until = time.monotonic() + _OPENING_SECONDS
    while True:
        try:
            return ask()
        except TransientError as error:
            if type(error).__name__ not in ("NotReady", "SparkLost") or time.monotonic() >= until:
                raise
            line.say(error.what)
            time.sleep(_AGAIN_SECONDS)


def address_of(place: Place) -> Address | None:
    """The service that is named, or the one that runs for the project."""
    if place.url is not None:
        return place.url, place.token
    service = find_service(storage_of(place))
    return None if service is None else (service.url, service.token)


def say_that_none_runs() -> None:
    click.echo("no service runs for this project (headgate run): opening its warehouse takes a while", err=True)


@contextmanager
def _served_here(place: Place) -> Iterator[Address]:
    say_that_none_runs()
    with waiting("starting Spark") as line, open_here(place, line) as warehouse:
        from headgate.service import Server, ServiceLimits

        line.close()
        token = secrets.token_urlsafe()
        with Server(
            warehouse, port=0, token=token, limits=ServiceLimits(rows=_ANY_SIZE, bytes=_ANY_SIZE, time=_ALONE)
        ) as server:
            yield server.url, token


@contextmanager
def open_here(
    place: Place,
    line: WaitingLine,
    approve: ApproveOpening = lambda changes, flows, settings: None,
    build_later: bool = False,
    heard: OnProgress = lambda source, progress: None,
) -> Iterator[Warehouse]:
    """The project's warehouse in this process; the line, and who `heard` is, are told how far loads are."""
    import headgate
    from headgate.runtime.spark.environment import private_files

    told = told_by(line)

    def progress(source: str, progress: Progress) -> None:
        told(source, progress)
        heard(source, progress)

    _silence_py4j()
    with private_files():
        try:
            warehouse = headgate.open(place.file, progress=progress, approve=approve, build_later=build_later)
        except WarehouseBusy as error:
            raise WarehouseBusy(
                error.what, hint="wait until that process is done, or stop it; a service that is starting answers soon"
            ) from error
        with warehouse:
            yield warehouse


def _silence_py4j() -> None:
    """Py4J logs what it raises as well, with a traceback, even that someone pressed Ctrl-C; in part to the root logger."""
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(lambda record: record.module != "java_gateway")


def told_by(line: WaitingLine) -> OnProgress:
    """Has the line tell how far a source's tables are read, or the log where nobody looks at the line."""
    from headgate.runtime.sources.progress import ProgressLog, describe

    return (lambda source, progress: line.say(describe(source, progress))) if line.is_seen else ProgressLog()
