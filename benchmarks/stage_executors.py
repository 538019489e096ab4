"""Other ways to run stages, which headgate is compared with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from unittest.mock import patch

import headgate
from headgate import Procedure, Warehouse
from headgate.delta.changes import JobId
from headgate.ranges.range_map import Ranges
from headgate.runtime.execution.executor import Executor
from headgate.runtime.execution.weights import StageInput, input_rows
from headgate.runtime.stages.stage import Stage


class PlainWeights(Executor):
    """Plain MINIMUM COST: a stage's weight follows all of its own input, also what another stage of its zone blocks."""

    def _input(self, stage: Stage, reach: JobId) -> StageInput:
        wanted = max(self._wanted.jobs[stage.name].values())
        return StageInput(stage.name, None, input_rows(stage, wanted, self._batches.chain, self._tables))


class OneByOne(Executor):
    """One stage runs at a time, and no stage begins a job before all that are wanted have ended the one before."""

    def _reach(self, name: str, stage: Stage) -> tuple[Ranges, JobId] | None:
        found = super()._reach(name, stage)
        if found is None or self._running:
            return None
        ranges, reach = found
        behind = [
            each.target.through
            for each in self._flows.stages()
            if max(self._wanted.jobs.get(each.name, {}).values(), default=each.target.through) > each.target.through
        ]
        upto = JobId(min(reach, min(behind) + 1))
        return (ranges, upto) if upto > stage.target.through else None


def open_with(
    executor: type[Executor], project: Mapping[str, object], procedures: Sequence[Procedure] = ()
) -> Warehouse:
    """Opens the warehouse of a project whose stages run in that way."""
    with patch("headgate.runtime.engine.Executor", executor):
        return headgate.open(project, procedures=procedures)
