"""Decisions of the workload scheduler, as pure functions: which snapshot serves a query, which cuts serve all that wait,
when a job runs without a query, and when tables are materialized. Each decision says why.

A cut takes as long as its slowest source takes to deliver, and cuts follow one another, so with p the time that a need's
sources take by themselves

    a cut of needs N takes max(p(n) for n in N), and cut k is done at the sum of the first k

Needs whose p is not larger ride along for nothing; what remains to choose is where to end each cut (see `plan_cuts`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from headgate.config.durations import format_duration
from headgate.delta.changes import NO_JOB, JobId

_LATEST = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Need:
    """What a query needs of its sources."""

    query: int
    sources: frozenset[str]
    since: datetime
    """Everything acknowledged before this instant must be in; the beginning of time for a query that takes any snapshot."""
    deadline: datetime | None
    tables: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Offer:
    """A closed job that could serve a query."""

    job: JobId
    as_of: Mapping[str, datetime]
    """Per source the instant before which everything acknowledged is in the job."""
    complete: bool
    """All tables of the query have reached it and can be read there."""

    def satisfies(self, need: Need) -> bool:
        if not need.sources:
            return True
        return self.job > NO_JOB and all(
            source in self.as_of and self.as_of[source] >= need.since for source in need.sources
        )


@dataclass(frozen=True, slots=True)
class ReuseJob:
    """Read this job: nothing has to be done."""

    job: JobId
    reason: str


@dataclass(frozen=True, slots=True)
class JoinJob:
    """Wait for this job, which is closed but not complete."""

    job: JobId
    reason: str


@dataclass(frozen=True, slots=True)
class CloseJob:
    """Close the open job and wait for it."""

    reason: str


def choose(need: Need, floor: JobId, offers: Sequence[Offer]) -> ReuseJob | JoinJob | CloseJob:
    """The newest complete job that satisfies, else the oldest closed one, else a new cut; never behind the floor."""
    fit = [offer for offer in offers if offer.job >= floor and offer.satisfies(need)]
    complete = [offer.job for offer in fit if offer.complete]
    if complete:
        return ReuseJob(max(complete), f"job {max(complete)} is complete and fresh enough")
    if fit:
        oldest = min(offer.job for offer in fit)
        return JoinJob(oldest, f"job {oldest} is fresh enough and being processed")
    if any(offer.satisfies(need) for offer in offers):
        return CloseJob(f"the session has seen job {floor} already")
    behind = sorted(
        source
        for source in need.sources
        if not any(offer.as_of.get(source, need.since) >= need.since for offer in offers)
    )
    return CloseJob(
        f"no job contains everything that {', '.join(behind)} has committed"
        if behind
        else "no job holds all that is needed"
    )


@dataclass(frozen=True, slots=True)
class PlannedCut:
    """Sources to ask for their position, all to be captured up to there, and the needs that this answers."""

    sources: frozenset[str]
    needs: tuple[Need, ...]
    """The earliest deadline first."""
    reason: str


def plan_cuts(
    needs: Sequence[Need], now: datetime, capture_seconds: Mapping[str, float], captured: Mapping[str, datetime]
) -> tuple[PlannedCut, ...]:
    """The fewest cuts, in order, with which every need that can meet its deadline does.

    A source is not asked when what is captured suffices for every need of the cut. Where not all deadlines can be met, the
    earlier ones are; a need that will be late anyway delays nobody. Cuts then follow in the order of their first deadline:
    a later one with an earlier deadline could be merged into its predecessor.
    """
    if not needs:
        return ()
    seconds = {need: _own_seconds(need, capture_seconds, captured) for need in needs}
    in_order = sorted(needs, key=lambda need: (need.deadline or _LATEST, need.query))
    limits = dict.fromkeys(sorted(set(seconds.values())), float("inf"))
    ends = _fewest(limits)
    for need in in_order:
        if need.deadline is None:
            continue
        # Needs of equal cost are always in one cut: only the earliest deadline among them counts.
        left = (need.deadline - now).total_seconds()
        tighter = {**limits, seconds[need]: min(left, limits[seconds[need]])}
        possible = _fewest(tighter)
        if possible is not None:
            limits, ends = tighter, possible
    assert ends is not None
    cuts: list[PlannedCut] = []
    taken = float("-inf")
    for end in ends:
        served = tuple(need for need in in_order if taken < seconds[need] <= end)
        cuts.append(_cut(served, now, captured, end))
        taken = end
    return tuple(cuts)


def _to_ask(need: Need, captured: Mapping[str, datetime]) -> frozenset[str]:
    return frozenset(source for source in need.sources if source not in captured or captured[source] < need.since)


def _own_seconds(need: Need, capture_seconds: Mapping[str, float], captured: Mapping[str, datetime]) -> float:
    return max((capture_seconds.get(source, 0.0) for source in _to_ask(need, captured)), default=0.0)


def _fewest(limits: Mapping[float, float]) -> tuple[float, ...] | None:
    """Where to end each cut, given the costs in ascending order with the time by which each must be done; None if impossible.

    `best[j]` has, by number of cuts, the earliest end of cuts that hold the first j costs and where they end.
    """
    costs = list(limits)
    best: list[dict[int, tuple[float, tuple[float, ...]]]] = [{0: (0.0, ())}]
    for j in range(1, len(costs) + 1):
        found: dict[int, tuple[float, tuple[float, ...]]] = {}
        for i in range(j):
            limit = min(limits[cost] for cost in costs[i:j])
            for count, (end, ends) in best[i].items():
                done = end + costs[j - 1]
                if done <= limit and (count + 1 not in found or done < found[count + 1][0]):
                    found[count + 1] = (done, (*ends, costs[j - 1]))
        best.append(found)
    return best[-1][min(best[-1])][1] if best[-1] else None


def _cut(needs: tuple[Need, ...], now: datetime, captured: Mapping[str, datetime], seconds: float) -> PlannedCut:
    sources = frozenset[str]().union(*(_to_ask(need, captured) for need in needs))
    what = f"{len(needs)} waiting" if len(needs) > 1 else "a query waits"
    asked = f"ask {', '.join(sorted(sources))}, about {seconds:.3f} s" if sources else "what is captured suffices"
    first = needs[0].deadline
    by = f"; the first deadline is in {(first - now).total_seconds():.3f} s" if first is not None else ""
    return PlannedCut(sources, needs, f"{what}: {asked}{by}")


@dataclass(frozen=True, slots=True)
class TableGoal:
    """A table with a `target_lag`, or one that somebody follows."""

    table: str
    target_lag: timedelta
    as_of: datetime
    """What the table reflects now."""
    takes: timedelta = timedelta(0)
    """How long bringing it up to date is expected to take."""
    is_followed: bool = False
    """Whether the goal is that of a subscription."""


@dataclass(frozen=True, slots=True)
class Workload:
    """What the scheduler sees when no query makes it act."""

    waiting: int
    """Queries that wait for a snapshot."""
    asked_at: datetime
    """When the last query came, or the warehouse was opened."""
    unprocessed_bytes: Mapping[str, int]
    """Per source, captured but in no job that is complete or being worked on."""
    goals: Sequence[TableGoal] = ()


@dataclass(frozen=True, slots=True)
class SystemJobSettings:
    stream_bytes: int
    """Per source: beyond it a job runs whoever waits."""
    idle_after: timedelta = timedelta(seconds=30)


@dataclass(frozen=True, slots=True)
class SystemJob:
    """A job that no query asked for: what it brings up to date, and why, in words that nothing is decided by."""

    reason: str
    tables: frozenset[str] | None = None
    """None is every table."""


def system_job(activity: Workload, settings: SystemJobSettings, now: datetime) -> SystemJob | None:
    """The job that should run without a query; None when none should. Only the stream limit does not wait for queries."""
    held, fullest = max(((held, name) for name, held in activity.unprocessed_bytes.items()), default=(0, ""))
    if held > settings.stream_bytes:
        return SystemJob(f"the stream of {fullest} holds {held:,} bytes, more than {settings.stream_bytes:,}")
    if activity.waiting:
        return None
    due = [goal for goal in activity.goals if now + goal.takes >= goal.as_of + goal.target_lag]
    if due:
        first = min(due, key=lambda goal: goal.as_of + goal.target_lag - goal.takes)
        others = f", and {len(due) - 1} more" if len(due) > 1 else ""
        goal = "a subscription's bound" if first.is_followed else "its target_lag"
        reason = f"{first.table} would fall behind {goal} of {format_duration(first.target_lag)}{others}"
        return SystemJob(reason, frozenset(goal.table for goal in due))
    if held > 0 and now - activity.asked_at >= settings.idle_after:
        return SystemJob(f"no query came for {format_duration(settings.idle_after)} and {fullest} has changes")
    return None


@dataclass(frozen=True, slots=True)
class Overlays:
    """Changes of all tables that are in memory only."""

    bytes: int
    oldest_at: datetime | None
    """When the oldest of them came; None when there is none."""
    waiting: int
    """Queries that wait for a snapshot, or whose rows are being read."""
    asked_at: datetime
    """When the last query came, or the warehouse was opened."""
    has_files: bool = False
    """Whether some lie in files, which are slower to read than a base."""


@dataclass(frozen=True, slots=True)
class MaterializationSettings:
    overlay_bytes: int
    oldest: timedelta = timedelta(minutes=10)
    """How old changes become in memory; a crash makes them anew from the stream logs."""
    idle_after: timedelta = timedelta(seconds=30)
    idle_bytes: int = 1 << 20
    """Less is not worth a commit of every table."""


_AFTER_QUERY = timedelta(seconds=2)
"""Folding a bulk load takes what queries need, for a while: where one came a moment ago, the next may follow."""


def materialization(overlays: Overlays, settings: MaterializationSettings, now: datetime) -> str | None:
    """Why tables should be materialized now; None when they should not."""
    if overlays.oldest_at is None:
        return None
    if overlays.bytes > settings.overlay_bytes:
        return f"{overlays.bytes:,} bytes of changes are in memory, more than {settings.overlay_bytes:,}"
    if now - overlays.oldest_at >= settings.oldest:
        return f"changes are in memory for {format_duration(settings.oldest)}"
    if overlays.has_files and not overlays.waiting and now - overlays.asked_at >= _AFTER_QUERY:
        # Queries that wait need the processors for the flows over what was loaded.
        return "a bulk load is to be folded"
    is_idle = not overlays.waiting and now - overlays.asked_at >= settings.idle_after
    if is_idle and overlays.bytes >= settings.idle_bytes:
        return f"no query came for {format_duration(settings.idle_after)}"
    return None
