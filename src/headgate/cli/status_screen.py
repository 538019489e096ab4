"""The warehouse on one screen: how fresh every table and source is, where jobs are, and what needs someone's attention."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import click

from headgate.cli.texts import count_text, cut, duration_text, filled, size_text, text_width

Status = Mapping[str, Any]

_ACTIONS = 3
_NEVER = 1970
"""What was captured up to an instant of this year or before was never captured."""


def status_lines(status: Status, width: int = 120) -> Iterator[str]:
    """The screen, line by line, in colours that `click.echo` leaves out where there is no terminal."""
    at = datetime.fromisoformat(status["at"])
    troubles = list(_troubles(status))
    state = click.style(count_text(len(troubles), "problem"), fg="red") if troubles else click.style("ok", fg="green")
    yield f"{click.style(status['name'], bold=True)}  {at:%Y-%m-%d %H:%M:%S %Z}  {state}"
    yield (
        f"{count_text(len(status['queries']), 'query').replace('querys', 'queries')} running, {status['waiting']} waiting for a job,"
        f" {count_text(status['answers'], 'snapshot')} held, {size_text(status['held_bytes'])} of changes in memory"
    )
    yield ""
    yield from _columns(
        ("table", "job", "as of", "lag", "target"), [_table_row(table) for table in status["tables"]], width
    )
    yield ""
    yield from _jobs(status, width)
    if status["sources"]:
        yield ""
        rows = [_source_row(name, source, at) for name, source in status["sources"].items()]
        yield from _columns(("source", "captured", "gear", "log", "WAL retained", "why this gear"), rows, width)
    if status["actions"]:
        yield ""
        for action in status["actions"][-_ACTIONS:]:
            when = datetime.fromisoformat(action["at"])
            yield cut(f"{when:%H:%M:%S} {action['what']}: {action['reason']}", width)
    for colour, what, hint in troubles:
        yield f"{click.style('error' if colour == 'red' else 'warning', fg=colour)}: {what}"
        if hint:
            yield f"  hint: {hint}"


def _jobs(status: Status, width: int) -> Iterator[str]:
    opened, closed = status["open"], status["closed"]
    yield (
        f"jobs: {status['complete']} complete ← {len(closed)} closed ←"
        f" {opened['id']} open with {count_text(opened['rows'], 'row')} of {count_text(opened['transactions'], 'transaction')}"
    )
    for job in closed[:_ACTIONS]:
        yield cut(f"  {job['id']} waits for {', '.join(job['behind'])}", width)
    if len(closed) > _ACTIONS:
        yield f"  and {len(closed) - _ACTIONS} more"


def _table_row(table: Status) -> tuple[list[str], str | None]:
    lag, target = table["lag"], table["target_lag"]
    as_of = "–" if table["data_timestamp"] is None else f"{datetime.fromisoformat(table['data_timestamp']):%H:%M:%S}"
    late = lag is not None and target is not None and lag > target
    colour = "red" if table["failure"] else "yellow" if late else None
    shown = [
        table["name"],
        str(table["through"]),
        as_of,
        duration_text(lag),
        "–" if target is None else duration_text(target),
    ]
    return shown, colour


def _source_row(name: str, source: Status, at: datetime) -> tuple[list[str], str | None]:
    captured_at = datetime.fromisoformat(source["captured"]["at"])
    captured = "never" if captured_at.year <= _NEVER else f"{duration_text((at - captured_at).total_seconds())} ago"
    gear = source["gear"]
    pace = "–" if gear is None else f"{duration_text(gear['period'])} × {gear['workers']}"
    log = _of(source["log_bytes"], source["log_limit"])
    wal = _of(source["retained_wal"], source["retained_wal_limit"])
    colour = "red" if source["trouble"] or source["problems"] else "yellow" if source["alarms"] else None
    return [name, captured, pace, log, wal, source["reason"] or "–"], colour


def _of(count: float | None, limit: float | None) -> str:
    return size_text(count) if limit is None else f"{size_text(count)} of {size_text(limit)}"


def _troubles(status: Status) -> Iterator[tuple[str, str, str | None]]:
    """What is wrong and what helps: first what failed, then what someone should see to before it does."""
    for failure in status["failures"]:
        place = f"{failure['where']}: " if failure.get("where") else ""
        yield "red", f"{place}{failure['what']}", failure.get("hint")
    for name, source in status["sources"].items():
        if source["trouble"]:
            yield "red", f"source {name}: {source['trouble']['what']}", source["trouble"].get("hint")
        for table, problem in source["problems"].items():
            yield "red", f"{name}.{table} cannot be followed any further: {problem['what']}", problem["hint"]
        for alarm in source["alarms"]:
            yield "yellow", f"source {name}: {alarm}", None


def _columns(titles: Sequence[str], rows: Sequence[tuple[list[str], str | None]], width: int) -> Iterator[str]:
    sizes = [
        max(text_width(row[place]) for row in [titles, *(cells for cells, _ in rows)]) for place in range(len(titles))
    ]

    def line(cells: Sequence[str]) -> str:
        return cut("  ".join(filled(cell, size) for cell, size in zip(cells, sizes, strict=True)), width).rstrip()

    yield click.style(line(titles), dim=True)
    for cells, colour in rows:
        yield click.style(line(cells), fg=colour) if colour else line(cells)
