"""Tables of text are aligned, cut to a width, and written as their rows come."""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from headgate.cli.table import MEASURED_ROWS, fitted, table_lines


def test_a_table_is_aligned() -> None:
    lines = list(table_lines(["item", "total"], [("tea", 3), ("coffee", None)], right=[False, True]))
    assert lines == ["item    total", "──────  ─────", "tea         3", "coffee   NULL", "(2 rows)"]


def test_without_rows_there_is_the_heading() -> None:
    assert list(table_lines(["item"], [])) == ["item", "────", "(0 rows)"]


def test_long_values_are_cut_and_columns_without_room_are_named() -> None:
    names = [f"column{number}" for number in range(10)]
    lines = list(table_lines(names, [["x" * 50] * 10], width=40))
    assert all(cell_len(line) <= 40 for line in lines[:-1])
    assert "…" in lines[2]
    assert lines[-1] == "(1 row, 5 columns not shown: column5, column6, column7, column8, column9)"


def test_width_counts_columns_of_the_terminal() -> None:
    rows = [("東京都市", 1), ("e\u0301", 2), ("👍🏽", 3)]
    lines = list(table_lines(["city", "n"], rows, width=9))
    assert lines[2:5] == ["東京 …  1", "e\u0301       2", "👍🏽      3"]


def test_without_a_width_nothing_is_cut() -> None:
    rows = [["a"]] * MEASURED_ROWS + [["a" * 200]]
    assert "a" * 200 in list(table_lines(["name"], rows))


def test_rows_are_written_before_the_last_one_has_come() -> None:
    taken = 0

    def rows() -> Iterator[tuple[int]]:
        nonlocal taken
        for taken in range(10 * MEASURED_ROWS):
            yield (taken,)

    lines = table_lines(["n"], rows())
    for _ in range(3):
        next(lines)
    assert taken < 2 * MEASURED_ROWS


@given(st.lists(st.integers(0, 300), min_size=1, max_size=30), st.integers(10, 200))
def test_widths_fit_and_leave_no_room_unused(widths: list[int], width: int) -> None:
    found = fitted(widths, width)
    assert sum(found) + 2 * (len(found) - 1) <= max(width, found[0])
    assert all(size <= natural for size, natural in zip(found, widths, strict=False))
    if found != widths[: len(found)]:
        assert sum(found) + 2 * (len(found) - 1) >= width - len(found)
