"""An answer: a DataFrame over one snapshot, kept readable until it is closed."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self, TypeVar

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row
from pyspark.sql.types import StructType

from headgate.delta.changes import JobId
from headgate.errors import SnapshotGone, TooStale
from headgate.runtime.reading.query_work import DeadlineExceeded, Interruption
from headgate.runtime.reading.reads import AnswerRows
from headgate.runtime.reading.result import PickedResult, Result
from headgate.runtime.reading.spark_reading import SparkReading
from headgate.runtime.spark.partitions import Batches, ReadLimit, reads_little
from headgate.runtime.spark.problems import query_problem
from headgate.warehouse.problems import storage_problems
from headgate.warehouse.storage import Folder

Found = TypeVar("Found")


class SnapshotAnswer:
    """The rows of a query or table at a job. Closing it (or letting it go) lets the snapshot go."""

    def __init__(
        self,
        result: Result,
        job: JobId,
        storage: Folder,
        rows: AnswerRows,
        reading: SparkReading,
        release: Callable[[], None],
        interruption: Interruption | None = None,
        text: str = "",
        drop: Callable[[], None] | None = None,
    ) -> None:
        """`text` is the query as it was written.

        `drop` is `release` for an answer that nobody closed: the garbage collector runs it in the middle of anything, a
        call of Spark too, so that it must not call Spark.
        """
        self._result = result
        self.job = job
        self.read_seconds = 0.0
        """Time spent on bringing rows to this program."""
        self._allowed_seconds: float | None = None
        """How much time that may be in all; None is as much as it takes."""
        self._storage = storage
        self._rows = rows
        self._reading = reading
        self._interruption = interruption or Interruption()
        self._release = release
        self._text = text
        self._drop = drop
        self._finalizer = weakref.finalize(self, drop or release)

    @property
    def dataframe(self) -> DataFrame:
        """The rows as a Spark DataFrame, to be used before the answer is closed."""
        self._require_open()
        return self._result.frame

    @property
    def schema(self) -> StructType:
        """The rows' columns and types."""
        return self._result.schema

    @property
    def kept(self) -> str:
        """Of which kept answer the rows are, in words; empty if the query is read as written."""
        return self._result.origin

    @property
    def is_open(self) -> bool:
        return self._finalizer.alive

    def collect(self) -> list[Row]:
        """All rows in this program's memory; of large answers, Spark hands over a part after the other."""

        def collect() -> list[Row]:
            found = self._result.frame
            return found.collect() if reads_little(found) else list(found.toLocalIterator(prefetchPartitions=True))

        with self._timed() as until, self._rows.counted():
            frame = None if isinstance(self._result, PickedResult) else self._result.frame
            return self._reading.work.run(collect, self._interruption, until, frame)

    def to_arrow(self) -> pa.Table:
        """All rows as an Arrow table."""
        return self.read().to_arrow()

    def read(self, limit: ReadLimit | None = None) -> Batches:
        """The rows in Arrow batches, which are read no further than the limit and outlive the answer.

        What is large waits in files: Spark's driver never holds it. The open answers to the same query at the same snapshot are
        read once.
        """
        limit = limit or ReadLimit()
        if isinstance(self._result, PickedResult):
            self._require_open()
            return self._result.read(limit)
        with self._timed() as until:
            work, interruption = self._reading.work, self._interruption

            def read() -> Batches:
                return work.run(lambda: self._result.read(limit), interruption, until, self._result.frame)

            return self._rows.batches(limit, read, interruption, until)

    @contextmanager
    def _timed(self) -> Iterator[float | None]:
        """Until when the rows are to be read."""
        self._require_open()
        began = time.monotonic()
        allowed = self._allowed_seconds
        try:
            with self._interruption.at_work(), storage_problems(self._storage):
                yield None if allowed is None else began + allowed - self.read_seconds
        except DeadlineExceeded:
            raise self._too_late(self.read_seconds + time.monotonic() - began) from None
        except (PySparkException, Py4JError) as error:
            raise query_problem(error, self._text) from error
        finally:
            self.read_seconds += time.monotonic() - began

    def _require_open(self) -> None:
        if not self._finalizer.alive:
            raise SnapshotGone(
                f"the answer at job {self.job} was closed, or its lease has ended",
                hint="ask again; a longer lease is set by retention: {lease: …}",
            )

    def _too_late(self, seconds: float) -> Exception:
        return TooStale(f"the answer could not be read within {seconds:.3g} s", hint="allow a longer deadline")

    def close(self) -> None:
        """Lets the snapshot go, and the rows; closing twice is closing once."""
        self._rows = self._rows.unread()
        if self._finalizer.detach() is not None:
            self._release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
