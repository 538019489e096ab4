"""Which ranges of a table are read next."""

from __future__ import annotations

from headgate.runtime.sources.loading import choose_load, choose_ranges


def test_ranges_that_were_put_first_come_first_then_those_that_most_queries_wait_for() -> None:
    assert choose_ranges({0, 1, 2, 3}, {2}, {3: 2, 1: 1}, 3) == {2, 3, 1}
    assert choose_ranges({0, 1, 2, 3}, (), {}, 2) == {0, 1}
    assert choose_ranges({3}, {1}, {0: 5}, 4) == {3}


def test_a_table_that_is_read_range_by_range_is_read_alone() -> None:
    sizes = {"a": 10, "b": 20, "c": 30}
    assert choose_load(sizes, (), (), {}, 100, {"b"}).tables == ("a", "c")
    assert choose_load(sizes, (), (), {"b": 1}, 100, {"b"}).tables == ("b",)
