"""A project is proposed from a real database, and what capture would lack there is told before it runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import LiteralString

import psycopg
import pytest
from click.testing import CliRunner
from psycopg import sql

from headgate.capture.postgres.private_server import PostgresServer
from headgate.cli.checking import check_project
from headgate.cli.main import cli, run
from headgate.cli.postgres_source import examine
from headgate.config import load_project
from headgate.config.sources import PostgresSourceSettings

SHOP: LiteralString = """
CREATE TABLE customers (id int PRIMARY KEY, name text NOT NULL, city text);
CREATE TABLE orders (id bigint PRIMARY KEY, customer_id int NOT NULL REFERENCES customers, ordered_at timestamptz NOT NULL,
                     total numeric(10,2) NOT NULL);
CREATE TABLE notes (words text);
CREATE SCHEMA stock;
CREATE TABLE stock.orders (id int PRIMARY KEY, "Group" int, "odd name" double precision);
INSERT INTO customers SELECT n, 'customer ' || n, 'here' FROM generate_series(1, 10) n;
INSERT INTO orders SELECT n, n % 10 + 1, now(), n FROM generate_series(1, 2000) n;
"""


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer() as started:
        yield started


@pytest.fixture
def database(server: PostgresServer, request: pytest.FixtureRequest) -> Iterator[psycopg.Connection]:
    """A connection, as superuser, to a database of the test's own."""
    name = sql.Identifier("shop")
    with server.connect() as root:
        root.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(name))
        root.execute(sql.SQL("CREATE DATABASE {}").format(name))
    with server.connect("shop") as connection:
        yield connection


def propose(tmp_path: Path, dsn: str) -> dict[str, object]:
    found = CliRunner().invoke(cli, ["init", str(tmp_path), "--name", "shop", "--from-postgres", dsn, "--json"])
    assert found.exit_code == 0, found.stderr
    answer: dict[str, object] = json.loads(found.stdout)
    return answer


def test_a_database_becomes_a_project(server: PostgresServer, database: psycopg.Connection, tmp_path: Path) -> None:
    database.execute(SHOP)
    answer = propose(tmp_path, server.dsn_of("shop"))
    assert answer["problems"] == []
    project = load_project(tmp_path)
    settings = project.sources["shop"]
    assert isinstance(settings, PostgresSourceSettings)
    assert settings.capture == "log"
    assert {name: table.table for name, table in settings.tables.items()} == {
        "customers": None,
        "orders": None,
        "stock_orders": "stock.orders",
    }
    text = (tmp_path / "headgate.yml").read_text()
    assert "left out: public.notes has no primary key" in text
    assert (tmp_path / "flows" / "orders_by_customers.sql").read_text().splitlines()[1:] == [
        "CREATE MATERIALIZED VIEW orders_by_customers AS",
        "SELECT o.id, o.name, COUNT(*) AS number_of_orders, SUM(f.total) AS total_total",
        "FROM shop.orders f JOIN shop.customers o ON o.id = f.customer_id",
        "GROUP BY o.id, o.name;",
    ]
    report = check_project(tmp_path / "headgate.yml", with_spark=False)
    assert report.problems == ()
    assert [(flow.name, flow.how) for flow in report.flows] == [("orders_by_customers", "incremental")]


def test_without_a_foreign_key_rows_are_summed_per_day(
    server: PostgresServer, database: psycopg.Connection, tmp_path: Path
) -> None:
    database.execute('CREATE TABLE "Big" (id int PRIMARY KEY, "select" int, at date)')
    propose(tmp_path, server.dsn_of("shop"))
    assert (tmp_path / "flows" / "Big_per_day.sql").read_text().splitlines()[1:] == [
        "CREATE MATERIALIZED VIEW Big_per_day AS",
        "SELECT CAST(at AS DATE) AS day, COUNT(*) AS number_of_Big, SUM(`select`) AS total_select",
        "FROM shop.Big",
        "GROUP BY CAST(at AS DATE);",
    ]
    assert check_project(tmp_path / "headgate.yml", with_spark=False).problems == ()


