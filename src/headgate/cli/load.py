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
@click.option(
    "--first",
    metavar="TABLE [WHERE PREDICATE]",
    help="Read this source table, or the ranges of it that hold such rows, before others: shop.orders WHERE id < 1000.",
)
@json_option
@service_options
def load_command(place: Place, first: str | None, as_json: bool) -> None:
    """Show how far source tables are loaded, or have one loaded before others.

    A warehouse opens before its tables are loaded. A query waits for the tables that it reads, and those that most queries
    wait for are loaded first; what is being read goes on. Large tables are loaded range by range: a query waits for its own ranges.

    \b
    headgate load
    headgate load --first shop.orders
    headgate load --first "shop.orders WHERE id BETWEEN 1000 AND 2000"
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
        for table, ranges in load.get("ranges", {}).items():
            click.echo(range_line(f"{name}.{table}", ranges))
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
        yield f"  {_bar(progress['rows'] / max(progress['estimated'], 1))} of about {progress['estimated']:,} rows{_pace(progress)}"


def range_line(table: str, ranges: Mapping[str, Any]) -> str:
    """How far a table is that is loaded range by range, with a bar."""
    awaited = ranges["waiting"]
    waiting = f"; queries wait for {', '.join(awaited[:3])}{' …' if len(awaited) > 3 else ''}" if awaited else ""
    done = f"{_bar(ranges['read'] / ranges['count'])} {ranges['read']} of {ranges['count']} ranges"
    return f"  {done}, {ranges['rows']:,} rows of {table}{_pace(ranges)}{waiting}"


def _bar(share: float) -> str:
    share = min(1.0, share)
    return f"{'█' * round(share * _BAR):░<{_BAR}} {share:.0%}"


def _pace(of: Mapping[str, Any]) -> str:
    rate = "" if of["rate"] is None else f", {of['rate']:,.0f} rows a second"
    return rate if of["remaining"] is None else f"{rate}, {duration_text(of['remaining'])} left"
