"""What is wanted of the ranges of each stage, and why some of them do not go on.

The executor owns it, and calls it with its lock held.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from headgate.delta.changes import NO_JOB, JobId
from headgate.errors import FlowFailed
from headgate.ranges.range_map import RangeMap, Ranges
from headgate.runtime.stages.replica_stage import ReplicaStage
from headgate.runtime.stages.stage import Stage, unread_of
from headgate.runtime.stages.view_stage import ViewStage
from headgate.runtime.tables.jobs import JobChain


class WantedRanges:
    """Per stage and range the job that is wanted, failures, and ranges that are tried again."""

    def __init__(self, chain: JobChain) -> None:
        self._chain = chain
        self.jobs: dict[str, dict[int, JobId]] = {}
        """By the stage's name, per range."""
        self.breadths: dict[str, dict[int, int]] = {}
        """Of ranges that are wanted, how many the query with the fewest wants."""
        self.failures: dict[str, dict[int, BaseException]] = {}
        self.healing: dict[tuple[str, int], JobId] = {}
        """Ranges of views that failed in a job and are tried again, with this job or a later one, whose data may heal them."""
        self._maps: dict[str, RangeMap] = {}
        """The ranges that the numbers of a stage mean."""

    def want(self, needed: Sequence[tuple[Stage, Ranges]], upto: JobId) -> None:
        """Has the ranges brought to the job, and to a later one where some are to be made anew."""
        upto = self._due(needed, upto)
        for stage, ranges in needed:
            self.number(stage)
            wanted = self.jobs.setdefault(stage.name, {})
            failures = self.failures.get(stage.name, {})
            breadths, throughs = self.breadths.setdefault(stage.name, {}), stage.target.throughs
            for number in ranges:
                tried = wanted.get(number, NO_JOB)
                others = breadths.get(number, len(ranges)) if throughs[number] < tried else len(ranges)
                breadths[number] = min(len(ranges), others)
                # A view may go on where a job's data heal what failed before, a replica when its source goes on.
                if not isinstance(failures.get(number), FlowFailed) or (
                    upto > tried and isinstance(stage, ReplicaStage) and stage.stopped is None
                ):
                    failures.pop(number, None)
                elif upto > tried and isinstance(stage, ViewStage):
                    del failures[number]
                    self.healing[stage.name, number] = JobId(throughs[number] + 2)
                wanted[number] = max(upto, tried)

    def _due(self, needed: Sequence[tuple[Stage, Ranges]], upto: JobId) -> JobId:
        """The job to ask for: missing ranges are made anew at the newest one, before which their tables may be folded."""
        unread: dict[str, Ranges] = {}
        for stage, ranges in needed:
            unread[stage.name] = unread_of(stage, unread)
            # What is not loaded yet keeps nothing from being folded until it is.
            missing = (stage.target.missing.keys() & ranges) - unread[stage.name]
            if missing and isinstance(stage, ViewStage):
                # At the job that failed they would fail again.
                stage.target.cancel_rebuild(frozenset(missing & self.failures.get(stage.name, {}).keys()))
                upto = max(upto, stage.target.schedule_rebuild(frozenset(missing), self._chain))
        return upto

    def number(self, stage: Stage) -> None:
        """Remembers which ranges the numbers of a stage mean."""
        self._maps.setdefault(stage.name, stage.target.range_map)

    def failed(self, stage: Stage, reach: JobId, failed: Mapping[int, BaseException], healing: Collection[int]) -> None:
        """Takes note of ranges that failed on their way to a job, some for the second time."""
        wanted, missing = self.jobs.get(stage.name, {}), stage.target.missing
        for number, error in failed.items():
            may_heal = isinstance(stage, ViewStage) and isinstance(error, FlowFailed) and number not in healing
            if may_heal and wanted.get(number, NO_JOB) > reach:
                # Meanwhile somebody wants a later job, whose data may heal it: tried once, then whoever waits is told.
                self.healing[stage.name, number] = JobId(reach + 1)
                if number in missing:
                    wanted[number] = stage.target.schedule_rebuild(frozenset({number}), self._chain)
            else:
                self.failures.setdefault(stage.name, {})[number] = error

    def resume(self) -> None:
        """Forgets failures: what was wanted is tried again."""
        self.failures.clear()
        self.healing.clear()

    def lost(self, stages: Sequence[Stage]) -> list[tuple[Stage, Ranges, str]]:
        """Ranges of views that failed, or read such ranges, and are not left out yet."""
        lost: dict[str, dict[int, str]] = {}
        found: list[tuple[Stage, Ranges, str]] = []
        for stage in stages:
            if not isinstance(stage, ViewStage):
                continue
            target = stage.target
            mine = {number: gap.reason for number, gap in target.missing.items()}
            known = frozenset(mine)
            if target.division is not None:
                for number, error in self.failures.get(stage.name, {}).items():
                    if isinstance(error, FlowFailed):
                        mine.setdefault(number, error.what)
            for name in stage.inputs:
                for number, reason in lost.get(name, {}).items():
                    for each in frozenset({number}) if name in stage.aligned else target.ranges:
                        mine.setdefault(each, reason)
            lost[stage.name] = mine
            if mine.keys() - known:
                found.append((stage, frozenset(mine.keys() - known), next(iter(mine.values()))))
        return found

    def keep(self, stages: Collection[str]) -> None:
        """Forgets all but these stages."""
        for lost in [name for name in {*self.jobs, *self.failures, *self._maps} if name not in stages]:
            self._maps.pop(lost, None)
            self.jobs.pop(lost, None)
            self.breadths.pop(lost, None)
            self.failures.pop(lost, None)

    def redivide(self, stage: Stage) -> None:
        """Where the ranges of a stage are others now, what was said of old ones is said of those in their place."""
        old, new = self._maps.get(stage.name), stage.target.range_map
        if old is None or old == new:
            return
        alike = old.kind == new.kind or 1 in (old.count, new.count)
        before = {number: new.holding(old.keys_of([number])) if alike and old.bounds else new.all for number in old.all}
        self._maps[stage.name] = new
        wanted: dict[int, JobId] = {}
        for number, job in self.jobs.get(stage.name, {}).items():
            for each in before[number]:
                wanted[each] = max(job, wanted.get(each, job))
        self.jobs[stage.name] = wanted
        self.breadths.pop(stage.name, None)
        failed = self.failures.pop(stage.name, {})
        self.failures[stage.name] = {each: error for number, error in failed.items() for each in before[number]}
        healing = {number: self.healing.pop((stage.name, number), None) for number in old.all}
        for number, due in healing.items():
            for each in before[number] if due is not None else ():
                self.healing[stage.name, each] = max(due or NO_JOB, self.healing.get((stage.name, each), NO_JOB))
