"""Small queries that are run together, from plans that are kept, give what each gives by itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql.types import ArrayType, IntegerType, StructType

from headgate.runtime.spark import kept_plans
from headgate.runtime.spark.collecting import Collector
from headgate.runtime.spark.kept_plans import KeptPlans, ReadyQuery
from headgate.runtime.spark.sessions import SparkSessions
from headgate.runtime.spark.views import Views
from tests.waiting import eventually

KINDS = (
    StructType()
    .add("id", "long")
    .add("part", "integer")
    .add("text", "string")
    .add("price", "decimal(10,2)")
    .add("day", "date")
    .add("at", "timestamp")
    .add("plain", "timestamp_ntz")
    .add("several", ArrayType(IntegerType()))
)
QUERIES = [
    "SELECT * FROM {rows}",
    "SELECT part, SUM(price) AS price, COUNT(*) AS n FROM {rows} GROUP BY part HAVING COUNT(*) > 0",
    "SELECT l.id, r.text AS `a b`, l.at FROM {rows} l JOIN {rows} r ON r.id = l.part LEFT ANTI JOIN {few} f ON f.id <=> l.id",
    "SELECT id, MAX(day) OVER (PARTITION BY part ORDER BY id) AS day FROM {rows} UNION ALL SELECT 0L, NULL",
    "SELECT l.id, r.id AS other FROM {rows} l LEFT JOIN {few} r ON r.id < l.id",
    "SELECT id, plain, several FROM {rows} WHERE id < 0",
    "WITH u AS (SELECT l.id, l.part FROM {rows} l JOIN {rows} r ON r.id = l.part UNION ALL SELECT id, part FROM {few}),"
    " g AS (SELECT part, COUNT(*) AS n FROM u GROUP BY part UNION ALL SELECT part, 0L FROM {rows})"
    " SELECT u.id, g.n, SUM(g.n) OVER (PARTITION BY g.part ORDER BY u.id, g.n) AS s FROM u JOIN g ON g.part <=> u.part",
    "SELECT id FROM {rows} WHERE id = (SELECT MAX(id) FROM {few})",
    "SELECT text, explode(several) AS one FROM {rows} LIMIT 1000",
]


def rows_of(first: int, count: int) -> pa.Table:
    ids = range(first, first + count)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "part": pa.array([each % 3 if each % 4 else None for each in ids], pa.int32()),
            "text": [f"text {each}" if each % 5 else None for each in ids],
            "price": pa.array([Decimal(each) / 4 for each in ids], pa.decimal128(10, 2)),
            "day": [date(2026, 1, 1 + each % 28) for each in ids],
            "at": pa.array([datetime(2026, 1, 1, each % 24, tzinfo=UTC) for each in ids], pa.timestamp("us", "UTC")),
            "plain": pa.array([datetime(2026, 1, 1, each % 24) for each in ids], pa.timestamp("us")),
            "several": pa.array([[each, each + 1] for each in ids], pa.list_(pa.int32())),
        }
    )


@pytest.fixture(name="collector")
def _collector(spark_sessions: SparkSessions) -> Collector:
    return spark_sessions.new_collector()


@pytest.fixture(name="views")
def _views(collector: Collector) -> Iterator[Views]:
    views = Views(collector.session, collector)
    yield views
    views.close()
    assert not collector.rows.names


def texts(views: Views, first: int, count: int = 20) -> list[str]:
    names = {"rows": views.of_rows(rows_of(first, count), KINDS), "few": views.of_rows(rows_of(first + 2, 1), KINDS)}
    return [query.format(**names) for query in QUERIES]


def by_itself(collector: Collector, text: str) -> tuple[pa.Table, StructType]:
    return collector.collect(text, alone=True)


def same(found: pa.Table, wanted: pa.Table) -> bool:
    def sortable(table: pa.Table) -> list[str]:
        return sorted(map(repr, table.to_pylist()))

    return found.schema == wanted.schema and sortable(found) == sortable(wanted)


def held(
    collector: Collector, queries: Sequence[str], monkeypatch: pytest.MonkeyPatch
) -> list[pa.Table | BaseException]:
    """What each query gives, where none is run before all have been asked."""
    run = Collector._work

    def collect(text: str) -> pa.Table:
        return collector.collect(text)[0]

    monkeypatch.setattr(collector, "_most_at_work", 1)
    monkeypatch.setattr(Collector, "_work", lambda self: None)
    with ThreadPoolExecutor(len(queries)) as pool:
        found = [pool.submit(collect, text) for text in queries]
        eventually(lambda: len(collector._waiting) + sum(each.done() for each in found) == len(queries))
        run(collector)
        return [each.exception(60) or each.result() for each in found]


def test_queries_that_wait_are_run_by_one_job(
    collector: Collector, views: Views, monkeypatch: pytest.MonkeyPatch
) -> None:
    together: list[int] = []
    collect = KeptPlans.collect

    def counted(plans: KeptPlans, parts: Sequence[ReadyQuery]) -> list[pa.Table]:
        together.append(len(parts))
        return collect(plans, parts)

    monkeypatch.setattr(KeptPlans, "collect", counted)
    queries = [*texts(views, 1), *texts(views, 100)]
    for query, rows in zip(queries, held(collector, queries, monkeypatch), strict=True):
        assert isinstance(rows, pa.Table) and same(rows, by_itself(collector, query)[0]), query
    assert together == [14], "all but those with a subquery or a broadcast"


def test_a_plan_is_kept_and_takes_other_rows(collector: Collector, views: Views) -> None:
    for first, count in ((1, 20), (50, 7), (7, 1)):
        for query in texts(views, first, count):
            rows, schema = collector.collect(query)
            wanted, columns = by_itself(collector, query)
            assert same(rows, wanted) and schema == columns, query
    assert len(collector._plans._plans) == len(QUERIES)


def test_what_has_other_columns_no_rows_or_too_many_is_planned_by_itself(
    collector: Collector, views: Views, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, exact = StructType().add("a", "long"), StructType().add("a", "decimal(10,2)")

    def total(values: pa.Array, schema: StructType) -> object:
        view = views.of_rows(pa.table({"a": values}), schema)
        return collector.collect(f"SELECT SUM(a) AS total FROM {view}")[0].to_pylist()[0]["total"]

    assert total(pa.array([1, 2]), whole) == 3
    assert total(pa.array([Decimal("0.50")]), exact) == Decimal("0.50")
    assert total(pa.array([], pa.int64()), whole) is None
    monkeypatch.setattr(kept_plans, "MOST_ROWS", 2)
    assert total(pa.array([1, 2, 3]), whole) == 6
    assert len(collector._plans._plans) == 2


def test_the_time_of_day_is_not_kept(collector: Collector, views: Views) -> None:
    view = views.of_rows(pa.table({"a": [1]}), StructType().add("a", "long"))
    text = f"SELECT current_timestamp() AS at FROM {view}"
    first, second = (collector.collect(text)[0].column("at")[0].as_py() for _ in range(2))
    assert first < second


def test_plans_that_were_not_used_for_longest_go(
    collector: Collector, views: Views, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_plans, "MOST_PLANS", 2)
    view = views.of_rows(pa.table({"a": [1]}), StructType().add("a", "long"))
    for number in (1, 2, 1, 3):
        collector.collect(f"SELECT a + {number} AS a FROM {view}")
    kept = [shape[0][:12] for shape in collector._plans._plans]
    assert kept == ["SELECT a + 1", "SELECT a + 3"]


def test_one_that_fails_fails_alone(collector: Collector, views: Views, monkeypatch: pytest.MonkeyPatch) -> None:
    view = views.of_rows(pa.table({"id": [0, 1]}), StructType().add("id", "long"))
    queries = [f"SELECT id FROM {view}"] * 5
    queries[3] = f"SELECT CAST(1 AS INT) / CAST(id AS INT) AS id FROM {view}"
    found = held(collector, queries, monkeypatch)
    assert isinstance(found.pop(3), PySparkException)
    assert all(isinstance(rows, pa.Table) and rows.to_pylist() == [{"id": 0}, {"id": 1}] for rows in found)


def test_a_query_that_cannot_be_read_is_told_at_once(collector: Collector, views: Views) -> None:
    view = views.of_rows(pa.table({"id": [0, 1]}), StructType().add("id", "long"))
    with pytest.raises(PySparkException, match="nothing"):
        collector.collect(f"SELECT nothing FROM {view}")


def test_nobody_waits_for_a_spark_that_is_gone(
    collector: Collector, views: Views, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(plans: KeptPlans, parts: Sequence[ReadyQuery]) -> list[pa.Table]:
        raise ConnectionError("Spark is gone")

    monkeypatch.setattr(KeptPlans, "collect", lost)
    view = views.of_rows(pa.table({"id": [0, 1]}), StructType().add("id", "long"))
    for _ in range(collector._most_at_work + 1):
        with pytest.raises(ConnectionError, match="Spark is gone"):
            collector.collect(f"SELECT id FROM {view}")
