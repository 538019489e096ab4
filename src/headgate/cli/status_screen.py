"""The warehouse on one screen: how fresh every table and source is, where jobs are, and what needs someone's attention."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from headgate.cli.exits import error_lines
from headgate.cli.load import load_lines, range_line
from headgate.cli.terminal import columns, titled
from headgate.measures import count_text, duration_text, size_text

Status = Mapping[str, Any]

_ACTIONS = 3
_NEVER = 1970
"""What was captured up to an instant of this year or before was never captured."""


def status_screen(status: Status) -> Group:
    """The screen, to be drawn as wide as the terminal is."""
    at = datetime.fromisoformat(status["at"])
    troubles = list(_troubles(status))
    count = sum(not line.startswith("hint") for line in troubles)
    state = (count_text(count, "problem"), "red") if count else ("ok", "green")
    parts: list[Text | Table | str] = [
        Text.assemble((status["name"], "bold"), f"  {at:%Y-%m-%d %H:%M:%S %Z}  ", state),
        f"{count_text(len(status['queries']), 'query').replace('querys', 'queries')} running, {status['waiting']} waiting for a job,"
        f" {count_text(status['answers'], 'snapshot')} held, {size_text(status['held_bytes'])} of changes in memory",
        *_postgres(status),
        *(_one_line(f"loading {load['text']}") for load in status.get("loads", ())),
        *_restarts(status),
        *_opening(status),
        *_loading(status),
        "",
        _tables(status),
        "",
        *_jobs(status),
    ]
    if status["sources"]:
        parts += ["", _sources(status["sources"], at)]
    if status["actions"]:
        parts += ["", *map(_action, status["actions"][-_ACTIONS:])]
    return Group(*parts, *(titled(f"  {line}" if line.startswith("hint") else line) for line in troubles))


def _postgres(status: Status) -> Iterator[Text]:
    # A service of an earlier version, and one for a single command, have no such endpoint.
    if address := status.get("postgres"):
        yield _one_line(f"PostgreSQL's clients: {address}")


def _restarts(status: Status) -> Iterator[Text]:
    # A service of an earlier version does not tell.
    restarts = status.get("restarts")
    if restarts and restarts["count"]:
        at = datetime.fromisoformat(restarts["last_at"])
        times = count_text(restarts["count"], "time")
        yield _one_line(f"Spark was started again {times}, last {at:%Y-%m-%d %H:%M:%S %Z}: {restarts['last_why']}")


def _opening(status: Status) -> Iterator[str]:
    # A service of an earlier version does not tell.
    if opening := status.get("opening"):
        if opening["done"] < opening["of"]:
            yield f"opening: {opening['done']} of {count_text(opening['of'], 'table')} restored to job {opening['job']}"
        if unbuilt := opening.get("unbuilt"):
            yield f"opening: {count_text(len(unbuilt), 'flow')} still to be built: {', '.join(unbuilt)}"


def _loading(status: Status) -> Iterator[str]:
    for name, source in status["sources"].items():
        # A service of an earlier version does not tell.
        if unloaded := source.get("unloaded"):
            yield from load_lines(name, None, unloaded)
        for table, ranges in source.get("range_loads", {}).items():
            yield range_line(f"{name}.{table}", ranges)


def _jobs(status: Status) -> Iterator[str | Text]:
    opened, closed = status["open"], status["closed"]
    yield (
        f"jobs: {status['complete']} complete ← {len(closed)} closed ←"
        f" {opened['id']} open with {count_text(opened['rows'], 'row')} of {count_text(opened['transactions'], 'transaction')}"
    )
    for job in closed[:_ACTIONS]:
        yield _one_line(f"  {job['id']} waits for {', '.join(job['behind'])}")
    if len(closed) > _ACTIONS:
        yield f"  and {len(closed) - _ACTIONS} more"


def _tables(status: Status) -> Table:
    drawn = columns("table", "job", "as of", "lag", "target")
    for table in status["tables"]:
        lag, target, of = table["lag"], table["target_lag"], table["data_timestamp"]
        is_late = lag is not None and target is not None and lag > target
        drawn.add_row(
            table["name"],
            str(table["through"]),
            "–" if of is None else f"{datetime.fromisoformat(of):%H:%M:%S}",
            duration_text(lag),
            duration_text(target),
            style="red" if table["failure"] else "yellow" if is_late else None,
        )
    return drawn


def _sources(sources: Mapping[str, Status], at: datetime) -> Table:
    drawn = columns("source", "captured", "gear", "log", "WAL retained", "why this gear")
    for name, source in sources.items():
        captured_at, gear = datetime.fromisoformat(source["captured"]["at"]), source["gear"]
        is_wrong = source["trouble"] or source["problems"]
        drawn.add_row(
            name,
            "never" if captured_at.year <= _NEVER else f"{duration_text((at - captured_at).total_seconds())} ago",
            "–" if gear is None else f"{duration_text(gear['period'])} × {gear['workers']}",
            _of(source["log_bytes"], source["log_limit"]) + _partitions(source.get("queue")),
            _of(source["retained_wal"], source["retained_wal_limit"]),
            source["reason"] or "–",
            style="red" if is_wrong else "yellow" if source["alarms"] else None,
        )
    return drawn


def _action(action: Status) -> Text:
    return _one_line(f"{datetime.fromisoformat(action['at']):%H:%M:%S} {action['what']}: {action['reason']}")


def _one_line(text: str) -> Text:
    return Text(text, no_wrap=True, overflow="ellipsis")


def _partitions(queue: Status | None) -> str:
    return "" if queue is None else f" in {len(queue['partitions'])} partitions"


def _of(count: float | None, limit: float | None) -> str:
    return size_text(count) if limit is None else f"{size_text(count)} of {size_text(limit)}"


def _violations(status: Status) -> Iterator[str]:
    """Constraints that rows violate, and what became of those."""
    words = {"drop": "dropped", "warn": "kept", "fail": "refused"}
    for table in status["tables"]:
        for each in table.get("expectations", ()):
            if each["violations"]:
                yield (
                    f"warning: {count_text(each['violations'], 'row')} of {table['name']} violate {each['name']}:"
                    f" EXPECT ({each['condition']}); {words[each['action']]}, as of job {each['job']}"
                )


def _troubles(status: Status) -> Iterator[str]:
    """What is wrong and what helps: first what failed, then what someone should see to before it does."""
    for failure in status["failures"]:
        yield from error_lines(failure["what"], failure.get("where"), failure.get("hint"))
    for name, source in status["sources"].items():
        if source["trouble"]:
            yield from error_lines(f"source {name}: {source['trouble']['what']}", hint=source["trouble"].get("hint"))
        for table, problem in source["problems"].items():
            what = f"{name}.{table} cannot be followed any further: {problem['what']}"
            yield from error_lines(what, hint=problem["hint"])
        yield from (f"warning: source {name}: {alarm}" for alarm in source["alarms"])
    yield from _violations(status)
