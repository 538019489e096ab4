"""`headgate explain`: what a flow does, what of it is incremental, and why the rest is not."""

from __future__ import annotations

import click

from headgate.cli.options import Place, json_option, service_options, write_json
from headgate.cli.reaching import reach


@click.command("explain")
@click.argument("flow")
@click.option("--costs", is_flag=True, help="Show what its operators cost, and which result is worth keeping.")
@json_option
@service_options
def explain_command(place: Place, flow: str, costs: bool, as_json: bool) -> None:
    """Show how FLOW is kept.

    Prints the flow's graph, which operators are incremental, why the others are not, and the bytes that its arrangements take.

    \b
    headgate explain revenue
    headgate explain revenue --costs
    """
    with reach(place) as client:
        found = client.explain(flow)
        if costs:
            advice = client.advise(flow, dry_run=True)
            found = {**found, "costs": advice["flows"], "text": f"{found['text']}\n{advice['text']}".rstrip()}
    if as_json:
        write_json(found)
    else:
        click.echo(found["text"])
