"""`headgate run`: the service. It captures, maintains and answers until it is told to stop."""

from __future__ import annotations

import logging
import os
import secrets
import signal
import socket
import ssl
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from queue import SimpleQueue
from types import FrameType
from typing import TYPE_CHECKING, Literal

import click

from headgate.cli.apply import preview_lines
from headgate.cli.ending import STOP_SECONDS, Ending
from headgate.cli.exits import failure_lines
from headgate.cli.options import TOKEN, Place, json_option, project_option
from headgate.cli.reaching import open_here
from headgate.cli.running import RunningService, announced
from headgate.cli.supervising import Worker, supervise
from headgate.cli.waiting import waiting
from headgate.config.gateway import GatewaySettings
from headgate.config.project import load_project
from headgate.errors import ConfigError, EnvironmentProblem, Location
from headgate.measures import count_text
from headgate.service.listening import listen, require_token

if TYPE_CHECKING:
    from headgate.runtime.defining.preview import FlowChange
    from headgate.scheduling.warehouse import Warehouse
    from headgate.service import Server

_Asked = Literal["apply", "stop"]
"""What signals ask of the service."""
_LOGGER = logging.getLogger("headgate.service")
_FOLDED_BY_SECONDS = STOP_SECONDS - 3.0
"""From the signal until nothing more is folded: a group of tables that is being folded, and Spark's end, take a while."""
POSTGRES_PORT = 5433
"""PostgreSQL's own is 5432."""
_LOG = "%(asctime)s %(levelname)s %(name)s %(message)s"


@click.command("run")
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="The address to listen on; beyond this machine a token is needed.",
)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8765, show_default=True, help="The port; 0 takes a free one."
)
@click.option(
    "--postgres-port",
    type=click.IntRange(0, 65535),
    help="The port for PostgreSQL's clients; 0 takes a free one.  [default: the project's `gateway: {port: …}`; else 5433, or a free"
    " one if it is taken]",
)
@click.option(
    "--tls-certificate",
    type=click.Path(path_type=Path),
    help="A PEM file with the certificate that PostgreSQL's clients are shown, and its chain.",
)
@click.option("--tls-key", type=click.Path(path_type=Path), help="A PEM file with the certificate's key.")
@click.option(
    "--token-file",
    type=click.Path(path_type=Path),
    help=f"A file with the token that clients have to send; {TOKEN} is the other way to give one.",
)
@click.option(
    "--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info", show_default=True
)
@click.option(
    "--allow-host",
    "allowed_hosts",
    multiple=True,
    metavar="NAME",
    help="A host name that clients may use for the service.",
)
@json_option
@project_option
def run_command(
    place: Place,
    host: str,
    port: int,
    postgres_port: int | None,
    tls_certificate: Path | None,
    tls_key: Path | None,
    token_file: Path | None,
    log_level: str,
    allowed_hosts: tuple[str, ...],
    as_json: bool,
) -> None:
    """Run the service: capture, maintain, answer. Its page shows how fresh every table is.

    Ctrl-C or SIGTERM ends the service within ten seconds, a second one at once; everything that was committed is there when the
    service starts again. SIGHUP has the service take changed flow files and settings, as `headgate apply` does. When Spark dies, or
    cannot be stopped, the service starts Spark again by itself; after five deaths within ten minutes the service ends with exit code 75.

    \b
    headgate run
    psql -h 127.0.0.1 -p 5433
    headgate run --host 0.0.0.0 --port 8765 --token-file /run/secrets/headgate
    """
    token = read_token(token_file) if token_file is not None else os.environ.get(TOKEN) or None
    logging.basicConfig(level=log_level.upper(), format=_LOG)
    # The socket comes first: a port that is taken is reported at once, and a process manager can see that the service lives.
    listening, own_token = listen(host, port), secrets.token_urlsafe(32)
    project = load_project(place.file)
    for_postgres = listen_for_postgres(project.gateway, host, postgres_port, token)
    tls = _tls(tls_certificate, tls_key)
    worker = supervise()
    # This is a worker from here on. Until the warehouse is open there is nothing to end in order: both signals break off.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    asked: SimpleQueue[_Asked] = SimpleQueue()
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        signal.signal(signal.SIGHUP, lambda *_: asked.put("apply"))
    from headgate.gateway.endpoint import Gateway
    from headgate.service import Server, ServiceLimits
    from headgate.service.restarts import Restarts

    gateways = (
        [] if for_postgres is None else [Gateway(for_postgres, token or own_token, is_open=token is None, tls=tls)]
    )
    restarts = Restarts(worker.restarts, worker.restarted_at, worker.why)
    server = Server(
        host=host,
        token=token,
        limits=ServiceLimits.of(project.service),
        allowed_hosts=allowed_hosts,
        listening=listening,
        own_token=own_token,
        restarts=restarts,
        endpoints=gateways,
    )
    _serve(place, server, gateways[0].address if gateways else None, worker, as_json, asked)


