"""One private PostgreSQL server per run, and one database of it that is empty at the start of every test."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from psycopg import sql

from headgate.capture.postgres.private_server import PostgresServer

DATABASE = "test"

_EMPTY = """
DO $$ DECLARE each text; BEGIN
  FOR each IN SELECT pubname FROM pg_publication LOOP EXECUTE format('DROP PUBLICATION %I', each); END LOOP;
  FOR each IN SELECT nspname FROM pg_namespace WHERE nspname !~ '^pg_' AND nspname <> 'information_schema' LOOP
    EXECUTE format('DROP SCHEMA %I CASCADE', each);
  END LOOP;
  CREATE SCHEMA public; GRANT ALL ON SCHEMA public TO PUBLIC;
END $$
"""


@pytest.fixture(scope="session")
def server() -> Iterator[PostgresServer]:
    """The server of this run, with logical decoding; tests that stop or reconfigure one start their own."""
    with PostgresServer() as started:
        started.execute("CREATE DATABASE test")
        yield started


@pytest.fixture
def database(server: PostgresServer) -> Iterator[str]:
    """The DSN of an empty database, as superuser."""
    yield server.dsn_of(DATABASE)
    with server.connect(DATABASE) as connection:
        # What a test leaves behind, whether it failed or not: sessions, slots and prepared transactions hold locks.
        connection.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        connection.execute(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = current_database()"
        )
        prepared = connection.execute("SELECT gid FROM pg_prepared_xacts WHERE database = current_database()")
        for (gid,) in prepared.fetchall():
            connection.execute(sql.SQL("ROLLBACK PREPARED {}").format(sql.Literal(gid)))
        connection.execute(_EMPTY)


@pytest.fixture
def connection(database: str) -> Iterator[psycopg.Connection]:
    """A connection to the test's database that commits each statement."""
    with psycopg.connect(database, autocommit=True) as connected:
        yield connected
