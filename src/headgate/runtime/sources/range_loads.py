"""Loads ranges of a source's table: executors read their rows and write them, sorted, as files of the table's base.

    source     a position p, and what reads a range as it was there
    task       reads one range ──► data files of an attempt; only their names come back
    driver     verify ──► one Delta commit ──► ledger: the version, and read_at = p ──► a mark in the log, so that a job can follow

No row passes through the log or the driver. Before the ledger's entry nothing counts: the next opening undoes the commit, and the
ranges are read again. After it, the ranges enter at the first job that has p (`ReplicaStage.enters_at`), in this process or the next.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import dataclass, field
from threading import RLock

import numpy as np
import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException

from headgate.capture.ranges import Read
from headgate.capture.source import RangedSource, RangeRead, Source
from headgate.delta.changes import BEGINNING, COMMIT_AT
from headgate.errors import HeadgateError, TransientError
from headgate.ranges.key_set import KeySet
from headgate.ranges.range_map import Ranges
from headgate.runtime.spark.environment import private_files
from headgate.runtime.spark.pools import EXTRACT, POOL_PROPERTY
from headgate.runtime.stages.replica_stage import ReplicaStage
from headgate.runtime.tables.journal import Journal
from headgate.runtime.tables.records import CHECKPOINT, GAPS
from headgate.runtime.tables.tables import Tables
from headgate.warehouse.files import FileWriter
from headgate.warehouse.spec import TableSpec
from headgate.warehouse.statistics import DataFile
from headgate.warehouse.storage import Folder
from headgate.warehouse.store import ForeignCommit

MOST_TASKS = 16
"""Sessions that a load may open at the source, however large the cluster is."""
MOST_SECONDS = 600.0
"""How long a group may hold what its source keeps for it: then it is given up, and read again."""
_LOOK_SECONDS = 0.2
_SORTED_BYTES = 256 << 20
"""What a task sorts at once: a range with more rows becomes several files whose keys overlap."""


@dataclass(frozen=True)
class RangeLoads:
    """Its methods run in the thread that loads a source."""

    _journal: Journal
    _tables: Tables
    _context: Callable[[], SparkContext]
    _keeping: Callable[[], AbstractContextManager[None]]
    """Inside the block no table is materialized or vacuumed."""
    _widen: Callable[[Source], None]
    """Gives replicas the columns that their tables at a source have by now."""

    @property
    def lock(self) -> RLock:
        """Held by whoever looks at ranges by their numbers."""
        return self._journal.lock

    @property
    def most(self) -> int:
        """How many ranges are read at a time."""
        return max(1, min(MOST_TASKS, self._context().defaultParallelism))

    def load(self, stage: ReplicaStage, ranges: Ranges, is_stopped: Callable[[], bool]) -> int:
        """Reads ranges of a table that nobody has read, all as of one position, and makes them durable; gives their rows."""
        with self.reading(stage, is_stopped) as take:
            return take(ranges)

    @contextmanager
    def reading(self, stage: ReplicaStage, is_stopped: Callable[[], bool]) -> Iterator[Callable[[Ranges], int]]:
        """A table as its source has it at one position, and what loads ranges of it as of there; the source holds that for the block."""
        source, division = stage.source, stage.target.division
        assert isinstance(source, RangedSource) and division is not None
        self._widen(source)
        with source.read_ranges(stage.table, division.column, is_stopped) as found:
            yield lambda ranges: self._load(stage, ranges, found, is_stopped)

    def _load(self, stage: ReplicaStage, ranges: Ranges, reading: RangeRead, is_stopped: Callable[[], bool]) -> int:
        main = stage.target.versioned
        with self.lock:
            unread = sorted(ranges & stage.unread)
            keys = [stage.target.range_map.keys_of([number]) for number in unread]
            all_keys = stage.target.range_map.keys_of(unread)
        if not keys:
            return 0
        attempt = main.store.begin()
        try:
            task = RangeTask(main.store.folder.address, attempt, main.spec, main.limits.rows_per_file, reading.read)
            files = self._run(task, keys, is_stopped)
            reading.verify()
            main._step("range-files")
            self._take(stage, all_keys, attempt, files, reading.position)
        except BaseException:
            main.store.end(attempt, discard=True)
            raise
        self._let_enter(stage, reading.position)
        return sum(file.rows for file in files)

    def _let_enter(self, stage: ReplicaStage, position: int) -> None:
        """Makes sure that another job can be closed, and that it has the position."""
        source, chain = stage.source, self._journal.chain
        assert isinstance(source, RangedSource)
        with self.lock:
            is_there = source.log.end > chain.position(source.name, chain.newest) and source.log.end >= position
        if not is_there:
            source.mark(position)

    def pass_over(self, stage: ReplicaStage, position: int) -> None:
        """Ranges that nobody has read begin without rows, before a position of the log at which the source has put all rows."""
        main = stage.target.versioned
        with self.lock:
            keys = stage.target.range_map.keys_of(stage.unread)
        attempt = main.store.begin()
        try:
            self._take(stage, keys, attempt, (), position - 1)
        except BaseException:
            main.store.end(attempt, discard=True)
            raise
        self._let_enter(stage, position)

    def _take(self, stage: ReplicaStage, keys: KeySet, attempt: str, files: Sequence[DataFile], read_at: int) -> None:
        """Makes the files, which have all rows with these keys, part of the table's base, and that durable."""
        journal, table = self._journal, stage.target
        with self._keeping(), journal.lock:
            # Ranges may have been split meanwhile; what holds the keys is still unread.
            numbers = table.holding(keys)
            if table.range_map.keys_of(numbers) != keys:
                raise TransientError(
                    f"ranges of {stage.name} were merged with others while they were read",
                    hint="they are read again as they are now",
                )
            journal.verify()
            try:
                table.take_rows(numbers, attempt, files, read_at, journal.chain)
            except ForeignCommit:
                journal.verify()
                table.versioned.repair()
                table.take_rows(numbers, attempt, files, read_at, journal.chain)
            self._tables.kept.forget(table.name)
            path, main = self._tables.path(table.versioned), table.versioned
            gaps = [gap.body() for gap in table.gaps.lasting(main.base_through)]
            journal.record(
                [
                    (GAPS, {"table": path, "gaps": gaps}),
                    (CHECKPOINT, {"tables": {path: [main.version, main.base_through]}}),
                ]
            )

    def _run(self, task: RangeTask, keys: Sequence[KeySet], is_stopped: Callable[[], bool]) -> list[DataFile]:
        context, name = self._context(), f"load-{secrets.token_hex(4)}"
        done = threading.Event()

        def watch() -> None:
            limit = time.monotonic() + MOST_SECONDS
            while not done.wait(_LOOK_SECONDS):
                if is_stopped() or time.monotonic() > limit:
                    with suppress(Py4JError, PySparkException):
                        context.cancelJobGroup(name)

        watcher = threading.Thread(target=watch, name=name, daemon=True)
        watcher.start()
        try:
            context.setJobGroup(name, "reading ranges of a source table", interruptOnCancel=True)
            context.setLocalProperty(POOL_PROPERTY, EXTRACT)
            found = context.parallelize(keys, len(keys)).map(task).collect()
        except (Py4JError, PySparkException) as error:
            raise TransientError(
                f"Spark did not read the ranges to the end: {type(error).__name__}",
                hint="look at the logs of Spark's executors; they need this package, the driver of the source and the storage",
            ) from error
        finally:
            done.set()
            watcher.join()
            with suppress(Py4JError, PySparkException):
                context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
                context.setLocalProperty(POOL_PROPERTY, None)  # type: ignore[arg-type]
        files: list[DataFile] = []
        for each in found:
            if isinstance(each, HeadgateError):
                raise each
            files += each
        return files


