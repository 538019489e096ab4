"""Gaps: which jobs of which keys nobody can read, and up to which job a table may be folded meanwhile."""

from __future__ import annotations

from datetime import UTC, date, datetime

from headgate.delta.changes import NO_JOB, JobId
from headgate.ranges.key_set import ALL, above, below, equal_to
from headgate.runtime.tables.gaps import Gap, Gaps

LOW, HIGH = below(10), above(10, inclusive=True)


def test_jobs_of_other_keys_and_from_before_are_known() -> None:
    gaps = Gaps().opened(Gap(LOW, JobId(5), None, "it failed"))
    assert gaps.at(JobId(5)) == []
    assert [gap.reason for gap in gaps.at(JobId(6))] == ["it failed"]
    assert gaps.at(JobId(6), HIGH) == []
    assert gaps.at(JobId(6), equal_to(9)) == gaps.open


def test_a_gap_ends_at_the_job_at_which_its_keys_are_made_anew() -> None:
    gaps = Gaps().opened(Gap(LOW, JobId(5), None, "it failed")).closed(LOW, JobId(9))
    assert gaps.open == []
    assert gaps.at(JobId(8), LOW) and not gaps.at(JobId(9), LOW)
    assert gaps.known_from(JobId(5), LOW) == 9
    assert gaps.known_from(JobId(9), LOW) == gaps.known_from(JobId(5), HIGH) == NO_JOB
    assert gaps.lasting(JobId(8)) and not gaps.lasting(JobId(9))
    assert gaps.since(JobId(8)) == gaps and gaps.since(JobId(9)) == Gaps()


def test_jobs_that_are_skipped_are_said_once_and_leave_what_is_missing_open() -> None:
    gaps = Gaps().opened(Gap(LOW, JobId(5), None, "it failed")).skipped(ALL, JobId(-1), JobId(3), "no rows yet")
    assert gaps.skipped(LOW, JobId(0), JobId(3), "no rows yet") == gaps
    assert gaps.at(JobId(0), HIGH) and not gaps.at(JobId(3), HIGH)
    assert [gap.reason for gap in gaps.lasting(JobId(1))] == ["it failed"]


def test_a_table_is_folded_before_the_job_at_which_keys_are_made_anew() -> None:
    gaps = Gaps().opened(Gap(LOW, JobId(5), None, "it failed")).opened(Gap(HIGH, JobId(6), None, "so did this"))
    assert gaps.durable_job(JobId(20)) == 19
    wanted = gaps.due(LOW, JobId(12))
    assert wanted.durable_job(JobId(20)) == 11
    assert wanted.due(LOW, JobId(20)) == wanted  # what is on its way stays where it is
    assert wanted.due(LOW, None) == gaps
    assert Gaps().durable_job(JobId(20)) == 20


def test_the_ledger_keeps_gaps_of_every_kind_of_key() -> None:
    bounds = [7, date(2026, 1, 31), datetime(2026, 1, 31, 12, tzinfo=UTC), "ä"]
    for keys in (ALL, *(side(bound) for bound in bounds for side in (below, above))):
        gap = Gap(keys, JobId(3), None, "why")
        assert Gap.from_body(gap.body()) == gap


def test_a_gap_without_a_position_is_stored_as_before_and_one_with_a_position_keeps_it() -> None:
    old = Gap(below(10), JobId(5), None, "failed")
    assert set(old.body()) == {"kind", "null", "keys", "after", "reason"} and Gap.from_body(old.body()) == old
    read = Gap(below(10), JobId(-1), None, "loading", read_at=77)
    assert Gap.from_body(read.body()) == read and read.is_first and not old.is_first


def test_a_range_that_was_read_enters_at_the_job_that_is_said_and_holds_folds_back_until_then() -> None:
    gaps = Gaps(
        (Gap(below(10), JobId(-1), None, "loading"), Gap(above(10, inclusive=True), JobId(-1), None, "loading"))
    )
    assert gaps.durable_job(JobId(8)) == 7
    gaps = gaps.entering(below(10), 70, JobId(9))
    assert [gap.read_at for gap in gaps.open] == [70, None]
    # Whoever wants other ranges, or gives them up, changes nothing.
    gaps = gaps.due(ALL, JobId(12)).due(ALL, None)
    assert [gap.due for gap in gaps.open] == [9, None]
    assert gaps.durable_job(JobId(20)) == 8
    gaps = gaps.closed(below(10), JobId(9))
    assert gaps.durable_job(JobId(20)) == 19 and gaps.known_from(JobId(3), below(10)) == 9
    # After a crash before the next fold it enters again, from the same position.
    assert [gap.read_at for gap in gaps.lasting(JobId(8))] == [70, None]
    assert [gap.read_at for gap in gaps.lasting(JobId(9))] == [None]
