"""`headgate status`: how fresh the warehouse is, once or again and again."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

from headgate.cli.options import Place, json_option, service_options, write_json
from headgate.cli.reaching import reach


@click.command("status")
@click.option(
    "--watch",
    "seconds",
    is_flag=False,
    flag_value=2.0,
    type=click.FloatRange(min=0.1),
    metavar="[SECONDS]",
    help="Repeat the display; every 2 seconds by default.",
)
@json_option
@service_options
def status_command(place: Place, seconds: float | None, as_json: bool) -> None:
    """Show how fresh every table and source is.

    Also shows the jobs, the gears of capture with their reasons, memory, retained WAL, and failures with their remedy.

    \b
    headgate status
    headgate status --watch 5
    headgate status --json | jq '.tables[] | {name, lag}'
    """
    with reach(place) as client, _screen(is_live=seconds is not None and not as_json) as show_status:
        while True:
            status = client.status()
            if not as_json:
                show_status(status)
            elif seconds is None:
                write_json(status)
            else:
                click.echo(json.dumps(status))
            if seconds is None:
                return
            time.sleep(seconds)


@contextmanager
def _screen(*, is_live: bool) -> Iterator[Callable[[dict[str, Any]], None]]:
    """Shows one status after another, each in the place of the one before if that is asked for and stdout is a terminal."""
    from rich.live import Live

    from headgate.cli.status_screen import status_screen
    from headgate.cli.terminal import console, show

    if not (is_live and sys.stdout.isatty()):
        yield lambda status: show(status_screen(status))
        return
    with Live(console=console(), auto_refresh=False) as live:
        yield lambda status: live.update(status_screen(status), refresh=True)