def listen_for_postgres(
    settings: GatewaySettings, host: str, port: int | None, token: str | None
) -> socket.socket | None:
    """The socket for PostgreSQL's clients; None if the project wants none. What the command names goes before the project."""
    if port is None and not settings.enabled:
        return None
    host, port = settings.host or host, settings.port if port is None else port
    require_token(host, token)
    if port is not None:
        return listen(host, port)
    try:
        return listen(host, POSTGRES_PORT)
    except EnvironmentProblem:
        # Nobody asked for this port; another service, or a PostgreSQL, may have it.
        return listen(host, 0)


def _tls(certificate: Path | None, key: Path | None) -> ssl.SSLContext | None:
    if certificate is None:
        if key is not None:
            raise ConfigError("there is a key for TLS but no certificate", hint="add --tls-certificate")
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"the certificate cannot be used: {error.strerror or error}",
            where=Location(str(certificate)),
            hint="give PEM files: --tls-certificate with the certificate and --tls-key with its key",
        ) from None
    return context


def _serve(
    place: Place, server: Server, postgres: str | None, worker: Worker, as_json: bool, asked: SimpleQueue[_Asked]
) -> None:
    """Opens the warehouse and serves it until a signal, the end of the parent, or the loss of Spark."""
    ending = Ending()

    def stop(number: int, frame: FrameType | None) -> None:
        asked.put("stop")

    def restart(why: str) -> None:
        worker.tell(why)
        server.give_up(why)
        ending.restart(why)

    def opening(changes: Sequence[FlowChange], flows: int, settings: Sequence[object]) -> None:
        built = [change.name for change in changes if change.kind != "removed"]
        if built:
            what = f"{', '.join(built)} {'is' if len(built) == 1 else 'are'} built, of {count_text(flows, 'flow')}"
            _LOGGER.info("event=opening %s", what)
            server.tell_opening(what)

    worker.end_with_parent()
    with (
        ending.watched(),
        server,
        waiting("opening the warehouse") as line,
        open_here(place, line, opening, build_later=True, heard=server.tell_load) as warehouse,
    ):
        line.close()
        warehouse.on_spark_lost(restart)
        server.attach(warehouse)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, stop)
        _LOGGER.info("event=open url=%s restarts=%d", server.url, worker.restarts)
        with announced(warehouse.project.storage, RunningService(server.url, worker.parent, server.token)):
            if worker.restarts == 0:
                # Who reads this line may have stopped reading afterwards.
                click.echo(_ready(server.url, worker.parent, warehouse.project.name, postgres, as_json))
            while asked.get() == "apply":
                threading.Thread(target=_apply, args=[warehouse], name="apply", daemon=True).start()
        click.echo("stopping", err=True)
        until = time.monotonic() + _FOLDED_BY_SECONDS
        # Queries that run get their answers before the warehouse is closed.
        server.stop()
        warehouse.close(until - time.monotonic())


def _apply(warehouse: Warehouse) -> None:
    """Takes the project's files as they are now; the log says what that did, or what is wrong with them."""
    from headgate.service.plain import to_plain

    try:
        preview = warehouse.apply(dry_run=True)
        for line in preview_lines(to_plain(preview)):
            _LOGGER.info("event=apply %s", line)
        warehouse.apply(expected=preview.identity)
        _LOGGER.info("event=applied")
    except Exception as error:
        for line in failure_lines(error):
            _LOGGER.error("event=apply_failed %s", line)


def read_token(file: Path) -> str:
    """The token in a file, without the line's end."""
    try:
        token = file.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise ConfigError(f"the token file cannot be read: {error.strerror}", where=Location(str(file))) from None
    if not token:
        raise ConfigError(
            "the token file is empty",
            where=Location(str(file)),
            hint=f"make one: python3 -c 'import secrets; print(secrets.token_urlsafe())' > {file}",
        )
    return token


def _ready(url: str, pid: int, project: str, postgres: str | None, as_json: bool) -> str:
    import json

    address = None if postgres is None else f"postgresql://{postgres}/{project}"
    if as_json:
        return json.dumps({"url": url, "pid": pid, "project": project, "postgres": address})
    return f"{project} is open: {url}{'' if address is None else f' and {address}'} (Ctrl-C stops it)"