@dataclass(frozen=True, slots=True)
class RangeTask:
    """What one task does, on an executor: the rows of a range, sorted, in data files. Every try has a folder of its own."""

    location: str
    attempt: str
    spec: TableSpec
    rows_per_file: int
    read: Read[KeySet] = field(repr=False)

    def __call__(self, keys: KeySet) -> list[DataFile] | HeadgateError:
        with private_files():
            try:
                return self._written(keys)
            except HeadgateError as error:
                return error

    def _written(self, keys: KeySet) -> list[DataFile]:
        folder, place = Folder.at(self.location), f"{self.attempt}/{secrets.token_hex(4)}"
        folder.child(place).create()
        writer = FileWriter(folder, place, self.spec, self.rows_per_file)
        files: list[DataFile] = []
        held: list[pa.Table] = []
        with closing(self.read(keys)) as batches:
            for batch in batches:
                held.append(self._rows(batch))
                if sum(rows.nbytes for rows in held) > _SORTED_BYTES:
                    files += writer.write(pa.concat_tables(held))
                    held = []
        return [*files, *(writer.write(pa.concat_tables(held)) if held else ())]

    def _rows(self, batch: pa.RecordBatch) -> pa.Table:
        """Rows as the table has them: valid from the beginning of time, as all that is there when capture begins."""
        schema = self.spec.arrow_schema
        if not set(batch.schema.names) <= set(schema.names):
            raise TransientError(f"{self.spec.name} got columns while it was read", hint="it is read again with them")
        kind = schema.field(COMMIT_AT).type
        at = pa.array(np.full(batch.num_rows, int(BEGINNING.timestamp()) * 1_000_000, dtype=np.int64)).cast(kind)
        columns = [
            at
            if name == COMMIT_AT
            else batch.column(name).cast(schema.field(name).type)
            if name in batch.schema.names
            else pa.nulls(batch.num_rows, schema.field(name).type)
            for name in schema.names
        ]
        return pa.Table.from_arrays(columns, schema=schema)
