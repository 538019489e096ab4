"""Sets of keys and range maps against the same things said value by value."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import ConfigError
from headgate.ranges.key_set import ALL, NOT_NULL, NOTHING, NULL, KeySet, above, any_of, below, equal_to
from headgate.ranges.range_map import RangeMap, even_bounds, kind_of, parse

NUMBERS = st.integers(-6, 6)


def key_sets() -> st.SearchStrategy[KeySet]:
    simple = st.one_of(
        st.sampled_from([ALL, NOTHING, NULL, NOT_NULL]),
        NUMBERS.map(equal_to),
        st.builds(below, NUMBERS, inclusive=st.booleans()),
        st.builds(above, NUMBERS, inclusive=st.booleans()),
        st.lists(NUMBERS, max_size=4).map(any_of),
    )
    return st.recursive(
        simple,
        lambda sets: st.one_of(
            st.builds(KeySet.union, sets, sets),
            st.builds(KeySet.intersection, sets, sets),
        ),
        max_leaves=6,
    )


VALUES = [None, *range(-8, 9)]


@given(key_sets(), key_sets())
def test_a_union_holds_what_one_of_them_holds(one: KeySet, other: KeySet) -> None:
    for value in VALUES:
        assert one.union(other).holds(value) == (one.holds(value) or other.holds(value))


@given(key_sets(), key_sets())
def test_an_intersection_holds_what_both_hold(one: KeySet, other: KeySet) -> None:
    for value in VALUES:
        assert one.intersection(other).holds(value) == (one.holds(value) and other.holds(value))


def maps() -> st.SearchStrategy[RangeMap]:
    return st.sets(NUMBERS, max_size=5).map(lambda bounds: RangeMap("integer", tuple(sorted(bounds))))


@given(maps(), key_sets())
def test_the_ranges_of_a_set_hold_each_of_its_keys(ranges: RangeMap, keys: KeySet) -> None:
    found = ranges.holding(keys)
    for value in VALUES:
        assert not keys.holds(value) or ranges.of(value) in found


@given(maps(), st.data())
def test_ranges_cover_everything_and_share_nothing(ranges: RangeMap, data: st.DataObject) -> None:
    chosen = data.draw(st.frozensets(st.sampled_from(sorted(ranges.all))))
    keys = ranges.keys_of(chosen)
    for value in VALUES:
        assert keys.holds(value) == (ranges.of(value) in chosen)
    assert ranges.holding(keys) == chosen


@given(maps(), NUMBERS)
def test_merging_undoes_a_split(ranges: RangeMap, at: int) -> None:
    if at in ranges.bounds:
        with pytest.raises(ConfigError, match="is a bound already"):
            ranges.split(at)
    else:
        assert ranges.split(at).merge(ranges.of(at)) == ranges


@given(maps())
def test_a_map_is_what_the_ledger_says_of_it(ranges: RangeMap) -> None:
    assert RangeMap.from_body(ranges.body()) == ranges


@pytest.mark.parametrize(
    ("kind", "bounds"),
    [
        ("date", (date(2024, 1, 1), date(2025, 1, 1))),
        ("timestamp", (datetime(2024, 1, 1, 2, tzinfo=UTC), datetime(2024, 1, 1, 2, 0, 0, 1, tzinfo=UTC))),
        ("text", ("a", "b\u00e9", "\uffff", "\U0001f600")),
    ],
)
def test_bounds_of_each_kind_come_back_from_the_ledger(kind: str, bounds: tuple[object, ...]) -> None:
    ranges = RangeMap(kind, bounds)  # type: ignore[arg-type]
    assert RangeMap.from_body(ranges.body()) == ranges
    assert [ranges.of(bound) for bound in bounds] == list(range(1, len(bounds) + 1))  # type: ignore[arg-type]


@given(st.text(st.characters(codec="utf-8")), st.text(st.characters(codec="utf-8")))
def test_text_is_ordered_by_its_bytes(one: str, other: str) -> None:
    assert (one < other) == (one.encode() < other.encode())


def test_bounds_out_of_order_are_refused() -> None:
    with pytest.raises(ConfigError, match="not in order: 3, 2"):
        RangeMap("integer", (3, 2))


def test_a_bound_of_another_type_is_refused() -> None:
    with pytest.raises(ConfigError, match="'x' is no integer"):
        parse("integer", "x")


def test_only_types_whose_order_all_agree_on_have_ranges() -> None:
    assert kind_of("double") is None
    assert kind_of("string collate UNICODE_CI") is None
    assert kind_of("decimal(10,2)") is None
    assert kind_of("bigint") == "integer"


@given(st.lists(NUMBERS, min_size=1, max_size=40).map(sorted), st.integers(1, 8))
def test_even_bounds_never_leave_the_first_range_empty(values: list[int], count: int) -> None:
    ranges = RangeMap("integer", even_bounds(values, count))
    assert ranges.count <= count
    assert {ranges.of(value) for value in values} == set(range(ranges.count))


def test_a_bound_beyond_64_bits_is_refused() -> None:
    with pytest.raises(ConfigError, match="is no integer"):
        parse("integer", str(1 << 63))
