"""Durations and sizes as people write them."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.config.durations import format_duration, parse_duration, parse_size


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0s", timedelta(0)),
        ("250ms", timedelta(milliseconds=250)),
        ("30s", timedelta(seconds=30)),
        ("10m", timedelta(minutes=10)),
        ("1h30m", timedelta(hours=1, minutes=30)),
        ("1h 30m", timedelta(hours=1, minutes=30)),
        (" 2d ", timedelta(days=2)),
        ("7us", timedelta(microseconds=7)),
        ("0.3s", timedelta(milliseconds=300)),
        (".5s", timedelta(milliseconds=500)),
        ("1.5h", timedelta(minutes=90)),
        ("1m0.25s", timedelta(minutes=1, milliseconds=250)),
    ],
)
def test_a_duration_is_a_number_with_its_unit(text: str, expected: timedelta) -> None:
    assert parse_duration(text) == expected


@pytest.mark.parametrize(
    "value", [10, 1.5, True, None, "", "10", "m", "10x", "-5s", "30m1h", "1m1m", "1..5h", "0.0000001s", "99999999999d"]
)
def test_anything_else_is_not_a_duration(value: object) -> None:
    with pytest.raises(ValueError):
        parse_duration(value)


@given(st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=4000)))
def test_a_formatted_duration_reads_back_as_itself(value: timedelta) -> None:
    assert parse_duration(format_duration(value)) == value


@pytest.mark.parametrize(
    ("value", "expected"), [(7, 7), ("7", 7), ("2KiB", 2048), ("64 MiB", 64 << 20), ("1GiB", 1 << 30)]
)
def test_a_size_is_bytes_or_has_a_unit(value: object, expected: int) -> None:
    assert parse_size(value) == expected


@pytest.mark.parametrize("value", [True, 1.5, "", "MiB", "1MB", "-1"])
def test_anything_else_is_not_a_size(value: object) -> None:
    with pytest.raises(ValueError):
        parse_size(value)
