"""Keeps one stored aggregate of a view by itself: its groups lack the view's range column, so rows of all ranges meet in them.

SELECT f.k, f.v, t.total FROM facts f JOIN (SELECT g, sum(v) AS total FROM others GROUP BY g) t ON t.g = f.g

others ──▶ state by g, at one job ──┐
facts, range by range of k ─────────┴──▶ the view, range by range of k
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import pyarrow as pa

from headgate.dataflow.graph import Aggregate
from headgate.dataflow.lineage import all_nodes
from headgate.dataflow.reference import plain_sql
from headgate.delta.changes import JobId
from headgate.runtime.evaluation.evaluation import Evaluation
from headgate.runtime.evaluation.flow_batch import FlowBatch
from headgate.runtime.evaluation.wide import WideEvaluation
from headgate.runtime.stages.batch import Batch
from headgate.runtime.stages.view_stage import ViewStage, state_text
from headgate.runtime.tables.batch_views import BatchViews
from headgate.warehouse.changes import ChangeSet


def state_stages(view: ViewStage, nodes: Collection[Aggregate]) -> list[StateStage]:
    """Takes these states from the view, which reads them from now on, and gives their stages, in order."""
    if any(table.level != view.target.level for node, table in view.states.items() if node not in nodes):
        # They were kept so when they were last folded, before the project file had other ranges.
        nodes = view.states.keys()
    view.read_whole({node: table for node, table in view.states.items() if node in nodes})
    return [StateStage(view, node) for node in view.whole_states]


class StateStage(ViewStage):
    def __init__(self, view: ViewStage, node: Aggregate) -> None:
        target, graph = view.whole_states[node], replace(view.graph, root=node)
        super().__init__(view.flow, graph, target, {}, view._tables, view._newest_commit_at)
        self._node = node
        below = set(all_nodes(node)) - {node}
        self.read_whole({each: table for each, table in view.whole_states.items() if each in below})
        self.one_range = "rows of all ranges meet in its groups"

    def _flow_batch(self, after: JobId, upto: JobId) -> FlowBatch:
        batch = super()._flow_batch(after, upto)
        return replace(batch, states={**batch.states, self._node: self.target})

    def _narrow_result(self, evaluation: Evaluation, after: JobId, batch: Batch) -> pa.Table | None:
        evaluation.delta(self._node)
        return evaluation.state_changes.pop(self._node, None)

    def _wide_result(self, evaluation: WideEvaluation) -> ChangeSet | None:
        evaluation.delta(self._node)
        return evaluation.state_changes.pop(self._node, None)

    @property
    def _top(self) -> None:
        return None

    def _texts(self, job: JobId, batch: Batch, views: BatchViews, top: Aggregate | None = None) -> dict[str, str]:
        tables, states = self._whole_inputs(job, views), self._states_read(job, views)
        below = plain_sql(self._node.input, tables, self.graph.sensitive, states)
        return {self.name: state_text(self._node, self.graph.forms[self._node], below)}
