"""Temporary views of one Spark session: how rows that the driver holds reach a query's text.

A view made here lives until `close`. Names are never reused, so a cached plan can not meet other rows.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import AbstractContextManager, nullcontext, suppress

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from headgate.runtime.spark.collecting import Collector
from headgate.runtime.spark.entered_rows import as_view, drop_view, fresh_name, register

Execution = Callable[[DataFrame], AbstractContextManager[None]]
"""Inside the block that it gives, a frame may run."""


def any_time(_: DataFrame) -> AbstractContextManager[None]:
    return nullcontext()


class Views:
    def __init__(
        self, session: SparkSession, collector: Collector | None = None, execution: Execution = any_time
    ) -> None:
        """With a collector of the same session, rows are entered when a query needs them, and queries run together with others.

        `execution` lets a frame run.
        """
        self.session = session
        self._collector = collector
        self._execution = execution
        self._frames: list[str] = []
        self._rows: list[str] = []
        self._entering: list[Future[object]] = []

    def another(self) -> Views:
        """Views of the same session that can be closed by themselves."""
        return Views(self.session, self._collector, self._execution)

    def of_rows(self, rows: pa.Table, schema: StructType) -> str:
        """A view of Arrow rows; the columns take the schema's types, by position."""
        # Several threads may make views here at the same time.
        if self._collector is not None:
            name = self._collector.rows.add(rows, schema)
            self._rows.append(name)
            return name
        name = fresh_name()
        self._frames.append(name)
        as_view(self.session, rows, schema, name)
        return name

    def of_rows_later(self, rows: pa.Table, schema: StructType) -> str:
        """As `of_rows`, while the caller goes on."""
        if self._collector is None:
            return self.of_rows(rows, schema)
        name, entering = self._collector.enter_later(rows, schema)
        self._rows.append(name)
        self._entering.append(entering)
        return name

    def of_frame(self, frame: DataFrame) -> str:
        name = fresh_name()
        self._frames.append(name)
        register(frame, name)
        return name

    def sql(self, text: str) -> DataFrame:
        """The query as a frame."""
        if self._collector is not None:
            self._collector.rows.register(text)
        return self.session.sql(text)

    def collect(self, text: str, *, alone: bool = False) -> tuple[pa.Table, StructType]:
        """Runs the query and brings its rows to the driver; `alone` if others should not wait for it."""
        if self._collector is not None:
            return self._collector.collect(text, alone=alone)
        frame = self.sql(text)
        with self._execution(frame):
            return frame.toArrow(), frame.schema

    def close(self) -> None:
        wait(self._entering)
        self._entering.clear()
        if self._collector is not None:
            self._collector.rows.forget(self._rows)
            self._rows.clear()
        for name in self._frames:
            with suppress(Py4JError, ConnectionError):  # its Spark may have been stopped since
                drop_view(self.session, name)
        self._frames.clear()


class LazyView:
    """A view that is made when first asked for.

    It has a lock of its own: a cached property has one for all objects of a class, and several views are made at the same time.
    """

    def __init__(self, make: Callable[[], str]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._name: str | None = None

    @property
    def name(self) -> str:
        with self._lock:
            if self._name is None:
                self._name = self._make()
            return self._name
