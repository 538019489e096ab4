"""What all kinds of stages have in common for those who run them: the tables that one writes, and its zone."""

from __future__ import annotations

from collections.abc import Iterator

from headgate.runtime.stages.dimension_stage import DimensionStage
from headgate.runtime.stages.procedures import ProcedureStage
from headgate.runtime.stages.replica_stage import ReplicaStage
from headgate.runtime.stages.view_stage import ViewStage
from headgate.runtime.tables.stored import StoredTable

Stage = ReplicaStage | DimensionStage | ViewStage | ProcedureStage


def zone_of(stage: Stage) -> str | None:
    """The zone whose stages take one job after another, together; None for a stage by itself."""
    return stage.zone if isinstance(stage, ProcedureStage) else None


def tables_of(stage: Stage) -> Iterator[StoredTable]:
    """All tables that a stage writes, its target last."""
    if isinstance(stage, ViewStage):
        yield from stage.states.values()
    elif isinstance(stage, DimensionStage) and stage.log is not None:
        yield stage.log
    yield stage.target
