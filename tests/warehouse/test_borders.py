"""Cutting rows into parts by what statistics tell of them."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headgate.warehouse.borders import RowsBetween, borders, part_text


def test_pieces_side_by_side_are_cut_into_equal_parts() -> None:
    pieces = [RowsBetween(0, 99, 1_000), RowsBetween(100, 199, 3_000)]
    assert borders(pieces, 4) == [100, 133, 166]


def test_new_rows_behind_all_others_are_spread_over_parts_too() -> None:
    assert borders([RowsBetween(0, 9_999, 1_000), RowsBetween(10_000, 19_999, 3_000)], 4) == [10_000, 13_333, 16_666]


def test_one_value_cannot_be_cut() -> None:
    assert borders([RowsBetween(7, 7, 1_000_000)], 4) == []
    assert borders([], 4) == []


@given(
    st.lists(st.tuples(st.integers(-(2**62), 2**62), st.integers(0, 2**61), st.integers(1, 10**6)), min_size=1),
    st.integers(1, 40),
)
def test_borders_ascend_and_each_part_has_a_value(found: list[tuple[int, int, int]], parts: int) -> None:
    pieces = [RowsBetween(low, low + width, rows) for low, width, rows in found]
    cuts = borders(pieces, parts)
    assert len(cuts) < parts
    assert cuts == sorted(set(cuts))
    assert all(cut > min(piece.low for piece in pieces) for cut in cuts)


def test_every_value_belongs_to_the_part_between_its_borders() -> None:
    cuts = [10, 20, 30, 40, 50]
    text = part_text("v", cuts).replace("L", "")
    for value in range(60):
        assert _value(text, value) == int(np.searchsorted(cuts, value, side="right"))


def _value(text: str, value: int) -> int:
    """The text's value, with IF as Python writes it."""
    found = eval(text.replace("IF(", "choose("), {"v": value, "choose": lambda holds, yes, no: yes if holds else no})
    assert isinstance(found, int)
    return found
