"""`headgate refresh` and `headgate resume`: work that does not wait for a query."""

from __future__ import annotations

import click

from headgate.cli.exits import FAILED, error_lines
from headgate.cli.options import Place, json_option, service_options, write_json
from headgate.cli.reaching import reach
from headgate.cli.terminal import tell
from headgate.cli.waiting import waiting


@click.command("refresh")
@click.option("--full", is_flag=True, help="Read all source tables whole again first; what differs becomes changes.")
@click.option("--table", metavar="NAME", help="Read this source table whole again first, or build this flow again.")
@json_option
@service_options
def refresh_command(place: Place, full: bool, table: str | None, as_json: bool) -> None:
    """Bring every table up to all that its sources have committed.

    Queries update the tables that they need by themselves; this command updates all tables. --table and --full are the remedy when a
    table's or a source's changes can no longer be followed; history is kept. A table that fails keeps no other from going on.

    \b
    headgate refresh
    headgate refresh --table shop_db.orders     # reads this table of a source whole again
    headgate refresh --table revenue            # builds this flow, and those that read it, again from its inputs
    headgate refresh --full
    """
    if full and table is not None:
        raise click.UsageError("--full reads all tables whole, --table one: give one of them")
    with reach(place) as client, waiting("bringing every table up to date"):
        job = client.refresh(table=table, full=full)
    write_json({"job": job}) if as_json else click.echo(f"every table is at job {job}")


@click.command("resume")
@json_option
@service_options
def resume_command(place: Place, as_json: bool) -> None:
    """Read the flow files again, and retry what had failed.

    \b
    headgate status       # names the flow that failed, and why
    headgate resume       # after its file, or its data, is corrected
    """
    with reach(place) as client, waiting("reading the flow files again"):
        failures = client.resume()["failures"]
    if as_json:
        write_json({"failures": failures})
    else:
        click.echo("the flow files are taken as they are now; what had failed is tried again")
        for failure in failures:
            for line in error_lines(failure["what"], failure["where"], failure["hint"]):
                tell(line, err=True)
    if failures:
        raise click.exceptions.Exit(FAILED)
