"""The replica of a source table: captured events in, weighted changes out.

Plain upserts and deletes that the driver holds need no Spark: the old images are looked up, and each key's images follow one
another (`chains`). Everything else goes through the rule's query. Rows of a table without a key are only added: each gets its
number from its transaction's position and its own place in it, and nothing is looked up.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyspark.sql.types import (
    ArrayType,
    ByteType,
    IntegralType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from headgate.capture.events import Size, event_schema, row_schema
from headgate.capture.places import conform_events
from headgate.capture.source import FirstLoad, Source, SourceTable
from headgate.dataflow.relation import column_list, quoted
from headgate.dataflow.rules import replica
from headgate.delta.changes import BEGINNING, COMMIT_AT, JOB, NO_JOB, POSITION, ROW_NUMBER, WEIGHT, JobId
from headgate.delta.events import OBSERVED, OP, SEQUENCE, TRUNCATE, UNCHANGED
from headgate.errors import FlowFailed
from headgate.ranges.key_set import KeySet
from headgate.ranges.range_map import ONE_RANGE, Ranges
from headgate.runtime.rows import chains
from headgate.runtime.stages.batch import Batch, TransactionChanges
from headgate.runtime.stages.event_files import EventFiles
from headgate.runtime.stages.load_place import LoadPlace
from headgate.runtime.stages.ways import Way
from headgate.runtime.tables.gaps import Gap
from headgate.runtime.tables.jobs import JobChain
from headgate.runtime.tables.stored import StoredTable
from headgate.runtime.tables.wider import outgrown, widened
from headgate.warehouse.changes import ChangeSet, TooManyRows, Within

_ROWS_BITS = 32
"""A transaction has fewer rows than two to this power; positions of producers count commits."""


class ReplicaStage:
    """Keeps `source.table` as the source has it."""

    def __init__(
        self,
        source: Source,
        table: str,
        target: StoredTable,
        keys: Within | None = None,
        ranges: Ranges = ONE_RANGE,
        *,
        by_range: bool = False,
    ) -> None:
        """`keys`: of which rows events are taken, where those are some ranges of the table. `by_range`: whether its first rows come
        range by range into the base, rather than through the log."""
        self.source = source
        self.table = table
        self.target = target
        self.key = target.spec.key
        self._keys = keys
        self._ranges = ranges
        self.by_range = by_range

    def within(self, ranges: Ranges) -> ReplicaStage:
        """The stage for some ranges of its target."""
        division = self.target.division
        if division is None or ranges == self.target.ranges:
            return self
        target, keys = self.target.within(ranges), division.within(ranges)
        return ReplicaStage(self.source, self.table, target, keys, ranges, by_range=self.by_range)

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

    def begins_at(self, chain: JobChain) -> JobId | None:
        """The job that the table's first rows are in, or that can have them at the earliest; None once the table has them."""
        load = self._first_load
        if load is None:
            return None
        if load.entered_at is None:
            return JobId(chain.newest + 1)
        after = self.target.through
        if chain.position(self.source.name, after) >= load.entered_at:
            return None
        jobs = chain.job_positions(self.source.name, after, chain.newest)
        return next((job for job, position in jobs if position >= load.entered_at), JobId(chain.newest + 1))

    @property
    def is_unloaded(self) -> bool:
        """Whether the table's first rows are still to be read: it cannot go on."""
        load = self._first_load
        return load is not None and load.entered_at is None

    @property
    def _first_load(self) -> FirstLoad | None:
        """Where the first rows are that come through the log, if they are not in the table."""
        return None if self.by_range else self.source.first_loads.get(self.table)

    @property
    def unread(self) -> Ranges:
        """Ranges whose rows are still to be read at the source."""
        return frozenset(number for number, gap in self.target.missing.items() if gap.read_at is None)

    def lacks(self, keys: KeySet) -> bool:
        """Whether first rows with some of the keys are still to be read at the source."""
        return self.is_unloaded or not self.unread.isdisjoint(self.target.holding(keys))

    def has_from(self, keys: KeySet, chain: JobChain) -> JobId | None:
        """The job that first rows with these keys are in, or that can have them at the earliest; None once the table has them."""
        missing, ranges = self.target.missing, self.target.holding(keys)
        entering = (self.enters_at(gap, chain) for number, gap in missing.items() if number in ranges)
        found = [job for job in (self.begins_at(chain), *entering) if job is not None]
        return max(found, default=None)

    def enters_at(self, gap: Gap, chain: JobChain) -> JobId | None:
        """The job at which ranges enter that were read: the first whose cut has the position as of which they were read, and that the
        gap allows; the next one at the earliest. None for ranges that are still to be read.

        Always the first: what derives from the table may have had the ranges since then, and goes on from there after a crash.
        """
        if gap.read_at is None:
            return None
        least = max(gap.due or NO_JOB, self.target.main.base_through + 1)
        jobs = chain.job_positions(self.source.name, JobId(least - 1), chain.newest)
        return next((job for job, position in jobs if position >= gap.read_at), JobId(max(least, chain.newest + 1)))

    def needed_after(self, durable: JobId, chain: JobChain) -> int:
        """The position in the log behind which events are needed by whoever has the table, or what it makes of the table's
        events, durably up to a job."""
        position = chain.position(self.source.name, durable)
        if self.by_range:
            return self._needed_by_ranges(durable, position, chain.position(self.source.name, chain.newest))
        load = self._first_load
        if load is None or (load.entered_at is not None and load.entered_at <= position):
            return position
        return chain.position(self.source.name, chain.newest) if load.read_at is None else load.read_at - 1

    def _needed_by_ranges(self, durable: JobId, position: int, newest: int) -> int:
        """The same where ranges were read at positions of their own: whatever is not in the base enters again after a crash."""
        gaps, load = self.target.gaps.lasting(durable), self.source.first_loads.get(self.table)
        found = [gap.read_at for gap in gaps if gap.read_at is not None]
        if load is not None and load.entered_at is None and load.read_at is not None:
            # Ranges are being read.
            found.append(load.read_at - 1)
        if load is not None and load.entered_at is not None and any(gap.read_at is None for gap in gaps):
            # The source has read the table whole since: that is what ranges get that were not read by then.
            found.append(load.entered_at - 1)
        if len({number for gap in gaps for number in self.target.holding(gap.keys)}) < len(self.target.ranges):
            found.append(position)
        return min(found, default=newest)

    def advance(self, upto: JobId, batch: Batch) -> None:
        self._require_followed(upto, batch)
        if self.target.missing:
            self._enter(upto, batch)
            return
        after = self.target.through
        if (begins := self.begins_at(batch.factory.chain)) is not None:
            # Before its first rows are there, an empty table is no state of the source.
            self.target.skip_to(begins)
        self.target.apply(self._changes(after, upto, batch), upto)

    def _enter(self, upto: JobId, batch: Batch) -> None:
        """Ranges that were read at one position take all that came behind it as changes of one job, and are there from then on."""
        after = self.target.stand()
        self.target.apply(self._changes(after, upto, batch), upto)
        self.target.came_back(upto)

    def _require_followed(self, upto: JobId, batch: Batch) -> None:
        problem = self.source.problems.get(self.table)
        if problem is not None and problem.position > batch.factory.chain.position(self.source.name, upto):
            return
        if (failure := self.stopped) is not None:
            raise failure

    def _changes(self, after: JobId, upto: JobId, batch: Batch) -> ChangeSet | None:
        found = None if self.is_wide(after, upto, batch) else self.transaction_changes(after, upto, batch)
        # Not before its events were read, it is known whether a table was truncated.
        if self.is_wide(after, upto, batch):
            events = self._event_files(after, upto, batch)
            with events.damage_named():
                query = self._query(events, after, upto, batch, by_job=True)
                return batch.made(self.target.spec, query, after, upto)
        if found is None:
            return None
        assert found.rows is not None
        rows = found.rows if self.append_only else chains.job_changes(found.rows, self.key)
        return ChangeSet.of_table(self.target.spec, rows, after, upto) if rows.num_rows else None

    def transaction_changes(self, after: JobId, upto: JobId, batch: Batch) -> TransactionChanges | None:
        """Changes of the jobs (after, upto], one step per transaction."""
        place = (self.name, self._ranges, after, upto)
        if place not in batch.transaction_changes:
            try:
                batch.transaction_changes[place] = self._transaction_changes(after, upto, batch)
            except TooManyRows as error:
                self.widen(after, upto, batch, error)
                batch.transaction_changes[place] = self._transactions_in_files(after, upto, batch)
        return batch.transaction_changes[place]

    def widen(self, after: JobId, upto: JobId, batch: Batch, error: TooManyRows) -> None:
        """From now on the batch is wide, for the replica and its dimensions: the driver would have to hold too many rows."""
        batch.factory.ways.widen(self.name, error.rows)
        place = (self.name, self._ranges, after, upto)
        batch.wide_replicas[place] = True
        batch.transaction_changes.pop(place, None)

    def _transaction_changes(self, after: JobId, upto: JobId, batch: Batch) -> TransactionChanges | None:
        if self.is_wide(after, upto, batch):
            return self._transactions_in_files(after, upto, batch)
        positions = self._positions(after, upto, batch.factory.chain)
        table = None if positions is None else self.source.log.read(self.table, *positions, self._kept).table
        if table is None or not table.num_rows:
            return None
        events = conform_events(table, self._events)
        load = self._load
        ids = _job_ids(events, self._jobs(after, upto, batch.factory.chain), load.entered_at)
        jobs, events = pa.array(ids, pa.int64()), load.in_order(events)
        if self.append_only:
            return self._added(events, jobs, batch)
        return self._from_rows(events.append_column(JOB, jobs), after, batch)

    @property
    def _kept(self) -> pc.Expression | None:
        """The events of the ranges: those of their keys, and truncations, which have no key and concern every range."""
        return None if self._keys is None else self._keys.expression | (ds.field(OP) == TRUNCATE)

    def is_wide(self, after: JobId, upto: JobId, batch: Batch) -> bool:
        """Decided once per batch, for the replica and its dimensions."""
        place = (self.name, self._ranges, after, upto)
        if place not in batch.wide_replicas:
            # Also of a table whose other ranges have most of them, all events come out of the log.
            size = self.size(after, upto, batch.factory.chain)
            choose = batch.factory.ways.choose_for_events
            batch.wide_replicas[place] = size.rows > 0 and choose(self.name, size.rows, size.in_files).way is Way.WIDE
        return batch.wide_replicas[place]

    def size(self, after: JobId, upto: JobId, chain: JobChain) -> Size:
        """How many events the jobs (after, upto] have for the table."""
        positions = self._positions(after, upto, chain)
        return Size(0, 0) if positions is None else self.source.log.size(self.table, *positions)

    def _positions(self, after: JobId, upto: JobId, chain: JobChain) -> tuple[int, int] | None:
        """Between which positions the events of the jobs lie; None for jobs before the table's first rows."""
        name = self.source.name
        end = chain.position(name, upto)
        if (read_at := self._entering) is not None:
            return (read_at, end) if read_at < end else None
        return self._load.positions(chain.position(name, after), end)

    def _jobs(self, after: JobId, upto: JobId, chain: JobChain) -> list[tuple[JobId, int]]:
        """The jobs that the events belong to, with the positions at which those end."""
        jobs = chain.job_positions(self.source.name, after, upto)
        return jobs if self._entering is None else jobs[-1:]

    @property
    def _entering(self) -> int | None:
        """The position at which the ranges were read, if they are not in the table yet: a stage takes those of one."""
        return next((gap.read_at for gap in self.target.missing.values()), None)

    @property
    def _load(self) -> LoadPlace:
        return LoadPlace.of(self._first_load)

    @property
    def _events(self) -> pa.Schema:
        """The columns of events as the table has them now."""
        fields = [self.target.spec.arrow_schema.field(name) for name in self.columns]
        return event_schema(row_schema(pa.schema(fields)))

    def _added(self, events: pa.Table, jobs: pa.Array, batch: Batch) -> TransactionChanges:
        """Rows of a table without a key, as they came."""
        count = events.num_rows
        numbers = (events.column(POSITION).to_numpy() << _ROWS_BITS) + events.column(SEQUENCE).to_numpy()
        rows = events.select([*self.columns]).append_column(ROW_NUMBER, pa.array(numbers))
        for name, column in ((COMMIT_AT, COMMIT_AT), (POSITION, POSITION), (replica.TRANSACTION_AT, COMMIT_AT)):
            rows = rows.append_column(name, events.column(column))
        rows = rows.append_column(JOB, jobs)
        rows = rows.append_column(WEIGHT, pa.array(np.ones(count, dtype=np.int64)))
        return TransactionChanges(rows, self._schema(), batch.views(count))

    def _schema(self) -> StructType:
        schema = StructType([*self.target.spec.schema.fields])
        schema.add(POSITION, LongType()).add(replica.TRANSACTION_AT, TimestampType())
        return schema.add(JOB, LongType()).add(WEIGHT, LongType())

    def _from_rows(self, events: pa.Table, after: JobId, batch: Batch) -> TransactionChanges | None:
        kinds = replica.Kinds(
            partial=pc.any(pc.greater(pc.list_value_length(events.column(UNCHANGED)), 0)).as_py(),
            truncated=pc.any(pc.equal(events.column(OP), TRUNCATE)).as_py(),
            observed=pc.any(pc.equal(events.column(OP), OBSERVED)).as_py(),
        )
        old = self._old_images(events.select(list(self.key)), after, whole=kinds.truncated)
        views = batch.views(events.num_rows)
        if kinds == replica.Kinds():
            rows = chains.transaction_changes(events, old, self.key, list(self.target.spec.columns))
            if rows.num_rows == 0:
                return None
            return TransactionChanges(rows, self._schema(), views)
        old_view = None if old is None else views.of_rows(old, self.target.spec.schema)
        entered = views.of_rows(events, self._event_schema(events))
        rows, schema = views.collect(replica.transaction_changes(self.columns, self.key, entered, old_view, kinds))
        if rows.num_rows == 0:
            return None
        return TransactionChanges(rows, schema, views)

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

    # what the driver does not hold

    def _transactions_in_files(self, after: JobId, upto: JobId, batch: Batch) -> TransactionChanges:
        events = self._event_files(after, upto, batch)
        views, schema = batch.bulk_views, self._schema()
        with events.damage_named():
            folder = batch.to_files(views.sql(self._query(events, after, upto, batch, by_job=False)))
        frame = views.session.read.schema(schema).parquet(folder)
        return TransactionChanges(None, schema, views, lambda: views.of_frame(frame))

    def _event_files(self, after: JobId, upto: JobId, batch: Batch) -> EventFiles:
        """The events in files, which the replica and its dimensions share."""
        positions, schema = self._positions(after, upto, batch.factory.chain), self._events
        assert positions is not None

        def make(folder: Path) -> EventFiles:
            found = EventFiles(self.source.log, self.table, *positions)
            found.spool(schema, batch.factory.sessions, folder)
            batch.factory.step("spooled")
            return found

        return batch.event_files((self.name, *positions, str(schema)), make)

    def _query(self, found: EventFiles, after: JobId, upto: JobId, batch: Batch, *, by_job: bool) -> str:
        """The query of changes per job or per transaction."""
        views = batch.bulk_views
        frame = views.session.read.schema(self._file_schema()).parquet(*found.files)
        # On the rows of an initial load, files from before format 2 have an earlier beginning of time.
        at = f"GREATEST({COMMIT_AT}, TIMESTAMP '{BEGINNING.isoformat()}') AS {COMMIT_AT}"
        jobs = self._jobs(after, upto, batch.factory.chain)
        if self._keys is not None:
            frame = frame.where(f"{self._keys.sql} OR {OP} = {TRUNCATE}")
        load = self._load
        job_of = _job_of(jobs, f"GREATEST({POSITION}, {load.entered_at}L)")
        events = (
            f"(SELECT * EXCEPT ({COMMIT_AT}, {POSITION}), {at}, {load.ordered_by} AS {POSITION}, {job_of} AS {JOB}"
            f" FROM {views.of_frame(frame)})"
        )
        if self.append_only:
            number = f"shiftleft({POSITION}, {_ROWS_BITS}) + {SEQUENCE}"
            marks = "" if by_job else f"{POSITION}, {COMMIT_AT} AS {replica.TRANSACTION_AT}, "
            return (
                f"SELECT {column_list(self.columns)}, {number} AS {ROW_NUMBER}, {COMMIT_AT}, {marks}{JOB},"
                f" 1L AS {WEIGHT} FROM {events}"
            )
        kinds = replace(found.kinds, distinct=found.are_distinct(self.key))
        if kinds.truncated:
            old = None if self.target.is_empty(after) else views.whole(self.target, after)
        else:
            old = views.matching(self.target, after, self.key, events, same_types=True)
            lead = self.target.spec.lead
            whole_numbers = isinstance(self.target.spec.schema[lead].dataType, IntegralType)
            between = found.range_of(lead) if old is not None and whole_numbers else None
            if between is not None and self.target.main.newest_index.has_outside(*between):
                # Of new keys that follow the old ones nothing is read.
                old = f"(SELECT * FROM {old} WHERE {quoted(lead)} BETWEEN {between[0]} AND {between[1]})"
        if by_job:
            job = jobs[0][0] if len(jobs) == 1 else None
            return replica.job_changes(self.columns, self.key, events, old, kinds, job=job)
        return replica.transaction_changes(self.columns, self.key, events, old, kinds)


def _job_of(jobs: list[tuple[JobId, int]], position: str) -> str:
    """The job of a position: the first that ends there or later."""
    if len(jobs) == 1:
        return f"{jobs[0][0]}L"
    half = len(jobs) // 2
    return f"IF({position} <= {jobs[half - 1][1]}, {_job_of(jobs[:half], position)}, {_job_of(jobs[half:], position)})"


def _job_ids(events: pa.Table, jobs: list[tuple[JobId, int]], least: int) -> np.ndarray:
    """The job of each event, whose position counts as `least` at the least."""
    ends = np.array([position for _, position in jobs], dtype=np.int64)
    ids = np.array([job for job, _ in jobs], dtype=np.int64)
    found: np.ndarray = ids[np.searchsorted(ends, np.maximum(events.column(POSITION).to_numpy(), least))]
    return found
