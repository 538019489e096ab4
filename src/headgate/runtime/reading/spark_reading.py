"""How the rows of answers come out of Spark: planned and read in threads that can be left, through files of the scratch folder."""

from __future__ import annotations

from pyspark.sql import DataFrame

from headgate.runtime.reading.query_work import QueryWork
from headgate.runtime.spark.partitions import Batches, ReadLimit, read_partitions
from headgate.runtime.spark.scratch import Scratch
from headgate.runtime.spark.sessions import SparkSessions


class SparkReading:
    """One warehouse's; may be used by many threads."""

    def __init__(self, sessions: SparkSessions, scratch: Scratch) -> None:
        self.work = QueryWork(sessions.context, sessions.health, sessions.execution)
        self.scratch = scratch

    def read(self, frame: DataFrame, limit: ReadLimit) -> Batches:
        """Reads in the calling thread, which is one of `work`."""
        folder = self.scratch.new()
        return read_partitions(frame, limit, folder, lambda: self.scratch.done([folder]))
