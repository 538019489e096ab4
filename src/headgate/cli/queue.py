"""`headgate queue`: the partitions of elastic queues."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from headgate.cli.options import Place, json_option, service_options, write_json
from headgate.cli.reaching import reach
from headgate.cli.table import table_lines
from headgate.errors import DefiniteError
from headgate.measures import size_text


@click.group("queue")
def queue_command() -> None:
    """Show, split and merge the partitions of sources with `stream: elastic`.

    Partitions split and merge by themselves as the load changes; these commands do it by hand. What waits already stays
    where it is, and writers notice nothing.

    \b
    headgate queue show --json
    headgate queue split etl 3
    headgate queue merge etl 4 5 --project /etc/headgate
    """


@queue_command.command("show")
@click.argument("source", required=False)
@json_option
@service_options
def show_command(place: Place, source: str | None, as_json: bool) -> None:
    """Show the partitions of SOURCE, by default of all elastic queues, and what waits in each."""
    with reach(place) as client:
        sources = client.status()["sources"]
    if source is not None and source not in sources:
        raise DefiniteError(f"there is no source {source}", hint=f"the project declares {', '.join(sources) or 'none'}")
    found = {name: each["queue"] for name, each in sources.items() if each["queue"] and source in (None, name)}
    if as_json:
        write_json(found)
        return
    if not found:
        which = "no source has" if source is None else f"{source} has not"
        click.echo(f"{which} an elastic queue: set `stream: elastic` in the project file")
    for name, queue in found.items():
        _show(name, queue)


@queue_command.command("split")
@click.argument("source")
@click.argument("partition", type=int)
@json_option
@service_options
def split_command(place: Place, source: str, partition: int, as_json: bool) -> None:
    """Split PARTITION of SOURCE in the middle of its range."""
    with reach(place) as client:
        queue = client.split_partition(source, partition)
    write_json(queue) if as_json else _show(source, queue)


@queue_command.command("merge")
@click.argument("source")
@click.argument("partition", type=int)
@click.argument("other", type=int)
@json_option
@service_options
def merge_command(place: Place, source: str, partition: int, other: int, as_json: bool) -> None:
    """Merge PARTITION and OTHER of SOURCE, whose ranges follow one another."""
    with reach(place) as client:
        queue = client.merge_partitions(source, partition, other)
    write_json(queue) if as_json else _show(source, queue)


def _show(name: str, queue: Mapping[str, Any]) -> None:
    partitions = queue["partitions"]
    behind = queue["end"] - queue["consumed"]
    click.echo(
        f"{name}: {len(partitions)} partitions, {behind:,} positions not read, deviation {queue['deviation']:.0f} %"
    )
    rows = [
        (
            str(each["id"]),
            f"{each['low']:08x}–{each['high'] - 1:08x}",
            size_text(each["bytes"]),
            f"{each['transactions']:,}",
        )
        for each in partitions
    ]
    for line in table_lines(("partition", "salts", "waiting", "transactions"), rows):
        click.echo(line)
    click.echo(queue["reason"])
    if queue["last_change"] is not None:
        click.echo(f"last change: {queue['last_change']}")
