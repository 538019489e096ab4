"""Values and measures are told exactly, briefly, and never steer a terminal."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

from headgate.cli.texts import shown
from headgate.measures import count_text, duration_text, size_text
from headgate.tabular import plain


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (True, True),
        (12, 12),
        (1.5, 1.5),
        (math.nan, "NaN"),
        (-math.inf, "-Infinity"),
        (Decimal("0.10"), "0.10"),
        (Decimal("1E+3"), "1000"),
        (date(2024, 2, 29), "2024-02-29"),
        (datetime(2024, 1, 1, tzinfo=UTC), "2024-01-01T00:00:00+00:00"),
        (b"\x00\xff", "AP8="),
        ({"a": [Decimal(1)]}, {"a": ["1"]}),
    ],
)
def test_values_have_a_form_in_json(value: object, expected: object) -> None:
    assert plain(value) == expected


def test_values_in_a_table_are_one_line_and_printable() -> None:
    assert shown(None) == "NULL"
    assert shown(False) == "false"
    assert shown(b"\x00\xff") == "00ff"
    assert shown([1, None]) == "[1, null]"
    assert shown("a\nb\x1b[31m") == "a\\nb\\x1b[31m"
    assert shown("Zürich 東京") == "Zürich 東京"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "–"),
        (0, "0 s"),
        (0.04, "40 ms"),
        (3.24, "3.24 s"),
        (60, "1 min"),
        (0.0003, "300 µs"),
        (86_399.7, "1 d"),
        (3723, "1 h 2 min"),
        (7500, "2 h 5 min"),
        (90_000, "1 d 1 h"),
    ],
)
def test_durations(seconds: float | None, text: str) -> None:
    assert duration_text(seconds) == text


def test_sizes_and_counts() -> None:
    assert size_text(0) == "0 bytes"
    assert size_text(1536) == "1.5 KiB"
    assert size_text(300 << 20) == "300 MiB"
    assert size_text(None) == "–"
    assert count_text(1, "row") == "1 row"
    assert count_text(12_000, "row") == "12,000 rows"
