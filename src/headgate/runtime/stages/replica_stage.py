"""The replica of a source table: captured events in, weighted changes out.

Plain upserts and deletes that the driver holds need no Spark: the old images are looked up, and each key's images follow one
another (`chains`). Everything else goes through the rule's query. Rows of a table without a key are only added: each gets its
number from its transaction's position and its own place in it, and nothing is looked up.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import ArrayType, ByteType, LongType, StringType, StructField, StructType, TimestampType

from headgate.capture.events import Events
from headgate.capture.source import Source, SourceTable
from headgate.dataflow.relation import column_list, quoted
from headgate.dataflow.rules import replica
from headgate.delta.changes import BEGINNING, COMMIT_AT, JOB, POSITION, ROW_NUMBER, WEIGHT, JobId
from headgate.delta.events import OBSERVED, OP, SEQUENCE, TRUNCATE, UNCHANGED
from headgate.errors import CorruptWarehouse, FlowFailed
from headgate.runtime.rows import chains
from headgate.runtime.stages.batch import Batch, TransactionChanges
from headgate.runtime.tables.stored import StoredTable
from headgate.runtime.tables.wider import outgrown, widened
from headgate.warehouse.changes import ChangeSet
from headgate.warehouse.problems import translate
from headgate.warehouse.storage import Folder

_ROWS_BITS = 32
"""A transaction has fewer rows than two to this power; positions of producers count commits."""


class ReplicaStage:
    """Keeps `source.table` as the source has it."""

    def __init__(self, source: Source, table: str, target: StoredTable) -> None:
        self.source = source
        self.table = table
        self.target = target
        self.key = target.spec.key

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(name for name in self.target.spec.columns if name not in (COMMIT_AT, ROW_NUMBER))

    @property
    def append_only(self) -> bool:
        """Whether the table has no key."""
        return self.key == (ROW_NUMBER,)

    @property
    def stopped(self) -> FlowFailed | None:
        """Why the table cannot be followed any further, if it cannot."""
        if (problem := self.source.problems.get(self.table)) is not None:
            return FlowFailed(f"{self.name} cannot be followed any further: {problem.what}", hint=problem.hint)
        table = self.source.tables.get(self.table)
        schema = StructType([self.target.spec.schema[name] for name in self.columns])
        known = SourceTable(self.table, schema, () if self.append_only else self.key)
        if table is None or widened(known, table) is not None:
            return None
        history = " and a dimension has its history with the old types" if outgrown(known, table) is not None else ""
        return FlowFailed(
            f"{self.name} is {table.schema.simpleString()} with key {', '.join(table.key)} at the source now, and was"
            f" {known.schema.simpleString()} with key {', '.join(known.key)}{history}",
            hint=f"capture it under another name: tables: {{…: {{table: {self.table}}}}}; what there is stays readable",
        )

    @property
    def name(self) -> str:
        return self.target.name

    @property
    def inputs(self) -> tuple[str, ...]:
        return ()

    def advance(self, upto: JobId, batch: Batch) -> None:
        after = self.target.through
        self._require_followed(upto, batch)
        found = self.transaction_changes(after, upto, batch)
        self.target.apply(None if found is None else self._per_job(found, after, upto, batch), upto)

    def _require_followed(self, upto: JobId, batch: Batch) -> None:
        problem = self.source.problems.get(self.table)
        if problem is not None and problem.position > batch.chain.position(self.source.name, upto):
            return
        if (failure := self.stopped) is not None:
            raise failure

    def _per_job(self, found: TransactionChanges, after: JobId, upto: JobId, batch: Batch) -> ChangeSet | None:
        spec = self.target.spec
        if found.rows is not None:
            rows = found.rows if self.append_only else chains.job_changes(found.rows, self.key)
            return ChangeSet.of_table(spec, rows, after, upto) if rows.num_rows else None
        columns = self.target.spec.columns[:-1]
        frame = batch.bulk_views.session.sql(replica.job_changes(columns, found.view))
        return ChangeSet.of_files(spec, batch.to_files(frame), after, upto)

    def transaction_changes(self, after: JobId, upto: JobId, batch: Batch) -> TransactionChanges | None:
        """Changes of the jobs (after, upto], one step per transaction."""
        place = (self.name, after, upto)
        if place not in batch.transaction_changes:
            batch.transaction_changes[place] = self._transaction_changes(after, upto, batch)
        return batch.transaction_changes[place]

    def _transaction_changes(self, after: JobId, upto: JobId, batch: Batch) -> TransactionChanges | None:
        source = self.source.name
        events = self.source.log.read(
            self.table, batch.chain.position(source, after), batch.chain.position(source, upto)
        )
        if not events.rows:
            return None
        jobs = batch.chain.job_positions(source, after, upto)
        if self.append_only and not events.files:
            assert events.table is not None
            return self._added(self._with_all_columns(events.table), jobs, batch)
        if events.files or events.rows >= batch.many_rows:
            try:
                return self._from_files(events, jobs, after, batch)
            except Exception as error:
                self._name_damaged_file(events, error)
                raise
        assert events.table is not None
        rows = self._with_all_columns(events.table).append_column(
            JOB, pa.array(_job_ids(events.table, jobs), pa.int64())
        )
        return self._from_rows(rows, after, batch)

    def _added(self, events: pa.Table, jobs: list[tuple[JobId, int]], batch: Batch) -> TransactionChanges:
        """Rows of a table without a key, as they came."""
        count = events.num_rows
        numbers = (events.column(POSITION).to_numpy() << _ROWS_BITS) + events.column(SEQUENCE).to_numpy()
        rows = events.select([*self.columns]).append_column(ROW_NUMBER, pa.array(numbers))
        for name, column in ((COMMIT_AT, COMMIT_AT), (POSITION, POSITION), (replica.TRANSACTION_AT, COMMIT_AT)):
            rows = rows.append_column(name, events.column(column))
        rows = rows.append_column(JOB, pa.array(_job_ids(events, jobs), pa.int64()))
        rows = rows.append_column(WEIGHT, pa.array(np.ones(count, dtype=np.int64)))
        views = batch.views(count)
        return TransactionChanges(rows, self._schema(), lambda: views.of_rows(rows, self._schema()))

    def _with_all_columns(self, events: pa.Table) -> pa.Table:
        """Events from before a column was added lack it, those from before it was widened have its old type."""
        for field in self.target.spec.arrow_schema:
            if field.name == ROW_NUMBER:
                continue
            place = events.schema.get_field_index(field.name)
            if place < 0:
                events = events.append_column(field, pa.nulls(events.num_rows, field.type))
            elif events.schema.field(place).type != field.type:
                events = events.set_column(place, field, events.column(place).cast(field.type))
        return events

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
        if not (truncated or partial or observed):
            rows = chains.transaction_changes(events, old, self.key, list(self.target.spec.columns))
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
        # A truncation has no key.
        return StructType(
            [
                StructField(field.name, declared[field.name].dataType) if field.name in self.columns else field
                for field in schema
            ]
        )

    def _file_schema(self) -> StructType:
        return (
            StructType([StructField(name, self.target.spec.schema[name].dataType) for name in self.columns])
            .add(OP, ByteType())
            .add(UNCHANGED, ArrayType(StringType()))
            .add(SEQUENCE, LongType())
            .add(POSITION, LongType())
            .add(COMMIT_AT, TimestampType())
        )

    def _old_images(self, keys: pa.Table, after: JobId, *, whole: bool) -> pa.Table | None:
        if self.target.is_empty(after):
            return None
        columns = self.target.spec.columns
        if whole:
            return self.target.main.collected(after)
        distinct = keys.group_by(list(self.key)).aggregate([]).select(list(self.key))
        found = self.target.lookup(self.key, distinct, after, columns)
        return found if found is not None and found.num_rows else None

    def _from_files(
        self, events: Events, jobs: list[tuple[JobId, int]], after: JobId, batch: Batch
    ) -> TransactionChanges | None:
        """The same for many rows: everything stays in files, read and written by executors."""
        views = batch.bulk_views
        job = "CASE " + " ".join(f"WHEN {POSITION} <= {position} THEN {job}L" for job, position in jobs) + " END"
        names = column_list((*self.columns, OP, UNCHANGED, SEQUENCE, POSITION, COMMIT_AT))
        parts = []
        if events.files:
            frame = views.session.read.schema(self._file_schema()).parquet(*[file.path for file in events.files])
            # On the rows of an initial load, files from before format 2 have an earlier beginning of time.
            at = f"GREATEST({COMMIT_AT}, TIMESTAMP '{BEGINNING.isoformat()}') AS {COMMIT_AT}"
            dated = f"(SELECT * EXCEPT ({COMMIT_AT}), {at} FROM {views.of_frame(frame)})"
            parts.append(f"SELECT {names}, {job} AS {JOB} FROM {dated}")
        if events.table is not None:
            rows = self._with_all_columns(events.table)
            entered = views.of_rows(rows, self._event_schema(rows))
            parts.append(f"SELECT {names}, {job} AS {JOB} FROM {entered}")
        source = f"({' UNION ALL '.join(parts)})"
        if self.append_only:
            number = f"shiftleft({POSITION}, {_ROWS_BITS}) + {SEQUENCE}"
            query = (
                f"SELECT {column_list(self.columns)}, {number} AS {ROW_NUMBER}, {COMMIT_AT}, {POSITION},"
                f" {COMMIT_AT} AS {replica.TRANSACTION_AT}, {JOB}, 1L AS {WEIGHT} FROM {source}"
            )
            return self._kept_in_files(query, batch)
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
        return self._kept_in_files(query, batch)

    def _name_damaged_file(self, events: Events, error: Exception) -> None:
        """Tells the log of a file of its own that could not be read."""
        known = translate(error, Folder.at(self.source.log.files_folder))
        if not isinstance(known, CorruptWarehouse):
            return
        for file in events.files:
            if Path(file.path).name in known.what:
                raise self.source.log.lose_file(file.path, known.what).error() from error

    def _kept_in_files(self, query: str, batch: Batch) -> TransactionChanges:
        views = batch.bulk_views
        folder = batch.to_files(views.session.sql(query))
        schema = self._schema()
        frame = views.session.read.schema(schema).parquet(folder)
        return TransactionChanges(None, schema, lambda: views.of_frame(frame))


def _job_ids(events: pa.Table, jobs: list[tuple[JobId, int]]) -> np.ndarray:
    ends = np.array([position for _, position in jobs], dtype=np.int64)
    ids = np.array([job for job, _ in jobs], dtype=np.int64)
    found: np.ndarray = ids[np.searchsorted(ends, events.column(POSITION).to_numpy())]
    return found
