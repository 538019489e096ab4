"""When answers are kept: asked at several jobs, slow to read, and quicker to move on."""

from __future__ import annotations

from headgate.runtime.reading.keeping import PAUSE, Observed, choose


def asked(jobs: int, read: float) -> Observed:
    observed = Observed()
    for job in range(jobs):
        observed.ask(job)
        observed.read_seconds.append(read)
    return observed


def test_the_first_answers_are_read_as_written() -> None:
    assert [choose(asked(jobs, 1.0)).keep for jobs in range(5)] == [False, False, False, True, True]


def test_asks_at_one_job_count_once() -> None:
    observed = asked(1, 1.0)
    for _ in range(10):
        observed.ask(0)
    assert choose(observed) == (False, "asked at 1 jobs, kept after 2")


def test_quick_answers_are_not_kept() -> None:
    assert choose(asked(9, 0.05)) == (False, "it is read in 0.05 s")


def test_what_takes_longer_to_move_on_than_to_read_is_not_kept() -> None:
    observed = asked(9, 0.5)
    for seconds in (2.0, 0.7, 0.9):
        assert choose(observed).keep
        observed.moved_seconds.append(seconds)
    assert choose(observed) == (False, "moving it on takes 0.70 s, reading it 0.50 s")
    observed.moved_seconds.append(0.2)
    assert choose(observed).keep


def test_what_failed_is_tried_again_later() -> None:
    observed = asked(9, 0.5)
    observed.pause("it could not be kept: Error")
    for _ in range(PAUSE - 1):
        observed.ask(20)
        assert not choose(observed).keep
    observed.ask(20)
    assert choose(observed).keep


def test_what_can_never_be_kept_is_not_tried() -> None:
    observed = asked(9, 0.5)
    observed.refused = "it is not made of sums per group"
    assert choose(observed) == (False, "it is not made of sums per group")
