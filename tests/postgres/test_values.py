"""Values of every built-in type arrive exactly, and what a Spark type cannot hold is refused."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import LiteralString, NamedTuple

import psycopg
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from psycopg import sql
from pyspark.sql.pandas.types import to_arrow_schema

from headgate.capture.postgres.catalog import read_table
from headgate.capture.postgres.connection import connect
from headgate.capture.postgres.copied import copied
from headgate.capture.postgres.private_server import PostgresServer
from headgate.capture.postgres.problems import SourceSetup, ValueDoesNotFit
from headgate.capture.postgres.values import PostgresType, decoder, spark_type

UTC = dt.UTC

# type at the source, Spark type, texts, what they become
EXACT: list[tuple[LiteralString, str, list[str], list[object]]] = [
    ("smallint", "smallint", ["-32768", "32767"], [-32768, 32767]),
    ("integer", "int", ["-2147483648", "2147483647"], [-2147483648, 2147483647]),
    ("bigint", "bigint", ["-9223372036854775808", "9223372036854775807"], [-(2**63), 2**63 - 1]),
    ("oid", "bigint", ["4294967295"], [4294967295]),
    ("real", "float", ["0.1", "3.4028235e38", "-Infinity"], [0.10000000149011612, 3.4028234663852886e38, -math.inf]),
    ("double precision", "double", ["0.1", "5e-324", "Infinity", "-0"], [0.1, 5e-324, math.inf, -0.0]),
    ("numeric(10,2)", "decimal(10,2)", ["1.5", "-12345678.91"], [Decimal("1.50"), Decimal("-12345678.91")]),
    ("numeric(38,0)", "decimal(38,0)", ["9" * 38], [Decimal("9" * 38)]),
    ("numeric(39,0)", "string", ["9" * 39], ["9" * 39]),
    ("numeric", "string", ["1.10", "NaN", "-Infinity", "1e-30"], ["1.10", "NaN", "-Infinity", "0." + "0" * 29 + "1"]),
    ("boolean", "boolean", ["true", "f"], [True, False]),
    ("bytea", "binary", [r"\x00ff", ""], [b"\x00\xff", b""]),
    ("text", "string", ["", "NULL", "ä\\ \t\n'\"", "\U0001f600"], ["", "NULL", "ä\\ \t\n'\"", "\U0001f600"]),
    ("varchar(5)", "string", ["ab "], ["ab "]),
    ("char(4)", "string", ["ab"], ["ab  "]),
    ('"char"', "string", ["x"], ["x"]),
    ("name", "string", ["abc"], ["abc"]),
    ("date", "date", ["0001-01-01", "9999-12-31"], [dt.date(1, 1, 1), dt.date(9999, 12, 31)]),
    (
        "timestamp",
        "timestamp_ntz",
        ["2024-02-29 23:59:59.999999", "0001-01-01 00:00:00.1"],
        [dt.datetime(2024, 2, 29, 23, 59, 59, 999999), dt.datetime(1, 1, 1, 0, 0, 0, 100000)],
    ),
    (
        "timestamptz",
        "timestamp",
        ["2024-06-01 00:00:00.000001+02", "1890-01-01 00:00:00+00:53:28"],
        [
            dt.datetime(2024, 5, 31, 22, 0, 0, 1, tzinfo=UTC),
            dt.datetime(1889, 12, 31, 23, 6, 32, tzinfo=UTC),
        ],
    ),
    ("time", "string", ["24:00:00", "12:00:00.5"], ["24:00:00", "12:00:00.5"]),
    ("timetz", "string", ["12:00:00+05:30"], ["12:00:00+05:30"]),
    ("interval", "string", ["1 year -2 days 3.5 seconds"], ["1 year -2 days +00:00:03.5"]),
    ("uuid", "string", ["A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11"], ["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"]),
    ("json", "string", ['{"b":1, "a":  1.0}'], ['{"b":1, "a":  1.0}']),
    ("jsonb", "string", ['{"b":1, "a":  1.0}'], ['{"a": 1.0, "b": 1}']),
    ("inet", "string", ["10.0.0.1/8"], ["10.0.0.1/8"]),
    ("macaddr", "string", ["08:00:2b:01:02:03"], ["08:00:2b:01:02:03"]),
    ("money", "string", ["1234.5"], ["$1,234.50"]),
    ("bit(3)", "string", ["101"], ["101"]),
    ("varbit", "string", [""], [""]),
    ("point", "string", ["(1,2.5)"], ["(1,2.5)"]),
    ("box", "string", ["(1,1),(0,0)"], ["(1,1),(0,0)"]),
    ("int4range", "string", ["[1,5]", "empty"], ["[1,6)", "empty"]),
    ("tstzrange", "string", ["[2024-01-01 00:00+00,infinity)"], ['["2024-01-01 00:00:00+00",infinity)']),
    ("int4multirange", "string", ["{[1,2],[5,6]}"], ["{[1,3),[5,7)}"]),
    ("tsvector", "string", ["a b"], ["'a' 'b'"]),
    ("int2vector", "string", ["1 2"], ["1 2"]),
    ("xid8", "string", ["18446744073709551615"], ["18446744073709551615"]),
    ("pg_lsn", "string", ["16/B374D848"], ["16/B374D848"]),
    ("mood", "string", ["so, so"], ["so, so"]),
    ("pair", "string", ['(1,"a b")'], ['(1,"a b")']),
    ("price", "decimal(8,2)", ["7"], [Decimal("7.00")]),
    ("discount", "decimal(8,2)", ["7"], [Decimal("7.00")]),
    ("integer[]", "array<int>", ["{}", "{1,NULL,-3}"], [[], [1, None, -3]]),
    ("numeric(6,1)[]", "array<decimal(6,1)>", ["{1.5,2}"], [[Decimal("1.5"), Decimal("2.0")]]),
    ("price[]", "array<decimal(8,2)>", ["{1.5}"], [[Decimal("1.50")]]),
    ("float8[]", "array<double>", ["{Infinity,1e10}"], [[math.inf, 1e10]]),
    ("boolean[]", "array<boolean>", ["{t,f,NULL}"], [[True, False, None]]),
    ("bytea[]", "array<binary>", [r'{"\\x01",NULL}'], [[b"\x01", None]]),
    ("timestamptz[]", "array<timestamp>", ['{"2024-01-01 00:00+00"}'], [[dt.datetime(2024, 1, 1, tzinfo=UTC)]]),
    (
        "text[]",
        "array<string>",
        [r'{"",NULL,"NULL","a,b","{x}","\"q\"","back\\slash"," "}', "{a\nb}"],
        [["", None, "NULL", "a,b", "{x}", '"q"', "back\\slash", " "], ["a\nb"]],
    ),
    ("mood[]", "array<string>", ['{"so, so",fine}'], [["so, so", "fine"]]),
    ("integer[][]", "string", ["{{1,2},{3,4}}"], ["{{1,2},{3,4}}"]),
    ("box[]", "string", ["{(1,1),(0,0);(2,2),(0,0)}"], ["{(1,1),(0,0);(2,2),(0,0)}"]),
]

REFUSED: list[tuple[LiteralString, str]] = [
    ("numeric(5,2)", "NaN"),
    ("date", "infinity"),
    ("date", "0044-03-15 BC"),
    ("date", "10000-01-01"),
    ("timestamp", "-infinity"),
    ("timestamp", "0044-03-15 00:00:00 BC"),
    ("timestamptz", "infinity"),
    ("timestamptz", "10000-01-01 00:00:00+00"),
    ("integer[]", "{{1,2},{3,4}}"),
    ("integer[]", "[2:3]={1,2}"),
    ("date[]", "{2024-01-01,infinity}"),
]


@pytest.fixture
def source(database: str) -> Iterator[psycopg.Connection]:
    with connect(database) as connection:
        connection.execute(
            "CREATE TYPE mood AS ENUM ('so, so', 'fine'); CREATE TYPE pair AS (a int, b text);"
            "CREATE DOMAIN price AS numeric(8,2) CHECK (VALUE > 0); CREATE DOMAIN discount AS price"
        )
        yield connection


def texts_of(connection: psycopg.Connection, table: str) -> pa.Table:
    """The table's rows, all columns as strings."""
    query = sql.SQL("SELECT id, v FROM {} ORDER BY id").format(sql.Identifier(table))
    return pa.concat_tables(copied(connection, query, ["id", "v"])).combine_chunks()


