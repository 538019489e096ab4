"""`headgate ranges`: where the key ranges of tables stand, and how they are cut."""

from __future__ import annotations

from typing import Any

import click

from headgate.cli.options import Place, json_option, service_options, write_json
from headgate.cli.reaching import reach


@click.group("ranges")
def ranges_command() -> None:
    """Show and change how tables are cut into key ranges.

    A query brings only the ranges up to date that it reads. Cutting rewrites nothing: queries and writers go on.

    \b
    headgate ranges show --json
    headgate ranges split shop.purchases 50000
    headgate ranges merge shop.purchases 3 --project /etc/headgate
    headgate ranges bounds shop.purchases 10000 20000 30000
    headgate ranges bounds shop.purchases --count 10
    """


@ranges_command.command("show")
@click.argument("table", required=False)
@json_option
@service_options
def show_command(place: Place, table: str | None, as_json: bool) -> None:
    """List the ranges of TABLE, or of all tables, and the job of each."""
    with reach(place) as client:
        found = client.ranges()["tables"]
    chosen = [each for each in found if table is None or each["table"].casefold() == table.casefold()]
    if table is not None and not chosen:
        raise click.UsageError(f"there is no table {table}: there are {', '.join(each['table'] for each in found)}")
    write_json(chosen) if as_json else _show(chosen)


@ranges_command.command("split")
@click.argument("table")
@click.argument("value")
@json_option
@service_options
def split_command(place: Place, table: str, value: str, as_json: bool) -> None:
    """Cut the range of TABLE that holds VALUE, there; aligned tables with it."""
    _change(place, as_json, table, split=value)


@ranges_command.command("merge")
@click.argument("table")
@click.argument("number", type=click.IntRange(min=0))
@json_option
@service_options
def merge_command(place: Place, table: str, number: int, as_json: bool) -> None:
    """Make one of range NUMBER of TABLE, counted from 0, and the one behind it."""
    _change(place, as_json, table, merge=number)


@ranges_command.command("bounds")
@click.argument("table")
@click.argument("values", nargs=-1)
@click.option("--count", type=click.IntRange(1, 1000), help="So many ranges with about equally many rows.")
@json_option
@service_options
def bounds_command(place: Place, table: str, values: tuple[str, ...], count: int | None, as_json: bool) -> None:
    """Cut TABLE at VALUES, in ascending order, and nowhere else; without values it has one range."""
    if values and count is not None:
        raise click.UsageError("give VALUES or --count, one of them")
    if count is not None:
        _change(place, as_json, table, count=count)
    else:
        _change(place, as_json, table, bounds=list(values))


def _change(place: Place, as_json: bool, table: str, **change: Any) -> None:
    with reach(place) as client:
        found = client.change_ranges(table, **change)["tables"]
    mine = next(each for each in found if each["table"].casefold() == table.casefold())
    family = [each for each in found if each["family"] == mine["family"]]
    write_json(family) if as_json else _show(family)


def _show(tables: list[dict[str, Any]]) -> None:
    for each in tables:
        if each["column"] is None:
            click.echo(f"{each['table']}: one range, {each['why_one']}")
            continue
        click.echo(f"{each['table']}: {len(each['ranges'])} ranges of {each['column']}")
        for number, found in enumerate(each["ranges"]):
            missing = "" if found["missing"] is None else f", missing: {found['missing']}"
            click.echo(f"  {number}  {found['name']} at job {found['through']}{missing}")
        for scan in each["scans"]:
            click.echo(f"  scan of {scan}")
