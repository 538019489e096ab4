"""Which ranges of a stage can go on, and to which job; called with the executor's lock held."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from headgate.delta.changes import NO_JOB, JobId
from headgate.ranges.key_set import ALL
from headgate.ranges.range_map import Ranges
from headgate.runtime.execution.wanted_ranges import WantedRanges
from headgate.runtime.flows.flow_set import FlowSet
from headgate.runtime.stages.replica_stage import ReplicaStage
from headgate.runtime.stages.stage import Stage, aligned_of, zone_of
from headgate.runtime.tables.gaps import Gap
from headgate.runtime.tables.jobs import JobChain
from headgate.runtime.tables.stored import StoredTable
from headgate.runtime.tables.tables import Tables


class Reaches:
    """How far ranges of stages can go: what is wanted of them, as far as what they read has got."""

    def __init__(self, flows: FlowSet, tables: Tables, chain: JobChain, wanted: WantedRanges) -> None:
        self._flows = flows
        self._tables = tables
        self._chain = chain
        self._wanted = wanted

    def reach(self, stage: Stage, running: Collection[int]) -> tuple[Ranges, JobId] | None:
        """The ranges of the stage that can go on now, and the job that they can go to, but for those on their way.

        Ranges at equal jobs go together, the slowest first. Of these, ranges that somebody wants who does not want all go by
        themselves: whoever wants few does not wait for many. Other ranges of the stage may be on their way meanwhile.
        """
        wanted, failures = self._wanted.jobs.get(stage.name, {}), self._wanted.failures.get(stage.name, {})
        throughs = stage.target.throughs
        behind = [
            number
            for number, job in wanted.items()
            if throughs[number] < job and number not in failures and number not in running
        ]
        if isinstance(stage, ReplicaStage):
            # Ranges that were read enter as soon as a job has them, whether somebody wants them or not: they hold back folding.
            entering = {number for number, gap in stage.target.missing.items() if gap.read_at is not None}
            behind += sorted(entering - failures.keys() - set(running) - set(behind))
        if behind:
            rowless = self.rowless(stage)
            behind = [number for number in behind if number not in rowless]
        if not behind:
            return None
        inputs = {name: self._tables.by_name.get(name) for name in stage.inputs}
        if None in inputs.values():
            return None
        reaches = self._input_reaches(stage, [table for table in inputs.values() if table is not None])
        missing = stage.target.missing
        breadths, most = self._wanted.breadths.get(stage.name, {}), len(throughs)
        groups: dict[tuple[JobId, bool, bool, int, JobId], list[int]] = {}
        known_from: dict[int, JobId] = {}
        for number in behind:
            # The job that failed would fail again: first its inputs go on to the one that may heal it.
            least = self._wanted.healing.get((stage.name, number), throughs[number] + 1)
            group, gap = (breadths.get(number, most) == most, 0, NO_JOB), missing.get(number)
            if gap is not None and isinstance(stage, ReplicaStage):
                # Ranges that were read at one position enter together, all at the same job.
                job = stage.enters_at(gap, self._chain) or self._chain.newest
                groups.setdefault((throughs[number], True, True, gap.read_at or 0, job), []).append(number)
                continue
            if gap is not None:
                least = self._rebuilt_at(stage, number, gap)
                known_from[number] = least
            if min(wanted[number], reaches[number]) >= least:
                groups.setdefault((throughs[number], gap is not None, *group), []).append(number)
        if not groups:
            return None
        start, _, _, _, enters_at = first = min(groups)
        reach = enters_at or min(min(wanted[number], reaches[number]) for number in groups[first])
        zone = zone_of(stage)
        if zone is not None:
            others = [other.target.through for other in self._flows.stages() if zone_of(other) == zone]
            reach = JobId(min(reach, min(others) + 1))
        # A missing range may be due, or what it is made of there, later than at the job that others of the group go to.
        together = frozenset(number for number in groups[first] if known_from.get(number, NO_JOB) <= reach)
        return (together, reach) if reach > start else None

    def _input_reaches(self, stage: Stage, inputs: Sequence[StoredTable]) -> list[JobId]:
        """By range of the stage the job that what it reads has reached."""
        aligned, newest = aligned_of(stage), self._chain.newest
        whole = min((table.through for table in inputs if table.name not in aligned), default=newest)
        parts = [table.throughs for table in inputs if table.name in aligned]
        return [min([whole, *(part[number] for part in parts)]) for number in range(len(stage.target.ranges))]

    def _rebuilt_at(self, stage: Stage, number: int, gap: Gap) -> JobId:
        """The job at which a missing range of a view is made anew at the earliest: the one that is scheduled, and of a range that was
        never known the first at which its inputs have all rows; a later one than any while none is scheduled."""
        least = gap.due or JobId(self._chain.newest + 1)
        if not gap.is_first:
            return least
        aligned, keys = aligned_of(stage), stage.target.range_map.keys_of([number])
        tables = [table for name in stage.inputs if (table := self._tables.by_name.get(name)) is not None]
        return max([least, *(table.gaps.known_from(least, keys if table.name in aligned else ALL) for table in tables)])

    def is_unscheduled(self, stage: Stage, number: int) -> bool:
        """Whether a range that was never known could not be made when it was last wanted: the next who wants it has it made."""
        gap = stage.target.missing.get(number)
        if gap is None or not gap.is_first or isinstance(stage, ReplicaStage):
            return False
        return self._rebuilt_at(stage, number, gap) > self._wanted.jobs.get(stage.name, {}).get(number, NO_JOB)

    def rowless(self, stage: Stage) -> Ranges:
        """The ranges of a source table whose first rows no job has."""
        if not isinstance(stage, ReplicaStage):
            return frozenset()
        chain = self._chain
        begins = stage.begins_at(chain)
        if begins is not None and begins > chain.newest:
            return stage.target.ranges
        return frozenset(
            number
            for number, gap in stage.target.missing.items()
            if (stage.enters_at(gap, chain) or chain.newest + 1) > chain.newest
        )
