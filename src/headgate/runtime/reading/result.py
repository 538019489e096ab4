"""What a query came to: a plan of Spark whose rows are still to be read, or rows that are here without one."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cached_property

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from headgate.runtime.reading.spark_reading import SparkReading
from headgate.runtime.spark.partitions import AnswerPart, Batches, ReadLimit


class PlannedResult:
    """Rows that Spark computes when they are read."""

    def __init__(self, frame: DataFrame, reading: SparkReading, observe: Callable[[float], None] | None = None) -> None:
        """`observe` hears how many seconds reading all rows took."""
        self.frame = frame
        self._reading = reading
        self._observe = observe

    origin = ""

    @property
    def schema(self) -> StructType:
        return self.frame.schema

    def read(self, limit: ReadLimit) -> Batches:
        """Reads in the calling thread, which is one of `reading.work`."""
        began = time.monotonic()
        found = self._reading.read(self.frame, limit)
        if self._observe is not None:
            self._observe(time.monotonic() - began)
        return found


class PickedResult:
    """Rows that are here; whoever wants a DataFrame has it planned."""

    def __init__(self, schema: StructType, rows: pa.Table, plan: Callable[[], DataFrame], origin: str = "") -> None:
        self.schema = schema
        self.origin = origin
        """Of which kept answer the rows are, in words; empty for none."""
        self._rows = rows
        self._plan = plan

    @cached_property
    def frame(self) -> DataFrame:
        return self._plan()

    def read(self, limit: ReadLimit) -> Batches:
        rows = self._rows.slice(0, limit.rows)
        return Batches(rows.schema, [AnswerPart(rows.num_rows, rows.nbytes, rows)], limit.bytes)


Result = PlannedResult | PickedResult
