"""Maintenance jobs: cuts through the sources, in a chain.

A job is a vector of source positions, labelled with the instant at which headgate's clock was read before the sources
were asked. Everything acknowledged at a source before that instant is in the job or in an earlier one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from headgate.delta.changes import BEGINNING, NO_JOB, JobId
from headgate.errors import SnapshotGone


@dataclass(frozen=True, slots=True)
class Job:
    id: JobId
    data_timestamp: datetime
    cut: Mapping[str, int]
    """Position per source; a source that is not named stands at 0."""
    newest_commit_at: datetime | None
    """The latest commit time of any transaction up to the cut."""
    as_of: Mapping[str, datetime] = field(default_factory=dict)
    """Per source an instant of headgate's clock: what the source had acknowledged before it is in the job."""
    closed_at: datetime | None = None
    rows: int | None = None
    """Source changes that it holds; unknown, as is when it was closed, of a job from before that was noted."""

    def body(self) -> dict[str, Any]:
        newest = self.newest_commit_at
        return {
            "id": self.id,
            "data_timestamp": self.data_timestamp.isoformat(),
            "cut": dict(self.cut),
            "newest_commit_at": newest.isoformat() if newest is not None else None,
            "as_of": {source: at.isoformat() for source, at in self.as_of.items()},
            "closed_at": self.closed_at.isoformat() if self.closed_at is not None else None,
            "rows": self.rows,
        }

    @staticmethod
    def from_body(body: Mapping[str, Any]) -> Job:
        newest, closed = body["newest_commit_at"], body.get("closed_at")
        return Job(
            JobId(body["id"]),
            datetime.fromisoformat(body["data_timestamp"]),
            dict(body["cut"]),
            datetime.fromisoformat(newest) if newest is not None else None,
            {source: datetime.fromisoformat(at) for source, at in body.get("as_of", {}).items()},
            datetime.fromisoformat(closed) if closed is not None else None,
            body.get("rows"),
        )


class JobChain:
    """The closed jobs in order; ids are consecutive, from 1 or the oldest that anything still stands at."""

    def __init__(self) -> None:
        self._jobs: list[Job] = []
        self._instants: dict[str, dict[int, datetime]] = {}
        """Per source and position the latest instant for which a job that ends there is known to be true."""

    @property
    def newest(self) -> JobId:
        return self._jobs[-1].id if self._jobs else NO_JOB

    def add(self, job: Job) -> None:
        if self._jobs and job.id != self.newest + 1:
            raise ValueError(f"job {job.id} does not follow job {self.newest}")
        self._jobs.append(job)
        self._know(job.as_of)

    @property
    def oldest(self) -> JobId:
        """The oldest job that is known; 1 before the first."""
        return self._jobs[0].id if self._jobs else JobId(1)

    def get(self, job: JobId) -> Job:
        jobs = self._jobs
        if not jobs or not jobs[0].id <= job < jobs[0].id + len(jobs):
            raise SnapshotGone(
                f"there is no job {job}",
                hint=f"jobs {jobs[0].id} to {jobs[-1].id} exist" if jobs else "no job was closed yet",
            )
        return jobs[job - jobs[0].id]

    def forget_before(self, job: JobId) -> None:
        """Nothing stands at an earlier job any more; the newest one stays in any case."""
        gone = min(job, self.newest) - self.oldest
        if gone > 0:
            self._jobs = self._jobs[gone:]
            for source, instants in self._instants.items():
                held = {self.position(source, each.id) for each in self._jobs}
                self._instants[source] = {position: at for position, at in instants.items() if position in held}

    def confirm(self, as_of: Mapping[str, datetime]) -> None:
        """No source has committed anything since the newest job's cut, up to these instants: idle is not stale."""
        self._know(as_of)

    def _know(self, as_of: Mapping[str, datetime]) -> None:
        for source, at in as_of.items():
            position = self.position(source, self.newest)
            instants = self._instants.setdefault(source, {})
            # Positions only grow, and a later one holds what an earlier one does.
            instants[position] = max(at, next(reversed(instants.values()), at))

    def as_of(self, job: JobId, source: str) -> datetime:
        """The instant up to which the job holds what the source acknowledged; for a given job, it never goes back."""
        return self._instants.get(source, {}).get(self.position(source, job), BEGINNING)

    def newest_commit_at(self, job: JobId) -> datetime | None:
        return None if job <= NO_JOB else self.get(job).newest_commit_at

    def position(self, source: str, job: JobId) -> int:
        return 0 if job <= NO_JOB else self.get(job).cut.get(source, 0)

    def job_positions(self, source: str, after: JobId, upto: JobId) -> list[tuple[JobId, int]]:
        """For each job in (after, upto] the source's position at its cut."""
        return [(job, self.position(source, job)) for job in map(JobId, range(max(after, NO_JOB) + 1, upto + 1))]
