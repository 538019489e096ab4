"""Loads: whole tables of one moment, in parallel ranges, while writers go on; interrupted ones start over."""

from __future__ import annotations

import time
from pathlib import Path

import psycopg
import pyarrow as pa
import pytest

from headgate.capture.postgres import load, snapshot
from headgate.capture.postgres.catalog import read_table
from headgate.capture.postgres.log_history import LogHistory
from headgate.capture.postgres.problems import ValueDoesNotFit
from headgate.capture.postgres.snapshot import copy_tables, cut_ranges
from headgate.capture.source import Progress
from tests.postgres.logged import EVERYTHING, logged, source_rows
from tests.postgres.writing import writers


def test_ranges_hold_every_row_once(database: str, connection: psycopg.Connection) -> None:
    connection.execute(
        "CREATE TABLE plain (id int PRIMARY KEY, v text); INSERT INTO plain SELECT i, repeat('x', 500) FROM generate_series(1, 2000) i;"
        "CREATE TABLE parted (id int PRIMARY KEY) PARTITION BY HASH (id);"
        "CREATE TABLE parted_0 PARTITION OF parted FOR VALUES WITH (MODULUS 2, REMAINDER 0);"
        "CREATE TABLE parted_1 PARTITION OF parted FOR VALUES WITH (MODULUS 2, REMAINDER 1);"
        "INSERT INTO parted SELECT generate_series(1, 100); CREATE TABLE empty (id int PRIMARY KEY); ANALYZE"
    )
    tables = [read_table(connection, name, None) for name in ("plain", "parted", "empty")]
    ranges = cut_ranges(connection, tables, blocks=10)
    assert len([each for each in ranges if each.table.name == "plain"]) > 5
    assert sum(each.rows for each in ranges) == pytest.approx(2100, rel=0.1)
    ids: dict[str, list[int]] = {"plain": [], "parted": [], "empty": []}
    for each in ranges:
        ids[each.table.name] += [row[0] for row in connection.execute(each.query).fetchall()]
    assert sorted(ids["plain"]) == list(range(1, 2001))
    assert sorted(ids["parted"]) == list(range(1, 101))
    assert ids["empty"] == []


def test_a_copy_is_of_one_moment_and_reports_its_progress(database: str, connection: psycopg.Connection) -> None:
    connection.execute("CREATE TABLE a (id int PRIMARY KEY); INSERT INTO a SELECT generate_series(1, 5000); ANALYZE a")
    table = read_table(connection, "a", None, called="called")
    seen: list[Progress] = []
    rows: list[pa.RecordBatch] = []
    with psycopg.connect(database) as moment:
        moment.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        exported = moment.execute("SELECT pg_export_snapshot()").fetchone()
        assert exported is not None
        connection.execute("DELETE FROM a WHERE id > 10; INSERT INTO a VALUES (9999)")

        def write(name: str, batch: pa.RecordBatch) -> None:
            assert name == "called"
            rows.append(batch)

        count = copy_tables(database, exported[0], [table], write, blocks=4, first=7, progress=seen.append)
    assert count == 5000
    merged = pa.Table.from_batches(rows)
    assert sorted(merged.column("id").to_pylist()) == list(range(1, 5001))
    assert sorted(merged.column("__sequence").to_pylist()) == list(range(7, 5007))
    assert seen[-1].rows == seen[-1].estimated == 5000 and seen[-1].remaining is not None


def test_capture_goes_on_from_exactly_the_load_while_writers_write(
    database: str, connection: psycopg.Connection, tmp_path: Path
) -> None:
    connection.execute(
        "CREATE TABLE a (id int PRIMARY KEY, n int); INSERT INTO a SELECT i, 0 FROM generate_series(1, 200) i"
    )
    with writers(database, 200):
        time.sleep(0.1)
        with logged(database, tmp_path, "a") as source:
            for _ in range(5):
                time.sleep(0.05)
                source.catch_up()
            assert len(source.log.transactions(0, EVERYTHING)) > 50
    with logged(database, tmp_path, "a") as source:
        source.catch_up()
        # A row that came twice, or not at all, makes the replica's steps fail.
        assert source.replica("a") == source_rows(connection, "a")


@pytest.mark.parametrize("broken", ["copy_tables", "begin", "entered"])
def test_an_interrupted_load_starts_over(
    database: str, connection: psycopg.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    connection.execute("CREATE TABLE a (id int PRIMARY KEY); INSERT INTO a VALUES (1)")

    def fail(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        if broken == "copy_tables":
            patch.setattr(load, "copy_tables", fail)
        elif broken == "begin":
            patch.setattr(snapshot, "cut_ranges", fail)
        else:
            # The rows are in the log, and nothing says so.
            patch.setattr(LogHistory, "entered", fail)
        with pytest.raises(KeyboardInterrupt), logged(database, tmp_path, "a"):
            pass
    connection.execute("DELETE FROM a; INSERT INTO a VALUES (2)")
    with logged(database, tmp_path, "a") as source:
        connection.execute("INSERT INTO a VALUES (3)")
        source.catch_up()
        assert [row["id"] for row in source.events("a")] == [2, 3]
        assert [each.initial for each in source.log.transactions(0, EVERYTHING)][-2:] == [True, False]


def test_a_table_that_cannot_be_read_fails_the_load_with_one_line(
    database: str, connection: psycopg.Connection, tmp_path: Path
) -> None:
    connection.execute("CREATE TABLE a (id int PRIMARY KEY, n numeric(5,2)); INSERT INTO a VALUES (1, 'NaN')")
    with pytest.raises(ValueDoesNotFit, match=r"a\.n has the value NaN") as caught, logged(database, tmp_path, "a"):
        pass
    assert "\n" not in str(caught.value)
