"""Reads parts of files as tasks of one Spark job.

    driver     parts (metadata) ──► task: reads its part, writes its events into files of the stream log, or its rows into buckets
    driver     ◄── the files' names, and what was wrong

What a task runs is pickled whole: executors need PySpark and the same storage, not this package.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.cloudpickle import register_pickle_by_value
from pyspark.errors import PySparkException

from headgate.capture import columns, events_file
from headgate.capture.files import buckets, layout, part, rows, texts
from headgate.capture.files.part import FilePart, PartOutcome, read_part
from headgate.errors import TransientError

for module in (columns, events_file, layout, texts, rows, buckets, part):
    register_pickle_by_value(module)  # type: ignore[no-untyped-call]

__all__ = ["SparkParts"]


class SparkParts:
    """Implements `RunParts`."""

    def __init__(self, context: Callable[[], SparkContext]) -> None:
        self._context = context

    def __call__(self, parts: Sequence[FilePart], folder: str) -> list[PartOutcome]:
        context = self._context()
        try:
            tasks = context.parallelize(parts, len(parts))
            return list(tasks.map(lambda each: read_part(each, folder)).collect())
        except (Py4JError, PySparkException) as error:
            raise TransientError(
                f"Spark did not read the files to the end: {type(error).__name__}",
                hint="look at the logs of Spark's executors; they need the folder of the files and the storage",
            ) from error