def decoded(connection: psycopg.Connection, table: str, types: dict[str, str] | None = None) -> tuple[pa.Table, str]:
    """The table's rows, from the texts that the server writes, and the Spark type of the column v."""
    definition = read_table(connection, table, None, types=types)
    texts = texts_of(connection, table)
    columns = [decoder(column, table)(texts[column.name].chunk(0)) for column in definition.columns]
    schema = to_arrow_schema(definition.source_table.schema, timezone="UTC")
    return pa.Table.from_arrays(columns, schema=schema), definition.source_table.schema["v"].dataType.simpleString()


def fill(connection: psycopg.Connection, type_name: LiteralString, texts: Sequence[str | None]) -> None:
    connection.execute(sql.SQL("CREATE TABLE t (id int PRIMARY KEY, v {})").format(sql.SQL(type_name)))
    for number, text in enumerate(texts):
        statement = sql.SQL("INSERT INTO t VALUES ({}, {})").format(number, sql.Literal(text))
        connection.execute(statement)


def test_values_of_every_type_are_exact(source: psycopg.Connection) -> None:
    for type_name, spark, texts, expected in EXACT:
        fill(source, type_name, [*texts, None])
        rows, found = decoded(source, "t")
        assert (type_name, found) == (type_name, spark)
        assert (type_name, rows["v"].to_pylist()) == (type_name, [*expected, None])
        source.execute("DROP TABLE t")


