"""How stages that run at the same time share Spark: zone-aware MINIMUM COST.

The unit with the largest volume of input gets most of Spark's slots. A consistency zone is one unit, and only input that its
stages can work on now counts: in a zone, a fast stage waits for a slow one, and the input that piles up meanwhile is no work.
("Incremental ETL Pipeline Scheduling for Near Real-Time Data Warehouses", section 4; its thesis, section 3.6.2.)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from headgate.delta.changes import JobId
from headgate.runtime.spark.pools import WEIGHTS
from headgate.runtime.stages.replica_stage import ReplicaStage
from headgate.runtime.stages.stage import Stage
from headgate.runtime.stages.view_stage import ViewStage
from headgate.runtime.tables.jobs import JobChain
from headgate.runtime.tables.tables import Tables


@dataclass(frozen=True, slots=True)
class StageInput:
    """The input of a stage."""

    name: str
    zone: str | None
    """Stages of one zone work on one job at a time, together; None for a stage by itself."""
    rows: int

    @property
    def unit(self) -> tuple[str, bool]:
        return (self.name, False) if self.zone is None else (self.zone, True)


def zone_aware(inputs: Sequence[StageInput]) -> dict[str, int]:
    """The weight of each stage, one of `WEIGHTS`, from the rows that the stage can work on now.

    The unit with most rows gets the highest weight, another one the highest that is not above its proportion.
    """
    rows: dict[tuple[str, bool], int] = defaultdict(int)
    for stage in inputs:
        rows[stage.unit] += stage.rows
    most = max(rows.values(), default=0) or 1
    return {stage.name: _weight(rows[stage.unit] / most) for stage in inputs}


def _weight(proportion: float) -> int:
    return max((weight for weight in WEIGHTS if weight <= proportion * WEIGHTS[-1]), default=WEIGHTS[0])


def input_rows(stage: Stage, upto: JobId, chain: JobChain, tables: Tables) -> int:
    """Changes of the stage's inputs that the stage has not taken; of an input that is behind, those that the input has."""
    after = stage.target.through
    if isinstance(stage, ReplicaStage):
        return stage.size(after, upto, chain).rows
    rows = 0
    for name in stage.inputs:
        table = stage.table(name) if isinstance(stage, ViewStage) else tables.get(name)
        if stage.target.missing:
            # It is made anew from all rows.
            rows += table.count(upto)
            continue
        changes = table.changes(after, JobId(min(upto, table.through))) if table.through > after else None
        rows += 0 if changes is None else changes.rows
    return rows
