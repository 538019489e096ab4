"""An answer: a DataFrame over one snapshot, kept readable until it is closed."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from types import TracebackType

import pyarrow as pa
from pyspark.sql import DataFrame, Row

from headgate.delta.changes import JobId


class Answer:
    """The rows of a query or table at a job. Closing it (or letting it go) lets the snapshot go."""

    def __init__(self, dataframe: DataFrame, job: JobId, release: Callable[[], None]) -> None:
        self.dataframe = dataframe
        self.job = job
        self._finalizer = weakref.finalize(self, release)

    def collect(self) -> list[Row]:
        return self.dataframe.collect()

    def to_arrow(self) -> pa.Table:
        return self.dataframe.toArrow()

    def close(self) -> None:
        self._finalizer()

    def __enter__(self) -> Answer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
