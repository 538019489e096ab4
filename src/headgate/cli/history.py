"""`headgate history`: the latest jobs, and the latest queries with their receipts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click

from headgate.cli.options import Place, json_option, service_options, write_json
from headgate.cli.reaching import reach
from headgate.cli.table import table_lines
from headgate.cli.terminal import terminal_width
from headgate.measures import duration_text


@click.command("history")
@click.option("-n", "--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="How many of each.")
@json_option
@service_options
def history_command(place: Place, limit: int, as_json: bool) -> None:
    """Show the latest jobs and queries.

    For each query: its outcome, how fresh the answer was, and what it cost.

    \b
    headgate history
    headgate history -n 100 --json | jq '.receipts[] | select(.outcome == "stale")'
    """
    with reach(place) as client:
        found = client.history(limit=limit)
    if as_json:
        write_json(found)
        return
    jobs = sorted(found["jobs"], key=lambda job: int(job["id"]))
    queries = sorted(found["receipts"], key=lambda record: str(record["at"]))
    _show("jobs", ("job", "closed", "data of", "changes", "taken", "reached by"), map(_job_row, jobs))
    click.echo()
    _show("queries", ("came", "outcome", "seconds", "stale", "job", "changes", "query"), map(_query_row, queries))


def _job_row(job: Mapping[str, Any]) -> tuple[object, ...]:
    reached = ", ".join(job["reached"]) or "no table yet"
    moments = _moment(job["closed_at"]), _moment(job["data_timestamp"])
    return job["id"], *moments, job["rows"], _taken(job["ways"]), reached


def _taken(ways: Mapping[str, str]) -> str:
    """The ways in which stages took the job; of those that were not narrow also which."""
    stages: dict[str, list[str]] = {}
    for stage, way in ways.items():
        stages.setdefault(way.partition(":")[0], []).append(stage)
    return "; ".join(way if way == "narrow" else f"{way} ({', '.join(of)})" for way, of in stages.items()) or "–"


def _query_row(record: Mapping[str, Any]) -> tuple[object, ...]:
    receipt = record["receipt"] or {}
    return (
        _moment(record["at"]),
        record["outcome"],
        f"{record['seconds']:.3f}",
        duration_text(receipt.get("staleness")),
        receipt.get("job"),
        receipt.get("rows_processed"),
        f"{record['text']}: {record['problem']}" if record["problem"] else record["text"],
    )


def _moment(text: str | None) -> str:
    return "–" if text is None else text.replace("T", " ")[:19]


def _show(title: str, names: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    click.echo(title)
    for line in table_lines(names, rows, width=terminal_width()):
        click.echo(line)
