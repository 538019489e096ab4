"""Which way a batch is taken, and why."""

from __future__ import annotations

from headgate.runtime.stages.ways import Way, Ways


def test_rows_that_the_driver_may_not_hold_are_taken_wide() -> None:
    ways = Ways(100)
    assert ways.choose("flow", 99).way is Way.NARROW
    assert ways.choose("flow", 100).way is Way.WIDE


def test_a_forced_way_is_taken_wherever_it_is_possible() -> None:
    ways = Ways(100, Way.RECOMPUTE)
    assert ways.choose("flow", 1, recomputed_rows=10).way is Way.RECOMPUTE
    assert ways.choose("replica", 1).way is Way.NARROW
    ways.forced = Way.WIDE
    assert ways.choose("replica", 1).way is Way.WIDE
