"""The log method's contract: whole transactions in commit order, progress without changes, acknowledged when durable."""

from __future__ import annotations

import threading
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest

from headgate.capture.postgres import log
from headgate.capture.postgres.log import worth_closing
from headgate.capture.postgres.log_server import LogServer
from headgate.capture.postgres.pgoutput import read_lsn
from headgate.capture.postgres.private_server import PostgresServer
from headgate.capture.postgres.problems import SourceUnreachable
from headgate.delta.events import OBSERVED, TRUNCATE, UPSERT
from tests.postgres.logged import EVERYTHING, logged, source_rows
from tests.waiting import eventually


def confirmed(connection: psycopg.Connection, name: str = "headgate_test_source") -> int:
    row = connection.execute(
        "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = %s", [name]
    ).fetchone()
    assert row is not None
    return read_lsn(row[0])


def test_transactions_arrive_whole_and_in_commit_order(
    database: str, connection: psycopg.Connection, tmp_path: Path
) -> None:
    connection.execute("CREATE TABLE a (id int PRIMARY KEY, v text); CREATE TABLE b (id int PRIMARY KEY, v text)")
    with logged(database, tmp_path, "a", "b") as source, psycopg.connect(database) as other:
        other.execute("INSERT INTO a VALUES (1, 'begun first, committed last')")
        with connection.transaction():
            connection.execute("INSERT INTO a VALUES (2, 'x')")
            connection.execute("INSERT INTO b VALUES (2, 'y')")
        other.execute("INSERT INTO b VALUES (1, 'z')")
        other.commit()
        source.catch_up()
        load, first, second = source.log.transactions(0, EVERYTHING)
        assert load.initial and not first.initial
        assert (first.rows, second.rows) == ({"a": 1, "b": 1}, {"a": 1, "b": 1})
        assert [row["id"] for row in source.events("a")] == [2, 1]
        assert first.commit_at < second.commit_at
        sequences = [row["__sequence"] for table in "ab" for row in source.events(table, after=first.position)]
        assert sequences == sorted(set(sequences))


