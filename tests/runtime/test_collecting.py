"""Small queries that are run together give what each gives by itself."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql.types import StructType

from headgate.runtime.spark import collecting
from headgate.runtime.spark.collecting import Collector
from headgate.runtime.spark.sessions import SparkSessions
from headgate.runtime.spark.views import Views, shape

QUERIES = [
    "SELECT id, id * 2 AS twice FROM range(3)",
    "SELECT CAST(id AS STRING) AS text, id FROM range(2) WHERE id > 5",
    "SELECT 'a' AS `a b`, 1.50BD AS price, true AS yes, CAST(NULL AS INT) AS nothing, X'00' AS bytes",
    "SELECT TIMESTAMP '2024-01-01' AS at, DATE '2024-01-02' AS day, TIMESTAMP_NTZ '2024-01-03' AS plain, 1.5D AS number",
    "SELECT array(1, 2) AS several",
    "SELECT 1.5BD AS price, 12.125BD AS other, 'x' AS text, 'y' AS more",
]


def held(collector: Collector, queries: list[str], monkeypatch: pytest.MonkeyPatch) -> list[pa.Table | BaseException]:
    """What each query gives, where none is run before all have been asked."""
    may_go, asked, run, request = threading.Event(), threading.Semaphore(0), collecting._run, collecting._Request

    def run_later(requests: Sequence[collecting._Request]) -> None:
        assert may_go.wait(60)
        run(requests)

    def make_request(*parts: Any) -> collecting._Request:
        asked.release()
        return request(*parts)

    monkeypatch.setattr(collecting, "_run", run_later)
    monkeypatch.setattr(collecting, "_Request", make_request)
    with ThreadPoolExecutor(len(queries)) as pool:
        found = [pool.submit(lambda text=text: collector.collect(text)[0]) for text in queries]
        assert all(asked.acquire(timeout=60) for _ in queries)
        may_go.set()
        return [each.exception(60) or each.result() for each in found]


def test_queries_that_wait_are_run_together(spark_sessions: SparkSessions, monkeypatch: pytest.MonkeyPatch) -> None:
    session = spark_sessions.small
    together: list[int] = []
    merged = collecting._together
    monkeypatch.setattr(collecting, "_together", lambda parts: together.append(len(parts)) or merged(parts))
    for query, rows in zip(QUERIES * 2, held(Collector(session), QUERIES * 2, monkeypatch), strict=True):
        assert isinstance(rows, pa.Table)
        alone = session.sql(query).toArrow()
        assert rows.schema.types == alone.schema.types and rows.column_names == alone.column_names
        assert rows.to_pylist() == alone.to_pylist()
    assert sum(together) >= 4


def test_one_that_fails_fails_alone(spark_sessions: SparkSessions, monkeypatch: pytest.MonkeyPatch) -> None:
    queries = ["SELECT id FROM range(2)"] * 5
    queries[3] = "SELECT CAST(id - 1 AS INT) / CAST(id AS INT) AS id FROM range(2)"
    found = held(Collector(spark_sessions.small), queries, monkeypatch)
    assert isinstance(found.pop(3), PySparkException)
    assert all(isinstance(rows, pa.Table) and rows.to_pylist() == [{"id": 0}, {"id": 1}] for rows in found)


def test_a_query_that_cannot_be_read_is_told_at_once(spark_sessions: SparkSessions) -> None:
    with pytest.raises(PySparkException):
        Collector(spark_sessions.small).collect("SELECT nothing FROM range(2)")


def test_nobody_waits_for_a_spark_that_is_gone(spark_sessions: SparkSessions, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(requests: object) -> None:
        raise ConnectionError("Spark is gone")

    monkeypatch.setattr(collecting, "_run", lost)
    collector = Collector(spark_sessions.small)
    for _ in range(collector._most_at_work + 1):
        with pytest.raises(ConnectionError, match="Spark is gone"):
            collector.collect("SELECT 1 AS one")


def test_columns_are_known_from_a_query_of_the_same_shape(spark_sessions: SparkSessions) -> None:
    session = spark_sessions.small
    collector, views = Collector(session), Views(session)
    whole, exact = StructType().add("a", "long"), StructType().add("a", "decimal(10,2)")
    found = []
    for schema, values in ((whole, pa.array([1, 2])), (whole, pa.array([3, 4])), (exact, pa.array([Decimal("0.50")]))):
        view = views.of_rows(pa.table({"a": values}), schema)
        rows, columns = collector.collect(f"SELECT SUM(x.a) AS total FROM {view} x JOIN {view} y ON x.a = y.a")
        assert columns == session.sql(f"SELECT SUM(a) AS total FROM {view}").schema
        found.append(rows.to_pylist())
    assert found == [[{"total": 3}], [{"total": 7}], [{"total": Decimal("0.50")}]]
    assert len(collector._schemas) == 2
    views.close()
    assert shape(f"SELECT 1 FROM {view}") is None and shape("SELECT 1") is None
