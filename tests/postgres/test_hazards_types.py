"""Values of the built-in types: the log and the load give the same, and what they give is exact."""

from __future__ import annotations

from pathlib import Path
from typing import LiteralString

import psycopg
from psycopg import sql

from tests.postgres.logged import logged

_VALUES: dict[LiteralString, tuple[LiteralString, ...]] = {
    "smallint": ("-32768", "32767", "NULL"),
    "int": ("-2147483648", "0"),
    "bigint": ("-9223372036854775808", "9223372036854775807"),
    "numeric(38,10)": ("1234567890123456789012345678.0123456789", "-0.0000000001"),
    "numeric": ("'NaN'", "'Infinity'", "1e-300", "123456789012345678901234567890123456789012345678.5"),
    "real": ("'NaN'", "'-Infinity'", "1.1", "3.4028235e38"),
    "float8": ("'Infinity'", "0.1::float8 + 0.2::float8", "'-0'", "5e-324"),
    "boolean": ("true", "false", "NULL"),
    "text": ("''", r"E'tab\t newline\n quote\" back\\slash \\N \\.'", "'żółw 🐢'", "repeat('long', 5000)"),
    "char(8)": ("'pad'", "''"),
    "varchar(20)": ("'var'",),
    "bytea": (r"'\x00ff5c'", "''"),
    "uuid": ("'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'",),
    "date": ("'0001-01-01'", "'9999-12-31'", "'2024-02-29'"),
    "timestamp": ("'2024-02-29 23:59:59.999999'", "'0001-01-01'"),
    "timestamptz": ("'2024-03-31 02:30:00.5 Europe/Berlin'", "'1883-11-18 12:03:58-04:56:02'"),
    "time": ("'24:00:00'", "'00:00:00.000001'"),
    "timetz": ("'12:00:00.5+02:30'",),
    "interval": ("'1 year 2 mons -3 days 04:05:06.789'", "'-00:00:01'"),
    "json": (""" '{"a": [1, null, "\\u00fc"], "a": 1.0 }' """,),
    "jsonb": (""" '{"b": 1.10, "a": "\\"q\\""}' """,),
    "int[]": ("'{1,NULL,3}'", "'{}'", "NULL"),
    "text[]": ("ARRAY['a,b', '', NULL, 'NULL', 'quo\"te', E'back\\\\slash']",),
    "int4range": ("'[1,10)'", "'empty'"),
    "tstzmultirange": ("'{[2024-01-01,2024-02-01)}'",),
    "inet": ("'192.168.0.1/24'", "'::1'"),
    "macaddr": ("'08:00:2b:01:02:03'",),
    "money": ("'-12.34'",),
    "xml": ("'<a b=\"c\">&amp;</a>'",),
    "bit(5)": ("B'10101'",),
    "point": ("'(1.5,-2)'",),
    "tsvector": ("'a:1 b:2'",),
    "mood": ("'so, so'", "'fine'"),
    "pair": ("ROW(1, 'a,\"b')",),
    "price": ("12.50",),
}
_TYPES = "CREATE TYPE mood AS ENUM ('fine', 'so, so'); CREATE TYPE pair AS (a int, b text); CREATE DOMAIN price AS numeric(8,2)"


def test_the_log_and_the_load_give_the_same_exact_values(
    database: str, connection: psycopg.Connection, tmp_path: Path
) -> None:
    connection.execute(_TYPES)
    connection.execute("SET TimeZone = 'Asia/Tokyo'; SET DateStyle = 'German'; SET bytea_output = 'escape'")
    columns = sql.SQL(", ").join(sql.SQL(f"c{place} {kind}") for place, kind in enumerate(_VALUES))
    for table in ("loaded", "streamed"):
        connection.execute(sql.SQL("CREATE TABLE {} (id int PRIMARY KEY, {})").format(sql.Identifier(table), columns))
    rows = max(len(values) for values in _VALUES.values())

    def insert(table: str) -> None:
        for row in range(rows):
            values = [sql.SQL(options[row] if row < len(options) else "NULL") for options in _VALUES.values()]
            connection.execute(
                sql.SQL("INSERT INTO {} VALUES ({}, {})").format(sql.Identifier(table), row, sql.SQL(", ").join(values))
            )

    insert("loaded")
    with logged(database, tmp_path, "loaded", "streamed") as source:
        insert("streamed")
        source.catch_up()
        assert not source.method.problems
        loaded, streamed = repr(source.replica("loaded")), repr(source.replica("streamed"))
        assert streamed == loaded
        first = source.replica("streamed")[0]
        places = {kind: f"c{place}" for place, kind in enumerate(_VALUES)}
        assert first[places["bigint"]] == -(2**63)
        assert first[places["numeric"]] == "NaN"
        assert str(first[places["numeric(38,10)"]]) == "1234567890123456789012345678.0123456789"
        assert first[places["char(8)"]] == "pad     "
        assert first[places["bytea"]] == b"\x00\xff\\"
        assert first[places["timestamptz"]].isoformat() == "2024-03-31T01:30:00.500000+00:00"
        assert first[places["int[]"]] == [1, None, 3]
        assert first[places["text[]"]] == ["a,b", "", None, "NULL", 'quo"te', "back\\slash"]
        assert first[places["mood"]] == "so, so"
        assert source.replica("streamed")[1][places["text"]] == 'tab\t newline\n quote" back\\slash \\N \\.'


def test_a_value_that_no_column_can_hold_stops_its_table_from_that_transaction_on(
    database: str, connection: psycopg.Connection, tmp_path: Path
) -> None:
    connection.execute(
        "CREATE TABLE a (id int PRIMARY KEY, n numeric(8,2)); CREATE TABLE b (id int PRIMARY KEY, d date)"
    )
    with logged(database, tmp_path, "a", "b") as source:
        connection.execute("INSERT INTO a VALUES (1, 1.5)")
        connection.execute("INSERT INTO a VALUES (2, 'NaN')")
        connection.execute("INSERT INTO a VALUES (3, 3.5)")
        connection.execute("INSERT INTO b VALUES (1, '2024-01-01')")
        source.catch_up()
        problem = source.method.problems["a"]
        assert "NaN" in problem.what and "string" in problem.hint
        assert [row["id"] for row in source.events("a")] == [1]
        assert [row["new"] for row in source.events("a__raw")] == [["2", "NaN"], ["3", "3.50"]]
        assert [row["id"] for row in source.events("b")] == [1]
    with logged(database, tmp_path, "a", "b") as source:
        assert source.method.problems["a"] == problem
        connection.execute("DELETE FROM a WHERE id = 2")
        source.catch_up()
        assert source.events("a__raw")[-1]["old"] == ["2", None]
