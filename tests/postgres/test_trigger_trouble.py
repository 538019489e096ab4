"""Capture by trigger when the source is not as it was left, may not be written to, or goes away."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import LiteralString

import psycopg
import pytest

from headgate.capture.locallog import LocalLog
from headgate.capture.postgres.cursor import CursorFile
from headgate.capture.postgres.private_server import PostgresServer
from headgate.capture.postgres.problems import SourceHistoryLost, SourceSetup, SourceUnreachable
from headgate.capture.postgres.trigger import TriggerMethod
from headgate.capture.postgres.trigger_batch import AuditBatch
from headgate.capture.postgres.trigger_state import TriggerState
from headgate.clock import SystemClock
from tests.postgres.replaying import events_of, replayed
from tests.postgres.triggered import Capture, T

KEYS = {"t": ("id",)}


@pytest.fixture
def source(connection: psycopg.Connection) -> psycopg.Connection:
    connection.execute("CREATE TABLE t (id int PRIMARY KEY, a text); INSERT INTO t VALUES (1, 'one')")
    return connection


@pytest.fixture
def capture(source: psycopg.Connection, database: str, tmp_path: Path) -> Iterator[Capture]:
    opened = Capture(database, tmp_path / "log")
    yield opened
    opened.close()


def test_an_audit_table_that_is_gone_is_lost_history(capture: Capture, source: psycopg.Connection) -> None:
    capture.close()
    source.execute("DROP SCHEMA headgate CASCADE")
    source.execute("INSERT INTO t VALUES (2, 'the application goes on')")
    with pytest.raises(SourceHistoryLost, match=r"its audit table is gone \(.*refresh"):
        capture.open()
    capture.open(afresh=True)
    source.execute("INSERT INTO t VALUES (3, 'and so do we')")
    capture.step()
    assert set(replayed(capture.log, KEYS)["t"]) == {(1,), (2,), (3,)}


def test_an_audit_table_of_another_capture_is_lost_history(
    capture: Capture, source: psycopg.Connection, database: str, tmp_path: Path
) -> None:
    capture.close()
    Capture(database, tmp_path / "another log").close()
    with pytest.raises(SourceHistoryLost, match="its audit table was replaced"):
        capture.open()


def test_an_audit_table_that_goes_while_capture_runs_is_lost_history(
    capture: Capture, source: psycopg.Connection, database: str, tmp_path: Path
) -> None:
    Capture(database, tmp_path / "another log").close()
    with pytest.raises(SourceHistoryLost, match="its audit table was replaced"):
        capture.step()
    source.execute("DROP SCHEMA headgate CASCADE")
    with pytest.raises(SourceHistoryLost, match="its audit table is gone"):
        capture.step()
    capture.method.resnapshot()
    source.execute("INSERT INTO t VALUES (2, 'x')")
    capture.step()
    assert set(replayed(capture.log, KEYS)["t"]) == {(1,), (2,)}


def test_a_restored_source_is_lost_history(capture: Capture, source: psycopg.Connection) -> None:
    backup = source.execute("SELECT acknowledged FROM headgate.captures").fetchone()
    source.execute("INSERT INTO t VALUES (2, 'x')")
    capture.step()
    capture.step()
    source.execute("INSERT INTO t VALUES (3, 'x')")
    capture.step()
    capture.close()
    # As in a copy from before, which has since made up for the transaction ids.
    source.execute("UPDATE headgate.captures SET acknowledged = %s", backup)
    with pytest.raises(SourceHistoryLost, match="does not know what it was told last, so it was restored"):
        capture.open()


def test_a_snapshot_from_the_future_is_lost_history(capture: Capture, source: psycopg.Connection) -> None:
    capture.close()
    cursor = CursorFile(capture.folder, TriggerState)
    content = cursor.read()
    assert content is not None
    cursor.write(replace(content, upto="99999999:99999999:"))
    with pytest.raises(SourceHistoryLost, match="lie before those that were captured"):
        capture.open()


def test_an_older_copy_of_the_warehouse_is_lost_history(capture: Capture, source: psycopg.Connection) -> None:
    capture.close()
    shutil.copytree(capture.folder, capture.folder.with_name("backup"))
    capture.open()
    source.execute("INSERT INTO t VALUES (2, 'x')")
    capture.step()
    capture.step()
    capture.close()
    capture.folder = capture.folder.with_name("backup")
    with pytest.raises(SourceHistoryLost, match="let go of changes that are not here"):
        capture.open()


@pytest.mark.parametrize("statement", ["ALTER TABLE t DISABLE TRIGGER USER", "DROP TRIGGER shop_rows ON t"])
def test_disabled_triggers_stop_the_table(
    capture: Capture, source: psycopg.Connection, statement: LiteralString
) -> None:
    source.execute(statement)
    capture.reopen()
    assert "triggers of public.t were dropped or disabled" in capture.method.problems["t"].what
    capture.method.resnapshot(["t"])
    source.execute("INSERT INTO t VALUES (2, 'x')")
    capture.step()
    assert set(replayed(capture.log, KEYS)["t"]) == {(1,), (2,)}


def test_missing_privileges_come_with_the_statement_that_grants_them(
    source: psycopg.Connection, server: PostgresServer, tmp_path: Path
) -> None:
    name = source.info.dbname
    source.execute("CREATE ROLE reader LOGIN; GRANT SELECT ON t TO reader")
    try:
        with pytest.raises(SourceSetup, match=f"GRANT CREATE ON DATABASE {name} TO reader"):
            Capture(server.dsn_of(name, user="reader"), tmp_path / "log")
        source.execute("CREATE SCHEMA headgate AUTHORIZATION reader")
        with pytest.raises(SourceSetup, match=r"GRANT TRIGGER ON public\.t TO reader"):
            Capture(server.dsn_of(name, user="reader"), tmp_path / "log")
        source.execute("GRANT TRIGGER ON t TO reader")
        capture = Capture(server.dsn_of(name, user="reader"), tmp_path / "log")
        source.execute("INSERT INTO t VALUES (2, 'x')")
        capture.step()
        assert set(replayed(capture.log, KEYS)["t"]) == {(1,), (2,)}
        capture.method.remove()
        capture.close()
    finally:
        source.execute("DROP OWNED BY reader CASCADE; DROP ROLE reader")


def test_a_long_name_is_shortened_and_stays_distinct(source: psycopg.Connection, database: str, tmp_path: Path) -> None:
    for ending in "ab":
        log = LocalLog(tmp_path / ending)
        TriggerMethod(database, f"{'x' * 60}_{ending}", [T], log=log, clock=SystemClock()).close()
        log.close()
    source.execute("INSERT INTO t VALUES (2, 'x')")
    assert source.execute("SELECT count(*) FROM headgate.captures").fetchone() == (2,)


def test_a_cut_connection_is_transient_and_capture_goes_on(capture: Capture, source: psycopg.Connection) -> None:
    source.execute("INSERT INTO t VALUES (2, 'x')")
    source.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'headgate%' AND datname = current_database()"
    )
    with pytest.raises(SourceUnreachable):
        capture.step()
    assert capture.step()
    assert set(replayed(capture.log, KEYS)["t"]) == {(1,), (2,)}


def test_capture_survives_a_crash_of_the_server(tmp_path: Path) -> None:
    with PostgresServer() as server:
        server.execute("CREATE TABLE t (id int PRIMARY KEY, a text)")
        capture = Capture(server.dsn, tmp_path / "log")
        server.execute("INSERT INTO t VALUES (1, 'captured')")
        capture.step()
        server.execute("INSERT INTO t VALUES (2, 'acknowledged')")
        server.kill()
        with pytest.raises(SourceUnreachable):
            capture.step()
        server.start()
        while capture.step():
            pass
        assert [event["id"] for event in events_of(capture.log, "t")] == [1, 2]
        capture.close()


def test_a_batch_larger_than_memory_waits_on_disk(capture: Capture, source: psycopg.Connection) -> None:
    capture.transaction_bytes = 10_000
    capture.reopen()
    source.execute("INSERT INTO t SELECT i, repeat('x', 100) FROM generate_series(2, 1000) i")
    source.execute("UPDATE t SET a = 'y' WHERE id > 900")
    task = capture.method.plan(0)
    assert task is not None
    batch: AuditBatch = capture.method.read(task)
    assert list(capture.log.spool_folder.iterdir())
    capture.method.publish(batch)
    assert not list(capture.log.spool_folder.iterdir())
    assert [each.rows for each in capture.log.transactions(0, capture.log.end)][1:] == [{"t": 999}, {"t": 100}]
    assert len(replayed(capture.log, KEYS)["t"]) == 1000
