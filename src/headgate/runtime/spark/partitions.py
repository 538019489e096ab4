"""An answer's rows on their way from Spark: Arrow batches of bounded size, of which neither Spark nor this process holds many.

    small by its plan, or all rows of little  as PySpark collects them
    else, few rows of narrow columns          the same: every task ends before it has more than its share of FEW_BYTES
    else, a task per partition                few bytes: the task's result        (partition_task)
                                              more: a file of the answer's folder
    driver                                    batch after batch, in the order of the partitions

Whether rows are few shows when they are read; those of a larger answer are read again, from the same shuffles. Few rows take no
Python worker, which is most of what a small answer costs. The executors see the same storage as the driver.
"""

from __future__ import annotations

import shutil
import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DateType,
    DayTimeIntervalType,
    NullType,
    NumericType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from headgate.runtime.spark.partition_task import CUT, RESULT, partition_task

UNLIMITED = (1 << 63) - 1
SMALL_ROWS = 10_000
"""Answers whose plan promises no more rows, all of fixed width, need no files."""
_FIXED_WIDTH = (BooleanType, DateType, DayTimeIntervalType, NullType, NumericType, TimestampNTZType, TimestampType)
FEW_BYTES = 8 << 20
"""What all partitions together may have to be collected without files."""
_NARROW_BYTES = 256
"""The longest text, or binary value, of few rows."""
_FIXED_BYTES = 16
"""At most, for a value of fixed width."""
_MOST_INTEGER = (1 << 31) - 1
_BATCH_ROWS = 16_384


@dataclass(frozen=True, slots=True)
class ReadLimit:
    """How much of an answer is read."""

    rows: int = UNLIMITED
    """Partitions end once they have so many; the answer may have more, since there are several."""
    bytes: int = UNLIMITED
    """In Arrow's form. An answer that has more is cut short."""


class AnswerPart(NamedTuple):
    """The rows of a partition: a table, or an Arrow IPC stream in memory or in a file."""

    rows: int
    size: int
    batches: pa.Table | bytes | Path


class Batches:
    """An answer's rows outside of Spark; its files are deleted when nobody holds it any more."""

    def __init__(
        self,
        schema: pa.Schema,
        parts: Iterable[AnswerPart],
        most_bytes: int,
        discard: Callable[[], None] = lambda: None,
    ) -> None:
        self.schema = schema
        self.rows = 0
        self.is_cut = False
        """Whether rows are missing at the end, since there were more bytes than allowed."""
        self._parts: list[AnswerPart] = []
        size = 0
        for part in parts:
            size += part.size
            self.is_cut = size > most_bytes
            if self.is_cut:
                break
            self.rows += part.rows
            self._parts.append(part)
        if any(isinstance(part.batches, Path) for part in self._parts):
            weakref.finalize(self, discard)
        else:
            discard()

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for part in self._parts:
            if isinstance(part.batches, pa.Table):
                yield from part.batches.to_batches(_BATCH_ROWS)
            elif isinstance(part.batches, Path):
                # Mapped, so that many who take rows slowly hold pages of the file and no batches.
                with pa.memory_map(str(part.batches)) as source:
                    yield from self._decoded(source)
            else:
                yield from self._decoded(pa.BufferReader(part.batches))

    def _decoded(self, source: pa.NativeFile) -> Iterator[pa.RecordBatch]:
        with pa.ipc.open_stream(source) as stream:
            for batch in stream:
                columns = [column.cast(field.type) for column, field in zip(batch, self.schema, strict=True)]
                yield pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def to_arrow(self) -> pa.Table:
        return pa.Table.from_batches(self, self.schema)


def read_partitions(frame: DataFrame, limit: ReadLimit, folder: Path, done: Callable[[], None]) -> Batches:
    """The rows as one Spark job gives them; large partitions are put into the folder, which `done` is told of at the end."""

    def discard() -> None:
        shutil.rmtree(folder, ignore_errors=True)
        done()

    try:
        schema = to_arrow_schema(frame.schema, timezone="UTC")
        if (limit == ReadLimit() and reads_little(frame)) or _is_small(frame):
            rows = frame.toArrow()
            parts = [AnswerPart(rows.num_rows, rows.nbytes, rows)]
        else:
            frame, partitions = _computed_once(frame)
            few = _few_rows(frame, partitions, limit.rows, schema)
            if few is not None:
                parts = [AnswerPart(few.num_rows, few.nbytes, few)]
            else:
                parts = _parts(_ending_partitions(frame, limit.rows), limit.bytes, folder)
        return Batches(schema, parts, limit.bytes, discard)
    except BaseException:
        discard()
        raise


