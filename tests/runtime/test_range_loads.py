"""Which ranges of a table are read next, and how far a load is."""

from __future__ import annotations

from datetime import timedelta

from headgate.runtime.sources.loading import SourceLoad, choose_load, choose_ranges
from headgate.runtime.sources.progress import describe
from headgate.runtime.sources.range_progress import RangePace, RangesLoaded
from headgate.service.metrics import load_metrics


def test_ranges_that_were_put_first_come_first_then_those_that_most_queries_wait_for() -> None:
    assert choose_ranges({0, 1, 2, 3}, {2}, {3: 2, 1: 1}, 3) == {2, 3, 1}
    assert choose_ranges({0, 1, 2, 3}, (), {}, 2) == {0, 1}
    assert choose_ranges({3}, {1}, {0: 5}, 4) == {3}


def test_a_table_that_is_read_range_by_range_is_read_alone() -> None:
    sizes = {"a": 10, "b": 20, "c": 30}
    assert choose_load(sizes, (), (), {}, 100, {"b"}).tables == ("a", "c")
    assert choose_load(sizes, (), (), {"b": 1}, 100, {"b"}).tables == ("b",)


def test_the_pace_of_a_load_tells_rate_and_time_left() -> None:
    now = [100.0]
    pace = RangePace(lambda: now[0])
    assert pace.rate is None and pace.remaining(4) is None
    now[0] += 10
    pace.took(5_000, 2)
    assert pace.rate == 500 and pace.remaining(6) == timedelta(seconds=30)
    found = RangesLoaded(8, 2, ("[3, 6)",), 5_000, pace.rate, pace.remaining(6))
    progress = found.progress("orders")
    assert (progress.rows, progress.estimated, progress.is_done) == (5_000, 20_000, False)
    assert describe("shop", progress) == (
        "shop: read 5,000 of about 20,000 rows (25 %), orders, 500 rows a second, 0:00:30 left"
    )
    load = SourceLoad(("orders",), (), "", None, None, {}, {"orders": found})
    samples = {each.name: each.samples[0] for each in load_metrics({"shop": load})}
    assert all(sample.labels == {"table": "shop.orders"} for sample in samples.values())
    measured = {name.removeprefix("headgate_load_"): sample.value for name, sample in samples.items()}
    assert measured == {
        "ranges": 8,
        "ranges_loaded": 2,
        "ranges_waiting": 1,
        "rows": 5_000,
        "rows_per_second": 500,
        "remaining_seconds": 30,
    }
