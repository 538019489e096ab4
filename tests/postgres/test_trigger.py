"""Capture by trigger: every hazard of snapshots, transactions and restarts, one test each."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest

from headgate.capture.locallog import LocalLog
from headgate.capture.postgres.log_tables import TableDefinition
from headgate.capture.postgres.private_server import PostgresServer
from headgate.capture.postgres.problems import SourceUnreachable
from headgate.capture.postgres.trigger import TriggerMethod
from headgate.clock import SystemClock
from headgate.delta.events import DELETE, OP, TRUNCATE, UPSERT
from tests.postgres.replaying import events_of, replay_steps, replayed
from tests.postgres.triggered import Capture, T

KEYS = {"t": ("id",)}


@pytest.fixture
def source(connection: psycopg.Connection) -> psycopg.Connection:
    """Writes to the table t, as the application does."""
    connection.execute("CREATE TABLE t (id int PRIMARY KEY, a text); INSERT INTO t VALUES (1, 'one'), (2, 'two')")
    return connection


@pytest.fixture
def capture(source: psycopg.Connection, database: str, tmp_path: Path) -> Iterator[Capture]:
    opened = Capture(database, tmp_path / "log")
    yield opened
    opened.close()


def source_rows(connection: psycopg.Connection) -> dict[tuple[object, ...], dict[str, object]]:
    return {(id_,): {"id": id_, "a": a} for id_, a in connection.execute("SELECT id, a FROM t").fetchall()}


def audit_rows(connection: psycopg.Connection) -> int:
    row = connection.execute("SELECT count(*) FROM headgate.shop_changes").fetchone()
    assert row is not None
    count: int = row[0]
    return count


def in_log(capture: Capture) -> dict[tuple[object, ...], dict[str, object]]:
    return replayed(capture.log, KEYS)["t"]


def test_the_first_load_is_one_initial_transaction(capture: Capture, source: psycopg.Connection) -> None:
    (first,) = capture.log.transactions(0, capture.log.end)
    assert first.initial and first.rows == {"t": 2}
    assert in_log(capture) == source_rows(source)
    assert not capture.step()


def test_inserts_updates_deletes_and_key_changes_arrive(capture: Capture, source: psycopg.Connection) -> None:
    source.execute("INSERT INTO t VALUES (3, 'three')")
    source.execute("UPDATE t SET a = 'uno' WHERE id = 1")
    source.execute("UPDATE t SET id = 20 WHERE id = 2")
    source.execute("DELETE FROM t WHERE id = 3")
    assert capture.step() and not capture.step()
    later = events_of(capture.log, "t")[2:]
    assert [(event[OP], event["id"], event["a"]) for event in later] == [
        (UPSERT, 3, "three"),
        (UPSERT, 1, "uno"),
        (DELETE, 2, None),
        (UPSERT, 20, "two"),
        (DELETE, 3, None),
    ]
    assert len(capture.log.transactions(0, capture.log.end)) == 5
    assert in_log(capture) == source_rows(source)


def test_a_truncation_arrives(capture: Capture, source: psycopg.Connection) -> None:
    source.execute("BEGIN; INSERT INTO t VALUES (3, 'x'); TRUNCATE t; INSERT INTO t VALUES (4, 'y'); COMMIT")
    capture.step()
    assert [event[OP] for event in events_of(capture.log, "t")[2:]] == [UPSERT, TRUNCATE, UPSERT]
    assert in_log(capture) == {(4,): {"id": 4, "a": "y"}}


def test_a_long_transaction_blocks_nothing_and_is_not_lost(capture: Capture, source: psycopg.Connection) -> None:
    with psycopg.connect(capture.dsn) as slow:
        slow.execute("INSERT INTO t VALUES (10, 'slow')")
        # These have larger ids and transaction ids, and are captured while the first still runs.
        for number in range(11, 14):
            source.execute("INSERT INTO t VALUES (%s, 'fast')", [number])
            assert capture.step()
        assert set(in_log(capture)) == {(1,), (2,), (11,), (12,), (13,)}
    assert capture.step() and not capture.step()
    assert in_log(capture) == source_rows(source)


def test_a_transaction_with_several_tables_is_never_torn(
    source: psycopg.Connection, database: str, tmp_path: Path
) -> None:
    source.execute("CREATE TABLE u (id int PRIMARY KEY, a text); INSERT INTO u VALUES (1, '0'); UPDATE t SET a = '0'")
    capture = Capture(database, tmp_path / "log", T, TableDefinition("u", "u"))
    writers = [psycopg.connect(database) for _ in range(3)]
    try:
        # Transactions overlap: each begins before the one before has committed.
        for round_ in range(12):
            writer = writers[round_ % 3]
            writer.execute("INSERT INTO t VALUES (%s, 'pair')", [100 + round_])
            capture.step()
            writer.execute("INSERT INTO u VALUES (%s, 'pair')", [100 + round_])
            if round_ >= 2:
                writers[(round_ + 1) % 3].commit()
            capture.step()
        for writer in writers:
            writer.commit()
        capture.step()
        for state in replay_steps(capture.log, {"t": ("id",), "u": ("id",)}):
            pairs = [{key for key, row in state[table].items() if row["a"] == "pair"} for table in ("t", "u")]
            assert pairs[0] == pairs[1]
        assert in_log(capture) == source_rows(source)
    finally:
        for writer in writers:
            writer.close()
        capture.close()


def test_writers_of_the_same_row_are_captured_in_their_order(capture: Capture, source: psycopg.Connection) -> None:
    with psycopg.connect(capture.dsn) as first, psycopg.connect(capture.dsn) as second:
        # The second begins earlier and has the smaller transaction id, but its write of the row comes later.
        second.execute("INSERT INTO t VALUES (5, 'by the second')")
        first.execute("UPDATE t SET a = 'by the first' WHERE id = 1")
        waiting = threading.Thread(target=second.execute, args=("UPDATE t SET a = 'by the second' WHERE id = 1",))
        waiting.start()
        first.commit()
        waiting.join()
        second.commit()
    capture.step()
    assert [event["a"] for event in events_of(capture.log, "t")[2:]] == [
        "by the first",
        "by the second",
        "by the second",
    ]
    assert in_log(capture) == source_rows(source)


def test_what_was_rolled_back_is_never_seen(capture: Capture, source: psycopg.Connection) -> None:
    source.execute("BEGIN; INSERT INTO t VALUES (3, 'x'); ROLLBACK")
    assert not capture.step()
    source.execute(
        "BEGIN; INSERT INTO t VALUES (4, 'kept'); SAVEPOINT s; INSERT INTO t VALUES (5, 'dropped'); ROLLBACK TO s;"
        "SAVEPOINT s; INSERT INTO t VALUES (6, 'kept'); RELEASE s; COMMIT"
    )
    capture.step()
    # A subtransaction belongs to its transaction.
    assert capture.log.transactions(0, capture.log.end)[-1].rows == {"t": 2}
    assert in_log(capture) == source_rows(source)


def test_a_prepared_transaction_appears_when_it_is_committed(capture: Capture, source: psycopg.Connection) -> None:
    source.execute("BEGIN; INSERT INTO t VALUES (3, 'x'); PREPARE TRANSACTION 'two-phase'")
    source.execute("INSERT INTO t VALUES (4, 'y')")
    capture.step()
    assert set(in_log(capture)) == {(1,), (2,), (4,)}
    source.execute("COMMIT PREPARED 'two-phase'")
    capture.step()
    assert in_log(capture) == source_rows(source)


def test_writers_during_the_first_load_are_neither_lost_nor_doubled(
    source: psycopg.Connection, database: str, tmp_path: Path
) -> None:
    stop = threading.Event()

    def write() -> None:
        with psycopg.connect(database, autocommit=True) as writer:
            number = 100
            while not stop.is_set():
                writer.execute("INSERT INTO t VALUES (%s, 'busy')", [number])
                writer.execute("DELETE FROM t WHERE id = %s", [number - 7])
                number += 1

    writing = threading.Thread(target=write)
    writing.start()
    try:
        capture = Capture(database, tmp_path / "log")
    finally:
        stop.set()
        writing.join()
    while capture.step():
        pass
    # Deleting a row that is not there would fail, and so would a row that came twice and went once.
    assert in_log(capture) == source_rows(source)
    capture.close()


def test_a_sample_of_an_idle_source_is_captured_already(capture: Capture, source: psycopg.Connection) -> None:
    source.execute("CREATE TABLE other (id int); INSERT INTO other VALUES (1)")
    capture.step()
    source.execute("INSERT INTO t VALUES (3, 'x')")
    capture.step()
    source.execute("INSERT INTO other VALUES (2)")
    sample = capture.method.sample()
    assert sample.position == capture.method.captured
    assert abs(sample.clock_offset) <= sample.clock_error + timedelta(milliseconds=1)


def test_a_sample_is_captured_once_a_later_plan_is(capture: Capture, source: psycopg.Connection) -> None:
    source.execute("INSERT INTO t VALUES (3, 'x')")
    sample = capture.method.sample()
    assert sample.position > capture.method.captured
    capture.step()
    assert capture.method.captured >= sample.position and (3,) in in_log(capture)


def test_ranges_may_be_read_out_of_order_and_are_published_in_order(
    capture: Capture, source: psycopg.Connection
) -> None:
    tasks = []
    for number in range(3, 6):
        source.execute("INSERT INTO t VALUES (%s, 'x')", [number])
        task = capture.method.plan(number)
        assert task is not None
        tasks.append(task)
    batches = {task.number: capture.method.read(task) for task in reversed(tasks)}
    for task in tasks:
        capture.method.publish(batches[task.number])
    assert [event["id"] for event in events_of(capture.log, "t")[2:]] == [3, 4, 5]


def test_durable_changes_are_trimmed_and_later_ones_kept(capture: Capture, source: psycopg.Connection) -> None:
    with psycopg.connect(capture.dsn) as slow:
        slow.execute("INSERT INTO t VALUES (10, 'slow')")
        source.execute("INSERT INTO t VALUES (3, 'x')")
        task = capture.method.plan(0)
        assert task is not None
        capture.method.plan(1)
        assert audit_rows(source) == 1, "what is not durable must stay"
        capture.method.publish(capture.method.read(task))
        capture.step()
        assert audit_rows(source) == 0
    assert audit_rows(source) == 1, "what became visible later must stay"
    capture.step()
    capture.step()
    assert audit_rows(source) == 0
    assert in_log(capture) == source_rows(source)


def test_capture_goes_on_where_it_ended(capture: Capture, source: psycopg.Connection) -> None:
    source.execute("INSERT INTO t VALUES (3, 'x')")
    capture.step()
    source.execute("INSERT INTO t VALUES (4, 'while stopped')")
    capture.reopen()
    assert capture.step() and not capture.step()
    assert len(events_of(capture.log, "t")) == 4
    assert in_log(capture) == source_rows(source)


@pytest.mark.parametrize("appended", [0, 1, 2])
def test_a_batch_that_was_appended_in_part_is_completed(
    capture: Capture, source: psycopg.Connection, appended: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3, 6):
        source.execute("INSERT INTO t VALUES (%s, 'x')", [number])
    task = capture.method.plan(0)
    assert task is not None
    batch = capture.method.read(task)
    left = [appended]

    def or_die(method: str) -> None:
        append = getattr(capture.log, method)

        def append_or_die(*given: object) -> object:
            if left[0] == 0:
                raise KeyboardInterrupt
            left[0] -= 1
            return append(*given)

        monkeypatch.setattr(capture.log, method, append_or_die)

    # The batch's last transaction may go on in another chunk, so it is written apart from the others.
    or_die("append_group")
    or_die("begin")
    if appended < 2:
        with pytest.raises(KeyboardInterrupt):
            capture.method.publish(batch)
    else:
        capture.method.publish(batch)
    # Between publishing and the next batch, another thread may trim at any moment.
    capture.method._history.acknowledge()
    source.execute("INSERT INTO t VALUES (6, 'later')")
    capture.reopen()
    capture.step()
    assert [event["id"] for event in events_of(capture.log, "t")[2:]] == [3, 4, 5, 6]


def test_a_first_load_that_was_interrupted_starts_over(
    source: psycopg.Connection, database: str, tmp_path: Path
) -> None:
    source.execute("INSERT INTO t VALUES (3, 'x')")

    class Interrupted(Exception):
        pass

    def interrupt(progress: object) -> None:
        raise Interrupted

    log = LocalLog(tmp_path / "log")
    with pytest.raises(Interrupted):
        TriggerMethod(database, "shop", [T], log=log, clock=SystemClock(), progress=interrupt)
    log.close()
    source.execute("INSERT INTO t VALUES (4, 'between')")
    capture = Capture(database, tmp_path / "log")
    assert len(capture.log.transactions(0, capture.log.end)) == 1
    assert in_log(capture) == source_rows(source)
    capture.close()


def test_commit_times_are_the_polls_unless_the_source_keeps_them(capture: Capture, source: psycopg.Connection) -> None:
    assert not capture.method.capabilities.commit_times
    before = SystemClock().now()
    source.execute("INSERT INTO t VALUES (3, 'x')")
    capture.step()
    end = capture.log.end_commit_at
    assert end is not None and before <= end <= SystemClock().now()


def test_commit_times_come_from_the_source_when_it_keeps_them(tmp_path: Path) -> None:
    with PostgresServer(settings={"track_commit_timestamp": "on"}) as server:
        server.execute("CREATE TABLE t (id int PRIMARY KEY, a text)")
        capture = Capture(server.dsn, tmp_path / "log")
        assert capture.method.capabilities.commit_times
        with server.connect() as writer:
            writer.execute("INSERT INTO t VALUES (1, 'x')")
            row = writer.execute("SELECT pg_xact_commit_timestamp(xmin) FROM t").fetchone()
            assert row is not None
            writer.execute("SELECT pg_sleep(0.2)")
        capture.step()
        end = capture.log.end_commit_at
        assert end is not None and abs(end - row[0]) < timedelta(milliseconds=50)
        capture.close()


def test_removing_leaves_nothing_behind(capture: Capture, source: psycopg.Connection) -> None:
    capture.method.remove()
    assert source.execute("SELECT count(*) FROM pg_trigger WHERE NOT tgisinternal").fetchone() == (0,)
    assert source.execute("SELECT count(*) FROM pg_namespace WHERE nspname = 'headgate'").fetchone() == (0,)
    source.execute("INSERT INTO t VALUES (3, 'x')")


def test_an_unwanted_lock_wait_is_given_up(source: psycopg.Connection, database: str, tmp_path: Path) -> None:
    with psycopg.connect(database) as blocker:
        blocker.execute("UPDATE t SET a = 'busy'")
        with pytest.raises(SourceUnreachable, match="lock timeout"):
            Capture(database, tmp_path / "log")
    capture = Capture(database, tmp_path / "log")
    assert in_log(capture) == source_rows(source)
    capture.close()
