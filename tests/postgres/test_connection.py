"""Connecting: exact session settings, and one clear line for each way in which it can fail."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest
from psycopg.errors import lookup

from headgate.capture.postgres.connection import clock_reading, connect, require_version, target_of
from headgate.capture.postgres.private_server import PostgresServer
from headgate.capture.postgres.problems import SourceRefused, SourceSetup, SourceUnreachable, source_errors
from headgate.errors import HeadgateError


@pytest.fixture
def guarded(server: PostgresServer) -> Iterator[PostgresServer]:
    """The server asks the role `guarded` for a password and turns `unwelcome` away."""
    rules = server.data / "pg_hba.conf"
    before = rules.read_text()
    rules.write_text(f"host all guarded 127.0.0.1/32 scram-sha-256\nhost all unwelcome 127.0.0.1/32 reject\n{before}")
    server.execute(
        "CREATE ROLE guarded LOGIN PASSWORD 'open sesame'; CREATE ROLE unwelcome LOGIN; SELECT pg_reload_conf()"
    )
    yield server
    rules.write_text(before)
    server.execute("DROP ROLE guarded; DROP ROLE unwelcome; SELECT pg_reload_conf()")


def refusal(dsn: str, *, replication: bool = False) -> HeadgateError:
    with pytest.raises(HeadgateError) as caught:
        connect(dsn, replication=replication)
    assert "\n" not in str(caught.value)
    assert caught.value.hint
    return caught.value


def test_the_session_writes_exact_and_canonical_texts(database: str) -> None:
    with connect(f"{database} options='-c DateStyle=SQL -c extra_float_digits=0'") as connection:
        row = connection.execute(
            r"SELECT '2024-02-29'::date::text, 0.1::float8 + 0.2::float8 || '', '\xff'::bytea::text,"
            " '2024-01-01 00:00+03'::timestamptz::text, '1 day 2 hours'::interval::text, 12.5::money::text"
        ).fetchone()
    assert row == ("2024-02-29", "0.30000000000000004", r"\xff", "2023-12-31 21:00:00+00", "1 day 02:00:00", "$12.50")


def test_a_replication_connection_has_the_same_settings(database: str) -> None:
    with connect(database, replication=True) as connection:
        assert connection.execute("SHOW DateStyle").fetchone() == ("ISO, YMD",)
        assert connection.execute("IDENTIFY_SYSTEM").fetchone()


def test_a_wrong_password_is_refused_and_never_shown(guarded: PostgresServer) -> None:
    problem = refusal(guarded.dsn_of("postgres", user="guarded", password="hunter2"))
    assert isinstance(problem, SourceRefused)
    assert "password authentication failed" in str(problem) and "ALTER ROLE guarded PASSWORD" in str(problem)
    assert "hunter2" not in str(problem) + repr(problem) + repr(problem.__dict__)


def test_a_missing_password_is_refused(guarded: PostgresServer) -> None:
    problem = refusal(guarded.dsn_of("postgres", user="guarded"))
    assert isinstance(problem, SourceRefused)
    assert "no password supplied" in str(problem)


def test_the_right_password_of_a_url_opens(guarded: PostgresServer) -> None:
    with connect(f"postgresql://guarded:open%20sesame@127.0.0.1:{guarded.port}/postgres") as connection:
        assert connection.info.user == "guarded"


def test_access_rules_are_named(guarded: PostgresServer) -> None:
    problem = refusal(guarded.dsn_of("postgres", user="unwelcome"))
    assert isinstance(problem, SourceRefused)
    assert "pg_hba.conf" in str(problem)


@pytest.mark.parametrize("dsn", ["postgresql://me:hunter/2@host/shop", "postgresql://me:hunter@2@host/shop", "hunter2"])
def test_a_dsn_that_is_misread_does_not_show_its_password(dsn: str) -> None:
    problem = refusal(dsn)
    assert isinstance(problem, SourceRefused)
    assert "hunter" not in str(problem) and "percent-encoded" in str(problem)


def test_an_unknown_database_is_refused(server: PostgresServer) -> None:
    problem = refusal(server.dsn_of("nowhere"))
    assert isinstance(problem, SourceRefused)
    assert 'database "nowhere" does not exist' in str(problem)


def test_a_role_without_replication_learns_what_grants_it(server: PostgresServer) -> None:
    server.execute("CREATE ROLE reader LOGIN")
    try:
        problem = refusal(server.dsn_of("postgres", user="reader"), replication=True)
    finally:
        server.execute("DROP ROLE reader")
    assert isinstance(problem, SourceRefused)
    assert problem.hint == "ALTER ROLE reader REPLICATION"


def test_a_server_without_tls_is_refused_when_the_dsn_asks_for_it(server: PostgresServer) -> None:
    problem = refusal(f"{server.dsn} sslmode=require")
    assert isinstance(problem, SourceRefused)
    assert "does not support SSL" in str(problem)


@pytest.fixture
def encrypted(server: PostgresServer) -> Iterator[PostgresServer]:
    """The server offers TLS with a certificate of its own making."""
    key, certificate = server.data / "server.key", server.data / "server.crt"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
            *("-days", "2", "-subj", "/CN=elsewhere", "-keyout", str(key), "-out", str(certificate)),
        ],
        check=True,
        capture_output=True,
    )
    owner = server.data.stat()
    os.chown(key, owner.st_uid, owner.st_gid)
    key.chmod(0o600)
    certificate.chmod(0o644)
    try:
        server.execute("ALTER SYSTEM SET ssl = on")
    except psycopg.errors.InvalidParameterValue:
        pytest.skip("this PostgreSQL was built without TLS (--with-ssl), so there is no connection to refuse or accept")
    server.execute("SELECT pg_reload_conf()")
    yield server
    for statement in ("ALTER SYSTEM RESET ssl", "SELECT pg_reload_conf()"):
        server.execute(statement)


def test_a_certificate_that_cannot_be_verified_is_refused(encrypted: PostgresServer, tmp_path: Path) -> None:
    dsn = f"{encrypted.dsn} sslmode=verify-full sslrootcert="
    with connect(f"{encrypted.dsn} sslmode=require") as connection:
        assert connection.pgconn.ssl_in_use
    for root in (tmp_path / "missing.crt", encrypted.data / "server.crt"):
        problem = refusal(f"{dsn}{root}")
        assert isinstance(problem, SourceRefused)
        assert "certificate" in str(problem) and "sslrootcert" in str(problem)


def test_a_server_that_is_not_there_is_a_transient_error() -> None:
    problem = refusal("host=127.0.0.1 port=1 dbname=shop user=me")
    assert isinstance(problem, SourceUnreachable)
    assert "127.0.0.1:1/shop as me" in str(problem)


def test_an_unknown_host_is_a_transient_error() -> None:
    assert isinstance(refusal("host=nowhere.invalid dbname=shop user=me"), SourceUnreachable)


def test_a_server_too_old_is_refused() -> None:
    require_version(140000, target_of("host=db user=me"))
    with pytest.raises(SourceRefused, match=r"version 13 \(headgate needs 14 or newer"):
        require_version(130022, target_of("host=db user=me"))


def test_the_clock_error_is_half_the_round_trip() -> None:
    noon = datetime(2024, 1, 1, 12, tzinfo=UTC)
    reading = clock_reading(noon, noon + timedelta(seconds=5), noon + timedelta(seconds=2))
    assert reading == (timedelta(seconds=4), timedelta(seconds=1))


def test_a_broken_connection_is_a_transient_error(database: str) -> None:
    with connect(database) as connection, connect(database) as other:
        other.execute("SELECT pg_terminate_backend(%s)", [connection.info.backend_pid])
        with pytest.raises(SourceUnreachable, match="counting was interrupted"), source_errors("counting"):
            connection.execute("SELECT 1")


def test_a_missing_privilege_is_a_definite_error() -> None:
    error: psycopg.Error = lookup("42501")("permission denied for table t")
    with (
        pytest.raises(SourceSetup, match="reading is not allowed: permission denied for table t"),
        source_errors("reading"),
    ):
        raise error
