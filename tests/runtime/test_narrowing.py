"""What a query reads of each table, told from its literals: exactly where that can be told, and never too little.

The property runs random queries twice, over whole tables and over what the narrowing leaves of them: the answers are equal.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from headgate.ranges.key_set import ALL, NOT_NULL, KeySet, above, any_of, below, equal_to
from headgate.ranges.range_map import sql_predicate
from headgate.runtime.reading.narrowing import Narrowing
from headgate.runtime.spark.sessions import SMALL
from headgate.sql.references import replace_tables
from headgate.warehouse.local import local_frame
from tests.seed import SEED

SCHEMA = (
    StructType().add("k", "integer").add("b", "long").add("d", "date").add("ts", "timestamp")
    .add("t", "string").add("s", "short").add("v", "double")
)  # fmt: skip
QUERIES = int(os.environ.get("HEADGATE_QUERIES", 20))
NEW_YEAR = datetime(2024, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def narrowing(spark: SparkSession) -> Narrowing:
    return Narrowing(lambda: spark)


def read(narrowing: Narrowing, query: str, column: str = "k", tables: str = "ac") -> Mapping[str, KeySet]:
    def text(relation: Callable[[str, StructType], str]) -> str:
        return replace_tables(query, {table: relation(table, SCHEMA) for table in tables})

    return narrowing.keys(dict.fromkeys(tables, column), text)


def between(low: int, high: int) -> KeySet:
    return above(low, inclusive=True).intersection(below(high, inclusive=True))


@pytest.mark.parametrize(
    ("query", "keys"),
    [
        ("SELECT * FROM a WHERE k = 5", equal_to(5)),
        ("SELECT * FROM a WHERE 5 > k", below(5)),
        ("SELECT * FROM a WHERE k IN (1, 3, NULL)", any_of([1, 3])),
        (f"SELECT * FROM a WHERE k IN ({', '.join(map(str, range(300)))})", any_of(range(300))),
        ("SELECT * FROM a WHERE k BETWEEN 2 AND 2 + 3", between(2, 5)),
        ("SELECT * FROM a WHERE k = 1 OR k > 6 AND v > 0", equal_to(1).union(above(6))),
        ("SELECT * FROM a WHERE k = 1 OR v > 0", ALL),
        ("SELECT * FROM a WHERE NOT (k < 4 OR k > 8)", between(4, 8)),
        ("SELECT * FROM a WHERE NOT k IN (1, 2)", ALL),
        ("SELECT * FROM a WHERE k IS NULL OR k = 3", equal_to(3).union(KeySet((), has_null=True))),
        ("SELECT * FROM a WHERE k <=> NULL", KeySet((), has_null=True)),
        ("SELECT * FROM a WHERE k = '5'", equal_to(5)),
        ("SELECT * FROM a WHERE k % 10 = 5", NOT_NULL),
        ("SELECT * FROM a WHERE k = v", NOT_NULL),
        ("SELECT * FROM a WHERE k = (SELECT max(k) FROM a)", ALL),
        ("SELECT * FROM a WHERE k = 2 + rand()", NOT_NULL),
        ("SELECT k, sum(v) FROM a GROUP BY k HAVING k > 3", above(3)),
        ("SELECT sum(v) FROM a WHERE k = 7", equal_to(7)),
        ("SELECT sum(v) AS s FROM a HAVING max(k) = 7", ALL),
        ("WITH x AS (SELECT k AS z, v FROM a) SELECT * FROM x WHERE z = 2", equal_to(2)),
        ("SELECT * FROM (SELECT k, v FROM a WHERE k = 1 UNION ALL SELECT b, v FROM a) WHERE k < 9", ALL),
        ("SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY k ORDER BY v) n FROM a) WHERE k = 3", equal_to(3)),
        ("SELECT * FROM (SELECT *, row_number() OVER (ORDER BY v) n FROM a) WHERE k = 3", ALL),
        ("SELECT * FROM (SELECT * FROM a ORDER BY v LIMIT 3) WHERE k = 3", ALL),
        ("SELECT count(*) FROM a", ALL),
        ("SELECT * FROM a WHERE false", ALL),
    ],
)  # fmt: skip
def test_keys_that_a_query_reads(narrowing: Narrowing, query: str, keys: KeySet) -> None:
    assert read(narrowing, query)["a"] == keys


@pytest.mark.parametrize(
    ("query", "of_a", "of_c"),
    [
        ("SELECT * FROM a JOIN c ON a.k = c.k WHERE a.k = 4", equal_to(4), equal_to(4)),
        ("SELECT * FROM a JOIN c ON a.k = c.k + 1 WHERE a.k = 4", equal_to(4), NOT_NULL),
        ("SELECT * FROM a LEFT JOIN c ON a.k = c.k WHERE a.k IN (1, 2)", any_of([1, 2]), any_of([1, 2])),
        ("SELECT * FROM a LEFT JOIN c ON a.k = c.k AND c.k = 2", ALL, equal_to(2)),
        ("SELECT * FROM a LEFT JOIN c ON a.k = c.k AND a.k = 2", ALL, equal_to(2)),
        ("SELECT * FROM a LEFT JOIN c ON a.k = c.k WHERE c.k IS NULL AND a.k > 3", above(3), above(3)),
        ("SELECT * FROM a FULL JOIN c ON a.k = c.k WHERE a.v > 1", ALL, NOT_NULL),
        ("SELECT * FROM a WHERE k IN (SELECT k FROM c WHERE k < 3)", below(3), below(3)),
        ("SELECT * FROM a WHERE EXISTS (SELECT 1 FROM c WHERE c.k = a.k AND c.k IN (1, 2))", any_of([1, 2]), any_of([1, 2])),
        ("SELECT * FROM a WHERE k NOT IN (SELECT k FROM c WHERE k < 3)", ALL, below(3)),
        ("SELECT * FROM a WHERE k = (SELECT max(k) FROM c WHERE k < 3)", NOT_NULL, below(3)),
        ("SELECT * FROM a, c WHERE a.k = 1 AND c.b = 2", equal_to(1), ALL),
    ],
)  # fmt: skip
def test_restrictions_are_carried_over_joins(narrowing: Narrowing, query: str, of_a: KeySet, of_c: KeySet) -> None:
    found = read(narrowing, query)
    assert found == {"a": of_a, "c": of_c}


@pytest.mark.parametrize(
    ("column", "query", "keys"),
    [
        ("d", "d >= '2024-01-01'", above(date(2024, 1, 1), inclusive=True)),
        ("d", "d < DATE'2024-02-01' - INTERVAL 1 DAY", below(date(2024, 1, 31))),
        ("ts", "ts = TIMESTAMP'2024-01-01 02:00:00+02:00'", equal_to(NEW_YEAR)),
        ("ts", "ts < '2024-01-01' AND ts IS NOT NULL", below(NEW_YEAR)),
        ("t", "t > 'b' AND t < 'c\u00e9'", above("b").intersection(below("c\u00e9"))),
        ("t", "t LIKE 'ab%'", above("ab", inclusive=True).intersection(below("ac"))),
        ("t", "t COLLATE UNICODE_CI = 'ab'", ALL),
        ("t", "t = 'ab' COLLATE UTF8_LCASE", NOT_NULL),
        ("t", "upper(t) = 'AB'", NOT_NULL),
        ("t", "t = CAST(X'FF' AS STRING)", NOT_NULL),
        ("s", "s = 70000", ALL),
        ("b", "b = 3.0", equal_to(3)),
    ],
)
def test_values_of_each_type(narrowing: Narrowing, column: str, query: str, keys: KeySet) -> None:
    assert read(narrowing, f"SELECT * FROM a WHERE {query}", column)["a"] == keys


@pytest.mark.parametrize(
    ("column", "query"),
    [
        ("d", "d = CAST('today' AS DATE)"),
        ("d", "d >= 'yesterday'"),
        ("d", "d < concat('to', 'day')"),
        ("ts", "ts > CAST('12:30' AS TIMESTAMP)"),
        ("ts", "ts > (SELECT CAST(lower('NOW') AS TIMESTAMP))"),
    ],
)
def test_the_time_of_the_call_narrows_nothing(narrowing: Narrowing, column: str, query: str) -> None:
    assert read(narrowing, f"SELECT * FROM a WHERE {query}", column)["a"] == ALL


def test_instants_are_read_in_the_zone_of_the_query_whatever_session_the_thread_is_in(spark: SparkSession) -> None:
    other, sessions = spark.newSession(), spark._jvm.org.apache.spark.sql.SparkSession  # type: ignore[union-attr]
    other.conf.set("spark.sql.session.timeZone", "America/New_York")
    sessions.setActiveSession(other._jsparkSession)
    try:
        found = read(Narrowing(lambda: spark), "SELECT * FROM a WHERE ts = TIMESTAMP'2024-01-01 00:00:00Z'", "ts")
        assert found["a"] == equal_to(NEW_YEAR)
        assert sessions.getActiveSession().get().equals(other._jsparkSession)
    finally:
        sessions.setActiveSession(spark._jsparkSession)


def test_a_query_that_cannot_be_planned_reads_all(narrowing: Narrowing) -> None:
    assert read(narrowing, "SELECT nothing FROM a WHERE k = 1")["a"] == ALL


# the property


class _Queries:
    """Random queries over a and c, whose columns all have ranges in turn."""

    def __init__(self, choice: random.Random) -> None:
        self._choice = choice

    def literal(self, column: str) -> str:
        number = self._choice.randint(-1, 6)
        day = date(2024, 1, 1) + timedelta(days=number)
        return self._choice.choice(
            {
                "k": [str(number), f"{number}L", f"'{number}'", f"{number}.5", f"{number} + 1", f"CAST({number} AS DOUBLE)"],
                "b": [str(number), f"'{number}'", f"{number}.0", f"{number}.5D"],
                "d": [f"'{day}'", f"DATE'{day}'", f"TIMESTAMP'{day} 12:00:00'", f"DATE'{day}' + INTERVAL 1 DAY"],
                "ts": [f"'{day}'", f"TIMESTAMP'{day} 00:00:00+03:00'", f"DATE'{day}'", f"TIMESTAMP_NTZ'{day} 00:00:00'"],
                "t": [f"'{'abcABC'[number % 6]}'", f"'{'abc'[number % 3]}z'", "'\u00e9'", "'ab' COLLATE UTF8_LCASE"],
                "s": [str(number), f"{number}.5", "70000", f"'{number}'"],
            }[column]
        )  # fmt: skip

    def predicate(self, tables: str, column: str, depth: int = 2) -> str:
        choice, name = self._choice, f"{self._choice.choice(tables)}.{column}"
        if depth and choice.random() < 0.55:
            one, other = (self.predicate(tables, column, depth - 1) for _ in range(2))
            shapes = (f"({one} AND {other})", f"({one} OR {other})", f"NOT ({one})", f"CASE WHEN {one} THEN {other} END",
                      f"coalesce({one}, {other})", f"(({one}) <=> ({other}))", f"if({one}, {other}, false)")  # fmt: skip
            return choice.choice(shapes[:3] * 2 + shapes)
        value, another = self.literal(column), self.literal(column)
        shapes = (f"{name} = {value}", f"{name} < {value}", f"{value} >= {name}", f"{name} <> {value}",
                  f"{name} BETWEEN {value} AND {another}", f"{name} IN ({value}, {another})", f"{name} IN ({value}, NULL)",
                  f"{name} NOT IN ({value}, {another})", f"{name} IS NULL", f"{name} <=> {value}", f"{name} IS NOT NULL",
                  f"CAST({name} AS STRING) LIKE '%1%'", f"{name} = {name}", f"{name} > {value} IS TRUE")  # fmt: skip
        return choice.choice(shapes)

    def query(self, column: str) -> str:
        choice = self._choice
        inner, both = self.predicate("a", column), self.predicate("ac", column)
        join = choice.choice(("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"))
        on = choice.choice((f"a.{column} = c.{column}", f"a.{column} <=> c.{column}", "a.b = c.k",
                            f"a.{column} = c.{column} AND {self.predicate('ac', column, 1)}"))  # fmt: skip
        kind = choice.choice(("LEFT SEMI", "LEFT ANTI"))
        outer = self.predicate("a", column, 1)
        return choice.choice(
            (
                f"SELECT * FROM a WHERE {inner}",
                f"SELECT a.{column}, c.{column}, a.v, c.v FROM a {join} c ON {on} WHERE {both}",
                f"SELECT * FROM a {kind} JOIN c ON {on} WHERE {inner}",
                f"SELECT * FROM a WHERE {outer} AND a.{column} {choice.choice(('', 'NOT '))}IN"
                f" (SELECT c.{column} FROM c WHERE {self.predicate('c', column, 1)})",
                f"SELECT * FROM a WHERE EXISTS (SELECT 1 FROM c WHERE c.{column} = a.{column} AND {both})",
                f"WITH a AS (SELECT {column}, count(*) AS v FROM a GROUP BY {column}) SELECT * FROM a WHERE {inner}",
                f"SELECT * FROM (SELECT {column}, v FROM a UNION ALL SELECT {column}, v FROM c) a WHERE {inner}",
                f"SELECT a.{column}, sum(a.v) OVER (PARTITION BY a.{column}) FROM a WHERE {inner}",
                f"SELECT count(*), max(a.v) FROM a WHERE {inner}",
            )
        )  # fmt: skip


def test_narrowed_answers_are_whole_answers(spark: SparkSession, narrowing: Narrowing) -> None:
    choice = random.Random(f"narrowing {SEED}")
    session = spark.newSession()
    for name, value in {**SMALL, "spark.sql.session.timeZone": "UTC"}.items():
        session.conf.set(name, value)
    for table in "ac":
        rows = [dict(zip(SCHEMA.names, _row(choice, number), strict=True)) for number in range(14)]
        found_rows = pa.Table.from_pylist(rows, to_arrow_schema(SCHEMA, timezone="UTC"))
        local_frame(session, found_rows, SCHEMA).coalesce(1).createOrReplaceTempView(f"whole_{table}")
    queries, narrowed, compared = _Queries(choice), 0, 0
    for _ in range(QUERIES):
        column = choice.choice(("k", "k", "b", "d", "ts", "t", "s"))
        query = queries.query(column)
        found = read(narrowing, query, column)
        for table in "ac":
            narrowed += found[table] != ALL
            part_of = session.table(f"whole_{table}").where(sql_predicate(column, found[table]))
            part_of.createOrReplaceTempView(f"part_{table}")
        texts = [replace_tables(query, {"a": f"{side}_a", "c": f"{side}_c"}) for side in ("whole", "part")]
        rows = session.sql(" UNION ALL ".join(f"SELECT {n}, * FROM ({texts[n]})" for n in (0, 1)))
        try:
            answers = rows.collect()
        except PySparkException:
            continue  # a cast fails on some row: there is no answer to compare with
        whole, part = (sorted(repr(row[1:]) for row in answers if row[0] == side) for side in (0, 1))
        assert part == whole, (query, found)
        compared += 1
    assert narrowed > 10
    assert compared > 10


def _row(choice: random.Random, number: int) -> tuple[object, ...]:
    def maybe(value: object) -> object:
        return None if choice.random() < 0.15 else value

    step = choice.randint(-1, 6)
    at = NEW_YEAR + timedelta(days=step, hours=choice.choice((0, 0, 12, -3)))
    return (
        maybe(step), maybe(choice.randint(-1, 6)), maybe(at.date()), maybe(at),
        maybe(choice.choice(("a", "b", "c", "A", "B", "ab", "AB", "az", "\u00e9", ""))), maybe(choice.randint(-1, 6)), float(number),
    )  # fmt: skip
