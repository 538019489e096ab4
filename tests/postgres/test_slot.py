"""The slot and its publication: what the server must allow, and what a lost or strange slot means."""

from __future__ import annotations

import shutil
import threading
import time
from pathlib import Path

import psycopg
import pytest

from headgate.capture.locallog import LocalLog
from headgate.capture.postgres import slot
from headgate.capture.postgres.new_slot import new_slot
from headgate.capture.postgres.opening import Opening
from headgate.capture.postgres.private_server import PostgresServer
from headgate.capture.postgres.problems import SourceHistoryLost, SourceRefused, SourceSetup, SourceUnreachable
from headgate.capture.postgres.replication import ReplicationStream
from headgate.capture.postgres.slot import slot_name
from headgate.clock import SystemClock
from tests.postgres.logged import logged, source_rows
from tests.waiting import PATIENCE

_SLOT = "headgate_test_source"


def test_names_are_plain_short_and_different() -> None:
    assert slot_name("shop", "shop_db") == "headgate_shop_shop_db"
    strange = {slot_name("Shop", "db"), slot_name("shop", "db"), slot_name("shop-", "db"), slot_name("shop_", "db")}
    assert len(strange) == 4
    assert all(len(slot_name("p" * length, "s" * 60)) <= 63 for length in range(80))


def test_a_server_that_does_not_log_enough_is_refused(tmp_path: Path) -> None:
    with PostgresServer(settings={"wal_level": "replica"}) as server:
        server.execute("CREATE TABLE a (id int PRIMARY KEY)")
        with (
            pytest.raises(SourceSetup, match="ALTER SYSTEM SET wal_level = logical"),
            logged(server.dsn, tmp_path, "a"),
        ):
            pass


def test_roles_without_privileges_are_told_what_to_grant(
    server: PostgresServer, database: str, connection: psycopg.Connection, tmp_path: Path
) -> None:
    name = connection.info.dbname
    connection.execute(
        "CREATE TABLE a (id int PRIMARY KEY); DROP ROLE IF EXISTS weak; CREATE ROLE weak LOGIN PASSWORD 'hidden'"
    )
    dsn = server.dsn_of(name, user="weak", password="hidden")
    publish = f"CREATE PUBLICATION {_SLOT} FOR TABLE ONLY a WITH (publish_via_partition_root = true)"
    steps: list[tuple[type[Exception], str, str]] = [
        (SourceSetup, "GRANT SELECT ON public.a TO weak", "GRANT SELECT ON a TO weak"),
        (SourceSetup, "CREATE PUBLICATION", publish),
        (SourceRefused, "ALTER ROLE weak REPLICATION", "ALTER ROLE weak REPLICATION"),
    ]
    try:
        for kind, remedy, statement in steps:
            with pytest.raises(kind, match=remedy) as caught, logged(dsn, tmp_path, "a"):
                pass
            assert "hidden" not in str(caught.value) and "\n" not in str(caught.value)
            connection.execute(statement.encode())
        with logged(dsn, tmp_path, "a") as source:
            connection.execute("INSERT INTO a VALUES (1)")
            source.catch_up()
            assert source.replica("a") == [{"id": 1}]
    finally:
        connection.execute("DROP OWNED BY weak; DROP ROLE weak")


def test_a_lost_slot_names_the_remedy_which_keeps_what_was_captured(
    database: str, connection: psycopg.Connection, tmp_path: Path
) -> None:
    connection.execute("CREATE TABLE a (id int PRIMARY KEY, v text); INSERT INTO a VALUES (1, 'stays'), (2, 'goes')")
    with logged(database, tmp_path, "a") as source:
        connection.execute("INSERT INTO a VALUES (3, 'x')")
        source.catch_up()
        end = source.log.end
    connection.execute("SELECT pg_drop_replication_slot(%s)", [_SLOT])
    connection.execute("DELETE FROM a WHERE id = 2; INSERT INTO a VALUES (4, 'missed')")
    with logged(database, tmp_path, "a") as source:
        with pytest.raises(SourceHistoryLost, match="refresh"):
            source.catch_up()
        source.method.resnapshot()
        load = source.log.transactions(end, 1 << 62)[0]
        assert not load.initial
        connection.execute("INSERT INTO a VALUES (5, 'after')")
        source.catch_up()
        assert source.replica("a") == source_rows(connection, "a")


def test_a_slot_that_is_dropped_after_the_check_is_a_lost_history(database: str, tmp_path: Path) -> None:
    log = LocalLog(tmp_path)
    with pytest.raises(SourceHistoryLost, match="is gone"):
        ReplicationStream(Opening(database, _SLOT, log, SystemClock()), after=0, check=lambda connection: None)
    log.close()


def test_a_slot_that_someone_moved_is_refused(database: str, connection: psycopg.Connection, tmp_path: Path) -> None:
    connection.execute("CREATE TABLE a (id int PRIMARY KEY)")
    with logged(database, tmp_path, "a") as source:
        source.catch_up()
    connection.execute("INSERT INTO a VALUES (1)")
    connection.execute("SELECT pg_replication_slot_advance(%s, pg_current_wal_lsn())", [_SLOT])
    with logged(database, tmp_path, "a") as source, pytest.raises(SourceHistoryLost, match="someone else"):
        source.catch_up()


