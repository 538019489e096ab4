"""How the rows of answers come out of Spark: planned and read in threads that can be left, through files of the scratch folder."""

from __future__ import annotations

from pyspark import SparkContext
from pyspark.sql import DataFrame

from headgate.runtime.reading.query_work import QueryWork
from headgate.runtime.spark.health import SparkHealth
from headgate.runtime.spark.partitions import Batches, ReadLimit, read_partitions
from headgate.runtime.spark.scratch import Scratch


class SparkReading:
    """One warehouse's; may be used by many threads."""

    def __init__(self, context: SparkContext, health: SparkHealth, scratch: Scratch) -> None:
        self.work = QueryWork(context, health)
        self._scratch = scratch

    def read(self, frame: DataFrame, limit: ReadLimit) -> Batches:
        """Reads in the calling thread, which is one of `work`."""
        folder = self._scratch.new()
        return read_partitions(frame, limit, folder, lambda: self._scratch.done([folder]))
