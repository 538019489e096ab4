"""Archives: whole commits in commit order, and times that stay true for whoever was told them."""

from __future__ import annotations

from datetime import timedelta

from headgate.clock import ManualClock
from headgate.producing.archives import Archives
from tests.producing.remote_shelf import START, sale, visit

SECOND = timedelta(seconds=1)


def test_commits_come_out_whole_and_oldest_first() -> None:
    clock = ManualClock(START)
    archives = Archives(clock)
    archives.add([sale(1), visit(10), sale(2)])
    clock.advance(SECOND)
    archives.add([sale(3)])

    first = archives.oldest()
    assert first is not None
    assert (first.number, first.commit_at, first.rows) == (1, START, 3)
    assert [table for table, _ in first.batches] == ["sales", "visits", "sales"]
    assert archives.oldest() is first, "it stays until it is dropped"
    archives.drop(first.number)
    second = archives.oldest()
    assert second is not None and (second.number, second.commit_at) == (2, START + SECOND)


def test_only_what_was_committed_up_to_an_instant_is_given() -> None:
    clock = ManualClock(START)
    archives = Archives(clock)
    archives.add([sale(1)])
    clock.advance(2 * SECOND)
    archives.add([sale(2)])

    assert archives.oldest(START - SECOND) is None
    first = archives.oldest(START)
    assert first is not None and first.number == 1
    archives.drop(1)
    assert archives.oldest(START + SECOND) is None
    assert archives.oldest(START + 2 * SECOND) is not None


def test_what_is_held_is_counted() -> None:
    archives = Archives(ManualClock(START))
    a, b = archives.add([sale(1, 2)]), archives.add([visit(1)])
    assert (len(archives), archives.rows, archives.bytes) == (2, 3, a.bytes + b.bytes)
    archives.drop(1)
    assert (len(archives), archives.rows, archives.bytes) == (1, 1, b.bytes)
    archives.drop(2)
    assert (len(archives), archives.rows, archives.bytes) == (0, 0, 0)


def test_after_an_empty_answer_commits_have_later_times() -> None:
    clock = ManualClock(START)
    archives = Archives(clock)
    assert archives.oldest(START) is None
    assert archives.add([sale(1)]).commit_at > START
    archives.drop(1)
    assert archives.oldest() is None
    assert archives.add([sale(2)]).commit_at > START


def test_an_answer_about_the_future_does_not_move_commits_there() -> None:
    clock = ManualClock(START)
    archives = Archives(clock)
    assert archives.oldest(START + timedelta(days=1)) is None
    assert archives.add([sale(1)]).commit_at < START + SECOND


def test_times_do_not_go_back() -> None:
    clock = ManualClock(START)
    archives = Archives(clock)
    assert archives.add([sale(1)], after=START + SECOND).commit_at == START + SECOND
    assert archives.add([sale(2)]).commit_at == START + SECOND
