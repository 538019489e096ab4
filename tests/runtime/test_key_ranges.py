"""Ranges of keys hold every key, and leave the wide gaps out."""

from __future__ import annotations

import pytest

from headgate.runtime.evaluation.key_ranges import merged, within_ranges
from headgate.runtime.spark.sessions import SparkSessions
from headgate.runtime.tables.batch_views import BatchViews, KeptViews


def test_neighbours_that_lie_close_become_one_range() -> None:
    assert merged([], 100) == []
    assert merged([(5, 5)], 100) == [(5, 5)]
    ranges = [(0, 10), (11, 20), (500, 510), (990, 1_000)]
    assert merged(ranges, 100) == [(0, 20), (500, 510), (990, 1_000)]
    assert merged(ranges, 1) == [(0, 1_000)]


def test_of_many_ranges_those_become_one_that_lie_closest() -> None:
    far = [(number * 1_000 + number, number * 1_000 + number) for number in range(60)]
    found = merged(far, 1_000_000)
    assert len(found) == 32 and found[-1] == (59_059, 59_059) and found[0][0] == 0


@pytest.mark.parametrize(
    "kind", ["k", "CAST(k AS INT)", "date_from_unix_date(CAST(k AS INT))", "timestamp_micros(k)"],
)  # fmt: skip
def test_a_condition_holds_for_every_key_and_not_between_the_ranges(spark_sessions: SparkSessions, kind: str) -> None:
    views = BatchViews(spark_sessions.small, KeptViews(), 1_000)
    low, high = "SELECT id AS k FROM range(-50, 50)", "SELECT id AS k FROM range(90000, 90100)"
    text = f"SELECT {kind} AS key FROM ({low} UNION ALL {high} UNION ALL SELECT NULL AS k)"
    keys = views.of_frame(views.session.sql(text))
    field = views.session.table(keys).schema[0]
    condition = within_ranges(views, keys, "key", field.dataType, "w.key", 100)
    assert condition is not None and condition.count("BETWEEN") == 2
    rows, _ = views.collect(f"SELECT COUNT(*) FROM {keys} w WHERE {condition}")
    assert rows.column(0)[0].as_py() == 201
    between = f"(SELECT {kind} AS key FROM (SELECT id AS k FROM range(1000, 80000, 100)))"
    rows, _ = views.collect(f"SELECT COUNT(*) FROM {between} w WHERE {condition}")
    assert rows.column(0)[0].as_py() == 0
    views.close()


def test_texts_have_no_ranges(spark_sessions: SparkSessions) -> None:
    views = BatchViews(spark_sessions.small, KeptViews(), 1_000)
    keys = views.of_frame(views.session.sql("SELECT 'a' AS key"))
    assert within_ranges(views, keys, "key", views.session.table(keys).schema[0].dataType, "w.key", 100) is None
    views.close()
