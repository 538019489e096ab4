"""`headgate serving`: the tables that are placed at databases beside Spark."""

from __future__ import annotations

from typing import Any

import click

from headgate.cli.exits import FAILED, error_lines
from headgate.cli.options import Place, json_option, service_options, write_json
from headgate.cli.reaching import reach
from headgate.cli.table import table_lines
from headgate.cli.terminal import tell
from headgate.cli.waiting import waiting


@click.group("serving")
def serving_command() -> None:
    """Show and repair tables that are placed at a database.

    A flow is placed by TBLPROPERTIES ('place' = 'serving'), where the project file names the platform.

    \b
    headgate serving show --json
    headgate serving repair             # what others have dropped or changed
    headgate serving repair revenue --project /etc/headgate
    """


@serving_command.command("show")
@json_option
@service_options
def show_command(place: Place, as_json: bool) -> None:
    """Show each platform's job, and what is to be said about its tables.

    Ends with 1 when a platform cannot be reached, or others have changed a table.
    """
    with reach(place) as client:
        found = client.serving()
    _show(found, as_json)


@serving_command.command("repair")
@click.argument("table", required=False)
@json_option
@service_options
def repair_command(place: Place, table: str | None, as_json: bool) -> None:
    """Copy TABLE to its platform again, or all tables that others have dropped or changed.

    The copy is filled beside the table and takes its place in one step; readers keep their privileges.
    """
    with reach(place) as client, waiting("copying tables to their platform"):
        found = client.repair(table)
    _show(found, as_json)


def _show(found: dict[str, Any], as_json: bool) -> None:
    platforms, problems = found["platforms"], found["problems"]
    if as_json:
        write_json(found)
    elif not platforms:
        tell(
            "the project has no platforms: name one in the project file, platforms: {serving: {type: postgres, dsn: …}}"
        )
    else:
        lines = [
            (name, table, "" if status["job"] is None else str(status["job"]), words)
            for name, status in platforms.items()
            for table, words in (status["tables"] or {"": "no table is placed here"}).items()
        ]
        for line in table_lines(("platform", "table", "job", "state"), lines):
            click.echo(line)
        told = [status["trouble"] for status in platforms.values() if status["trouble"] is not None]
        for problem in [*told, *problems.values()]:
            for line in error_lines(problem["what"], problem["where"], problem["hint"]):
                tell(line, err=True)
    good = ("ok", "waits to be filled")
    changed = any(words not in good for status in platforms.values() for words in status["tables"].values())
    if problems or changed or any(status["trouble"] is not None for status in platforms.values()):
        raise click.exceptions.Exit(FAILED)