def test_an_idle_source_is_not_stale_and_holds_no_wal(
    database: str, connection: psycopg.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Told at most once a second while nothing is captured.
    monkeypatch.setattr("headgate.capture.postgres.log_reader._TELL_SECONDS", 0.0)
    connection.execute("CREATE TABLE a (id int PRIMARY KEY); CREATE TABLE uncaptured (id int)")
    with logged(database, tmp_path, "a") as source:
        source.catch_up()
        connection.execute("INSERT INTO uncaptured SELECT generate_series(1, 50000)")
        needed = source.catch_up()
        assert source.method.captured >= needed
        # The server itself writes a record now and then; between two of them nothing is left to plan.
        assert None in [source.method.plan(number) for number in range(99, 109)]
        assert [transaction.initial for transaction in source.log.transactions(0, EVERYTHING)] == [True]

        def is_told() -> bool:
            connection.execute("INSERT INTO uncaptured VALUES (0)")
            source.catch_up()
            return confirmed(connection) >= needed

        eventually(is_told)


def test_the_server_hears_only_of_what_is_on_the_disk(
    database: str, connection: psycopg.Connection, tmp_path: Path
) -> None:
    connection.execute("CREATE TABLE a (id int PRIMARY KEY)")
    with logged(database, tmp_path, "a") as source:
        before = confirmed(connection)
        connection.execute("INSERT INTO a VALUES (1)")
        assert confirmed(connection) == before
        source.catch_up()
        # The server reads what it was told when its walsender next runs.
        eventually(lambda: confirmed(connection) > before)
        assert confirmed(connection) <= source.log.durable


def test_a_sample_covers_asynchronous_commits_and_unfinished_transactions(
    database: str, connection: psycopg.Connection, tmp_path: Path
) -> None:
    connection.execute("CREATE TABLE a (id int PRIMARY KEY)")
    connection.execute("SET synchronous_commit = off")
    with logged(database, tmp_path, "a") as source, psycopg.connect(database) as other:
        for number in range(20):
            connection.execute("INSERT INTO a VALUES (%s)", [number])
            # Its records lie behind the commit and are written out by nobody.
            other.execute("INSERT INTO a VALUES (%s)", [-1 - number])
            source.catch_up()
            assert len(source.replica("a")) == number + 1
        other.rollback()


def test_every_position_a_server_can_stand_at_is_reached(
    database: str, connection: psycopg.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some are right behind a page's header, where nothing is until more is written."""

    def refuse(server: LogServer) -> None:
        raise AssertionError("all WAL is written out, so there is nothing to hurry")

    connection.execute("CREATE TABLE a (id int PRIMARY KEY)")
    with logged(database, tmp_path, "a") as source:
        source.catch_up()
        monkeypatch.setattr(LogServer, "nudge", refuse)
        behind_headers = 0
        for overhead in range(64, 224, 8):
            # Fills a page to its end: a message and its commit are as long as its text and something more.
            room = -insert_position(connection) % 8192 + 8192
            connection.execute("SELECT pg_logical_emit_message(true, 'fill', repeat('x', %s))", [room - overhead])
            behind_headers += insert_position(connection) % 8192 in (24, 40)
            source.catch_up()
        assert behind_headers


def test_commit_times_are_on_our_clock_and_never_go_back(
    database: str, connection: psycopg.Connection, tmp_path: Path
) -> None:
    connection.execute("CREATE TABLE a (id int PRIMARY KEY)")
    with logged(database, tmp_path, "a") as source:
        began = datetime.now(UTC)
        for number in range(10):
            connection.execute("INSERT INTO a VALUES (%s)", [number])
        source.catch_up()
        times = [transaction.commit_at for transaction in source.log.transactions(0, EVERYTHING)]
        assert times == sorted(times)
        sample = source.method.sample()
        assert abs(sample.clock_offset) <= sample.clock_error
        assert began <= times[1] <= datetime.now(UTC)


def test_a_closed_source_goes_on_where_it_was(database: str, connection: psycopg.Connection, tmp_path: Path) -> None:
    connection.execute("CREATE TABLE a (id int PRIMARY KEY, v text)")
    for number in range(3):
        with logged(database, tmp_path, "a") as source:
            connection.execute("INSERT INTO a VALUES (%s, 'while open')", [number])
            source.catch_up()
        connection.execute("INSERT INTO a VALUES (%s, 'while closed')", [10 + number])
    with logged(database, tmp_path, "a") as source:
        source.catch_up()
        assert source.replica("a") == source_rows(connection, "a")
        assert len(source.events("a")) == 6


def test_a_table_added_to_the_project_is_loaded_at_a_point_of_the_stream(
    database: str, connection: psycopg.Connection, tmp_path: Path
) -> None:
    connection.execute("CREATE TABLE a (id int PRIMARY KEY, v text); CREATE TABLE b (id int PRIMARY KEY, v text)")
    connection.execute("INSERT INTO b VALUES (1, 'before')")
    with logged(database, tmp_path, "a") as source:
        connection.execute("INSERT INTO a VALUES (1, 'x')")
        source.catch_up()
    connection.execute("INSERT INTO b VALUES (2, 'while closed'); INSERT INTO a VALUES (2, 'while closed')")
    with logged(database, tmp_path, "a", "b") as source:
        connection.execute("UPDATE b SET v = 'changed' WHERE id = 1")
        source.catch_up()
        for table in "ab":
            assert source.replica(table) == source_rows(connection, table)
        assert [(row["id"], row["v"]) for row in source.events("b")] == [
            (1, "before"),
            (2, "while closed"),
            (1, "changed"),
        ]
        assert [load.rows for load in source.log.transactions(0, EVERYTHING) if load.initial] == [{}, {"b": 2}]


def test_a_table_that_leaves_the_project_and_comes_back_is_compared(
    database: str, connection: psycopg.Connection, tmp_path: Path
) -> None:
    connection.execute("CREATE TABLE a (id int PRIMARY KEY, v text); CREATE TABLE b (id int PRIMARY KEY, v text)")
    connection.execute("INSERT INTO b VALUES (1, 'stays'), (2, 'goes')")
    with logged(database, tmp_path, "a", "b"):
        pass
    with logged(database, tmp_path, "a") as source:
        assert list(source.method.tables) == ["a"]
        published = connection.execute("SELECT tablename FROM pg_publication_tables").fetchall()
        assert published == [("a",)]
        connection.execute("DELETE FROM b WHERE id = 2; INSERT INTO a VALUES (1, 'x')")
        source.catch_up()
    with logged(database, tmp_path, "a", "b") as source:
        connection.execute("INSERT INTO b VALUES (3, 'after')")
        source.catch_up()
        for table in "ab":
            assert source.replica(table) == source_rows(connection, table)
        assert [row["__op"] for row in source.events("b")] == [UPSERT, UPSERT, TRUNCATE, OBSERVED, UPSERT]


def test_a_range_that_the_stream_ran_past_is_nothing_to_publish(
    database: str, connection: psycopg.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "_INSPECT_SECONDS", 0)
    connection.execute("CREATE TABLE a (id int PRIMARY KEY)")
    with logged(database, tmp_path, "a") as source:
        tasks = []
        for number in range(3):
            connection.execute("INSERT INTO a VALUES (%s)", [number])
            tasks.append(source.method.plan(number))
        for task in reversed(tasks):
            assert task is not None
            source.method.publish(source.method.read(task))
        assert len(source.replica("a")) == 3


def test_nothing_is_left_at_the_source_when_it_is_removed(
    database: str, connection: psycopg.Connection, tmp_path: Path
) -> None:
    connection.execute("CREATE TABLE a (id int PRIMARY KEY)")
    with logged(database, tmp_path, "a") as source:
        source.catch_up()
        source.method.remove()
    left = "SELECT count(*) FROM pg_replication_slots WHERE slot_name = 'headgate_test_source'"
    assert connection.execute(left).fetchone() == (0,)
    assert connection.execute("SELECT count(*) FROM pg_publication").fetchone() == (0,)


def test_a_server_that_shuts_down_does_not_wait_for_us(tmp_path: Path) -> None:
    with PostgresServer() as server:
        server.execute("CREATE TABLE a (id int PRIMARY KEY)")
        with logged(server.dsn, tmp_path, "a") as source:
            server.execute("INSERT INTO a VALUES (1)")
            source.catch_up()
            stopping = threading.Thread(target=server.stop)
            stopping.start()

            def has_stopped() -> bool:
                with suppress(SourceUnreachable):
                    source.catch_up()
                return not stopping.is_alive()

            eventually(has_stopped)
            server.start()
            server.execute("INSERT INTO a VALUES (2)")
            source.catch_up()
            assert [row["id"] for row in source.replica("a")] == [1, 2]


def test_the_stream_is_closed_between_long_periods_only() -> None:
    assert worth_closing(2.0, brought=10, reread=40)
    assert not worth_closing(2.0, brought=10, reread=41)
    assert not worth_closing(0.3, brought=10, reread=0)


def insert_position(connection: psycopg.Connection) -> int:
    row = connection.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()
    assert row is not None
    return read_lsn(row[0])
