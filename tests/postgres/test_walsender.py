"""The walsender between periods of capture: gone when they are long, and without work when nobody reads its stream."""

from __future__ import annotations

import os
import time
from pathlib import Path

import psycopg
import pytest

from headgate.capture.postgres import log
from headgate.capture.postgres.pgoutput import read_lsn
from tests.postgres.logged import logged, source_rows
from tests.postgres.writing import writers
from tests.waiting import eventually


def test_none_is_left_between_long_periods_while_writers_write(
    database: str, connection: psycopg.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "_LONG_PERIOD", 0.3)
    monkeypatch.setattr(log, "_REREAD_RATIO", 1000)
    connection.execute("CREATE TABLE a (id int PRIMARY KEY, n int); INSERT INTO a VALUES (1, 0)")
    with logged(database, tmp_path, "a") as source, writers(database, 1) as rounds:
        source.catch_up()
        for _ in range(3):
            time.sleep(0.3)
            source.catch_up()
            eventually(lambda: senders(connection) == [])
            until, before = time.monotonic() + 0.2, sum(rounds)
            while time.monotonic() < until or sum(rounds) == before:
                assert senders(connection) == []
                time.sleep(0.02)
        # Between short ones it stays: to come back would cost the server more than it saves.
        monkeypatch.setattr(log, "_LONG_PERIOD", 60.0)
        source.catch_up()
        stays = [pid for pid, _ in senders(connection)]
        time.sleep(0.2)
        source.catch_up()
        assert [pid for pid, _ in senders(connection)] == stays != []
    with logged(database, tmp_path, "a") as source:
        source.catch_up()
        assert source.replica("a") == source_rows(connection, "a")


def test_one_whose_stream_nobody_reads_waits_and_does_nothing(
    database: str, connection: psycopg.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "_LONG_PERIOD", 600.0)
    connection.execute("CREATE TABLE a (id int PRIMARY KEY, v text)")
    with logged(database, tmp_path, "a") as source:
        connection.execute("INSERT INTO a VALUES (0, 'first')")
        source.catch_up()
        ((pid, _),) = senders(connection)
        rows = 0
        # As much as fits between the two ends of a connection is on its way, and no more.
        while position(connection) - senders(connection)[0][1] < 4 << 20:
            assert rows < 400_000
            rows += 4000
            connection.execute(
                "INSERT INTO a SELECT i, repeat('x', 300) FROM generate_series(%s::int, %s) i", [rows - 3999, rows]
            )
            eventually(lambda: rests(connection, pid, 0.1))
        eventually(lambda: rests(connection, pid, 0.5))
        assert position(connection) - senders(connection)[0][1] >= 4 << 20
        source.catch_up()
        assert len(source.replica("a")) == rows + 1


def rests(connection: psycopg.Connection, pid: int, seconds: float) -> bool:
    """Whether a walsender computes nothing and sends nothing for that long."""
    before = processor_seconds(pid), senders(connection)
    time.sleep(seconds)
    return (processor_seconds(pid), senders(connection)) == before


def senders(connection: psycopg.Connection) -> list[tuple[int, int]]:
    """The walsenders that stream, and how far each has sent."""
    rows = connection.execute("SELECT pid, sent_lsn::text FROM pg_stat_replication WHERE sent_lsn IS NOT NULL")
    return [(pid, read_lsn(sent)) for pid, sent in rows.fetchall()]


def position(connection: psycopg.Connection) -> int:
    row = connection.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()
    assert row is not None
    return read_lsn(row[0])


def processor_seconds(pid: int) -> float:
    """What a process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