def reads_little(frame: DataFrame) -> bool:
    """Whether what Spark expects of the plan is few bytes."""
    return int(frame._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()) <= FEW_BYTES


def _is_small(frame: DataFrame) -> bool:
    """Whether the plan promises few rows of fixed width."""
    if not all(isinstance(field.dataType, _FIXED_WIDTH) for field in frame.schema):
        return False
    most = frame._jdf.queryExecution().analyzed().maxRows()
    return bool(most.isDefined()) and int(most.get()) * max(1, len(frame.columns)) <= SMALL_ROWS


def _computed_once(frame: DataFrame) -> tuple[DataFrame, int]:
    """The frame's rows, of which all but the last stage is computed once however often they are read; and their partitions."""
    session = frame.sparkSession
    rows = frame._jdf.queryExecution().toRdd()
    java = session._jsparkSession.internalCreateDataFrame(rows, frame._jdf.schema(), False)
    # Names may occur twice.
    named = DataFrame(java, session).toDF(*(f"_{place}" for place in range(len(frame.columns))))
    return named, int(rows.getNumPartitions())


def _few_rows(frame: DataFrame, partitions: int, most_rows: int, schema: pa.Schema) -> pa.Table | None:
    """All rows, or the first `most_rows` of each partition, if they are few and narrow; else None."""
    texts = [field.name for field in frame.schema if isinstance(field.dataType, StringType | BinaryType)]
    fixed = [field.name for field in frame.schema if isinstance(field.dataType, _FIXED_WIDTH)]
    if len(texts) + len(fixed) < len(frame.columns):
        return None
    width = len(texts) * _NARROW_BYTES + max(1, len(fixed)) * _FIXED_BYTES
    few = FEW_BYTES // (width * max(1, partitions))
    wide = " OR ".join(f"COALESCE(octet_length({name}), 0) > {_NARROW_BYTES}" for name in texts) or "false"
    narrow = [f"IF({wide}, NULL, {name}) AS {name}" if name in texts else name for name in frame.columns]
    ended = _ending_partitions(frame, min(most_rows, few + 1))
    found = ended.selectExpr(*narrow, f"{wide} AS is_wide", "spark_partition_id() AS part").toArrow()
    counts = found.column("part").value_counts().field("counts")
    if pc.any(found.column("is_wide")).as_py() or (pc.max(counts).as_py() or 0) > few:
        return None
    columns = [column.cast(field.type) for column, field in zip(found.columns[:-2], schema, strict=True)]
    return pa.Table.from_arrays(columns, schema=schema)


def _parts(frame: DataFrame, most_bytes: int, folder: Path) -> list[AnswerPart]:
    try:
        found = frame.mapInArrow(partition_task(folder, most_bytes), RESULT).toArrow()
    except (PySparkException, Py4JError):
        if not (folder / CUT).exists():
            raise
        return [AnswerPart(0, most_bytes + 1, b"")]
    return [
        AnswerPart(row["rows"], row["bytes"], row["stream"] if row["file"] is None else folder / row["file"])
        for row in found.sort_by("partition").to_pylist()
    ]


def _ending_partitions(frame: DataFrame, rows: int) -> DataFrame:
    """The frame, each of whose partitions ends once it has so many rows. Spark's own LIMIT would bring all rows into one partition."""
    if rows > _MOST_INTEGER:
        return frame
    session = frame.sparkSession
    jvm = session._jvm
    assert jvm is not None
    catalyst = jvm.org.apache.spark.sql
    number = catalyst.catalyst.expressions.Literal.fromSQL(str(rows))
    plan = catalyst.catalyst.plans.logical.LocalLimit(number, frame._jdf.queryExecution().analyzed())
    return DataFrame(catalyst.classic.Dataset.ofRows(session._jsparkSession, plan), session)
