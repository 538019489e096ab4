"""A server that is down, or has lost what comes next, when the warehouse opens: what was captured stays readable."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import headgate
from headgate.capture.postgres.private_server import PostgresServer
from headgate.capture.postgres.problems import SourceHistoryLost, SourceUnreachable
from headgate.runtime.spark.sessions import SparkSessions
from tests.postgres.warehouses import CITIES, project, rows


@pytest.mark.parametrize("capture", ["log", "trigger"])
def test_what_was_captured_stays_readable_without_the_server(
    spark_sessions: SparkSessions, tmp_path: Path, capture: str
) -> None:
    with PostgresServer() as server:
        server.execute("CREATE TABLE cities (id int PRIMARY KEY, name text); INSERT INTO cities VALUES (1, 'Bern')")
        settings = project(tmp_path, server.dsn, capture, ["cities"], CITIES)
        with headgate.open(settings) as warehouse:
            warehouse.refresh()
        server.kill()
        with headgate.open(settings) as warehouse:
            assert rows(warehouse, "SELECT id, name FROM city") == [(1, "Bern")]
            with pytest.raises(SourceUnreachable):
                warehouse.refresh()
            server.start()
            server.execute("UPDATE cities SET name = 'Thun'; ALTER TABLE cities ADD COLUMN zip int")
            server.execute("INSERT INTO cities VALUES (2, 'Genf', 1200)")
            warehouse.refresh()
            assert rows(warehouse, "SELECT zip FROM bank.cities ORDER BY id") == [(None,), (1200,)]
        server.kill()
        with headgate.open(settings) as warehouse:
            source = warehouse.sources["bank"]
            assert isinstance(source.unopened, SourceUnreachable)
            server.start()
            # Nobody asks, and still capture goes on.
            ends = time.monotonic() + 20
            while source.unopened is not None and time.monotonic() < ends:
                time.sleep(0.05)
            assert source.unopened is None
        with headgate.open(settings) as warehouse:
            if capture == "log":
                # The reader ends in its own time, and comes back: the slot is dropped at a moment when nobody reads it.
                server.execute(
                    "DO $$ BEGIN LOOP"
                    " PERFORM pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active_pid IS NOT NULL;"
                    " BEGIN PERFORM pg_drop_replication_slot(slot_name) FROM pg_replication_slots; EXIT;"
                    " EXCEPTION WHEN object_in_use THEN PERFORM pg_sleep(0.01); END; END LOOP; END $$"
                )
            else:
                server.execute(
                    "DO $$ DECLARE each regclass; BEGIN FOR each IN SELECT c.oid FROM pg_class c"
                    " JOIN pg_namespace n ON n.oid = relnamespace WHERE relkind = 'r' AND relname <> 'cities'"
                    " AND nspname !~ '^pg_' AND nspname <> 'information_schema' LOOP"
                    " EXECUTE format('DROP TABLE %s CASCADE', each); END LOOP; END $$"
                )
            server.execute("SET session_replication_role = replica; UPDATE cities SET name = 'Sion' WHERE id = 2")
            with pytest.raises(SourceHistoryLost, match="refresh"):
                warehouse.refresh()
            assert rows(warehouse, "SELECT name FROM bank.cities ORDER BY id") == [("Thun",), ("Genf",)]
        with headgate.open(settings) as warehouse:
            with pytest.raises(SourceHistoryLost, match="refresh"):
                warehouse.refresh()
            assert rows(warehouse, "SELECT name FROM bank.cities ORDER BY id") == [("Thun",), ("Genf",)]
            warehouse.refresh(full=True)
            server.execute("UPDATE cities SET name = 'Visp' WHERE id = 2")
            warehouse.refresh()
            assert rows(warehouse, "SELECT id, name, __end_at IS NULL FROM city ORDER BY id, __start_at") == [
                (1, "Bern", False),
                (1, "Thun", True),
                (2, "Genf", False),
                (2, "Sion", False),
                (2, "Visp", True),
            ]
