"""Clocks tell instants in UTC."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from headgate.clock import Clock, ManualClock, SystemClock


def test_the_system_clock_is_in_utc() -> None:
    clock: Clock = SystemClock()
    assert clock.now().utcoffset() == timedelta(0)


def test_a_manual_clock_moves_only_when_told_and_never_back() -> None:
    clock = ManualClock(datetime(2024, 1, 1, 2, tzinfo=timezone(timedelta(hours=2))))
    assert clock.now() == datetime(2024, 1, 1, tzinfo=UTC)
    assert clock.now().tzinfo is UTC
    assert clock.advance(timedelta(seconds=5)) == clock.now()
    clock.set(datetime(2024, 1, 2, tzinfo=UTC))
    with pytest.raises(ValueError, match="does not go back"):
        clock.set(datetime(2024, 1, 1, tzinfo=UTC))
    with pytest.raises(ValueError, match="does not go back"):
        clock.advance(timedelta(seconds=-1))
    with pytest.raises(ValueError, match="time zone"):
        ManualClock(datetime(2024, 1, 1))
