"""The chain of jobs: what each is true of, and what is forgotten."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from headgate.delta.changes import BEGINNING, JobId
from headgate.errors import SnapshotGone
from headgate.runtime.tables.jobs import Job, JobChain

NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)


def chain(*positions: int) -> JobChain:
    found = JobChain()
    for number, position in enumerate(positions, start=1):
        at = NOON + timedelta(minutes=number)
        found.add(Job(JobId(number), at, {"a": position}, at, {"a": at}))
    return found


def test_an_idle_source_makes_its_newest_jobs_fresher() -> None:
    jobs = chain(10, 20, 20)
    later = NOON + timedelta(hours=1)
    jobs.confirm({"a": later})
    assert jobs.as_of(JobId(1), "a") == NOON + timedelta(minutes=1)
    # Job 2 ends where the newest does, so nothing is missing from it either.
    assert jobs.as_of(JobId(2), "a") == jobs.as_of(JobId(3), "a") == later
    jobs.confirm({"a": NOON})
    assert jobs.as_of(JobId(3), "a") == later
    assert jobs.as_of(JobId(0), "a") == BEGINNING


def test_what_a_job_is_true_for_never_goes_back() -> None:
    jobs = chain(10)
    idle = NOON + timedelta(hours=1)
    jobs.confirm({"a": idle})
    jobs.add(Job(JobId(2), NOON, {"a": 20}, NOON, {"a": NOON}))
    assert jobs.as_of(JobId(2), "a") == idle
    later = NOON + timedelta(hours=2)
    jobs.confirm({"a": later})
    assert (jobs.as_of(JobId(1), "a"), jobs.as_of(JobId(2), "a")) == (idle, later)
    jobs.forget_before(JobId(2))
    assert jobs.as_of(JobId(2), "a") == later


def test_jobs_survive_the_ledger() -> None:
    job = chain(10).get(JobId(1))
    assert Job.from_body(job.body()) == job


def test_forgotten_jobs_are_gone_and_the_rest_keep_their_ids() -> None:
    jobs = chain(10, 20, 30, 40)
    jobs.forget_before(JobId(3))
    assert (jobs.oldest, jobs.newest) == (3, 4)
    assert jobs.position("a", JobId(3)) == 30
    assert jobs.job_positions("a", JobId(3), JobId(4)) == [(4, 40)]
    with pytest.raises(SnapshotGone, match="jobs 3 to 4 exist"):
        jobs.get(JobId(2))
    jobs.forget_before(JobId(9))
    assert (jobs.oldest, jobs.newest) == (4, 4)
    jobs.add(Job(JobId(5), NOON, {"a": 50}, NOON))
    assert jobs.newest == 5
