"""A slowly changing dimension: the changes per transaction of a source table in, the dimension's changes out."""

from __future__ import annotations

import pyarrow as pa

from headgate.dataflow.flow import AutoCdc
from headgate.dataflow.relation import column_list
from headgate.dataflow.rules import scd
from headgate.delta.changes import BEGINNING, JobId
from headgate.runtime.batch import Batch, TransactionChanges
from headgate.runtime.replica_stage import ReplicaStage
from headgate.runtime.stored import StoredTable
from headgate.warehouse.changes import ChangeSet


class DimensionStage:
    def __init__(self, flow: AutoCdc, replica: ReplicaStage, target: StoredTable) -> None:
        self.flow = flow
        self.target = target
        self._replica = replica
        self._columns = replica.columns
        self._tracked = flow.track or tuple(column for column in self._columns if column not in flow.keys)

    @property
    def name(self) -> str:
        return self.target.name

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self._replica.name,)

    def advance(self, upto: JobId, batch: Batch) -> None:
        after = self.target.through
        found = self._replica.transaction_changes(after, upto, batch)
        self.target.apply(None if found is None else self._changes(found, after, upto, batch), upto)

    def _changes(self, found: TransactionChanges, after: JobId, upto: JobId, batch: Batch) -> ChangeSet | None:
        spec = self.target.spec
        if found.rows is None:
            views = batch.bulk_views
            state = None if self.target.is_empty(after) else views.whole(self.target, after)
            frame = views.session.sql(self._query(found.view, state))
            return ChangeSet.of_files(spec, batch.to_files(frame), after, upto)
        views = batch.views(found.rows.num_rows)
        state = self._touched(found.rows, after)
        state_view = None if state is None else views.of_rows(state, spec.schema)
        rows, _ = views.collect(self._query(found.view, state_view))
        return ChangeSet.of_table(spec, rows, after, upto) if rows.num_rows else None

    def _touched(self, rows: pa.Table, after: JobId) -> pa.Table | None:
        if self.target.is_empty(after):
            return None
        keys = rows.group_by(list(self.flow.keys)).aggregate([]).select(list(self.flow.keys))
        found = self.target.lookup(self.flow.keys, keys, after, self.target.spec.columns)
        return found if found is not None and found.num_rows else None

    def _query(self, changes: str, state: str | None) -> str:
        if self.flow.scd_type == 1:
            return scd.type_1_changes(self._columns, self.flow.keys, changes, state)
        return scd.type_2_changes(self._columns, self.flow.keys, self._tracked, changes, state)

    def build(self, job: JobId, batch: Batch) -> None:
        """Fills the empty table from the replica's rows at a job: what a flow that is new to its source starts from."""
        replica = self._replica.target
        if replica.is_empty(job):
            self.target.apply(None, job)
            return
        views = batch.views(replica.main.count(job))
        rows = views.whole(replica, job)
        if self.flow.scd_type == 1:
            text = f"SELECT {column_list(self._columns)} FROM {rows}"
        else:
            beginning = f"TIMESTAMP '{BEGINNING.isoformat()}'"
            text = scd.initial_versions(self._columns, self.flow.keys, rows, beginning)
        self.target.apply(batch.appeared(self.target.spec, text, job, views), job)
