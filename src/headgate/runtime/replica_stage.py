"""The replica of a source table: captured events in, weighted changes out.

Small batches whose keys are all different need no Spark: the old images are looked up, and the changes are the old and
the new images side by side. Everything else goes through the rule's query.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import LongType, StructType, TimestampType

from headgate.capture.events import Events
from headgate.capture.source import Source
from headgate.dataflow.relation import column_list, quoted
from headgate.dataflow.rules import replica
from headgate.delta.changes import COMMIT_AT, JOB, POSITION, WEIGHT, JobId
from headgate.delta.events import OBSERVED, OP, SEQUENCE, TRUNCATE, UNCHANGED, UPSERT
from headgate.runtime.batch import Batch, TransactionChanges
from headgate.runtime.stored import StoredTable
from headgate.warehouse.changes import ChangeSet

_TRANSACTION = (POSITION, replica.TRANSACTION_AT, JOB, WEIGHT)


class ReplicaStage:
    """Keeps `source.table` as the source has it."""

    def __init__(self, source: Source, table: str, target: StoredTable) -> None:
        self._source = source
        self._table = table
        self.target = target
        self.columns = tuple(source.tables[table].schema.names)
        self.key = source.tables[table].key

    @property
    def name(self) -> str:
        return self.target.name

    @property
    def inputs(self) -> tuple[str, ...]:
        return ()

    def advance(self, upto: JobId, batch: Batch) -> None:
        after = self.target.through
        found = self.transaction_changes(after, upto, batch)
        self.target.apply(None if found is None else self._per_job(found, after, upto, batch), upto)

    def _per_job(self, found: TransactionChanges, after: JobId, upto: JobId, batch: Batch) -> ChangeSet | None:
        spec = self.target.spec
        if found.rows is not None:
            if self._is_one_per_key(found.rows):
                return ChangeSet.of_table(spec, found.rows, after, upto)
            rows, _ = batch.views(found.rows.num_rows).collect(replica.job_changes(self.columns, found.view))
            return ChangeSet.of_table(spec, rows, after, upto) if rows.num_rows else None
        frame = batch.bulk_views.session.sql(replica.job_changes(self.columns, found.view))
        return ChangeSet.of_files(spec, batch.to_files(frame), after, upto)

    def _is_one_per_key(self, rows: pa.Table) -> bool:
        """Whether no key was touched by two transactions, so that changes per transaction are changes per job."""
        return _distinct_rows(rows.select(list(self.key))) == _distinct_rows(rows.select([*self.key, POSITION]))

    def transaction_changes(self, after: JobId, upto: JobId, batch: Batch) -> TransactionChanges | None:
        """Changes of the jobs (after, upto], one step per transaction."""
        place = (self.name, after, upto)
        if place not in batch.transaction_changes:
            batch.transaction_changes[place] = self._transaction_changes(after, upto, batch)
        return batch.transaction_changes[place]

    def _transaction_changes(self, after: JobId, upto: JobId, batch: Batch) -> TransactionChanges | None:
        source = self._source.name
        events = self._source.log.read(
            self._table, batch.chain.position(source, after), batch.chain.position(source, upto)
        )
        if not events.rows:
            return None
        jobs = batch.chain.job_positions(source, after, upto)
        if events.files or events.rows >= batch.many_rows:
            return self._from_files(events, jobs, after, batch)
        assert events.table is not None
        rows = events.table.append_column(JOB, pa.array(_job_ids(events.table, jobs), pa.int64()))
        return self._from_rows(rows, after, batch)

    def _schema(self) -> StructType:
        schema = StructType([*self.target.spec.schema.fields])
        schema.add(POSITION, LongType()).add(replica.TRANSACTION_AT, TimestampType())
        return schema.add(JOB, LongType()).add(WEIGHT, LongType())

    def _from_rows(self, events: pa.Table, after: JobId, batch: Batch) -> TransactionChanges | None:
        truncated = pc.any(pc.equal(events.column(OP), TRUNCATE)).as_py()
        observed = pc.any(pc.equal(events.column(OP), OBSERVED)).as_py()
        partial = pc.any(pc.greater(pc.list_value_length(events.column(UNCHANGED)), 0)).as_py()
        keys = events.select(list(self.key))
        old = self._old_images(keys, after, whole=truncated)
        views = batch.views(events.num_rows)
        if not (truncated or partial or observed) and _distinct_rows(keys) == events.num_rows:
            rows = self._side_by_side(events, old)
            if rows.num_rows == 0:
                return None
            return TransactionChanges(rows, self._schema(), lambda: views.of_rows(rows, self._schema()))
        old_view = None if old is None else views.of_rows(old, self.target.spec.schema)
        query = replica.transaction_changes(
            self.columns,
            self.key,
            self._entered(events, batch),
            old_view,
            partial=partial,
            truncated=truncated,
            observed=observed,
        )
        rows, schema = views.collect(query)
        if rows.num_rows == 0:
            return None
        return TransactionChanges(rows, schema, lambda: views.of_rows(rows, schema))

    def _entered(self, events: pa.Table, batch: Batch) -> str:
        return batch.views(events.num_rows).of_rows(events, self._event_schema(events))

    def _event_schema(self, events: pa.Table) -> StructType:
        from pyspark.sql.pandas.types import from_arrow_schema

        schema = from_arrow_schema(events.schema)
        declared = self.target.spec.schema
        return StructType([declared[field.name] if field.name in self.columns else field for field in schema])

    def _old_images(self, keys: pa.Table, after: JobId, *, whole: bool) -> pa.Table | None:
        if self.target.is_empty(after):
            return None
        columns = self.target.spec.columns
        if whole:
            return self.target.main.collected(after)
        distinct = keys.group_by(list(self.key)).aggregate([]).select(list(self.key))
        found = self.target.lookup(self.key, distinct, after, columns)
        return found if found is not None and found.num_rows else None

    def _side_by_side(self, events: pa.Table, old: pa.Table | None) -> pa.Table:
        """-old of each key that was there, +new of each key that is there now."""
        names = [*self.target.spec.columns, *_TRANSACTION]
        new = events.filter(pc.equal(events.column(OP), UPSERT))
        new = new.append_column(replica.TRANSACTION_AT, new.column(COMMIT_AT))
        new = new.append_column(WEIGHT, pa.array(np.ones(new.num_rows, dtype=np.int64))).select(names)
        if old is None:
            return new
        place = {key: index for index, key in enumerate(_tuples(events, self.key))}
        found = events.take(pa.array([place[key] for key in _tuples(old, self.key)], pa.int64()))
        gone = old.append_column(POSITION, found.column(POSITION))
        gone = gone.append_column(replica.TRANSACTION_AT, found.column(COMMIT_AT)).append_column(JOB, found.column(JOB))
        gone = gone.append_column(WEIGHT, pa.array(np.full(old.num_rows, -1, dtype=np.int64))).select(names)
        return pa.concat_tables([gone.cast(new.schema), new])

    def _from_files(
        self, events: Events, jobs: list[tuple[JobId, int]], after: JobId, batch: Batch
    ) -> TransactionChanges | None:
        """The same for many rows: everything stays in files, read and written by executors."""
        views = batch.bulk_views
        job = "CASE " + " ".join(f"WHEN {POSITION} <= {position} THEN {job}L" for job, position in jobs) + " END"
        names = column_list((*self.columns, OP, UNCHANGED, SEQUENCE, POSITION, COMMIT_AT))
        parts = []
        if events.files:
            frame = views.session.read.parquet(*[file.path for file in events.files])
            parts.append(f"SELECT {names}, {job} AS {JOB} FROM {views.of_frame(frame)}")
        if events.table is not None:
            entered = views.of_rows(events.table, self._event_schema(events.table))
            parts.append(f"SELECT {names}, {job} AS {JOB} FROM {entered}")
        source = f"({' UNION ALL '.join(parts)})"
        flags = views.session.sql(
            f"SELECT MAX(size({UNCHANGED})) > 0 AS partial, BOOL_OR({OP} = {TRUNCATE}) AS truncated,"
            f" BOOL_OR({OP} = {OBSERVED}) AS observed FROM {source}"
        ).first()
        assert flags is not None
        old = None
        if not self.target.is_empty(after):
            old = views.whole(self.target, after)
            if not flags.truncated:
                same = " AND ".join(f"o.{quoted(column)} <=> e.{quoted(column)}" for column in self.key)
                old = f"(SELECT o.* FROM {old} o LEFT SEMI JOIN {source} e ON {same})"
        query = replica.transaction_changes(
            self.columns,
            self.key,
            source,
            old,
            partial=flags.partial,
            truncated=flags.truncated,
            observed=flags.observed,
        )
        folder = batch.to_files(views.session.sql(query))
        schema = self._schema()
        frame = views.session.read.schema(schema).parquet(folder)
        return TransactionChanges(None, schema, lambda: views.of_frame(frame))


def _job_ids(events: pa.Table, jobs: list[tuple[JobId, int]]) -> np.ndarray:
    ends = np.array([position for _, position in jobs], dtype=np.int64)
    ids = np.array([job for job, _ in jobs], dtype=np.int64)
    found: np.ndarray = ids[np.searchsorted(ends, events.column(POSITION).to_numpy())]
    return found


def _distinct_rows(rows: pa.Table) -> int:
    return int(rows.group_by(rows.column_names).aggregate([]).num_rows)


def _tuples(rows: pa.Table, columns: tuple[str, ...]) -> list[tuple[object, ...]]:
    return list(zip(*(rows.column(column).to_pylist() for column in columns), strict=True))
