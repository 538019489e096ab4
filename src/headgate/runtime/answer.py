"""An answer: a DataFrame over one snapshot, kept readable until it is closed."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

import pyarrow as pa
from pyspark.sql import DataFrame, Row

from headgate.delta.changes import JobId
from headgate.errors import SnapshotGone
from headgate.runtime.reads import Rows
from headgate.warehouse.problems import storage_problems
from headgate.warehouse.storage import Folder


class Answer:
    """The rows of a query or table at a job. Closing it (or letting it go) lets the snapshot go."""

    def __init__(
        self, dataframe: DataFrame, job: JobId, storage: Folder, rows: Rows, release: Callable[[], None]
    ) -> None:
        self._dataframe = dataframe
        self.job = job
        self.read_seconds = 0.0
        """Time spent on bringing rows to this program."""
        self._storage = storage
        self._rows = rows
        self._release = release
        self._finalizer = weakref.finalize(self, release)

    @property
    def dataframe(self) -> DataFrame:
        """The rows as a Spark DataFrame, to be used before the answer is closed."""
        if not self._finalizer.alive:
            raise SnapshotGone(
                f"the answer at job {self.job} was closed, or its lease has ended",
                hint="ask again; a longer lease is set by retention: {lease: …}",
            )
        return self._dataframe

    @property
    def is_open(self) -> bool:
        return self._finalizer.alive

    def collect(self) -> list[Row]:
        """All rows in this program's memory."""
        with self._reading() as frame, self._rows.counted():
            return frame.collect()

    def to_arrow(self) -> pa.Table:
        """All rows as an Arrow table; the open answers to the same query at the same snapshot are read once."""
        with self._reading() as frame:
            return self._rows.arrow(frame.toArrow)

    @contextmanager
    def _reading(self) -> Iterator[DataFrame]:
        frame, began = self.dataframe, time.monotonic()
        try:
            with storage_problems(self._storage):
                yield frame
        finally:
            self.read_seconds += time.monotonic() - began

    def close(self) -> None:
        """Lets the snapshot go, and the rows; closing twice is closing once."""
        self._rows = self._rows.unread()
        self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
