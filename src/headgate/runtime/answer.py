"""An answer: a DataFrame over one snapshot, kept readable until it is closed."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from types import TracebackType

import pyarrow as pa
from pyspark.sql import DataFrame, Row

from headgate.delta.changes import JobId
from headgate.warehouse.problems import storage_problems
from headgate.warehouse.storage import Folder


class Answer:
    """The rows of a query or table at a job. Closing it (or letting it go) lets the snapshot go."""

    def __init__(self, dataframe: DataFrame, job: JobId, storage: Folder, release: Callable[[], None]) -> None:
        self.dataframe = dataframe
        self.job = job
        self._storage = storage
        self._finalizer = weakref.finalize(self, release)

    def collect(self) -> list[Row]:
        with storage_problems(self._storage):
            return self.dataframe.collect()

    def to_arrow(self) -> pa.Table:
        with storage_problems(self._storage):
            return self.dataframe.toArrow()

    def close(self) -> None:
        self._finalizer()

    def __enter__(self) -> Answer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