def test_the_password_is_in_no_file(
    server: PostgresServer, database: psycopg.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    dsn = f"postgresql://postgres:top%20secret@127.0.0.1:{server.port}/shop?sslmode=disable"
    answer = propose(tmp_path, dsn)
    assert answer["variable"] == "SHOP_PASSWORD"
    for file in tmp_path.rglob("*"):
        assert file.is_dir() or "secret" not in file.read_text()
    monkeypatch.setenv("SHOP_PASSWORD", "top secret")
    settings = load_project(tmp_path).sources["shop"]
    assert isinstance(settings, PostgresSourceSettings)
    assert psycopg.conninfo.conninfo_to_dict(settings.dsn) == {
        "host": "127.0.0.1",
        "port": str(server.port),
        "dbname": "shop",
        "user": "postgres",
        "sslmode": "disable",
        "password": "top secret",
    }
    assert check_project(tmp_path / "headgate.yml", with_spark=False).problems == ()


def test_nothing_is_left_at_the_source(server: PostgresServer, database: psycopg.Connection, tmp_path: Path) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    propose(tmp_path, server.dsn_of("shop"))
    check_project(tmp_path / "headgate.yml", with_spark=False)
    left = database.execute(
        "SELECT (SELECT count(*) FROM pg_publication), (SELECT count(*) FROM pg_replication_slots),"
        " to_regnamespace('headgate') IS NULL"
    ).fetchone()
    assert left == (0, 0, True)


@pytest.mark.parametrize("capture", ["log", "trigger"])
def test_missing_privileges_are_all_told(server: PostgresServer, database: psycopg.Connection, capture: str) -> None:
    database.execute("CREATE TABLE seen (id int PRIMARY KEY); CREATE TABLE hidden (id int PRIMARY KEY)")
    database.execute("DROP ROLE IF EXISTS etl; CREATE ROLE etl LOGIN; GRANT SELECT ON seen TO etl")
    settings = PostgresSourceSettings.model_validate(
        {
            "type": "postgres",
            "dsn": server.dsn_of("shop", user="etl"),
            "capture": capture,
            "tables": {"seen": {}, "hidden": {}, "gone": {}},
        }
    )
    found = examine("shop", "db", settings)
    told = " ".join(f"{problem.what} ({problem.hint})" for problem in found.problems)
    assert "GRANT SELECT ON public.hidden TO etl" in told
    assert "no table gone" in told
    if capture == "log":
        assert "ALTER ROLE etl REPLICATION" in told
        assert "may not publish the tables" in told
    else:
        assert "GRANT TRIGGER ON public.seen TO etl" in told
        assert "GRANT CREATE ON DATABASE shop TO etl" in told
    assert len(found.problems) == 4
    assert list(found.tables) == ["seen"]


def test_a_role_that_may_not_replicate_is_offered_triggers(
    server: PostgresServer, database: psycopg.Connection, tmp_path: Path
) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    database.execute("DROP ROLE IF EXISTS etl; CREATE ROLE etl LOGIN; GRANT SELECT ON t TO etl")
    answer = propose(tmp_path, server.dsn_of("shop", user="etl"))
    settings = load_project(tmp_path).sources["shop"]
    assert isinstance(settings, PostgresSourceSettings)
    assert settings.capture == "trigger"
    assert "GRANT TRIGGER ON public.t TO etl" in json.dumps(answer["problems"])


def test_a_database_without_tables_says_so(
    server: PostgresServer, database: psycopg.Connection, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["init", str(tmp_path), "--from-postgres", server.dsn_of("shop")]) == 1
    assert "has no table that can be captured" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_address_is_code_4_and_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dsn = "host=127.0.0.1 port=1 user=a dbname=b password=hidden"
    assert run(["init", str(tmp_path), "--from-postgres", dsn]) == 4
    err = capsys.readouterr().err
    assert "check host and port" in err
    assert "hidden" not in err
    assert list(tmp_path.iterdir()) == []
