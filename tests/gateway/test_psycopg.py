"""psycopg 3 over the gateway: types in text and binary, parameters, cursors, pipelines, transactions, errors."""

from __future__ import annotations

import threading
from datetime import UTC, date, datetime
from decimal import Decimal

import psycopg
import pytest

from tests.gateway.serving import Shop, served


@pytest.fixture
def connection(shop: Shop) -> psycopg.Connection:
    with psycopg.connect(shop.dsn, autocommit=True) as made:
        yield made


@pytest.mark.parametrize("binary", [False, True])
def test_every_type_has_its_value(connection: psycopg.Connection, binary: bool) -> None:
    with connection.cursor(binary=binary) as cursor:
        row = cursor.execute("SELECT * FROM shop.items WHERE id = 1").fetchone()
        assert row == (
            1,
            "Ölkanne",
            Decimal("12.50"),
            1.5,
            datetime(2026, 1, 2, 3, 4, 5, 678000, UTC),
            date(2026, 1, 2),
            True,
            b"\x00\xff",
            ["red", 'a "b"', None],
            {"x": 1, "y": None},
        )
        kinds = [column.type_display for column in cursor.description or ()]
        assert kinds == [
            "int8", "text", "numeric(10,2)", "float8", "timestamptz", "date", "bool", "bytea", "text[]", "json"
        ]  # fmt: skip


@pytest.mark.parametrize("binary", [False, True])
def test_parameters_in_text_and_binary(connection: psycopg.Connection, binary: bool) -> None:
    form = "%b" if binary else "%t"
    values = (7, "it's \\ ü", Decimal("-1.25"), 2.5, True, date(2026, 1, 2), datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))
    query = "SELECT {0}::bigint, {0}::text, {0}::numeric(10,2), {0}::float8, {0}::bool, {0}::date, {0}::timestamptz"
    assert connection.execute(query.format(form), values).fetchone() == values
    found = connection.execute(f"SELECT name FROM shop.items WHERE id = {form} AND price > {form}", (1, Decimal(1)))
    assert found.fetchall() == [("Ölkanne",)]
    assert connection.execute(
        f"SELECT id FROM shop.items WHERE id = ANY({form}) ORDER BY id", ([1, 2],)
    ).fetchall() == [(1,), (2,)]


def test_named_cursors_fetch_in_parts(shop: Shop) -> None:
    with psycopg.connect(shop.dsn) as connection, connection.cursor("numbers") as cursor:
        cursor.execute("SELECT x FROM generate_series(1, 10) g(x) ORDER BY x")
        assert cursor.fetchmany(3) == [(1,), (2,), (3,)]
        assert cursor.fetchone() == (4,)
        assert len(cursor.fetchall()) == 6


def test_pipelines(connection: psycopg.Connection) -> None:
    with connection.pipeline():
        cursors = [connection.execute("SELECT %s::int", (number,)) for number in range(5)]
        assert [cursor.fetchone() for cursor in cursors] == [(number,) for number in range(5)]
    with connection.pipeline() as pipeline:
        connection.execute("SELECT nothing FROM shop.items")
        later = connection.execute("SELECT 1")
        with pytest.raises(psycopg.Error):
            pipeline.sync()
        with pytest.raises(psycopg.Error):
            later.fetchone()
    assert connection.execute("SELECT 2").fetchone() == (2,)


def test_prepared_statements(connection: psycopg.Connection) -> None:
    for number in range(3):
        found = connection.execute("SELECT name FROM shop.items WHERE id = %s", (number,), prepare=True).fetchall()
        assert found == {1: [("Ölkanne",)], 2: [("tab\there",)]}.get(number, [])


