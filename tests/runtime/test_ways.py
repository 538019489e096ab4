"""Which way a batch is taken, and why."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from headgate.runtime.stages.ways import StageCosts, Way, Ways, cheapest

NARROW, WIDE, RECOMPUTE = Way


@pytest.mark.parametrize(
    ("seconds", "rows", "chosen"),
    [
        ({NARROW: 1.0, WIDE: 2.0, RECOMPUTE: 3.0}, 10, NARROW),
        ({NARROW: 2.0, WIDE: 1.0, RECOMPUTE: 3.0}, 10, WIDE),
        ({NARROW: 2.0, WIDE: 3.0, RECOMPUTE: 1.0}, 10, RECOMPUTE),
        ({NARROW: 1.0, WIDE: 2.0}, 99, NARROW),
        # Rows that the driver may not hold are never narrow; to recompute takes being cheaper.
        ({NARROW: 1.0, WIDE: 2.0, RECOMPUTE: 3.0}, 100, WIDE),
        ({NARROW: 1.0, WIDE: 2.0, RECOMPUTE: 1.5}, 100, RECOMPUTE),
        ({NARROW: 1.0, WIDE: 2.0}, 100, WIDE),
    ],
)
def test_the_way_that_takes_least_is_chosen(seconds: dict[Way, float], rows: int, chosen: Way) -> None:
    choice = cheapest(seconds, rows, most_rows=100)
    assert choice.way is chosen
    assert f"{rows} changed rows" in choice.reason and f"{chosen} about {seconds[chosen]:.1f} s" in choice.reason
    assert ("limits.batch_rows" in choice.reason) is (rows >= 100)


def test_a_forced_way_is_taken_wherever_it_is_possible() -> None:
    ways = Ways(100, RECOMPUTE)
    assert ways.choose("flow", 1, recomputed_rows=10).way is RECOMPUTE
    assert ways.choose_for_events("replica", 1, 0).way is NARROW
    ways.forced = WIDE
    assert ways.choose_for_events("replica", 1, 0).way is WIDE
    ways.forced = NARROW
    assert ways.choose("flow", 100, recomputed_rows=10).way is not NARROW
    assert ways.choose_for_events("replica", 100, 0).way is WIDE


def test_of_a_stage_of_which_nothing_is_known_few_rows_are_narrow_and_many_of_a_large_table_wide() -> None:
    ways = Ways(250_000)
    assert ways.choose("flow", 600, recomputed_rows=1_000_000).way is NARROW
    assert ways.choose("flow", 200_000, recomputed_rows=300_000).way is not NARROW
    assert ways.choose("flow", 600_000, recomputed_rows=30_000_000).way is WIDE
    assert ways.choose("flow", 600_000, recomputed_rows=600_000).way is RECOMPUTE


def test_a_replica_is_narrow_while_the_driver_may_hold_its_events_and_its_dimensions_take_its_way() -> None:
    ways = Ways(100)
    assert [ways.choose_for_events("replica", rows, 0).way for rows in (99, 100)] == [NARROW, WIDE]
    assert str(ways.choose_for_events("replica", 9, 7)) == "wide: 7 of 9 changes came in files"
    ways.follow("dimension", "replica")
    assert str(ways.last["dimension"]) == "wide: as replica, 7 of 9 changes came in files"


def test_jobs_are_recomputed_one_by_one_and_cost_so_much() -> None:
    ways = Ways(10_000_000)
    assert ways.choose("flow", 100_000, recomputed_rows=100_000, jobs=50).way is not RECOMPUTE


def test_estimates_follow_what_batches_took() -> None:
    learnt = StageCosts()
    for _ in range(50):
        for rows in (100, 1_000, 100_000):
            learnt = learnt.with_one(NARROW, rows, 0.5 + rows * 1e-4, 10_000)
    for rows in (10, 1_000, 50_000, 400_000):
        assert learnt.estimate(NARROW, rows, 10_000) == pytest.approx(0.5 + rows * 1e-4, rel=0.2)


def test_small_batches_tell_little_about_large_ones() -> None:
    for seconds in (0.1, 4.0):
        learnt = StageCosts()
        before = _per_million(learnt)
        for _ in range(100):
            learnt = learnt.with_one(WIDE, 500, seconds, 10_000)
        assert learnt.estimate(WIDE, 500, 10_000) == pytest.approx(seconds, rel=0.2)
        assert _per_million(learnt) == pytest.approx(before, rel=0.2)


def _per_million(learnt: StageCosts) -> float:
    return learnt.estimate(WIDE, 1_000_000, 10_000) - learnt.estimate(WIDE, 0, 10_000)


def test_a_wide_batch_is_expected_to_scan_its_tables_until_it_is_known_how_long_that_takes() -> None:
    few, many = 10_000, 10_000_000
    learnt = StageCosts()
    assert learnt.estimate(WIDE, 100, many) > 2 * learnt.estimate(WIDE, 100, few)
    for _ in range(30):
        learnt = learnt.with_one(WIDE, 100, 1.0, many)
    assert 1.0 <= learnt.estimate(WIDE, 100, many) < 1.5


def test_a_way_that_was_not_tried_is_expected_to_be_as_slow_as_those_that_were() -> None:
    """Else a busy machine, or a flow with many joins, would make a stage leave the way that suits it."""
    ways = Ways(10_000_000)
    for _ in range(30):
        ways.took("slow", NARROW, 50, 15.0, scanned=1_000)
    assert ways.choose("slow", 50, recomputed_rows=1_000).way is NARROW


def test_what_was_learnt_survives_and_a_damaged_file_does_no_harm(tmp_path: Path) -> None:
    file = tmp_path / "costs.json"
    ways = Ways(10_000_000, file=file)
    for _ in range(30):
        ways.took("slow", NARROW, 1_000, 60.0, scanned=10**9)
        ways.took("slow", WIDE, 1_000, 2.0, scanned=10**9)
    assert ways.choose("slow", 1_000, recomputed_rows=10**9).way is WIDE
    ways.keep()
    assert Ways(10_000_000, file=file).choose("slow", 1_000, recomputed_rows=10**9) == ways.last["slow"]
    file.write_bytes(file.read_bytes().replace(b"slow", b"swol"))
    assert Ways(10_000_000, file=file).choose("slow", 1_000, recomputed_rows=10**9).way is NARROW


def test_what_was_measured_once_counts_as_it_was(tmp_path: Path) -> None:
    ways = Ways(1000, file=tmp_path / "costs.json")
    assert ways.average("v as written", Way.RECOMPUTE, 1_500_000) is None
    ways.took("v as written", Way.RECOMPUTE, 1_500_000, 0.3, scanned=1_500_000)
    ways.keep()
    for each in (ways, Ways(1000, file=tmp_path / "costs.json")):
        for rows, seconds in ((1_500_000, 0.3), (3_000_000, 0.6)):
            found = each.average("v as written", Way.RECOMPUTE, rows)
            assert found is not None and math.isclose(found, seconds)
