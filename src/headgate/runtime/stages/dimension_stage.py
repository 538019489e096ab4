"""A slowly changing dimension: the changes per transaction of a source table in, the dimension's changes out.

Versions that a column of the source orders need all events of a key: these are in a log of their own, which advances
together with the dimension.
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.types import StructType, TimestampType

from headgate.dataflow.flow import AutoCdc
from headgate.dataflow.relation import column_list
from headgate.dataflow.rules import scd, sequenced
from headgate.delta.changes import BEGINNING, END_AT, POSITION, START_AT, SURROGATE_KEY, JobId
from headgate.runtime.rows import version_chains
from headgate.runtime.stages.batch import Batch, TransactionChanges
from headgate.runtime.stages.replica_stage import ReplicaStage
from headgate.runtime.tables.stored import StoredTable
from headgate.warehouse.changes import ChangeSet, TooManyRows
from headgate.warehouse.spec import TableSpec

_OWN = (SURROGATE_KEY, START_AT, END_AT)


def event_log(flow: AutoCdc, source: StructType) -> TableSpec:
    """The log of a dimension whose versions a column orders."""
    assert flow.sequence_by is not None
    schema = StructType([*source.fields]).add(POSITION, "long")
    schema.add(sequenced.VALUE, source[flow.sequence_by].dataType).add(sequenced.GONE, "boolean")
    return TableSpec(f"{flow.name}$events", schema, (*flow.keys, POSITION))


class DimensionStage:
    def __init__(
        self, flow: AutoCdc, replica: ReplicaStage, target: StoredTable, log: StoredTable | None = None
    ) -> None:
        self.flow = flow
        self.target = target
        self.log = log
        self._replica = replica
        # Those that the dimension was made with: the source may have got more since.
        self._columns = tuple(name for name in target.spec.columns if name not in _OWN)
        untracked = (*flow.keys, flow.sequence_by)
        every = tuple(column for column in self._columns if column not in untracked)
        self._tracked = flow.track if flow.track is not None else every

    @property
    def name(self) -> str:
        return self.target.name

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self._replica.name,)

    def advance(self, upto: JobId, batch: Batch) -> None:
        after = self.target.through
        self.target.skip_to(self._replica.target.skipped_to(after))
        try:
            events, changes = self._made(after, upto, batch)
        except TooManyRows as error:
            self._replica.widen(after, upto, batch, error)
            events, changes = self._made(after, upto, batch)
        if self.log is not None:
            self.log.apply(events, upto)
        self.target.apply(changes, upto)

    def _made(self, after: JobId, upto: JobId, batch: Batch) -> tuple[ChangeSet | None, ChangeSet | None]:
        """Changes of the log, if there is one, and of the dimension."""
        found = self._replica.transaction_changes(after, upto, batch)
        if found is None:
            return None, None
        batch.factory.ways.follow(self.name, self._replica.name)
        if self.log is None:
            return None, self._changes(found, after, upto, batch)
        return self._histories(self.log, found, after, upto, batch)

    def _changes(self, found: TransactionChanges, after: JobId, upto: JobId, batch: Batch) -> ChangeSet | None:
        spec = self.target.spec
        if found.rows is None:
            state = batch.bulk_views.matching(self.target, after, self.flow.keys, found.view)
            return batch.made(spec, self._query(found.view, state), after, upto)
        old = self._touched(self.target, found.rows, after)
        rows = self._chained(found.rows, old)
        if rows is None:
            state = None if old is None else found.views.of_rows(old, spec.schema)
            rows, _ = found.views.collect(self._query(found.view, state))
        return ChangeSet.of_table(spec, rows, after, upto) if rows.num_rows else None

    def _touched(self, table: StoredTable, rows: pa.Table, after: JobId) -> pa.Table | None:
        """The rows that the table holds of the changed keys."""
        if table.is_empty(after):
            return None
        keys = rows.group_by(list(self.flow.keys)).aggregate([]).select(list(self.flow.keys))
        found = table.lookup(self.flow.keys, keys, after, table.spec.columns)
        return found if found is not None and found.num_rows else None

    def _chained(self, rows: pa.Table, old: pa.Table | None) -> pa.Table | None:
        """The changes without Spark, where that is possible."""
        key = self.flow.keys
        if self.flow.sequence_by is not None or not version_chains.can_chain(self.target.spec.arrow_schema, key):
            return None
        if self.flow.scd_type == 1:
            return version_chains.type_1_changes(rows, old, self._columns, key)
        return version_chains.type_2_changes(rows, old, self._columns, key, self._tracked)

    def _query(self, changes: str, state: str | None) -> str:
        if self.flow.scd_type == 1:
            return scd.type_1_changes(self._columns, self.flow.keys, changes, state, self.flow.sequence_by)
        return scd.type_2_changes(self._columns, self.flow.keys, self._tracked, changes, state)

    def _histories(
        self, log: StoredTable, found: TransactionChanges, after: JobId, upto: JobId, batch: Batch
    ) -> tuple[ChangeSet | None, ChangeSet | None]:
        """Changes of the log and of the dimension."""
        spec = self.target.spec
        if found.rows is None:
            views = batch.bulk_views
            known = views.matching(log, after, self.flow.keys, found.view)
            events = batch.made(log.spec, self._logged(found.view, known), after, upto)
            if events is None:
                return None, None
            arrived = views.of_frame(events.frame(views.session))
            return events, batch.made(spec, self._history(arrived, known), after, upto)
        views = found.views
        old = self._touched(log, found.rows, after)
        known = None if old is None else views.of_rows(old, log.spec.schema)
        logged, schema = views.collect(self._logged(found.view, known))
        rows, _ = views.collect(self._history(views.of_rows(logged, schema), known))
        return (
            ChangeSet.of_table(log.spec, logged, after, upto),
            ChangeSet.of_table(spec, rows, after, upto) if rows.num_rows else None,
        )

    def _logged(self, changes: str, known: str | None) -> str:
        assert self.flow.sequence_by is not None
        kind = self.target.spec.schema[self.flow.sequence_by].dataType
        return sequenced.logged_events(
            self._columns,
            self.flow.keys,
            self.flow.sequence_by,
            changes,
            known,
            by_time=isinstance(kind, TimestampType),
        )

    def _history(self, arrived: str, known: str | None) -> str:
        return sequenced.history_changes(self._columns, self.flow.keys, self._tracked, arrived, known)

    def build(self, job: JobId, batch: Batch) -> None:
        """Fills the empty table from the replica's rows at a job: what a flow that is new to its source starts from."""
        replica = self._replica.target
        if replica.is_empty(job):
            if self.log is not None:
                self.log.apply(None, job)
            self.target.apply(None, job)
            return
        views = batch.views(replica.main.count(job))
        rows = views.whole(replica, job)
        if self.log is not None:
            assert self.flow.sequence_by is not None
            events = sequenced.initial_events(self._columns, self.flow.sequence_by, rows)
            self.log.apply(batch.appeared(self.log.spec, events, job, views), job)
            text = sequenced.versions(self._columns, self.flow.keys, self._tracked, f"({events})")
        elif self.flow.scd_type == 1:
            text = f"SELECT {column_list(self._columns)} FROM {rows}"
        else:
            beginning = f"TIMESTAMP '{BEGINNING.isoformat()}'"
            text = scd.initial_versions(self._columns, self.flow.keys, rows, beginning)
        self.target.apply(batch.appeared(self.target.spec, text, job, views), job)