def test_errors_have_state_place_and_hint(connection: psycopg.Connection) -> None:
    with pytest.raises(psycopg.errors.UndefinedTable) as unknown:
        connection.execute("SELECT *\nFROM shop.itemz")
    assert unknown.value.diag.message_hint == "did you mean shop.items?"
    assert unknown.value.diag.statement_position == "15"
    with pytest.raises(psycopg.errors.UndefinedColumn) as column:
        connection.execute("SELECT nam FROM shop.items")
    assert column.value.diag.statement_position == "8"
    with pytest.raises(psycopg.errors.SyntaxError) as syntax:
        connection.execute("SELECT 1 FROM FROM")
    assert syntax.value.diag.statement_position is not None
    with pytest.raises(psycopg.errors.DivisionByZero):
        connection.execute("SELECT 1 / (id - id) FROM shop.items")
    for statement, state, position in (
        ("DELETE FROM shop.items", "0A000", "1"),
        ("CREATE INDEX i ON sales_per_item (item)", "0A000", "1"),
        ("SELEC 1", "42601", "1"),
        ("SELECT 1 CURRENCY BOUND soon", "42601", "10"),
        ("SELECT name FROM shop.items GROUP BY price", "42803", "1"),
        ("CREATE MATERIALIZED VIEW v AS SELECT nope FROM shop.items", "42703", "38"),
        ("CREATE MATERIALIZED VIEW v (CONSTRAINT c EXPECT (nope > 1)) AS SELECT id FROM shop.items", "42703", "50"),
        ("DROP MATERIALIZED VIEW nothing", "42P01", None),
    ):
        with pytest.raises(psycopg.Error) as wrong:
            connection.execute(statement)
        assert (statement, wrong.value.sqlstate) == (statement, state)
        assert (statement, wrong.value.diag.statement_position) == (statement, position)


def test_a_failed_transaction_takes_nothing_until_its_end(shop: Shop) -> None:
    with psycopg.connect(shop.dsn) as connection:
        with pytest.raises(psycopg.Error):
            connection.execute("SELECT nothing FROM shop.items")
        with pytest.raises(psycopg.errors.InFailedSqlTransaction):
            connection.execute("SELECT 1")
        connection.rollback()
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_a_cancelled_query_ends_and_the_connection_goes_on(connection: psycopg.Connection) -> None:
    slow = "SELECT count(*) FROM generate_series(1, 3000000) a(x), generate_series(1, 3000000) b(y)"
    timer = threading.Timer(1.0, connection.cancel_safe)
    timer.start()
    with pytest.raises(psycopg.errors.QueryCanceled):
        connection.execute(slow)
    timer.join()
    connection.execute("SET statement_timeout = '300ms'")
    with pytest.raises(psycopg.errors.QueryCanceled):
        connection.execute(slow)
    connection.execute("RESET statement_timeout")
    assert connection.execute("SELECT 1").fetchone() == (1,)


@pytest.mark.parametrize("form", ["text", "csv", "binary"])
def test_copy_gives_all_rows(connection: psycopg.Connection, form: str) -> None:
    with (
        connection.cursor() as cursor,
        cursor.copy(
            f"COPY (SELECT id, name, price FROM shop.items WHERE id < 50 ORDER BY id) TO STDOUT (FORMAT {form})"
        ) as copy,
    ):
        if form == "csv":
            assert b"".join(copy).decode() == "1,Ölkanne,12.50\n2,tab\there,0.01\n"
            return
        copy.set_types(["int8", "text", "numeric"])
        assert list(copy.rows()) == [(1, "Ölkanne", Decimal("12.50")), (2, "tab\there", Decimal("0.01"))]


def test_a_client_hears_that_spark_is_lost_as_a_state_in_which_to_try_again(shop: Shop) -> None:
    with served(shop.warehouse) as other, psycopg.connect(other.dsn, autocommit=True) as connection:
        assert connection.execute("SELECT COUNT(*) >= 3 FROM shop.sales").fetchone() == (True,)
        other.server.give_up("its Java process was killed (SIGKILL), as the system does when memory runs out")
        with pytest.raises(psycopg.OperationalError, match="SIGKILL") as caught:
            while True:  # the service's own thread takes the word; until then it answers
                connection.execute("SELECT COUNT(*) FROM shop.sales")
        assert caught.value.sqlstate == "57P03"
