"""`headgate subscribe`: a table's changes as they come."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from headgate.cli.options import Place, service_options
from headgate.cli.reaching import reach
from headgate.cli.texts import shown
from headgate.cli.waiting import waiting
from headgate.delta.changes import WEIGHT
from headgate.tabular import plain

if TYPE_CHECKING:
    from headgate.client import ReceivedChanges


@click.command("subscribe")
@click.argument("table")
@click.option(
    "--as-of", metavar="POSITION", help="Go on after this job, or the position that a subscription gave; no rows first."
)
@click.option("--max-staleness", metavar="AGE", help="How fresh the table is kept meanwhile: 1s, 10m, any.")
@click.option("--jobs", type=click.IntRange(min=1), help="End after so many jobs; the table's rows count as one.")
@click.option("--json", "as_json", is_flag=True, help="Write one JSON object per change, and one at the end of a job.")
@service_options
def subscribe_command(
    place: Place, table: str, as_of: str | None, max_staleness: str | None, jobs: int | None, as_json: bool
) -> None:
    """Follow TABLE: its rows, then the changes of each job, until Ctrl-C.

    A change is a row with a weight: +1 came, -1 went. An update is both.

    \b
    headgate subscribe revenue
    headgate subscribe revenue --as-of 12 --json      # what came after job 12
    """
    position = as_of
    with reach(place) as client:
        with waiting("waiting for the table"):
            subscription = client.subscribe(table, as_of, max_staleness=max_staleness)
        with subscription:
            try:
                for changes in subscription:
                    _write(changes, as_json)
                    if changes.position is not None:
                        position = changes.position
                        jobs = None if jobs is None else jobs - 1
                        if jobs == 0:
                            break
            except KeyboardInterrupt:
                raise click.Abort from None
            finally:
                if position is not None and not as_json:
                    click.echo(f"to go on from here: headgate subscribe {table} --as-of {position}", err=True)


def _write(changes: ReceivedChanges, as_json: bool) -> None:
    """Every change on a line of its own, at once."""
    lines = []
    for row in changes.rows.to_pylist():
        weight = row.pop(WEIGHT)
        if as_json:
            told = {"job": changes.job, "weight": weight, "row": {name: plain(value) for name, value in row.items()}}
            lines.append(json.dumps(told, ensure_ascii=False))
        else:
            values = "  ".join(f"{name}={shown(value)}" for name, value in row.items())
            lines.append(f"{changes.job:>6}  {weight:+d}  {values}")
    if as_json and changes.position is not None:
        lines.append(json.dumps({"job": changes.job, "position": changes.position, "snapshot": changes.is_snapshot}))
    if lines:
        click.echo("\n".join(lines))
