"""What a source says of itself: retained WAL is warned of while there is time, and a full stream log slows capture down."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest

from headgate.capture.locallog import LocalLog
from headgate.capture.postgres import load, log
from headgate.capture.postgres import source as postgres_source
from headgate.capture.postgres.problems import SourceBusy, SourceHistoryLost, SourceUnreachable
from headgate.capture.postgres.snapshot import copy_tables
from headgate.capture.postgres.source import PostgresSource
from headgate.clock import SystemClock
from headgate.config.sources import PostgresSourceSettings
from tests.postgres.replaying import replayed
from tests.waiting import PATIENCE, eventually

WINDOW = timedelta(seconds=30)


@contextmanager
def captured(dsn: str, folder: Path, limit_bytes: int | None = None, **settings: object) -> Iterator[PostgresSource]:
    wanted = {"type": "postgres", "dsn": dsn, "tables": {"a": {}}, **settings}
    stream = LocalLog(folder, limit_bytes=limit_bytes)
    try:
        source = PostgresSource("bank", "bank", PostgresSourceSettings.model_validate(wanted), stream, SystemClock())
    except BaseException:
        stream.close()
        raise
    try:
        source.load(list(source.first_loads), lambda: False)
        yield source
    finally:
        source.close()


def test_a_source_tells_how_it_does(database: str, connection: psycopg.Connection, tmp_path: Path) -> None:
    connection.execute("CREATE TABLE a (id int PRIMARY KEY, v text); INSERT INTO a VALUES (1, 'x')")
    with captured(database, tmp_path, limit_bytes=1 << 20, retained_wal=1 << 30) as source:
        connection.execute("INSERT INTO a VALUES (2, 'y')")
        sample = source.sample()
        assert source.capture(sample, WINDOW)
        status = source.status
        assert status.captured.position >= sample.position
        assert status.gear is not None and status.reason and status.waiting == 0
        assert 0 < status.log_bytes == source.log.held_bytes < (status.log_limit or 0)
        assert status.retained_wal is not None and 0 < status.retained_wal < 1 << 30 == status.retained_wal_limit
        assert (status.problems, status.trouble, status.alarms, status.slot_dropped) == ({}, None, (), False)


def test_retained_wal_is_warned_of_at_half_and_near_the_limit_and_then_given_up(
    database: str,
    connection: psycopg.Connection,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(log, "_INSPECT_SECONDS", 0.0)
    connection.execute("CREATE TABLE a (id int PRIMARY KEY); CREATE TABLE uncaptured (v text)")
    limit = 8 << 20

    def warnings() -> list[str]:
        return [record.message for record in caplog.records if record.levelno == logging.WARNING]

    with captured(database, tmp_path, retained_wal=limit) as source, psycopg.connect(database) as held:
        # A transaction that runs for long keeps the server from letting go of WAL.
        held.execute("INSERT INTO uncaptured VALUES ('open')")

        def write_until(share: float) -> None:
            while (source.status.retained_wal or 0) <= share * limit:
                connection.execute("INSERT INTO uncaptured SELECT repeat('x', 1000) FROM generate_series(1, 200)")
                assert source.capture(source.sample(), WINDOW)

        write_until(0.4)
        assert not warnings()
        write_until(0.5)
        assert len(warnings()) == 1 and "retained_wal" in warnings()[0] and "headgate_bank_bank" in warnings()[0]
        write_until(0.7)
        # Once per crossing, and it stays for those who look.
        assert len(warnings()) == 1 and "of WAL for the replication slot" in source.status.alarms[0]
        write_until(0.8)
        assert len(warnings()) == 2 and warnings()[1].endswith(source.status.alarms[0])
        with pytest.raises(SourceHistoryLost, match="was dropped"):
            write_until(2)
        status = source.status
        assert (
            status.slot_dropped and isinstance(status.trouble, SourceHistoryLost) and "was dropped" in status.alarms[0]
        )
        assert connection.execute("SELECT count(*) FROM pg_replication_slots").fetchone() == (0,)
        held.rollback()
        source.resnapshot()
        assert not source.status.slot_dropped and source.status.alarms == () and source.status.trouble is None
        connection.execute("INSERT INTO a VALUES (1)")
        assert source.capture(source.sample(), WINDOW)


def test_alarms_end_when_the_server_lets_go(
    database: str,
    connection: psycopg.Connection,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(log, "_INSPECT_SECONDS", 0.0)
    connection.execute("CREATE TABLE a (id int PRIMARY KEY); CREATE TABLE uncaptured (v text)")
    limit = 4 << 20
    with captured(database, tmp_path, retained_wal=limit) as source:
        with psycopg.connect(database) as held:
            held.execute("INSERT INTO uncaptured VALUES ('open')")
            connection.execute("INSERT INTO uncaptured SELECT repeat('x', 1000) FROM generate_series(1, %s)", [2600])
            eventually(lambda: bool(source.status.alarms))

        def lets_go() -> bool:
            # The server moves on when it next notes which transactions run.
            connection.execute("CHECKPOINT; INSERT INTO uncaptured VALUES ('more')")
            time.sleep(0.2)
            return not source.status.alarms

        eventually(lets_go)
        assert not source.status.slot_dropped and caplog.text.count("retained WAL") == 1


@pytest.mark.parametrize("capture", ["log", "trigger"])
def test_capture_slows_down_for_its_consumer_and_loses_nothing(
    database: str, connection: psycopg.Connection, tmp_path: Path, capture: str
) -> None:
    connection.execute("CREATE TABLE a (id int PRIMARY KEY, v text)")
    with captured(database, tmp_path, limit_bytes=30_000, capture=capture) as source:
        full, ended = threading.Event(), threading.Event()
        source.log.on_full(full.set)
        rows: dict[object, object] = {}

        def consume() -> None:
            # As a warehouse: takes what is there when it is told, and then lets go of it.
            while not ended.is_set():
                if full.wait(0.05):
                    full.clear()
                    time.sleep(0.1)
                    take()

        def take() -> None:
            state = replayed(source.log, {"a": ("id",)})
            rows.update(state.get("a", {}))
            source.log.trim(source.log.durable)

        consumer = threading.Thread(target=consume)
        consumer.start()
        try:
            for first in range(0, 3000, 100):
                connection.execute(
                    "INSERT INTO a SELECT i, repeat('x', 50) FROM generate_series(%s::int, %s) i", [first, first + 99]
                )
                time.sleep(0.01)
            assert source.capture(source.sample(), WINDOW)
        finally:
            ended.set()
            consumer.join()
        take()
        assert len(rows) == 3000


@pytest.mark.parametrize("capture", ["log", "trigger"])
def test_readers_are_told_while_tables_are_read_whole(
    database: str, connection: psycopg.Connection, tmp_path: Path, capture: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_source, "BUSY_SECONDS", 0.1)
    connection.execute("CREATE TABLE a (id int PRIMARY KEY); INSERT INTO a VALUES (1)")
    with captured(database, tmp_path, capture=capture) as source:
        reading, done = threading.Event(), threading.Event()

        def wait(*arguments: object, **options: object) -> int:
            reading.set()
            assert done.wait(10 * PATIENCE)
            return copy_tables(*arguments, **options)  # type: ignore[arg-type]

        monkeypatch.setattr(load, "copy_tables", wait)
        resnapshot = threading.Thread(target=source.resnapshot)
        resnapshot.start()
        try:
            assert reading.wait(PATIENCE)
            began = time.monotonic()
            with pytest.raises(SourceBusy, match="being read whole"):
                source.sample()
            assert time.monotonic() - began < PATIENCE
            assert source.status.log_bytes > 0
        finally:
            done.set()
            resnapshot.join()
        assert source.capture(source.sample(), WINDOW)


def test_at_first_contact_nobody_tries_again(tmp_path: Path) -> None:
    with (
        pytest.raises(SourceUnreachable, match="open the warehouse again") as caught,
        captured("host=127.0.0.1 port=1 user=nobody dbname=nothing", tmp_path),
    ):
        pass
    assert "tried again" not in str(caught.value) and "check host and port" in str(caught.value)