def test_a_dropped_publication_names_the_remedy(database: str, connection: psycopg.Connection, tmp_path: Path) -> None:
    connection.execute("CREATE TABLE a (id int PRIMARY KEY)")
    with logged(database, tmp_path, "a") as source:
        connection.execute("DROP PUBLICATION headgate_test_source")
        connection.execute("INSERT INTO a VALUES (1)")
        connection.execute("CREATE PUBLICATION headgate_test_source FOR TABLE a")
        with pytest.raises(SourceHistoryLost, match="does not exist at that time"):
            source.catch_up()
        source.method.resnapshot()
        connection.execute("INSERT INTO a VALUES (2)")
        source.catch_up()
        assert [row["id"] for row in source.replica("a")] == [1, 2]


def test_retained_wal_is_measured_and_the_slot_dropped_at_the_limit(
    database: str, connection: psycopg.Connection, tmp_path: Path
) -> None:
    connection.execute("CREATE TABLE a (id int PRIMARY KEY); CREATE TABLE uncaptured (v text)")
    with logged(database, tmp_path, "a", retained_limit=1 << 20) as source:
        connection.execute("INSERT INTO a VALUES (1)")
        source.catch_up()
        assert 0 < (source.method.retained.bytes or 0) < 1 << 20
    connection.execute("INSERT INTO uncaptured SELECT repeat('x', 100) FROM generate_series(1, 20000)")
    with logged(database, tmp_path, "a", retained_limit=1 << 20) as source:
        with pytest.raises(
            SourceHistoryLost, match="limit of 1 MB, so the replication slot headgate_test_source was dropped"
        ):
            source.catch_up()
        left = connection.execute("SELECT count(*) FROM pg_replication_slots WHERE slot_name = %s", [_SLOT]).fetchone()
        assert left == (0,)
        with pytest.raises(SourceHistoryLost, match="is gone"):
            source.catch_up()


def test_a_restored_server_is_noticed_and_captured_anew(tmp_path: Path) -> None:
    with PostgresServer() as server:
        server.execute("CREATE TABLE a (id int PRIMARY KEY, v text); INSERT INTO a VALUES (1, 'old')")
        with logged(server.dsn, tmp_path / "log", "a") as source:
            source.catch_up()
        server.stop()
        backup = server.folder / "backup"
        shutil.copytree(server.data, backup, copy_function=_copy_owned)
        server.start()
        with logged(server.dsn, tmp_path / "log", "a") as source:
            server.execute("INSERT INTO a SELECT i, 'lost by the backup' FROM generate_series(2, 20000) AS i")
            source.catch_up()
            end = source.log.end
        server.stop()
        shutil.rmtree(server.data)
        backup.rename(server.data)
        _own_like(server.folder, server.data)
        server.start()
        with logged(server.dsn, tmp_path / "log", "a") as source:
            with pytest.raises(SourceHistoryLost, match="restored from a backup"):
                source.catch_up()
            source.method.resnapshot()
            assert source.log.end > end
            server.execute("INSERT INTO a VALUES (99999, 'after')")
            source.catch_up()
            assert [row["id"] for row in source.replica("a")] == [1, 99999]


def test_another_server_behind_the_dsn_is_noticed(tmp_path: Path) -> None:
    with PostgresServer() as first, PostgresServer() as second:
        for server in (first, second):
            server.execute("CREATE TABLE a (id int PRIMARY KEY)")
        with logged(first.dsn, tmp_path, "a") as source:
            source.catch_up()
        with logged(second.dsn, tmp_path, "a") as source, pytest.raises(SourceHistoryLost, match="another server"):
            source.catch_up()


def test_a_slot_waits_for_old_transactions_and_says_for_which(
    database: str, connection: psycopg.Connection, tmp_path: Path
) -> None:
    connection.execute("CREATE TABLE a (id int PRIMARY KEY)")
    connection.execute("BEGIN; INSERT INTO a VALUES (1)")
    began = time.monotonic()
    with (
        pytest.raises(SourceUnreachable, match=f"process {connection.info.backend_pid}"),
        new_slot(database, "headgate_waits", patience=0.3),
    ):
        pass
    assert time.monotonic() - began < PATIENCE
    threading.Timer(0.2, connection.execute, ["COMMIT"]).start()
    with new_slot(database, "headgate_waits", patience=PATIENCE) as made:
        assert made.snapshot


def test_two_headgates_do_not_share_a_slot(
    database: str, connection: psycopg.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slot, "BUSY_SECONDS", 0.3)
    connection.execute("CREATE TABLE a (id int PRIMARY KEY)")
    with logged(database, tmp_path / "first", "a") as source:
        connection.execute("INSERT INTO a VALUES (1)")
        source.catch_up()
        with pytest.raises(SourceUnreachable, match="is in use"), logged(database, tmp_path / "second", "a"):
            pass
        connection.execute("INSERT INTO a VALUES (2)")
        source.catch_up()
        assert len(source.replica("a")) == 2


def _copy_owned(source: str, target: str) -> str:
    shutil.copy2(source, target)
    _own_like(Path(source), Path(target))
    return target


def _own_like(model: Path, root: Path) -> None:
    owner = model.stat()
    for path in (root, *root.rglob("*")):
        shutil.chown(path, owner.st_uid, owner.st_gid)
