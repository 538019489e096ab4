"""What all kinds of stages have in common for those who run them: the tables that one writes, and its zone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from headgate.delta.changes import JobId
from headgate.ranges.range_map import Ranges
from headgate.runtime.stages.dimension_stage import DimensionStage
from headgate.runtime.stages.procedures import ProcedureStage
from headgate.runtime.stages.replica_stage import ReplicaStage
from headgate.runtime.stages.view_stage import ViewStage
from headgate.runtime.tables.stored import StoredTable

Stage = ReplicaStage | DimensionStage | ViewStage | ProcedureStage


def zone_of(stage: Stage) -> str | None:
    """The zone whose stages take one job after another, together; None for a stage by itself."""
    return stage.zone if isinstance(stage, ProcedureStage) else None


def aligned_of(stage: Stage) -> frozenset[str]:
    """Tables of which a stage reads, for a range of its target, that range only."""
    return stage.aligned if isinstance(stage, ViewStage) else frozenset()


def unread_of(stage: Stage, unread: Mapping[str, Ranges]) -> Ranges:
    """The ranges of a stage that derive from rows which are still to be read at a source; those of its inputs are given."""
    if isinstance(stage, ReplicaStage):
        return stage.unread
    aligned = aligned_of(stage)
    below = [(name, unread.get(name, frozenset())) for name in stage.inputs]
    if any(found for name, found in below if name not in aligned):
        return stage.target.ranges
    return frozenset(number for _, found in below for number in found)


def runs_whole(stage: Stage) -> bool:
    """Whether all ranges of the target come forward together: nothing that the stage reads has these ranges."""
    return isinstance(stage, ViewStage) and not stage.aligned


def within(stage: Stage, ranges: Ranges) -> Stage:
    """The stage for some ranges of its target."""
    return stage.within(ranges) if isinstance(stage, ViewStage | ReplicaStage) else stage


def steps(
    stage: Stage, ranges: Ranges, upto: JobId, failed: Mapping[int, BaseException]
) -> Iterator[tuple[Ranges, JobId]]:
    """What brings the ranges to the job: the slowest first to the others' job, those at equal jobs together.

    Each step is told when the one before it is done. Missing ranges stay so, and so do those that have `failed` meanwhile.
    """
    while True:
        throughs, missing = stage.target.throughs, stage.target.missing
        ranges -= missing.keys() | failed.keys()
        behind = sorted({throughs[number] for number in ranges if throughs[number] < upto})
        if not behind:
            return
        group = frozenset(number for number in ranges if throughs[number] == behind[0])
        yield group, behind[1] if len(behind) > 1 else upto


def tables_of(stage: Stage) -> Iterator[StoredTable]:
    """All tables that a stage writes, its target last."""
    if isinstance(stage, ViewStage):
        yield from stage.states.values()
    elif isinstance(stage, DimensionStage) and stage.log is not None:
        yield stage.log
    yield stage.target
