"""`headgate explain`: what a flow does, what of it is incremental, and why the rest is not."""

from __future__ import annotations

import click

from headgate.cli.options import Place, json_option, service_options, write_json
from headgate.cli.reaching import reach


@click.command("explain")
@click.argument("flow")
@json_option
@service_options
def explain_command(place: Place, flow: str, as_json: bool) -> None:
    """Show how FLOW is kept.

    Prints the flow's graph, which operators are incremental, why the others are not, and the bytes that its arrangements take.

    \b
    headgate explain revenue
    """
    with reach(place) as client:
        found = client.explain(flow)
    if as_json:
        write_json(found)
    else:
        click.echo(found["text"])
