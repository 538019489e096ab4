"""`headgate status`: how fresh the warehouse is, once or again and again."""

from __future__ import annotations

import json
import shutil
import sys
import time

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
    help="Show it again and again; every 2 seconds by default.",
)
@json_option
@service_options
def status_command(place: Place, seconds: float | None, as_json: bool) -> None:
    """Show how fresh every table and source is.

    And where jobs are, the gears of capture with their reasons, memory, retained WAL, and failures with their remedy.

    \b
    headgate status
    headgate status --watch 5
    headgate status --json | jq '.tables[] | {name, lag}'
    """
    with reach(place) as client:
        while True:
            status = client.status()
            if as_json:
                write_json(status) if seconds is None else click.echo(json.dumps(status))
            else:
                _show(status, again=seconds is not None)
            if seconds is None:
                return
            time.sleep(seconds)


def _show(status: dict[str, object], *, again: bool) -> None:
    from headgate.cli.status_screen import status_lines

    is_terminal = sys.stdout.isatty()
    width, height = shutil.get_terminal_size()
    lines = list(status_lines(status, width if is_terminal else 1000))
    if again and is_terminal:
        click.clear()
        lines = lines[: height - 1]
    click.echo("\n".join(lines))
