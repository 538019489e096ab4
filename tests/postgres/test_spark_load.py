"""Loads through Spark: the same rows as through threads, of one moment, while writers go on; killed ones start over."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest

import headgate
from headgate.capture.postgres import snapshot
from headgate.capture.postgres.private_server import PostgresServer
from headgate.capture.postgres.problems import ValueDoesNotFit
from headgate.capture.ranges import LargeLoads
from headgate.capture.source import Progress
from headgate.runtime.sources.spark_ranges import SparkRanges
from headgate.runtime.spark.sessions import SparkSessions
from headgate.runtime.stages.event_files import EventFiles
from tests.postgres.logged import logged, source_rows
from tests.postgres.warehouses import project, rows
from tests.postgres.writing import writers
from tests.waiting import eventually

ROWS = 6000


@pytest.fixture
def large(spark_sessions: SparkSessions, monkeypatch: pytest.MonkeyPatch) -> LargeLoads:
    """Every load is a large one, and is cut into many ranges."""
    monkeypatch.setitem(snapshot.copy_tables.__kwdefaults__, "blocks", 20)
    return LargeLoads(SparkRanges(lambda: spark_sessions.context), 1)


@pytest.fixture
def table(connection: psycopg.Connection) -> None:
    connection.execute(
        "CREATE TABLE a (id int PRIMARY KEY, v text, n numeric(8, 2), at timestamptz, tags text[]);"
        f"INSERT INTO a SELECT i, CASE WHEN i % 7 > 0 THEN repeat('ä', i % 90) END, i / 3.0, now(), ARRAY['x', NULL]"
        f" FROM generate_series(1, {ROWS}) i; CREATE TABLE empty (id int PRIMARY KEY); ANALYZE".encode()
    )


def leftovers(folder: Path) -> list[Path]:
    return [path for path in (folder / "spool").rglob("*") if path.exists()]


@pytest.mark.usefixtures("table")
def test_a_load_through_spark_is_what_the_source_has_while_writers_write(
    large: LargeLoads, database: str, connection: psycopg.Connection, tmp_path: Path
) -> None:
    heard: list[Progress] = []
    with writers(database, ROWS):
        time.sleep(0.05)
        with logged(database, tmp_path, "a", "empty", large=large, progress=heard.append) as source:
            (loaded,) = [each for each in source.log.transactions(0, source.log.end) if each.initial]
            assert loaded.rows["a"] >= ROWS and "empty" not in loaded.rows
            events = EventFiles(source.log, "a", loaded.position - 1, loaded.position)
            assert len(events.files) > 5
            assert events.are_distinct(("id",)) and not events.are_distinct(("v",)), "the primary key tells rows apart"
            source.catch_up()
    with logged(database, tmp_path, "a", "empty") as source:
        source.catch_up()
        # A row that came twice, or not at all, makes the replica's steps fail.
        assert source.replica("a") == source_rows(connection, "a")
    assert heard[-1].is_done and heard[-1].rows == loaded.rows["a"]
    assert len(heard) > 5 and heard[0].remaining is not None
    assert not leftovers(tmp_path)


@pytest.mark.usefixtures("table")
def test_a_warehouse_loads_through_spark_what_is_beyond_its_limit(
    spark_sessions: SparkSessions, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    through_spark: list[int] = []
    read = SparkRanges.__call__

    def note(self: SparkRanges, ranges: Sequence[snapshot.TableRange], *others: Any) -> Any:
        through_spark.append(len(ranges))
        return read(self, ranges, *others)

    monkeypatch.setattr(SparkRanges, "__call__", note)
    flows = "CREATE MATERIALIZED VIEW n AS SELECT COUNT(*) AS n FROM bank.a;"
    settings = project(tmp_path, database, "trigger", ["a"], flows)
    with headgate.open({**settings, "limits": {"spark_load_bytes": "64 KiB"}}) as warehouse:
        assert through_spark == [1]
        warehouse.refresh()
        assert rows(warehouse, "SELECT n FROM n") == [(ROWS,)]


@pytest.mark.usefixtures("table")
def test_small_tables_do_not_go_through_spark(
    large: LargeLoads, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object) -> None:
        raise AssertionError("Spark was asked")

    with logged(database, tmp_path, "a", large=LargeLoads(refuse, 1 << 30)) as source:  # type: ignore[arg-type]
        assert len(source.replica("a")) == ROWS


def test_what_fails_on_an_executor_is_told_in_one_line_without_the_password(
    large: LargeLoads,
    server: PostgresServer,
    database: str,
    connection: psycopg.Connection,
    tmp_path: Path,
    spark_sessions: SparkSessions,
) -> None:
    connection.execute("CREATE TABLE a (id int PRIMARY KEY, n numeric(5,2)); INSERT INTO a VALUES (1, 'NaN')")
    connection.execute("DROP ROLE IF EXISTS loader; CREATE ROLE loader SUPERUSER LOGIN PASSWORD 'not-to-be-seen'")
    try:
        dsn = server.dsn_of(connection.info.dbname, user="loader", password="not-to-be-seen")
        with (
            pytest.raises(ValueDoesNotFit, match=r"a\.n has the value NaN") as caught,
            logged(dsn, tmp_path, "a", large=large),
        ):
            pass
        assert "\n" not in str(caught.value) and caught.value.hint
        log_file = spark_sessions.log_file
        if log_file is not None:
            assert "not-to-be-seen" not in log_file.read_text(errors="replace")
        connection.execute("UPDATE a SET n = 1")
        with logged(dsn, tmp_path, "a", large=large) as source:
            assert len(source.replica("a")) == 1
        assert not leftovers(tmp_path)
    finally:
        connection.execute("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE usename = 'loader'")
        connection.execute("DROP OWNED BY loader; DROP ROLE loader")


@pytest.mark.usefixtures("table")
def test_a_load_that_is_given_up_ends_its_tasks(large: LargeLoads, database: str, tmp_path: Path) -> None:
    def give_up(progress: Progress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), logged(database, tmp_path, "a", large=large, progress=give_up):
        pass
    with psycopg.connect(database, autocommit=True) as connection:
        # The server notices a moment later that a client has gone.
        reading = "SELECT FROM pg_stat_activity WHERE application_name = 'headgate snapshot'"
        eventually(lambda: connection.execute(reading).rowcount == 0)
    assert not leftovers(tmp_path)


@pytest.mark.slow
@pytest.mark.usefixtures("table")
def test_a_killed_load_starts_over_and_leaves_nothing(
    large: LargeLoads, database: str, connection: psycopg.Connection, tmp_path: Path
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.postgres.spark_loading", database, str(tmp_path)], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    first = process.stdout.readline()
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert first.strip().isdigit() and 0 < int(first) < ROWS
    assert leftovers(tmp_path)
    connection.execute("DELETE FROM a WHERE id > 5000; UPDATE a SET v = 'changed' WHERE id = 1")
    with logged(database, tmp_path, "a", large=large) as source:
        assert sum(each.initial for each in source.log.transactions(0, source.log.end)) == 1
        source.catch_up()
        assert source.replica("a") == source_rows(connection, "a")
    assert not leftovers(tmp_path)


def test_what_is_sent_to_executors_shows_no_password() -> None:
    reader = snapshot.SnapshotReader("password=not-to-be-seen", "snapshot", 1)
    assert "not-to-be-seen" not in repr(reader)
