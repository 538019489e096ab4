"""`headgate load`: how far the first rows of source tables are, and which are read first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import click

from headgate.cli.options import Place, json_option, service_options, write_json
from headgate.cli.reaching import reach
from headgate.measures import count_text, duration_text

_BAR = 24


@click.command("load")
@click.option("--first", metavar="TABLE", help="Read this source table before others, such as shop.orders.")
@json_option
@service_options
def load_command(place: Place, first: str | None, as_json: bool) -> None:
    """Show how far source tables are loaded, or have one loaded before others.

    A warehouse opens before its tables are loaded. A query waits for the tables that it reads, and those that most queries
    wait for are loaded first; what is being read goes on.

    \b
    headgate load
    headgate load --first shop.orders
    """
    with reach(place) as client:
        found = client.loads() if first is None else client.load_first(first)
    if as_json:
        write_json(found)
        return
    if not found["sources"]:
        click.echo("all source tables are loaded")
    for name, load in found["sources"].items():
        for line in load_lines(name, load["progress"], load["unloaded"]):
            click.echo(line)
        if load["reading"]:
            click.echo(f"  reading {', '.join(load['reading'])}: {load['reason']}")
        if load["trouble"]:
            click.echo(f"  {load['trouble']['what']}")
        for table, count in load["waiting"].items():
            click.echo(f"  {count_text(count, 'query').replace('querys', 'queries')} waiting for {table}")


def load_lines(name: str, progress: Mapping[str, Any] | None, unloaded: list[str]) -> Iterator[str]:
    """How far a source's tables are, with a bar."""
    yield f"{name}: {count_text(len(unloaded), 'table')} not loaded: {', '.join(unloaded)}"
    if progress is not None:
        share = min(1.0, progress["rows"] / max(progress["estimated"], 1))
        bar = "█" * round(share * _BAR)
        left = "" if progress["remaining"] is None else f", {duration_text(progress['remaining'])} left"
        rate = "" if progress["rate"] is None else f", {progress['rate']:,.0f} rows a second"
        yield f"  {bar:░<{_BAR}} {share:.0%} of about {progress['estimated']:,} rows{rate}{left}"
