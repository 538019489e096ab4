"""`headgate advise`: which results of flows to store."""

from __future__ import annotations

import click

from headgate.cli.options import Place, json_option, service_options, write_json
from headgate.cli.reaching import reach


@click.command("advise")
@click.argument("flow", required=False)
@click.option("--dry-run", is_flag=True, help="Only show the numbers and the choice.")
@click.option(
    "--space",
    type=click.FloatRange(min=0),
    help="σ: weight of build cost against latency. [default: advising.space of the project, 0]",
)
@json_option
@service_options
def advise_command(place: Place, flow: str | None, dry_run: bool, space: float | None, as_json: bool) -> None:
    """Store the results that take least time, and show per operator what it costs as written and incrementally.

    For FLOW, or for all flows that do not say TBLPROPERTIES ('advise' = 'never'). Each query as written is measured once, up to each
    of its operators; new results are built beside the old ones.

    \b
    headgate advise --dry-run
    headgate advise revenue
    """
    if dry_run and space is not None:
        raise click.UsageError("--space is for moving: advising.space of the project counts in a dry run")
    with reach(place) as client:
        found = client.advise(flow, space=space, dry_run=dry_run)
    if as_json:
        write_json(found["flows"])
    else:
        click.echo(found["text"] or "no flow is kept incrementally: there is nothing to advise on")
