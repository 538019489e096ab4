"""Answers of a platform are Spark's, over random queries that translate, and their receipts say who answered."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from random import Random

import psycopg
import pytest

from headgate import Answer, Warehouse
from headgate.capture.postgres.private_server import PostgresServer
from headgate.errors import HeadgateError
from headgate.runtime.spark.sessions import SparkSessions
from headgate.serving import lookups, reading
from tests.seed import SEED
from tests.serving.numbers import change, opened
from tests.serving.queries import random_query

QUERIES, MANY_QUERIES = 40, 600


@pytest.fixture(scope="module")
def dsn(server: PostgresServer) -> Iterator[str]:
    server.execute("CREATE DATABASE answers")
    yield server.dsn_of("answers")


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory, spark_sessions: SparkSessions, dsn: str) -> Iterator[Warehouse]:
    random = Random(SEED)
    with opened(tmp_path_factory.mktemp("answers"), dsn) as warehouse:
        for _ in range(6):
            change(warehouse, random)
            warehouse.refresh()
        yield warehouse


def rows(answer: Answer, ordered: bool) -> list[str]:
    found = [repr(list(row.values())) for row in answer.to_arrow().to_pylist()]
    return found if ordered else sorted(found)


@pytest.mark.parametrize("count", [QUERIES, pytest.param(MANY_QUERIES, marks=pytest.mark.thorough)])
def test_answers_are_those_of_spark(warehouse: Warehouse, count: int) -> None:
    random, platforms, reasons = Random(f"{SEED} {count}"), Counter[str](), Counter[str]()
    for _ in range(count):
        query, ordered = random_query(random)
        try:
            found = warehouse.sql(query)
            got = rows(found, ordered)
        except HeadgateError:
            with pytest.raises(HeadgateError):
                warehouse.sql(query, warehouse.newest_job).to_arrow()
            continue
        platforms[found.receipt.platform] += 1
        reasons[found.receipt.why_platform] += 1
        if found.receipt.platform == "serving":
            with warehouse.sql(query, found.job) as spark:
                assert got == rows(spark, ordered), query
                assert found.schema.simpleString() == spark.schema.simpleString(), query
        found.close()
    assert platforms["serving"] > count / 2, reasons


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("SELECT upper(text) AS u FROM facts", "the function upper"),
        ("SELECT a / 2 AS half FROM facts", "DIV"),
        ("SELECT sum(ratio) AS s FROM facts", "sum of double"),
        ("SELECT avg(a) AS s FROM facts", "the function avg"),
        ("SELECT ratio, count(*) AS n FROM facts GROUP BY ratio", "groups of floating point numbers"),
        ("SELECT text = 1 AS c FROM facts", "comparing string with int"),
        ("SELECT day < at AS c FROM facts", "comparing date with timestamp"),
        ("SELECT tiny + tiny AS c FROM facts", "computing with tinyint"),
        ("SELECT text LIKE 'a\\\\_' AS c FROM facts", "a text with escapes"),
        ("SELECT f.a FROM facts f JOIN elsewhere e ON e.a = f.a", "elsewhere is not placed there"),
        ("SELECT current_date() AS d, a FROM facts", "the function current_date"),
        ("SELECT row_number() OVER (ORDER BY id) AS n FROM facts", "WINDOW"),
        ("SELECT a + 1 FROM facts", "write AS"),
    ],
)
def test_what_may_mean_something_else_is_left_to_spark(warehouse: Warehouse, query: str, why: str) -> None:
    with warehouse.sql(query) as answer:
        assert answer.receipt.platform == "spark"
        assert why in answer.receipt.why_platform


def test_a_receipt_tells_who_answered(warehouse: Warehouse) -> None:
    with warehouse.sql("SELECT n FROM elsewhere") as answer:
        assert (answer.receipt.platform, answer.receipt.why_platform) == ("spark", "")
        assert "platform" not in str(answer.receipt)
    with warehouse.sql("SELECT COUNT(*) AS n FROM facts") as answer:
        assert "platform  serving" in str(answer.receipt)
        assert answer.receipt.from_json(answer.receipt.to_json()) == answer.receipt
        assert answer.dataframe.collect() == answer.collect()
        assert answer.dataframe.collect()[0].n == answer.to_arrow().to_pylist()[0]["n"]


def test_a_query_that_must_be_fresh_has_the_platform_brought_there(warehouse: Warehouse) -> None:
    session, random = warehouse.session(), Random(SEED + "fresh")
    for _ in range(3):
        change(warehouse, random)
        with session.sql("SELECT COUNT(*) AS n FROM facts WHERE a = 1", max_staleness="0s") as answer:
            assert answer.receipt.platform == "serving"
            assert answer.job == warehouse.newest_job
        with session.sql("SELECT COUNT(*) AS n FROM facts WHERE a = 2", max_staleness="1h") as answer:
            assert (answer.receipt.platform, answer.job) == ("serving", warehouse.newest_job)
            assert not answer.receipt.closed_job


def test_a_session_does_not_go_back_behind_what_spark_has_shown_it(warehouse: Warehouse) -> None:
    session = warehouse.session()
    change(warehouse, Random(SEED + "session"))
    with session.sql("SELECT n FROM elsewhere") as answer:
        seen = answer.job
    with session.sql("SELECT COUNT(*) AS n FROM facts", max_staleness="any") as answer:
        assert answer.job >= seen


def test_pinned_jobs_and_large_answers_are_sparks(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    with warehouse.sql("SELECT id FROM facts", warehouse.newest_job) as answer:
        assert answer.to_arrow().num_rows
    monkeypatch.setattr(reading, "MOST_ROWS", 3)
    for order in ("", " ORDER BY amount"):
        with warehouse.sql(f"SELECT id, amount FROM facts WHERE id >= 0{order}") as answer:
            assert answer.receipt.platform == "spark"
            assert "more than 3 rows" in answer.receipt.why_platform
            assert answer.to_arrow().num_rows > 3


def test_values_of_a_known_shape_are_filled_in(warehouse: Warehouse) -> None:
    for key in (1, 2, 3, 40, 41):
        for text in ("x", "Ünï", ""):
            query = f"SELECT id, text FROM facts WHERE id >= {key} AND (text = '{text}' OR text IS NULL) LIMIT 100"
            with warehouse.sql(query) as answer, warehouse.sql(query, answer.job) as spark:
                assert rows(answer, False) == rows(spark, False)
                assert answer.receipt.platform == "serving"


def test_applications_read_rows_job_and_data_timestamp_directly(warehouse: Warehouse, dsn: str) -> None:
    with warehouse.sql("SELECT a, n FROM sums") as answer:
        wanted = sorted(repr(tuple(row.values())) for row in answer.to_arrow().to_pylist())
        receipt = answer.receipt
    with psycopg.connect(dsn) as connection:
        assert sorted(map(repr, connection.execute("SELECT a, n FROM shop.sums").fetchall())) == wanted
        found = connection.execute("SELECT job, data_timestamp FROM shop.__freshness").fetchone()
    assert found is not None and found[0] == receipt.job
    assert receipt.data_timestamp is not None and found[1] <= receipt.data_timestamp


def test_columns_that_queries_look_rows_up_by_get_an_index(
    warehouse: Warehouse, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookups, "WORTH_AN_INDEX", 3)
    place = warehouse.platforms._platforms["serving"].shipper

    def indexed() -> list[str]:
        with psycopg.connect(dsn) as connection:
            found = connection.execute(
                "SELECT indexdef FROM pg_indexes WHERE schemaname = 'shop' AND tablename = 'facts'"
            )
            return sorted(text.partition("btree ")[2] for (text,) in found.fetchall())

    before = indexed()
    assert "(text)" in before and "(other, a)" not in before
    for number in range(8):
        # By a column with an index, by two without, and by nothing.
        for query in (
            f"SELECT id FROM facts WHERE text = 'x{number}'",
            f"SELECT id FROM facts WHERE other = 'x' AND a > {number}",
            "SELECT count(*) FROM facts",
        ):
            with warehouse.sql(query, max_staleness="10m") as answer:
                answer.to_arrow()
                assert answer.receipt.platform == "serving"
    place.wait_asked(time.monotonic() + 60)
    warehouse.refresh()
    place.ask()
    place.wait_asked(time.monotonic() + 60)
    assert place.trouble is None
    assert sorted(set(indexed()) - set(before)) == ["(other, a)"] and len(indexed()) == len(before) + 1
