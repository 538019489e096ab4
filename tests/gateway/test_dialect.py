"""The dialect by itself: titled pairs of PostgreSQL's SQL and Spark's; what is refused; and answers that a PostgreSQL agrees with."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

import psycopg
import pytest
from psycopg.adapt import Loader

from headgate.capture.postgres.private_server import PostgresServer
from headgate.gateway.dialect import is_same_in_spark, parse, plain_shape, spark_text
from headgate.gateway.problems import WireProblem
from tests.gateway.expressions import EXPRESSIONS, QUERIES
from tests.gateway.serving import Shop

COLUMNS = {"id": "bigint", "qty": "int", "day": "date", "added": "timestamp", "tags": "array<string>", "name": "string"}
PAIRS = {
    "casts": ("SELECT id::text FROM shop.items", "SELECT CAST(id AS STRING) AS `id` FROM shop.items"),
    "names are in small letters": ("SELECT ID FROM Shop.Items", "SELECT id FROM shop.items"),
    "quoted names are kept": ('SELECT "Id" FROM shop.items', "SELECT `Id` FROM shop.items"),
    "the schema of flows goes": ("SELECT * FROM public.sold", "SELECT * FROM sold"),
    "a time is cast as a whole": (
        "SELECT date '2026-01-02'::timestamp",
        "SELECT CAST((CAST('2026-01-02' AS DATE)) AS TIMESTAMP_NTZ) AS `timestamp`",
    ),
    "whole numbers divide whole": ("SELECT qty / 2 FROM t", "SELECT CAST((qty DIV 2) AS INT) AS `?column?` FROM t"),
    "wide ones stay wide": ("SELECT id / 2 FROM t", "SELECT id DIV 2 AS `?column?` FROM t"),
    "NULLs come last": ("SELECT id FROM t ORDER BY id", "SELECT id FROM t ORDER BY id NULLS LAST"),
    "and first from above": ("SELECT id FROM t ORDER BY id DESC", "SELECT id FROM t ORDER BY id DESC NULLS FIRST"),
    "without case": ("SELECT name ILIKE 'a%' FROM t", "SELECT name ILIKE 'a%' AS `?column?` FROM t"),
    "regular expressions": ("SELECT name ~ '^a' FROM t", "SELECT name RLIKE '^a' AS `?column?` FROM t"),
    "members": ("SELECT id FROM t WHERE id = ANY(ARRAY[1, 2])", "SELECT id FROM t WHERE id IN (1, 2)"),
    "no members": ("SELECT id FROM t WHERE id <> ALL(ARRAY[1])", "SELECT id FROM t WHERE NOT id IN (1)"),
    "members of a column": (
        "SELECT id FROM t WHERE 'a' = ANY(tags)",
        "SELECT id FROM t WHERE ARRAY_CONTAINS(tags, 'a')",
    ),
    "days between dates": ("SELECT day - day FROM t", "SELECT DATEDIFF(day, day) AS `?column?` FROM t"),
    "a date and an interval": (
        "SELECT day + interval '1 month' FROM t",
        "SELECT CAST(day AS TIMESTAMP_NTZ) + INTERVAL '1' MONTH AS `?column?` FROM t",
    ),
    "Sunday is 0": (
        "SELECT extract(dow from day) FROM t",
        "SELECT CAST(DAYOFWEEK(day) - 1 AS DECIMAL(20, 0)) AS `extract` FROM t",
    ),
    "the first match": (
        "SELECT regexp_replace(name, '[0-9]', '#') FROM t",
        "SELECT REGEXP_REPLACE(name, '(?s)^(.*?)(?:[0-9])', '$1#') AS `regexp_replace` FROM t",
    ),
    "every match": (
        "SELECT regexp_replace(name, '([0-9])', '<\\1>', 'g') FROM t",
        "SELECT REGEXP_REPLACE(name, '([0-9])', '<$1>') AS `regexp_replace` FROM t",
    ),
    "logarithms have the base 10": ("SELECT log(id) FROM t", "SELECT LOG10(id) AS `log` FROM t"),
    "an instant on a zone's clock": (
        "SELECT added AT TIME ZONE 'Asia/Tokyo' FROM t",
        "SELECT CAST(FROM_UTC_TIMESTAMP(added, 'Asia/Tokyo') AS TIMESTAMP_NTZ) AS `timezone` FROM t",
    ),
    "a cast of an unknown type rounds what has fractions": (
        "SELECT unheard_of(id)::int AS n FROM t",
        "SELECT CASE WHEN TYPEOF(UNHEARD_OF(id)) IN ('double', 'float') THEN CAST(RINT(CAST(UNHEARD_OF(id) AS DOUBLE)) AS INT)"
        " WHEN TYPEOF(UNHEARD_OF(id)) LIKE 'decimal%' THEN CAST(ROUND(CAST(UNHEARD_OF(id) AS DECIMAL(38, 18))) AS INT)"
        " ELSE CAST(UNHEARD_OF(id) AS INT) END AS n FROM t",
    ),
    "of a column that no table has Spark tells": ("SELECT idd / 2 AS n FROM t", "SELECT idd / 2 AS n FROM t"),
    "rows in a row": (
        "SELECT x FROM generate_series(1, 3) g(x)",
        "SELECT x FROM (SELECT EXPLODE(SEQUENCE(1, 3)) AS `x`) AS `g`",
    ),
}
IN_BERLIN = {
    "days begin at midnight there": (
        "SELECT date_trunc('day', added) FROM t",
        "SELECT TO_UTC_TIMESTAMP(DATE_TRUNC('DAY', FROM_UTC_TIMESTAMP(added, 'Europe/Berlin')), 'Europe/Berlin') AS `date_trunc` FROM t",
    ),
    "a text is a time there": (
        "SELECT id FROM t WHERE added >= '2026-01-02'",
        "SELECT id FROM t WHERE added >= '2026-01-02 00:00:00 Europe/Berlin'",
    ),
    "unless it says otherwise": (
        "SELECT id FROM t WHERE added >= '2026-01-02 03:00:00+00'",
        "SELECT id FROM t WHERE added >= '2026-01-02 03:00:00+00'",
    ),
    "a date is that of its calendar": (
        "SELECT added::date FROM t",
        "SELECT CAST(FROM_UTC_TIMESTAMP(added, 'Europe/Berlin') AS DATE) AS `added` FROM t",
    ),
}
REFUSED = {
    "SELECT * FROM t FOR UPDATE": "locked",
    "SELECT id INTO u FROM t": "makes a table",
    "SELECT trunc(id, 2) FROM t": "trunc",
    "SELECT name SIMILAR TO 'a%' FROM t": "SIMILAR TO",
    "SELECT regexp_replace(name, '(a)', 'b') FROM t": "without groups",
    "SELECT to_char(added, 'J') FROM t": "format 'J'",
    "SELECT to_char(id, '999') FROM t": "to_char of numbers",
    "SELECT extract(epoch from unknown) FROM t": "a type that is known",
    "SELECT unknown AT TIME ZONE 'UTC' FROM t": "a type that is known",
    "SELECT encode(name, 'escape') FROM t": "escape",
    "SELECT id FROM t WHERE id > ANY(ARRAY[1])": "ANY and ALL",
    "SELECT x::inet FROM t": "inet",
    "SELECT array_agg(id) OVER () FROM t": "window function",
    "SELECT 'x'::jsonb @> 'y' FROM t": "@>",
    "SELECT id FROM t ORDER BY id FETCH FIRST 2 ROWS WITH TIES": "WITH TIES",
    "SELECT name::char(3) FROM t": "char(n)",
    "SELECT unheard_of(id) / 2 FROM t": "depends on the type",
    "SELECT round(unheard_of(id)) FROM t": "depends on the type",
    "SELECT substring(name from 'a.*') FROM t": "pattern",
}


def column_type(table: str, column: str) -> str | None:
    return COLUMNS.get(column)


@pytest.mark.parametrize("title", PAIRS)
def test_a_query_in_sparks_words(title: str) -> None:
    given, expected = PAIRS[title]
    assert spark_text(parse(given), (), column_type) == expected


@pytest.mark.parametrize("title", IN_BERLIN)
def test_a_query_of_a_connection_in_another_time_zone(title: str) -> None:
    given, expected = IN_BERLIN[title]
    assert spark_text(parse(given), (), column_type, "Europe/Berlin") == expected


def test_only_what_translates_to_itself_is_left_as_it_is_written() -> None:
    for text in (
        "SELECT id, name FROM shop.sales WHERE id = 3",
        "SELECT x.* FROM t AS x WHERE x.a >= 4 AND (b < 2) LIMIT 10",
    ):
        assert is_same_in_spark(parse(text))
        assert spark_text(parse(text)) == text
    for text in (
        "SELECT a FROM public.t",
        "SELECT A FROM t",
        "SELECT 1",
        "SELECT a FROM t WHERE b = 'x'",
        "SELECT a FROM t WHERE b = 1.5",
        "SELECT a FROM t ORDER BY a",
        "SELECT a FROM ONLY t",
        "SELECT count(*) FROM t",
        "TABLE t",
        f"SELECT a FROM t WHERE b = {10**18}",
    ):
        assert plain_shape(text) is None or not is_same_in_spark(parse(text))
    assert plain_shape("SELECT a1 FROM t WHERE a1 = 12 AND b < 3") == "SELECT a1 FROM t WHERE a1 = 0 AND b < 0"
    assert plain_shape("SELECT a FROM t WHERE b = 1 -- or not") is None


@pytest.mark.parametrize("text", REFUSED)
def test_what_cannot_be_translated_is_a_clear_error(text: str) -> None:
    with pytest.raises(WireProblem) as refused:
        spark_text(parse(text), (), column_type)
    assert REFUSED[text] in refused.value.what


class _Text(Loader):
    """Values as they are sent."""

    def load(self, data: bytes | bytearray | memoryview) -> str:
        return bytes(data).decode()


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    with PostgresServer(settings={"TimeZone": "UTC"}) as server:
        yield server


def answers(connection: psycopg.Connection, queries: list[str]) -> dict[str, object]:
    """Of each query the names and types of its columns, and its rows as texts; numerics are numbers."""
    for oid in (16, 17, 20, 21, 23, 25, 700, 701, 1082, 1114, 1184, 1186, 1700, 1007, 1009, 1016):
        connection.adapters.register_loader(oid, _Text)
    found: dict[str, object] = {}
    for query in queries:
        cursor = connection.execute(query)  # type: ignore[arg-type]
        columns = [(column.name, column.type_code) for column in cursor.description or ()]
        rows = [
            tuple(
                Decimal(value) if kind == 1700 and value is not None else value
                for value, (_, kind) in zip(row, columns, strict=True)
            )
            for row in cursor
        ]
        found[query] = columns, rows
    return found


def grouped(expressions: list[str], size: int) -> list[str]:
    return ["SELECT " + ", ".join(expressions[place : place + size]) for place in range(0, len(expressions), size)]


def test_answers_are_those_of_postgresql(shop: Shop, postgres: PostgresServer) -> None:
    queries = [*grouped(EXPRESSIONS.strip().splitlines(), 10), *QUERIES.strip().splitlines()]
    with psycopg.connect(postgres.dsn, autocommit=True) as there, psycopg.connect(shop.dsn, autocommit=True) as here:
        expected, found = answers(there, queries), answers(here, queries)
    assert {query: found[query] for query in queries if found[query] != expected[query]} == {
        query: expected[query] for query in queries if found[query] != expected[query]
    }


ZONED = [
    "SELECT timestamptz '2026-07-01 12:00:00+00', timestamptz '2026-01-01 12:00:00.5+00', timestamptz '2026-07-01 12:00:00'",
    "SELECT date_trunc('day', timestamptz '2026-07-01 23:30:00+00'), (timestamptz '2026-07-01 23:30:00+00')::date",
    "SELECT extract(hour from timestamptz '2026-07-01 23:30:00+00'), extract(epoch from timestamptz '2026-07-01 23:30:00+00')",
    "SELECT timestamptz '2026-03-28 12:00:00+00' + interval '1 day', timestamptz '2026-03-28 12:00:00+00' + interval '24 hours'",
    "SELECT timestamp '2026-07-01 12:00:00'::timestamptz, date '2026-07-01'::timestamptz, timestamptz '2026-07-01 12:00:00+00'::timestamp",
    "SELECT to_char(timestamptz '2026-07-01 23:30:00+00', 'YYYY-MM-DD HH24:MI')",
    "SELECT timestamptz '2026-07-01 12:00:00+00' > '2026-07-01 13:59:00', timestamptz '2026-07-01 12:00:00+00' AT TIME ZONE 'UTC'",
]


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/St_Johns", "utc"])
def test_instants_are_shown_and_read_in_the_connections_time_zone(
    shop: Shop, postgres: PostgresServer, zone: str
) -> None:
    with psycopg.connect(postgres.dsn, autocommit=True) as there, psycopg.connect(shop.dsn, autocommit=True) as here:
        for connection in (there, here):
            connection.execute(f"SET TimeZone = '{zone}'")  # type: ignore[arg-type]
        assert here.info.parameter_status("TimeZone") == there.info.parameter_status("TimeZone")
        assert answers(here, ZONED) == answers(there, ZONED)
        with pytest.raises(psycopg.errors.InvalidParameterValue, match="Nowhere"):
            here.execute("SET TIME ZONE 'Nowhere'")
