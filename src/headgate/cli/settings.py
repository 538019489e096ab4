"""`headgate settings` and `headgate set`: what can be changed while the warehouse runs, and who changed what."""

from __future__ import annotations

import os

import click

from headgate.cli.options import Place, json_option, service_options, write_json
from headgate.cli.reaching import reach
from headgate.cli.terminal import columns, show
from headgate.cli.texts import shown


@click.command("settings")
@json_option
@service_options
def settings_command(place: Place, as_json: bool) -> None:
    """List what can be changed at run time.

    The list has the values that hold now, and the changes so far.

    \b
    headgate settings
    headgate settings --json
    """
    with reach(place) as client:
        found = client.settings()
    if as_json:
        write_json(found)
        return
    current = found["settings"]
    table = columns()
    for name, value in current.items():
        table.add_row(name, shown(value))
    show(table)
    for change in found["changes"]:
        values = f"from {shown(change['before'])} to {shown(change['after'])}"
        click.echo(f"{change['at'][:19]} {change['who']} changed {change['name']} {values}")


@click.command("set")
@click.argument("name")
@click.argument("value", required=False)
@click.option("--reset", "is_reset", is_flag=True, help="Go back to what the project file says.")
@json_option
@service_options
def set_command(place: Place, name: str, value: str | None, is_reset: bool, as_json: bool) -> None:
    """Change a setting at run time.

    The change holds at once, and after a restart too, until it is reset or the project file sets another value.

    \b
    headgate set freshness.max_staleness 10m
    headgate set sources.shop.pace.w 0.8
    headgate set limits.overlay_bytes 512MiB
    headgate set limits.overlay_bytes --reset
    """
    if (value is None) != is_reset:
        raise click.UsageError("give a VALUE or --reset, one of them")
    who = os.environ.get("USER") or "the command line"
    with reach(place) as client:
        settings = (client.reset(name, who) if is_reset else client.change(name, value, who))["settings"]
    write_json(settings) if as_json else click.echo(f"{name} is {shown(settings[name])} from now on")
