"""The service and its client over a real warehouse."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import headgate.client
from headgate import Procedure, Receipt, Warehouse
from headgate.client import Client
from headgate.errors import ConfigError, DefiniteError, FlowFailed, TooStale, TransientError, UnknownTable
from headgate.runtime.recovery.backup import restore
from headgate.runtime.recovery.manifest import read_manifest
from headgate.runtime.spark.sessions import SparkSessions
from headgate.service import Server
from tests.scheduling.bank import FLOWS, deposit, open_bank
from tests.service.asking import ask, query
from tests.service.prometheus import read_metrics
from tests.waiting import eventually

ALL = "SELECT branch, total FROM totals"
SHARES = "CREATE MATERIALIZED VIEW shares AS SELECT id, 1000 DIV balance AS share FROM bank.accounts;"


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory, spark_sessions: SparkSessions) -> Iterator[Warehouse]:
    calls = Procedure("calls", "totals", lambda changes, call: None)
    with open_bank(tmp_path_factory.mktemp("bank"), FLOWS + SHARES, [calls]) as warehouse:
        deposit(warehouse, (1, 1, 10), (2, 1, 5), (3, 2, 7))
        yield warehouse


@pytest.fixture(scope="module")
def server(bank: Warehouse) -> Iterator[Server]:
    with Server(bank, port=0) as server:
        yield server


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[Client]:
    with headgate.client.connect(server.url) as client:
        yield client


def totals(client: Client, **bound: object) -> dict[int, int]:
    with client.sql(ALL, **bound) as reply:  # type: ignore[arg-type]
        return {row["branch"]: row["total"] for row in reply.rows()}


def numbers(bank: Warehouse) -> Iterator[int]:
    """Account numbers that are free."""
    with bank.sql("SELECT max(id) AS most FROM bank.accounts") as answer:
        most = answer.collect()[0].most
    return iter(range(most + 1, most + 100))


def test_a_query_gets_what_was_acknowledged_and_its_receipt(client: Client, bank: Warehouse) -> None:
    before = totals(client)
    deposit(bank, (next(numbers(bank)), 1, 100))
    with client.sql(ALL, max_staleness="10m") as stale:
        assert stale.to_arrow().num_rows == len(before)
        assert stale.receipt is not None and stale.receipt["closed_job"] is False
    with client.sql(f"{ALL} CURRENCY BOUND 0 SEC DEADLINE 30 SEC") as fresh:
        rows = {row["branch"]: row["total"] for row in fresh.rows()}
        assert rows[1] == before[1] + 100
        assert fresh.receipt is not None and not fresh.receipt["missed"]
        receipt = Receipt.from_json(fresh.receipt)
        assert receipt.job == bank.newest_job and receipt.waited.read > 0
        job = receipt.job
    with client.sql(ALL, job=job - 1) as old:
        assert {row["branch"]: row["total"] for row in old.rows()} == before and old.receipt is None
    eventually(lambda: bank.status.answers == 0)


def test_json_has_sparks_types(server: Server) -> None:
    text = "SELECT CAST(1.5 AS DECIMAL(4,2)) AS d, DATE'2024-02-29' AS day, ARRAY(1, 2) AS a, NULL AS n"
    found = query(server.url, text).json
    assert [column["type"] for column in found["columns"]] == ["decimal(4,2)", "date", "array<int>", "void"]
    assert found["rows"] == [["1.50", "2024-02-29", [1, 2], None]]


def test_only_a_select_is_answered(client: Client) -> None:
    for text in ("DROP TABLE totals", "SELECT 1; SELECT 2", "SELECT * FROM parquet.`/tmp`", "SELEC 1"):
        with pytest.raises(DefiniteError):
            client.sql(text)
    with pytest.raises(UnknownTable, match="did you mean totals") as unknown:
        client.sql("SELECT * FROM total")
    assert unknown.value.hint


def test_a_query_that_fails_while_it_is_read_is_the_callers_mistake(server: Server) -> None:
    heard = query(server.url, "SELECT raise_error('too bad') FROM totals")
    assert heard.status == 400 and "too bad" in heard.error["what"], heard


def test_a_session_remembers(client: Client, bank: Warehouse) -> None:
    with client.sql("SET max_staleness = '10m'", session="mine") as said:
        assert {row["key"]: row["value"] for row in said.rows()}["max_staleness"] == "10m"
        assert said.receipt is None
    deposit(bank, (next(numbers(bank)), 3, 1))
    with client.sql(ALL, session="mine") as stale, client.sql(ALL, session="other") as fresh:
        assert stale.receipt is not None and stale.receipt["bound"]["max_staleness"] == 600
        assert fresh.receipt is not None and fresh.receipt["bound"]["max_staleness"] == 0


def test_a_missed_deadline_is_a_timeout_and_counted(client: Client, server: Server, bank: Warehouse) -> None:
    totals(client)
    with bank._engine.executor.paused():
        deposit(bank, (next(numbers(bank)), 1, 1))
        heard = query(server.url, ALL, deadline="100ms")
        assert heard.status == 504 and heard.error["kind"] == "TooStale" and "SERVE" in heard.error["hint"]
        with client.sql(ALL, deadline=0.1, when_stale="serve") as served:
            assert served.receipt is not None and served.receipt["missed"]
        with pytest.raises(TooStale, match="max_staleness") as missed:
            client.sql(ALL, deadline=0.1)
        assert missed.value.sqlstate == "40001"
        assert client.history(limit=1)["receipts"][0]["outcome"] == "stale"
    found = read_metrics(ask(server.url, "GET", "/metrics").body.decode())
    assert found["headgate_query_deadline_missed_total"].value() == 3
    assert 0 < found["headgate_query_bound_met_ratio"].value() < 1


def test_a_client_that_vanishes_while_it_waits_leaves_nothing_behind(server: Server, bank: Warehouse) -> None:
    place = urlsplit(server.url)
    body = json.dumps({"sql": ALL})
    with bank._engine.executor.paused():
        deposit(bank, (next(numbers(bank)), 1, 1))
        connection = socket.create_connection((str(place.hostname), place.port or 0))
        head = f"POST /v1/query HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
        connection.sendall((head + body).encode())
        eventually(lambda: bank._scheduler.waiting == 1)
        (run,) = ask(server.url, "GET", "/v1/status").json["queries"]
        assert run["text"] == ALL and run["phase"] == "waiting"
        connection.close()
        eventually(lambda: bank._scheduler.waiting == 0 and not server._service.queries.running)
    assert bank.status.answers == 0


def test_a_client_that_vanishes_while_it_reads_stops_spark(server: Server, client: Client, bank: Warehouse) -> None:
    # Some hours of work, in tasks of less than a second: Spark without code generation ends none of them halfway.
    heavy = "SELECT max(sqrt(id)) FROM range(0, 20000000000, 1, 20000)"
    impatient = headgate.client.connect(server.url, timeout=2)
    tracker = bank._engine.sessions.context.statusTracker()
    with pytest.raises(TransientError, match="in time"):
        impatient.sql(heavy)
    eventually(lambda: not server._service.queries.running)
    eventually(lambda: not tracker.getActiveJobsIds())
    assert bank.status.answers == 0
    assert totals(client)


def test_a_slow_client_holds_no_snapshot(client: Client, bank: Warehouse) -> None:
    with client.sql("SELECT id, repeat('x', 100) AS padding FROM range(200000)") as reply:
        next(reply.batches())
        assert bank.status.answers == 0


def test_status_tables_history_and_metrics_tell_of_the_warehouse(
    client: Client, server: Server, bank: Warehouse
) -> None:
    totals(client)
    status = client.status()
    assert status["name"] == "bank" and status["failures"] == [] and status["complete"] <= bank.newest_job
    assert {table["name"] for table in status["tables"]} == {
        "bank.accounts",
        "bank.branches",
        "totals",
        "names",
        "shares",
        "calls",
    }
    assert status["sources"]["bank"]["log_bytes"] > 0
    tables = {table["name"]: table for table in client.tables()}
    assert tables["totals"]["columns"] == [{"name": "branch", "type": "int"}, {"name": "total", "type": "bigint"}]
    assert tables["totals"]["reads"] == ["bank.accounts"] and tables["totals"]["kind"] == "flow"
    assert tables["bank.accounts"]["key"] == ["id"] and tables["bank.accounts"]["kind"] == "source"
    assert tables["bank.accounts"]["reads"] == []
    assert tables["calls"]["reads"] == ["totals"] and tables["calls"]["kind"] == "procedure"
    assert tables["totals"]["freshness"]["lag"] >= 0
    history = client.history(limit=2)
    assert [job["id"] for job in history["jobs"]] == [bank.newest_job - 1, bank.newest_job]
    assert "totals" in history["jobs"][1]["reached"]
    before, last = history["receipts"]
    assert last["id"] == before["id"] + 1 and last["outcome"] == "ok" and last["problem"] is None
    assert last["text"] == ALL and last["receipt"]["job"] == bank.newest_job
    assert last["receipt"] == bank.history.receipts(1)[0].to_json()["receipt"]
    found = read_metrics(ask(server.url, "GET", "/metrics").body.decode())
    assert found["headgate_table_lag_seconds"].value(table="totals") >= 0
    assert found["headgate_jobs_total"].value() == bank.newest_job
    assert found["headgate_source_log_bytes"].value(source="bank") > 0
    assert found["headgate_queries_total"].value(outcome="ok") >= 1
    assert found["headgate_query_seconds"].value("_count", phase="read") >= 1


def test_a_flow_is_explained(client: Client, server: Server) -> None:
    found = client.explain("totals")
    assert found["is_incremental"] and "scan bank.accounts" in found["text"]
    assert ask(server.url, "GET", "/v1/explain/nothing").status == 404
    with pytest.raises(DefiniteError, match=r"no flow no thing\?"):
        client.explain("no thing?")


def test_refresh_brings_every_table_up_to_date(client: Client, bank: Warehouse) -> None:
    deposit(bank, (next(numbers(bank)), 1, 1))
    job = client.refresh()
    assert job == bank.newest_job and bank.status.complete == job
    assert client.refresh(full=True) == job


def test_settings_are_changed_while_the_warehouse_runs(client: Client, server: Server, bank: Warehouse) -> None:
    before = client.settings()
    assert before["settings"]["retention.jobs"] == 20 and before["changes"] == []
    found = client.change("retention.jobs", "30", who="ann")
    assert found["settings"]["retention.jobs"] == bank.project.retention.jobs == 30
    assert found == client.change("retention.jobs", 30) | {"changes": found["changes"]}
    assert client.reset("retention.jobs")["settings"] == before["settings"]
    changes = client.settings()["changes"]
    assert [(each["who"], each["before"], each["after"], each["kind"], each["holds"]) for each in changes] == [
        ("ann", 20, 30, "change", False),
        ("the service", 30, 30, "change", False),
        ("the service", 30, 20, "reset", False),
    ]
    with pytest.raises(ConfigError, match=r"retention\.jobs must be a whole number"):
        client.change("retention.jobs", "many")
    with pytest.raises(DefiniteError, match=r"did you mean retention\.jobs"):
        client.change("retention.jobz", 1)
    wrong = {"name": "retention.jobs"}
    for body in (wrong, {"value": 1}, {**wrong, "value": 1, "reset": True}, {**wrong, "value": 1, "who": "\x1b[2J"}):
        assert ask(server.url, "PATCH", "/v1/settings", body).status == 400, body
    assert len(client.settings()["changes"]) == 3


def test_a_backup_is_made_while_the_warehouse_works(client: Client, bank: Warehouse, tmp_path: Path) -> None:
    deposit(bank, (next(numbers(bank)), 1, 1))
    job = client.refresh()
    made = client.backup(str(tmp_path / "copy"))
    whole = read_manifest(tmp_path / "copy")
    assert made == {"folder": str(tmp_path / "copy"), **whole.summary()}
    assert made["job"] == job and made["files"] == len(whole.files) > 0
    assert restore(tmp_path / "copy", tmp_path / "again").job == job
    with pytest.raises(DefiniteError, match="is not empty"):
        client.backup(str(tmp_path / "copy"))
    for folder in ("copy", "", "/tmp/\ud800", "/tmp/\0"):
        with pytest.raises(DefiniteError, match=r"no absolute folder|U\+D800|a NUL"):
            client.backup(folder)


def test_a_failed_flow_is_told_and_resumed(client: Client, server: Server, bank: Warehouse) -> None:
    number = next(numbers(bank))
    deposit(bank, (number, 9, 0))
    with pytest.raises(FlowFailed, match=r"bank\.sql.*shares.*DIVIDE_BY_ZERO"):
        client.sql("SELECT * FROM shares")
    assert query(server.url, "SELECT * FROM shares").status == 409
    (failure,) = client.status()["failures"]
    assert failure["kind"] == "FlowFailed"
    found = read_metrics(ask(server.url, "GET", "/metrics").body.decode())
    assert found["headgate_table_failed"].value(table="shares") == 1
    assert totals(client)[9] == 0
    file = Path(bank.project.flow_files[0])
    file.write_text(FLOWS + SHARES.replace("1000 DIV balance", "try_divide(1000, balance)"))
    assert client.resume() == {"failures": []}
    with client.sql(f"SELECT share FROM shares WHERE id = {number}") as reply:
        assert list(reply.rows()) == [{"share": None}]


def test_it_is_ready_only_while_the_warehouse_answers(server: Server, bank: Warehouse) -> None:
    asked_at = bank._scheduler.asked_at
    assert ask(server.url, "GET", "/readyz").status == 200
    # To look whether it is ready does not count as asking: the warehouse would never be idle.
    assert bank._scheduler.asked_at == asked_at
    with Server(port=0) as empty:
        assert ask(empty.url, "GET", "/readyz").status == 503 and query(empty.url, "SELECT 1").status == 503
        empty.attach(bank)
        assert ask(empty.url, "GET", "/readyz").status == 200 and query(empty.url, "SELECT 1").status == 200


def test_without_spark_it_is_neither_alive_nor_ready_and_its_status_tells_why(
    server: Server, bank: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bank._engine.sessions.health, "lost", "its Java process ended with code -9")
    for path in ("/healthz", "/readyz"):
        heard = ask(server.url, "GET", path)
        assert heard.status == 503 and "code -9" in heard.json["error"]["what"]
    heard = ask(server.url, "GET", "/v1/status")
    assert heard.status == 200 and heard.json["spark_lost"] == "its Java process ended with code -9"


def test_many_clients_at_once_all_get_the_same(server: Server, client: Client) -> None:
    expected = totals(client)
    clients = [headgate.client.connect(server.url) for _ in range(128)]
    start = threading.Barrier(len(clients))

    def work(each: Client) -> dict[int, int]:
        with each:
            start.wait(60)
            return totals(each, max_staleness="10m")

    with ThreadPoolExecutor(len(clients)) as threads:
        assert all(found == expected for found in threads.map(work, clients))


# The command line's tests stop such a process in every run.
@pytest.mark.thorough
def test_a_serving_process_stops_cleanly_when_it_is_told(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": f"{root}{os.pathsep}{root / 'src'}"}
    command = [sys.executable, "-m", "tests.service.serving", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root, env=environment) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            assert query(url, ALL).json["rows"] == [[1, 10]]
            process.send_signal(signal.SIGTERM)
            assert process.stdout.read() == "closed\n"
            assert process.wait(60) == 0
        finally:
            process.kill()
