"""One screen tells how fresh everything is and what needs attention; colours are for terminals only."""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner
from rich.cells import cell_len

from headgate.cli.main import cli
from headgate.cli.status_screen import status_screen
from headgate.cli.terminal import drawn_lines
from tests.cli.canned import Canned, canned_service

SOURCE: dict[str, Any] = {
    "captured": {"position": 12, "at": "2026-11-15T16:59:58+00:00"},
    "log_bytes": 2048,
    "log_limit": 4 << 30,
    "problems": {},
    "trouble": None,
    "gear": {"period": 0.12, "workers": 1},
    "reason": "no request waits: the lowest gear",
    "waiting": 0,
    "retained_wal": 20 << 20,
    "retained_wal_limit": 20 << 30,
    "slot_dropped": False,
    "alarms": [],
}
STATUS: dict[str, Any] = {
    "name": "shop",
    "at": "2026-11-15T17:00:00+00:00",
    "open": {"id": 9, "rows": 120, "transactions": 4},
    "closed": [{"id": 8, "data_timestamp": "2026-11-15T16:59:00+00:00", "behind": ["revenue", "top"]}],
    "complete": 7,
    "tables": [
        {
            "name": "db.sales",
            "through": 8,
            "data_timestamp": "2026-11-15T16:59:57+00:00",
            "lag": 3.0,
            "target_lag": None,
            "failure": None,
        },
        {
            "name": "revenue",
            "through": 7,
            "data_timestamp": "2026-11-15T16:50:00+00:00",
            "lag": 600.0,
            "target_lag": 300.0,
            "failure": None,
        },
        {"name": "top", "through": 0, "data_timestamp": None, "lag": None, "target_lag": None, "failure": None},
    ],
    "captured": {"db": "2026-11-15T16:59:58+00:00"},
    "waiting": 2,
    "answers": 1,
    "executions": 5,
    "held_bytes": 12 << 20,
    "actions": [{"at": "2026-11-15T16:58:00+00:00", "what": "materialized", "reason": "nobody asked for 30 s"}],
    "sources": {"db": SOURCE},
    "failures": [],
    "restarts": {"count": 0, "last_at": None, "last_why": None},
    "queries": [],
}


@pytest.fixture
def service() -> Iterator[Canned]:
    with canned_service() as started:
        started.answers["/v1/status"] = STATUS
        yield started


def screen(**changes: Any) -> str:
    return "\n".join(drawn_lines(status_screen({**STATUS, **changes})))


def test_loads_are_told() -> None:
    assert "loading shop_db: read 10 of about 40 rows (25 %)" in screen(
        loads=[{"text": "shop_db: read 10 of about 40 rows (25 %)"}]
    )


def test_where_postgresqls_clients_connect_is_told() -> None:
    assert "PostgreSQL's clients" not in screen()
    assert "PostgreSQL's clients: postgresql://127.0.0.1:5433/shop" in screen(
        postgres="postgresql://127.0.0.1:5433/shop"
    )


def test_everything_is_on_the_screen() -> None:
    lines = [" ".join(line.split()) for line in screen().splitlines()]
    assert lines[0] == "shop 2026-11-15 17:00:00 UTC ok"
    assert "2 waiting for a job, 1 snapshot held, 12 MiB of changes in memory" in lines[1]
    assert "db.sales 8 16:59:57 3 s –" in lines
    assert "revenue 7 16:50:00 10 min 5 min" in lines
    assert "top 0 – – –" in lines
    assert "jobs: 7 complete ← 1 closed ← 9 open with 120 rows of 4 transactions" in lines
    assert "8 waits for revenue, top" in lines
    assert "db 2 s ago 120 ms × 1 2 KiB of 4 GiB 20 MiB of 20 GiB no request waits: the lowest gear" in lines
    assert "16:58:00 materialized: nobody asked for 30 s" in lines


def test_what_is_wrong_is_told_with_its_remedy() -> None:
    trouble = {"kind": "SourceUnreachable", "what": "the server does not answer", "where": None, "hint": "start it"}
    problem = {"position": 3, "what": "its shape changed", "hint": "read it afresh"}
    source = {**SOURCE, "trouble": trouble, "problems": {"orders": problem}, "alarms": ["WAL piles up"]}
    failure = {"kind": "FlowFailed", "what": "flow revenue failed", "where": "revenue.sql:1", "hint": "mend it"}
    text = screen(sources={"db": source}, failures=[failure])
    assert text.splitlines()[0].endswith("4 problems")
    assert "error: revenue.sql:1: flow revenue failed\n  hint: mend it" in text
    assert "error: source db: the server does not answer\n  hint: start it" in text
    assert "error: db.orders cannot be followed any further: its shape changed\n  hint: read it afresh" in text
    assert "warning: source db: WAL piles up" in text


def test_a_spark_that_was_started_again_is_told() -> None:
    assert "again" not in screen()
    why = "its Java process ended with code -9"
    text = screen(restarts={"count": 2, "last_at": "2026-11-15T16:30:00+00:00", "last_why": why})
    assert f"Spark was started again 2 times, last 2026-11-15 16:30:00 UTC: {why}" in " ".join(text.split())


def test_tables_that_are_made_again_after_an_opening_are_counted() -> None:
    assert "opening: 12 of 30 tables restored to job 8" in screen(opening={"job": 8, "done": 12, "of": 30})


def test_flows_that_are_still_to_be_built_are_named() -> None:
    found = screen(opening={"job": 8, "done": 0, "of": 0, "unbuilt": ["revenue", "per_day"]})
    assert "opening: 2 flows still to be built: revenue, per_day" in found and "tables are back" not in found


def test_a_source_that_was_never_captured() -> None:
    never = {**SOURCE, "captured": {"position": 0, "at": "1900-01-01T00:00:00+00:00"}, "gear": None, "reason": None}
    assert "never" in screen(sources={"db": never})


def test_the_screen_is_as_wide_as_the_terminal() -> None:
    lines = list(drawn_lines(status_screen(STATUS), 60))
    assert all(cell_len(line) <= 60 for line in lines)
    tables = [line for line in lines if line.startswith(("db", "revenue", "top", "source", "table"))]
    assert len(tables) == 6
    # What is too long for its column goes on below.
    assert any(line.endswith("lowest gear") for line in lines)


def test_colours_are_for_terminals(service: Canned) -> None:
    plain = CliRunner().invoke(cli, ["status", "--url", service.url])
    assert plain.exit_code == 0
    assert "\x1b" not in plain.output
    forced = {"FORCE_COLOR": "1"}
    coloured = CliRunner().invoke(cli, ["status", "--url", service.url], env=forced).output
    assert "\x1b[33m" in coloured
    assert "no request waits: the lowest gear" in coloured
    unwanted = {**forced, "NO_COLOR": "1"}
    assert "\x1b[33m" not in CliRunner().invoke(cli, ["status", "--url", service.url], env=unwanted).output


def test_watching_shows_it_again(service: Canned, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []

    def wait(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 3:
            raise KeyboardInterrupt

    # Not `time.sleep` itself, which threads of other tests may use.
    monkeypatch.setattr("headgate.cli.status.time", SimpleNamespace(sleep=wait))
    found = CliRunner().invoke(cli, ["status", "--url", service.url, "--watch", "--json"])
    assert waited == [2.0, 2.0, 2.0]
    assert [json.loads(line)["name"] for line in found.stdout.splitlines()] == ["shop"] * 3
    waited.clear()
    CliRunner().invoke(cli, ["status", "--url", service.url, "--watch", "0.5"])
    assert waited == [0.5, 0.5, 0.5]