def test_xml_is_kept_as_text(source: psycopg.Connection) -> None:
    try:
        fill(source, "xml", ["<a> <b/></a>"])
    except psycopg.errors.FeatureNotSupported:
        pytest.skip("this PostgreSQL was built without XML (--with-libxml), so it has no such values")
    assert decoded(source, "t")[0]["v"].to_pylist() == ["<a> <b/></a>"]


def test_not_a_number_stays_one(source: psycopg.Connection) -> None:
    for type_name in ("real", "double precision"):
        fill(source, type_name, ["NaN"])
        assert math.isnan(decoded(source, "t")[0]["v"][0].as_py())
        source.execute("DROP TABLE t")


def test_what_a_spark_type_cannot_hold_is_refused_by_name_and_kept_as_string(source: psycopg.Connection) -> None:
    for type_name, text in REFUSED:
        fill(source, type_name, [None, text])
        with pytest.raises(ValueDoesNotFit, match=r"t\.v has the value .*types: \{v: string\}") as caught:
            decoded(source, "t")
        assert text in str(caught.value) or "infinity" in str(caught.value)
        assert decoded(source, "t", {"v": "string"})[0]["v"].to_pylist() == [None, text]
        source.execute("DROP TABLE t")


def test_a_project_may_declare_the_decimal_of_a_numeric_column(source: psycopg.Connection) -> None:
    fill(source, "numeric", ["1.5", "1000"])
    rows, found = decoded(source, "t", {"v": "decimal(6, 2)"})
    assert (found, rows["v"].to_pylist()) == ("decimal(6,2)", [Decimal("1.50"), Decimal("1000.00")])
    source.execute("INSERT INTO t VALUES (7, 1.005)")
    with pytest.raises(ValueDoesNotFit, match=r"1\.005, which decimal\(6,2\) cannot hold"):
        decoded(source, "t", {"v": "decimal(6, 2)"})


def test_other_declared_types_are_refused(source: psycopg.Connection) -> None:
    fill(source, "text", ["1"])
    with pytest.raises(SourceSetup, match=r"t\.v is text at the source and cannot be decimal\(6,2\)"):
        decoded(source, "t", {"v": "decimal(6,2)"})
    with pytest.raises(SourceSetup, match="has no column w"):
        decoded(source, "t", {"w": "string"})


def test_scales_that_decimal_lacks_become_ones_that_hold_as_much() -> None:
    def numeric(precision: int, scale: int) -> str:
        return spark_type(PostgresType(1700, (precision << 16 | scale & 0x7FF) + 4)).simpleString()

    assert numeric(3, -2) == "decimal(5,0)"
    assert numeric(2, 5) == "decimal(5,5)"
    assert numeric(30, -9) == "string"


def test_arrow_strings_decode_as_bytes_do(source: psycopg.Connection) -> None:
    for type_name, _, texts, _ in EXACT:
        fill(source, type_name, [*texts, None])
        column = read_table(source, "t", None).columns[1]
        found = texts_of(source, "t")["v"].chunk(0)
        as_bytes = decoder(column)(found.cast(pa.binary()).to_pylist())
        assert (type_name, as_bytes) == (type_name, decoder(column)(found))
        source.execute("DROP TABLE t")


@settings(max_examples=60)
@given(st.lists(st.none() | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)))
def test_any_array_of_texts_is_read_back(server: PostgresServer, elements: list[str | None]) -> None:
    with connect(server.dsn) as connection:
        row = connection.execute("SELECT %s::text[]::text", [elements]).fetchone()
    assert row is not None
    column = Array("a", PostgresType(1009, -1, element=PostgresType(25, -1)))
    assert decoder(column)([row[0].encode()]).to_pylist() == [elements]


class Array(NamedTuple):
    """A column of an array type."""

    name: str
    type: PostgresType
