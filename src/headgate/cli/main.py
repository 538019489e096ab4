"""The command `headgate`: its commands, read when they are asked for, and how each ends."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from types import MappingProxyType
from typing import NoReturn

import click

from headgate.cli.exits import INTERRUPTED, show_failure
from headgate.remedies import speak, spoken

PROGRAM = "headgate"

COMMANDS: Mapping[str, str] = MappingProxyType(
    {
        "init": "init",
        "check": "check",
        "run": "run",
        "query": "query",
        "subscribe": "subscribe",
        "status": "status",
        "history": "history",
        "alerts": "alerts",
        "explain": "explain",
        "refresh": "refresh",
        "resume": "refresh",
        "apply": "apply",
        "serving": "serving",
        "advise": "advise",
        "settings": "settings",
        "set": "settings",
        "load": "load",
        "ranges": "ranges",
        "scale": "scale",
        "queue": "queue",
        "role": "role",
        "backup": "backup",
        "restore": "backup",
        "reset": "reset",
        "completion": "completion",
    }
)
"""Every command and its module, in the order in which a user meets them."""
ALIASES: Mapping[str, str] = MappingProxyType({"dry-run": "check"})


class Commands(click.Group):
    """A group whose commands are imported one by one, so that each starts quickly."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        name = ALIASES.get(cmd_name, cmd_name)
        module = COMMANDS.get(name)
        if module is None:
            return None
        found: click.Command = getattr(import_module(f"headgate.cli.{module}"), f"{name}_command")
        return found


def _show_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if not wanted:
        return
    from importlib.metadata import PackageNotFoundError, version

    try:
        number = version(PROGRAM)
    except PackageNotFoundError:
        number = "of a source tree"
    click.echo(f"{PROGRAM} {number}")
    ctx.exit()


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.option(
    "--version", is_flag=True, expose_value=False, is_eager=True, callback=_show_version, help="Show the version."
)
def cli() -> None:
    """Right-time ETL on Spark: a query says how fresh its answer must be.

    \b
    headgate init shop && cd shop    # a project that runs as it is
    headgate check                   # all mistakes of the project; writes nothing
    headgate run                     # the service: captures, maintains, answers
    headgate query "SELECT * FROM revenue CURRENCY BOUND 10 MIN"

    Exit codes: 0 done, 1 failed, 2 wrong usage, 3 not fresh enough in time, 4 not reachable or busy, 75 the service
    died too often, 130 interrupted.
    """


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Runs a command and ends the process with its exit code."""
    sys.exit(run(arguments))


def run(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; gives its exit code. A program that runs one goes on in its own words afterwards."""
    before = spoken()
    speak("command-line")
    try:
        code = cli.main(arguments, prog_name=PROGRAM, standalone_mode=False)
        return code if isinstance(code, int) else 0
    except click.Abort:
        return INTERRUPTED
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except Exception as error:
        return show_failure(error)
    finally:
        speak(before)
