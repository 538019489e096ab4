"""How much input waits for each stage, as the pool policies want to see it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from headgate.delta.changes import JobId
from headgate.runtime.spark.pools import StageObservation
from headgate.runtime.stages.replica_stage import ReplicaStage
from headgate.runtime.stages.stage import Stage, zone_of
from headgate.runtime.stages.state import State


def observed(
    stages: Iterable[Stage], wanted: Mapping[str, JobId], reach: Callable[[Stage], JobId | None], state: State
) -> list[StageObservation]:
    """The stages that are wanted at a job they have not reached."""
    found = []
    for stage in stages:
        upto = wanted.get(stage.name)
        if upto is None or upto <= stage.target.through:
            continue
        backlog, can_go = _rows(stage, upto, state), reach(stage)
        runnable = 0 if can_go is None else backlog if can_go == upto else _rows(stage, can_go, state)
        found.append(StageObservation(stage.name, zone_of(stage), backlog, runnable))
    return found


def _rows(stage: Stage, upto: JobId, state: State) -> int:
    """Changes of the stage's inputs that it has not taken; of an input that is behind, those that it has."""
    after = stage.target.through
    if isinstance(stage, ReplicaStage):
        name = stage.source.name
        between = state.chain.position(name, after), state.chain.position(name, upto)
        return sum(found.rows.get(stage.table, 0) for found in stage.source.log.transactions(*between))
    rows = 0
    for name in stage.inputs:
        table = state.tables.get(name)
        changes = table.changes(after, JobId(min(upto, table.through))) if table.through > after else None
        rows += 0 if changes is None else changes.rows
    return rows
