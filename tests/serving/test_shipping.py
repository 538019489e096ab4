"""Shipping: exact after random changes, after kills on both sides, after others have changed tables, after flows have changed."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from random import Random

import psycopg
import pytest

from headgate import Warehouse
from headgate.capture.postgres.private_server import PostgresServer
from headgate.errors import TransientError
from headgate.runtime.placing import shipper
from headgate.runtime.spark.sessions import SparkSessions
from tests.faults.processes import start
from tests.seed import SEED
from tests.serving.comparing import check
from tests.serving.numbers import FLOWS, change, opened
from tests.waiting import eventually


@pytest.fixture
def own(spark_sessions: SparkSessions) -> Iterator[PostgresServer]:
    """A server that may be killed; what it acknowledged is on the disk."""
    with PostgresServer(fsync=True) as started:
        yield started


def ship(warehouse: Warehouse) -> None:
    """Brings every table to a new job, and waits until the platform is there."""
    job = warehouse.refresh()
    eventually(lambda: warehouse.platforms.status()["serving"].job == job)


def test_random_changes_arrive_exactly(tmp_path: Path, database: str, spark_sessions: SparkSessions) -> None:
    random = Random(SEED)
    with opened(tmp_path, database) as warehouse:
        for number in range(3):
            change(warehouse, random)
            if number == 1:
                warehouse.materialize()
            ship(warehouse)
            assert check(warehouse, database) == warehouse.newest_job
        change(warehouse, random)
        warehouse.refresh()
    with opened(tmp_path, database) as warehouse:
        change(warehouse, random)
        ship(warehouse)
        check(warehouse, database)


def test_wide_changes_and_large_tables_are_copied_by_executors(
    tmp_path: Path, database: str, spark_sessions: SparkSessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shipper, "_FEW_ROWS", 5)
    random = Random(SEED)
    with opened(tmp_path, database, limits={"way": "wide"}) as warehouse:
        for _ in range(2):
            change(warehouse, random, 40)
            ship(warehouse)
            check(warehouse, database)
    with psycopg.connect(database) as connection:
        left = connection.execute(
            "SELECT relname FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace"
            " WHERE nspname = 'shop' AND relkind = 'r' ORDER BY 1"
        ).fetchall()
        assert [name for (name,) in left] == ["__parts", "__state", "__tables", "bag", "facts", "sums"]
        assert connection.execute("SELECT count(*) FROM shop.__parts").fetchone() == (0,)


def test_a_shipment_that_breaks_off_at_any_step_arrives_once(
    tmp_path: Path, database: str, spark_sessions: SparkSessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = Random(SEED)
    with opened(tmp_path, database) as warehouse:
        change(warehouse, random)
        ship(warehouse)
        target = warehouse.platforms._platforms["serving"].shipper.target
        for step in ("before-ship", "in-ship", "after-ship", "ship-filled"):
            broken: list[str] = []

            def break_off(name: str, step: str = step, broken: list[str] = broken) -> None:
                # The connection ends with it; what was not committed by then is gone.
                if name == step and not broken:
                    broken.append(name)
                    raise TransientError(f"broken off at {name}")

            monkeypatch.setattr(target, "_step", break_off)
            if step == "ship-filled":
                with pytest.raises(TransientError, match="broken off"):
                    warehouse.platforms.repair("facts")
            change(warehouse, random)
            ship(warehouse)
            assert broken == [step]
            assert check(warehouse, database) == warehouse.newest_job


def die(folder: Path, dsn: str, step: str, number: int) -> None:
    child = start("tests.serving.shipping_process", folder, dsn, SEED, step, number)
    child.communicate()
    assert child.returncode == -signal.SIGKILL


@pytest.mark.slow
@pytest.mark.parametrize(
    ("step", "number"),
    [
        ("in-ship", 2),
        pytest.param("before-ship", 1, marks=pytest.mark.thorough),
        pytest.param("ship-filled", 2, marks=pytest.mark.thorough),
        pytest.param("in-ship", 1, marks=pytest.mark.thorough),
        pytest.param("after-ship", 2, marks=pytest.mark.thorough),
    ],
)
def test_a_kill_during_a_shipment_loses_and_doubles_nothing(
    tmp_path: Path, database: str, spark_sessions: SparkSessions, step: str, number: int
) -> None:
    die(tmp_path, database, step, number)
    with opened(tmp_path, database) as warehouse:
        # The process may have died between a job and its shipment, or before the ledger knew the newest commits.
        ship(warehouse)
        check(warehouse, database)
        change(warehouse, Random(SEED + "after"))
        ship(warehouse)
        check(warehouse, database)


def test_a_server_that_dies_during_a_shipment_is_caught_up_with(tmp_path: Path, own: PostgresServer) -> None:
    random = Random(SEED)
    deaths = []

    def told(step: str) -> None:
        if step == armed.get("step"):
            armed.clear()
            deaths.append(step)
            own.kill()

    armed: dict[str, str] = {}
    with opened(tmp_path, own.dsn, step=told) as warehouse:
        change(warehouse, random)
        ship(warehouse)
        for step in ("in-ship", "after-ship"):
            armed["step"] = step
            change(warehouse, random)
            warehouse.refresh()
            eventually(lambda: not armed)
            change(warehouse, random)
            with warehouse.sql("SELECT COUNT(*) AS n FROM facts") as answer:
                assert answer.receipt.platform == "spark"
            own.start()
            ship(warehouse)
            check(warehouse, own.dsn)
    assert deaths == ["in-ship", "after-ship"]


def test_what_others_changed_is_not_answered_from_and_is_repaired(
    tmp_path: Path, database: str, spark_sessions: SparkSessions
) -> None:
    random = Random(SEED)
    with opened(tmp_path, database) as warehouse, psycopg.connect(database, autocommit=True) as other:
        change(warehouse, random)
        ship(warehouse)
        other.execute("DELETE FROM shop.facts WHERE id > 3")
        other.execute("DROP TABLE shop.bag")
        # A table whose trigger was taken off is found when a row that goes is not there.
        other.execute("ALTER TABLE shop.sums DISABLE TRIGGER ALL")
        for table in ("facts", "bag"):
            with warehouse.sql(f"SELECT COUNT(*) AS n FROM {table}") as answer:
                assert answer.receipt.platform == "spark"
        with warehouse.sql("SELECT COUNT(*) AS n FROM sums") as answer:
            assert answer.receipt.platform == "serving"
        with warehouse.sql("SELECT MIN(id) AS id FROM facts") as answer:
            first = answer.to_arrow()["id"][0].as_py()
        other.execute("DELETE FROM shop.sums")
        # Others go on meanwhile.
        change(warehouse, random)
        with warehouse.source("s").transaction() as transaction:
            transaction.delete("numbers", {"id": first})
        ship(warehouse)
        found = warehouse.platforms.repair(None)["serving"]
        assert (found.trouble, dict(found.tables)) == (None, dict.fromkeys(("facts", "sums", "bag"), "ok"))
        check(warehouse, database)
        with warehouse.sql("SELECT COUNT(*) AS n FROM facts") as answer:
            assert answer.receipt.platform == "serving"


def test_a_table_that_was_replaced_or_altered_does_not_answer_even_before_the_next_shipment(
    tmp_path: Path, database: str, spark_sessions: SparkSessions
) -> None:
    query = "SELECT COUNT(*) AS n FROM {} WHERE a > 0"
    with opened(tmp_path, database) as warehouse, psycopg.connect(database, autocommit=True) as other:
        change(warehouse, Random(SEED))
        ship(warehouse)
        for table in ("facts", "sums"):
            with warehouse.sql(query.format(table)) as answer:
                assert answer.receipt.platform == "serving"
        other.execute("CREATE TABLE shop.mine AS SELECT * FROM shop.facts WHERE false")
        other.execute("DROP TABLE shop.facts; ALTER TABLE shop.mine RENAME TO facts")
        other.execute("ALTER TABLE shop.sums ALTER a TYPE bigint USING -a")
        for table in ("facts", "sums"):
            with warehouse.sql(query.format(table)) as answer:
                assert answer.receipt.platform == "spark"
                assert "not as they were shipped" in answer.receipt.why_platform
        warehouse.platforms.repair(None)
        check(warehouse, database)
        for table in ("facts", "sums"):
            with warehouse.sql(query.format(table)) as answer:
                assert answer.receipt.platform == "serving"


def test_a_flow_that_changes_is_filled_beside_and_one_that_is_no_longer_placed_goes(
    tmp_path: Path, database: str, spark_sessions: SparkSessions
) -> None:
    random = Random(SEED)
    with opened(tmp_path, database) as warehouse, psycopg.connect(database, autocommit=True) as other:
        change(warehouse, random)
        ship(warehouse)
        flows = tmp_path / "flows/flows.sql"
        bag = "SELECT COUNT(*) AS n FROM bag WHERE yes"
        with warehouse.sql(bag) as answer:
            assert answer.receipt.platform == "serving"
        flows.write_text(FLOWS.replace("WHERE a > 0", "WHERE a <= 0"), encoding="utf-8")
        warehouse.apply()
        change(warehouse, random)
        ship(warehouse)
        check(warehouse, database)
        with warehouse.sql(bag) as answer:
            assert answer.receipt.platform == "serving"
        flows.write_text(FLOWS.replace("sums TBLPROPERTIES ('place' = 'serving')", "sums"), encoding="utf-8")
        warehouse.apply()
        ship(warehouse)
        eventually(lambda: other.execute("SELECT to_regclass('shop.sums')").fetchone() == (None,))
        with warehouse.sql("SELECT COUNT(*) AS n FROM sums") as answer:
            assert (answer.receipt.platform, answer.receipt.why_platform) == ("spark", "")


def test_changes_are_held_back_for_a_platform_that_is_away(tmp_path: Path, own: PostgresServer) -> None:
    random = Random(SEED)
    with opened(tmp_path, own.dsn, retention={"jobs": 1}) as warehouse:
        change(warehouse, random)
        ship(warehouse)
        own.kill()
        shipped = warehouse.platforms.status()["serving"].job
        for _ in range(4):
            change(warehouse, random)
            warehouse.refresh()
            warehouse.materialize()
        stored = warehouse._engine.tables.get("facts").main
        assert shipped is not None and stored.base_through <= shipped
        before = warehouse.platforms._platforms["serving"].shipper.rows
        own.start()
        ship(warehouse)
        check(warehouse, own.dsn)
        sent = warehouse.platforms._platforms["serving"].shipper.rows - before
        assert sent < 4 * 15 * 2 * 3
