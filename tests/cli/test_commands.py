"""The commands that ask the service something: what they send, what they show, and the same as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from click.testing import CliRunner

from headgate.cli.main import cli
from headgate.errors import DefiniteError
from tests.cli.canned import RECEIPT, Canned, canned_service


@pytest.fixture
def service() -> Iterator[Canned]:
    with canned_service() as started:
        yield started


def output(service: Canned, *arguments: str) -> str:
    found = CliRunner().invoke(cli, [*arguments, "--url", service.url])
    assert found.exit_code == 0, found.output
    return found.stdout


def test_explain_shows_the_graph(service: Canned) -> None:
    body = {"flow": "revenue", "text": "flow revenue: incremental\n  scan shop.sales"}
    service.answers["/v1/explain/revenue"] = body
    assert output(service, "explain", "revenue") == f"{body['text']}\n"
    assert json.loads(output(service, "explain", "revenue", "--json")) == body


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        ([], {"full": False, "table": None}),
        (["--full"], {"full": True, "table": None}),
        (["--table", "shop_db.orders"], {"full": False, "table": "shop_db.orders"}),
    ],
)
def test_refresh_tells_the_job(service: Canned, said: list[str], asked: dict[str, object]) -> None:
    service.answers["/v1/refresh"] = {"job": 12}
    assert output(service, "refresh", *said) == "every table is at job 12\n"
    assert service.asked[-1] == {"path": "/v1/refresh", **asked}
    assert CliRunner().invoke(cli, ["refresh", "--full", "--table", "t", "--url", service.url]).exit_code == 2
    assert json.loads(output(service, "refresh", "--json")) == {"job": 12}


def test_resume_tells_what_still_fails(service: Canned) -> None:
    service.answers["/v1/resume"] = {"failures": []}
    assert "tried again" in output(service, "resume")
    failure = {"kind": "FlowFailed", "what": "flow revenue failed", "where": "a.sql:1", "hint": "mend it"}
    service.answers["/v1/resume"] = {"failures": [failure]}
    found = CliRunner().invoke(cli, ["resume", "--url", service.url])
    assert found.exit_code == 1
    assert "error: a.sql:1: flow revenue failed\nhint: mend it\n" in found.stderr


def test_settings_are_listed_with_their_changes(service: Canned) -> None:
    change = {"name": "limits.overlay_bytes", "before": 1, "after": 2, "at": "2026-11-15T17:00:00+00:00", "who": "me"}
    service.answers["/v1/settings"] = {"settings": {"limits.overlay_bytes": 2, "a": "b"}, "changes": [change]}
    lines = output(service, "settings").splitlines()
    assert lines[:2] == ["limits.overlay_bytes  2", "a                     b"]
    assert lines[2] == "2026-11-15T17:00:00 me changed limits.overlay_bytes from 1 to 2"
    assert json.loads(output(service, "settings", "--json"))["settings"]["a"] == "b"


def test_set_sends_the_value_as_it_is_written(service: Canned) -> None:
    service.answers["/v1/settings"] = {"settings": {"freshness.max_staleness": "10m", "a": 1}}
    assert output(service, "set", "freshness.max_staleness", "600s") == "freshness.max_staleness is 10m from now on\n"
    asked = service.asked[-1]
    assert (asked["name"], asked["value"]) == ("freshness.max_staleness", "600s")
    assert asked["who"]
    assert json.loads(output(service, "set", "a", "1", "--json"))["a"] == 1
    assert output(service, "set", "a", "--reset") == "a is 1 from now on\n"
    assert service.asked[-1]["reset"] is True and "value" not in service.asked[-1]
    for arguments in (["set", "a"], ["set", "a", "1", "--reset"]):
        assert CliRunner().invoke(cli, [*arguments, "--url", service.url]).exit_code == 2


def test_a_backup_is_made_by_the_service_in_a_folder_of_its_machine(service: Canned) -> None:
    made = {"folder": "/backups/monday", "made_at": "", "ledger_version": 9, "job": 7, "files": 12, "bytes": 2048}
    service.answers["/v1/backup"] = made
    assert output(service, "backup", "/backups/monday") == "/backups/monday has job 7: 12 files, 2 KiB\n"
    assert service.asked[-1]["folder"] == "/backups/monday"
    assert json.loads(output(service, "backup", "monday", "--json")) == made
    # Where this program stands means nothing there.
    assert service.asked[-1]["folder"] == "monday"


def test_loads_are_shown_with_a_bar_and_a_table_is_put_first(service: Canned) -> None:
    progress = {"rows": 600, "estimated": 1200, "remaining": 3.0, "rate": 200.0, "table": "orders", "is_done": False}
    load = {"unloaded": ["orders", "lines"], "reading": ["orders"], "reason": "2 queries wait for orders"}
    ranges = {"count": 8, "read": 2, "rows": 1000, "rate": 50.0, "remaining": 60.0, "waiting": ["[3, 6)"]}
    load |= {"trouble": None, "waiting": {"orders": 2}, "ranges": {"orders": ranges}}
    found = {"sources": {"shop": {**load, "progress": progress}}}
    service.answers["/v1/load"] = found
    shown = output(service, "load")
    assert shown.startswith(
        "shop: 2 tables not loaded: orders, lines\n  ████████████░░░░░░░░░░░░ 50% of about 1,200 rows,"
    )
    assert "200 rows a second, 3 s left" in shown and "2 queries waiting for orders" in shown
    assert json.loads(output(service, "load", "--first", "shop.lines", "--json")) == found
    assert service.asked[-1] == {"path": "/v1/load", "first": "shop.lines"}
    service.answers["/v1/load"] = {"sources": {}}
    assert output(service, "load") == "all source tables are loaded\n"


def test_queues_are_shown_split_and_merged(service: Canned) -> None:
    partitions = [
        {"id": 2, "low": 0, "high": 1 << 31, "bytes": 2048, "transactions": 3},
        {"id": 3, "low": 1 << 31, "high": 1 << 32, "bytes": 0, "transactions": 0},
    ]
    queue = {"partitions": partitions, "consumed": 4, "end": 7, "deviation": 100.0, "reason": "stay: 2 partitions fit"}
    queue["last_change"] = "split: partition 1 has 9 bytes waiting"
    service.answers["/v1/status"] = {"sources": {"etl": {"queue": queue}, "db": {"queue": None}}}
    service.answers["/v1/queue"] = queue
    shown = output(service, "queue", "show")
    assert shown.startswith("etl: 2 partitions, 3 positions not read, deviation 100 %\n")
    assert "00000000–7fffffff" in shown and "2 KiB" in shown and "\nstay: 2 partitions fit\n" in shown
    assert shown.endswith("last change: split: partition 1 has 9 bytes waiting\n")
    assert json.loads(output(service, "queue", "show", "etl", "--json")) == {"etl": queue}
    assert "db has not an elastic queue" in output(service, "queue", "show", "db")
    failed = CliRunner().invoke(cli, ["queue", "show", "web", "--url", service.url])
    assert isinstance(failed.exception, DefiniteError) and "there is no source web" in str(failed.exception)
    assert output(service, "queue", "split", "etl", "3") == shown
    assert service.asked[-1] == {"path": "/v1/queue", "source": "etl", "partition": 3}
    assert json.loads(output(service, "queue", "merge", "etl", "2", "3", "--json")) == queue
    assert service.asked[-1] == {"path": "/v1/queue", "source": "etl", "partition": 2, "other": 3}
    assert CliRunner().invoke(cli, ["queue", "merge", "etl", "2", "--url", service.url]).exit_code == 2


@pytest.mark.parametrize("said", [["name"], ["name", "value", "--reset"]])
def test_set_takes_a_value_or_goes_back(service: Canned, said: list[str]) -> None:
    assert CliRunner().invoke(cli, ["set", *said, "--url", service.url]).exit_code == 2
    assert service.asked == []


def test_history_has_jobs_and_receipts(service: Canned) -> None:
    query = {"at": "2026-11-15T17:00:01+00:00", "text": "SELECT * FROM revenue", "seconds": 0.31}
    late = {"at": "2026-11-15T17:00:02+00:00", "text": "SELECT 1", "seconds": 5.0}
    job = {"data_timestamp": "2026-11-15T17:00:00.123+00:00", "cut": {"shop": 12}, "seconds": {}, "ways": {}}
    service.answers["/v1/history"] = {
        "jobs": [
            {**job, "id": 10, "closed_at": None, "rows": None, "reached": []},
            {
                **job,
                "id": 9,
                "closed_at": "2026-11-15T17:00:00.5+00:00",
                "rows": 3,
                "reached": ["shop.sales", "revenue"],
                "ways": {"shop.sales": "narrow: 3 changed rows", "revenue": "wide: limits.way says so"},
            },
        ],
        "receipts": [
            {**late, "id": 2, "outcome": "stale", "receipt": None, "problem": "no answer could be made"},
            {**query, "id": 1, "outcome": "ok", "receipt": RECEIPT, "problem": None},
        ],
    }
    lines = [" ".join(line.split()) for line in output(service, "history", "-n", "5").splitlines()]
    assert service.asked[-1]["path"] == "/v1/history?limit=5"
    # The newest last, next to the prompt.
    assert lines[3:5] == [
        "9 2026-11-15 17:00:00 2026-11-15 17:00:00 3 narrow; wide (revenue) shop.sales, revenue",
        "10 – 2026-11-15 17:00:00 NULL – no table yet",
    ]
    assert lines[-3:-1] == [
        "2026-11-15 17:00:01 ok 0.310 0 s 7 3 SELECT * FROM revenue",
        "2026-11-15 17:00:02 stale 5.000 – NULL NULL SELECT 1: no answer could be made",
    ]
    assert len(json.loads(output(service, "history", "--json"))["receipts"]) == 2
