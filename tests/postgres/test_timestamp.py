"""Capture by timestamp: what a poll must not miss, and what it says that it cannot see."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest

from headgate.capture.locallog import LocalLog
from headgate.capture.postgres.cursor import CursorFile
from headgate.capture.postgres.log_tables import TableDefinition
from headgate.capture.postgres.private_server import PostgresServer
from headgate.capture.postgres.problems import SourceHistoryLost, SourceSetup, SourceUnreachable
from headgate.capture.postgres.timestamp import TimestampMethod
from headgate.capture.postgres.timestamp_activity import OpenTransactions, earliest_change, with_prepared
from headgate.capture.postgres.timestamp_state import TimestampState
from headgate.capture.postgres.timestamp_tables import TimestampTable
from headgate.capture.source import Capabilities
from headgate.clock import SystemClock
from headgate.delta.events import DELETE, OBSERVED, OP
from tests.postgres.bank import check, create, transfers
from tests.postgres.replaying import Row, events_of

T = TimestampTable(TableDefinition("t", "t"), "at")
NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)


class Capture:
    """A method and its log, opened and closed as a process would."""

    def __init__(self, dsn: str, folder: Path, *wanted: TimestampTable) -> None:
        self.dsn = dsn
        self.folder = folder
        self.wanted = wanted or (T,)
        self.open()

    def open(self, *, afresh: bool = False) -> None:
        self.log = LocalLog(self.folder)
        try:
            # Without a margin, so that tests do not read by accident what they must read by reason.
            self.method = TimestampMethod(
                self.dsn,
                "shop",
                self.wanted,
                log=self.log,
                clock=SystemClock(),
                afresh=afresh,
                margin=timedelta(0),
            )
        except BaseException:
            self.log.close()
            raise
        self.loaded = self.log.end

    def close(self) -> None:
        self.method.close()
        self.log.close()

    def reopen(self) -> None:
        self.close()
        self.open()

    def step(self) -> bool:
        task = self.method.plan(0)
        if task is not None:
            self.method.publish(self.method.read(task))
        return task is not None

    def observed(self, table: str = "t") -> list[object]:
        """Ids of all rows that polls brought, in order."""
        return [event["id"] for event in self.events(table)]

    def events(self, table: str = "t") -> list[Row]:
        return [event for event in events_of(self.log, table) if event[OP] in (OBSERVED, DELETE)]


@pytest.fixture
def source(connection: psycopg.Connection) -> psycopg.Connection:
    connection.execute(
        "CREATE TABLE t (id int PRIMARY KEY, a text, at timestamptz NOT NULL DEFAULT now()); CREATE INDEX ON t (at);"
        "INSERT INTO t VALUES (1, 'one', now() - interval '1 day')"
    )
    return connection


@pytest.fixture
def capture(source: psycopg.Connection, database: str, tmp_path: Path) -> Iterator[Capture]:
    opened = Capture(database, tmp_path / "log")
    yield opened
    opened.close()


def test_the_first_load_is_one_initial_transaction(capture: Capture) -> None:
    (first,) = capture.log.transactions(0, capture.log.end)
    assert first.initial and first.rows == {"t": 1}
    assert capture.method.capabilities == Capabilities(False, False, False, False)


def test_new_and_changed_rows_are_observed_once(capture: Capture, source: psycopg.Connection) -> None:
    source.execute("INSERT INTO t VALUES (2, 'two')")
    source.execute("UPDATE t SET a = 'uno', at = now() WHERE id = 1")
    capture.step()
    assert sorted(capture.observed(), key=str) == [1, 2]
    assert {event[OP] for event in capture.events()} == {OBSERVED}
    source.execute("INSERT INTO t VALUES (3, 'three')")
    capture.step()
    capture.step()
    assert len(capture.observed()) == 3
    assert not capture.step(), "nothing was committed since"


def test_a_transaction_that_began_long_before_is_not_missed(capture: Capture, source: psycopg.Connection) -> None:
    with psycopg.connect(capture.dsn) as slow:
        # Its rows will have the time of its start, which many polls have passed when it commits.
        slow.execute("SELECT 1")
        for number in range(10, 14):
            source.execute("INSERT INTO t VALUES (%s, 'fast')", [number])
            capture.step()
        slow.execute("INSERT INTO t VALUES (5, 'slow')")
    capture.step()
    assert capture.observed() == [10, 11, 12, 13, 5]


def test_a_long_transaction_does_not_make_polls_read_more(capture: Capture, source: psycopg.Connection) -> None:
    with psycopg.connect(capture.dsn) as slow:
        slow.execute("INSERT INTO t VALUES (5, 'slow')")
        for number in range(10, 20):
            source.execute("INSERT INTO t VALUES (%s, 'fast')", [number])
            capture.step()
        assert capture.observed() == list(range(10, 20))
        read = capture.method._history._poller._seen["t"]
        assert len(read) <= 2, "rows of earlier polls were read again"


def test_a_prepared_transaction_is_not_missed(capture: Capture, source: psycopg.Connection) -> None:
    source.execute("BEGIN; INSERT INTO t VALUES (5, 'prepared'); PREPARE TRANSACTION 'two-phase'")
    for number in range(10, 13):
        source.execute("INSERT INTO t VALUES (%s, 'fast')", [number])
        capture.step()
    capture.reopen()
    source.execute("INSERT INTO t VALUES (13, 'fast')")
    capture.step()
    # After opening, rows may be read once more if the server itself had a transaction open before; the replica has them.
    assert list(dict.fromkeys(capture.observed())) == [10, 11, 12, 13]
    before = len(capture.observed())
    source.execute("COMMIT PREPARED 'two-phase'")
    capture.step()
    # Rows since it began are read once more, too.
    assert set(capture.observed()[before:]) == {5, 10, 11, 12}


def test_a_transaction_prepared_before_the_first_load_is_not_missed(
    source: psycopg.Connection, database: str, tmp_path: Path
) -> None:
    source.execute(
        "BEGIN; INSERT INTO t VALUES (5, 'prepared', now() - interval '1 hour'); PREPARE TRANSACTION 'two-phase'"
    )
    capture = Capture(database, tmp_path / "log")
    source.execute("INSERT INTO t VALUES (6, 'x')")
    capture.step()
    source.execute("COMMIT PREPARED 'two-phase'")
    capture.step()
    # Nobody knows when it began, so that all rows written since are read once.
    assert capture.observed() == [6, 5]
    capture.close()


def test_rows_of_subtransactions_are_not_missed(capture: Capture, source: psycopg.Connection) -> None:
    with psycopg.connect(capture.dsn) as slow:
        slow.execute("INSERT INTO t VALUES (5, 'whole')")
        slow.execute("SAVEPOINT s")
        slow.execute("INSERT INTO t VALUES (6, 'part')")
        slow.execute("RELEASE s")
        # The part's transaction id is finished in no snapshot and listed in none.
        source.execute("INSERT INTO t VALUES (10, 'fast')")
        capture.step()
    capture.step()
    assert capture.observed() == [10, 5, 6]


def test_all_tables_are_read_in_one_snapshot(
    source: psycopg.Connection, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source.execute("CREATE TABLE u (id int PRIMARY KEY, at timestamptz NOT NULL DEFAULT now()); CREATE INDEX ON u (at)")
    capture = Capture(database, tmp_path / "log", T, TimestampTable(TableDefinition("u", "u"), "at"))
    source.execute("INSERT INTO t VALUES (2, 'x'); INSERT INTO u VALUES (2)")
    poller = capture.method._history._poller
    read_table = poller._read_table

    def write_between(*arguments: object) -> object:
        if arguments[1] == "u":
            source.execute("BEGIN; INSERT INTO t VALUES (3, 'x'); INSERT INTO u VALUES (3); COMMIT")
        return read_table(*arguments)  # type: ignore[arg-type] # handed on as they came

    monkeypatch.setattr(poller, "_read_table", write_between)
    capture.step()
    assert (capture.observed("t"), capture.observed("u")) == ([2], [2])
    monkeypatch.undo()
    capture.step()
    assert (capture.observed("t"), capture.observed("u")) == ([2, 3], [2, 3])
    assert len(capture.log.transactions(capture.loaded, capture.log.end)) == 2, "a poll is one transaction"
    capture.close()


def test_rows_without_a_time_are_read_when_they_are_new(
    connection: psycopg.Connection, database: str, tmp_path: Path
) -> None:
    connection.execute("CREATE TABLE t (id int PRIMARY KEY, at timestamptz); INSERT INTO t VALUES (1, NULL)")
    capture = Capture(database, tmp_path / "log")
    connection.execute("INSERT INTO t VALUES (2, NULL)")
    capture.step()
    connection.execute("INSERT INTO t VALUES (3, now())")
    capture.step()
    assert capture.observed() == [2, 3]
    capture.close()


def test_times_without_a_zone_are_taken_as_utc(connection: psycopg.Connection, database: str, tmp_path: Path) -> None:
    connection.execute("SET TimeZone = 'UTC'; CREATE TABLE t (id int PRIMARY KEY, at timestamp NOT NULL DEFAULT now())")
    capture = Capture(database, tmp_path / "log")
    assert any("taken as UTC" in warning for warning in capture.method.warnings)
    connection.execute("INSERT INTO t VALUES (1)")
    capture.step()
    assert capture.observed() == [1]
    capture.close()


@pytest.mark.parametrize(("kind", "mark"), [("boolean NOT NULL DEFAULT false", "true"), ("timestamptz", "now()")])
def test_rows_marked_as_deleted_become_deletes(
    connection: psycopg.Connection, database: str, tmp_path: Path, kind: str, mark: str
) -> None:
    connection.execute(
        f"CREATE TABLE t (id int PRIMARY KEY, a text, at timestamptz NOT NULL DEFAULT now(), gone {kind});"
        f"INSERT INTO t (id, a) VALUES (1, 'x'), (2, 'y'); INSERT INTO t (id, gone) VALUES (3, {mark})"
    )
    capture = Capture(database, tmp_path / "log", TimestampTable(TableDefinition("t", "t"), "at", "gone"))
    assert capture.method.capabilities.deletes
    assert [event["id"] for event in events_of(capture.log, "t")] == [1, 2]
    connection.execute(
        f"UPDATE t SET gone = {mark}, at = now() WHERE id = 1; UPDATE t SET a = 'z', at = now() WHERE id = 2"
    )
    capture.step()
    found = sorted((event["id"], event[OP], event["a"]) for event in capture.events())
    assert found == [(1, DELETE, None), (2, OBSERVED, "z")]
    capture.close()


def test_capture_goes_on_where_it_ended(capture: Capture, source: psycopg.Connection) -> None:
    source.execute("INSERT INTO t VALUES (2, 'x')")
    capture.step()
    source.execute("INSERT INTO t VALUES (3, 'while stopped')")
    capture.reopen()
    capture.step()
    assert 3 in capture.observed() and len(events_of(capture.log, "t")) <= 4


def test_a_crash_after_the_poll_reads_it_again_and_misses_nothing(capture: Capture, source: psycopg.Connection) -> None:
    before = (capture.folder / "cursor").read_bytes()
    source.execute("INSERT INTO t VALUES (2, 'x')")
    capture.step()
    capture.close()
    (capture.folder / "cursor").write_bytes(before)
    capture.open()
    source.execute("INSERT INTO t VALUES (3, 'x')")
    capture.step()
    assert capture.observed() == [2, 2, 3]


def test_a_sample_of_an_idle_source_is_captured_already(capture: Capture, source: psycopg.Connection) -> None:
    source.execute("INSERT INTO t VALUES (2, 'x')")
    waiting = capture.method.sample()
    assert waiting.position > capture.method.captured
    capture.step()
    assert capture.method.captured >= waiting.position
    assert capture.method.sample().position == capture.method.captured


def test_a_sample_during_a_poll_waits_for_the_next(capture: Capture, source: psycopg.Connection) -> None:
    source.execute("INSERT INTO t VALUES (2, 'x')")
    task = capture.method.plan(0)
    assert task is not None
    capture.method._begun = task.range  # as while the poll is under way
    source.execute("INSERT INTO t VALUES (3, 'after the poll looked')")
    assert capture.method.sample().position > task.upto


def test_the_earliest_change_is_that_of_transactions_which_ended() -> None:
    hour = timedelta(hours=1)
    before = OpenTransactions(NOON, {"7 a": NOON - hour, "8 b": NOON - 2 * hour, "prepared 9 x": None})
    assert earliest_change(before, {"7 a", "8 b", "prepared 9 x"}, timedelta(0)) == NOON
    assert earliest_change(before, {"8 b", "prepared 9 x"}, timedelta(0)) == NOON - hour
    assert earliest_change(before, {"prepared 9 x"}, timedelta(seconds=1)) == NOON - 2 * hour - timedelta(seconds=1)
    assert earliest_change(before, {"7 a", "8 b"}, timedelta(0)) is None


def test_a_prepared_transaction_began_no_earlier_than_what_ran_before() -> None:
    hour = timedelta(hours=1)
    before = OpenTransactions(NOON, {"7 a": NOON - hour, "prepared 9 x": None})
    now = OpenTransactions(NOON + hour, {"8 b": NOON, "prepared 9 x": None, "prepared 10 y": None})
    assert with_prepared(now, before).running == {"8 b": NOON, "prepared 9 x": None, "prepared 10 y": NOON - hour}


def test_what_it_cannot_do_well_is_told_once_with_the_remedy(
    connection: psycopg.Connection, database: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    connection.execute("CREATE TABLE t (id int PRIMARY KEY, at timestamptz NOT NULL DEFAULT now())")
    with caplog.at_level(logging.WARNING):
        capture = Capture(database, tmp_path / "log")
        capture.step()
        capture.step()
    assert sum("deletes in public.t are not seen" in each.message for each in caplog.records) == 1
    assert 'CREATE INDEX CONCURRENTLY ON "public"."t" ("at")' in caplog.text
    capture.close()


def test_an_index_on_the_column_is_found(capture: Capture) -> None:
    assert not any("CREATE INDEX" in warning for warning in capture.method.warnings)


def test_a_missing_or_unfit_column_is_refused(source: psycopg.Connection, database: str, tmp_path: Path) -> None:
    def refusal(updated: str, deleted: str | None = None) -> str:
        with pytest.raises(SourceSetup) as caught:
            Capture(database, tmp_path / "log", TimestampTable(TableDefinition("t", "t"), updated, deleted))
        return str(caught.value)

    assert "public.t has no column att (did you mean at?)" in refusal("att")
    assert "the column a of public.t is text, not a time" in refusal("a")
    assert "has no column gone" in refusal("at", "gone")


def test_a_role_that_does_not_see_other_transactions_is_refused(
    source: psycopg.Connection, server: PostgresServer, tmp_path: Path
) -> None:
    source.execute("CREATE ROLE reader LOGIN; GRANT SELECT ON t TO reader")
    try:
        dsn = server.dsn_of(source.info.dbname, user="reader")
        with pytest.raises(SourceSetup, match="GRANT pg_read_all_stats TO reader"):
            Capture(dsn, tmp_path / "log")
        source.execute("GRANT pg_read_all_stats TO reader")
        capture = Capture(dsn, tmp_path / "log")
        with psycopg.connect(server.dsn_of(source.info.dbname)) as slow:
            slow.execute("INSERT INTO t VALUES (5, 'slow')")
            source.execute("INSERT INTO t VALUES (10, 'fast')")
            capture.step()
        capture.step()
        assert capture.observed() == [10, 5]
        capture.close()
    finally:
        source.execute("DROP OWNED BY reader; DROP ROLE reader")


def test_a_changed_definition_stops_its_table_and_no_other(
    source: psycopg.Connection, database: str, tmp_path: Path
) -> None:
    source.execute("CREATE TABLE u (id int PRIMARY KEY, at timestamptz NOT NULL DEFAULT now())")
    capture = Capture(database, tmp_path / "log", T, TimestampTable(TableDefinition("u", "u"), "at"))
    source.execute("ALTER TABLE t RENAME a TO b; INSERT INTO t VALUES (2, 'x'); INSERT INTO u VALUES (2)")
    capture.step()
    assert "the column a was renamed to b" in capture.method.problems["t"].what
    assert (capture.observed("t"), capture.observed("u")) == ([], [2])
    capture.method.resnapshot(["t"])
    assert not capture.method.problems
    source.execute("INSERT INTO t VALUES (3, 'y')")
    capture.step()
    assert capture.observed("t")[-1] == 3
    source.execute("DROP TABLE t; INSERT INTO u VALUES (3)")
    capture.step()
    assert "has no table public.t" in capture.method.problems["t"].what and capture.observed("u")[-1] == 3
    capture.close()


def test_an_added_column_is_carried_on(capture: Capture, source: psycopg.Connection) -> None:
    source.execute("ALTER TABLE t ADD extra int; INSERT INTO t VALUES (2, 'x', now(), 22)")
    capture.step()
    assert capture.events()[-1]["extra"] == 22


def test_a_value_that_does_not_fit_stops_its_table(capture: Capture, source: psycopg.Connection) -> None:
    source.execute("INSERT INTO t VALUES (2, 'x', 'infinity')")
    capture.step()
    assert "t.at has the value infinity" in capture.method.problems["t"].what


def test_a_snapshot_from_the_future_is_lost_history(capture: Capture, source: psycopg.Connection) -> None:
    capture.close()
    cursor = CursorFile(capture.folder, TimestampState)
    content = cursor.read()
    assert content is not None
    cursor.write(replace(content, snapshot="99999999:99999999:"))
    with pytest.raises(SourceHistoryLost, match=r"so it was restored \(.*refresh"):
        capture.open()
    capture.open(afresh=True)
    assert len(events_of(capture.log, "t")) == 3, "the load again, after a truncation"


def test_a_cut_connection_is_transient_and_capture_goes_on(capture: Capture, source: psycopg.Connection) -> None:
    source.execute("INSERT INTO t VALUES (2, 'x')")
    source.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE application_name LIKE 'headgate%' AND datname = current_database()"
    )
    with pytest.raises(SourceUnreachable):
        capture.step()
    capture.step()
    assert capture.observed() == [2]


def test_overlapping_writers_lose_nothing_and_every_poll_is_consistent(database: str, tmp_path: Path) -> None:
    create(database)
    log = LocalLog(tmp_path / "log")
    wanted = [TimestampTable(TableDefinition(name, name), "at") for name in ("accounts", "moves")]
    method = TimestampMethod(database, "bank", wanted, log=log, clock=SystemClock())
    with transfers(database):
        until = time.monotonic() + 2
        while time.monotonic() < until:
            task = method.plan(0)
            if task is not None:
                method.publish(method.read(task))
    while (task := method.plan(0)) is not None:
        method.publish(method.read(task))
    method.close()
    assert check(log, database) > 20
    log.close()
