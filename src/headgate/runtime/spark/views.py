"""Temporary views of one Spark session: how rows that the driver holds reach a query's text.

A view made here lives until `close`. Names are never reused, so a cached plan can not meet other rows.
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from contextlib import suppress

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from headgate.warehouse.local import local_frame

_FEW_ROWS = 10_000

_abandoned: deque[tuple[SparkSession, str]] = deque()
"""Views that are to be dropped when Spark is called the next time."""

_numbers = itertools.count()
_numbers_lock = threading.Lock()


def _fresh_name() -> str:
    with _numbers_lock:
        return f"headgate_view_{next(_numbers)}"


class Views:
    def __init__(self, session: SparkSession) -> None:
        self.session = session
        self._names: list[str] = []

    def of_rows(self, rows: pa.Table, schema: StructType) -> str:
        """A view of Arrow rows; the columns take the schema's types, by position.

        Of a few rows Spark is told that they are one partition: then grouping them needs no exchange, which costs more
        than the grouping.
        """
        frame = local_frame(self.session, rows, schema)
        return self.of_frame(frame.coalesce(1) if rows.num_rows < _FEW_ROWS else frame)

    def of_frame(self, frame: DataFrame) -> str:
        _drop_abandoned()
        name = _fresh_name()
        frame.createOrReplaceTempView(name)
        self._names.append(name)
        return name

    def collect(self, text: str) -> tuple[pa.Table, StructType]:
        """Runs the query and brings its rows to the driver."""
        frame = self.session.sql(text)
        return frame.toArrow(), frame.schema

    def close(self) -> None:
        self.abandon()
        _drop_abandoned()

    def abandon(self) -> None:
        """Lets the views go without a call of Spark: they are dropped with the next one."""
        _abandoned.extend((self.session, name) for name in self._names)
        self._names.clear()


def _drop_abandoned() -> None:
    while _abandoned:
        try:
            session, name = _abandoned.popleft()
        except IndexError:
            return  # another thread was quicker
        with suppress(Py4JError, ConnectionError):  # its Spark may have been stopped since
            drop_view(session, name)


def drop_view(session: SparkSession, name: str) -> None:
    """Without `session.catalog`, which plans the view first to see whether its rows are cached; they never are."""
    session._jsparkSession.sessionState().catalog().dropTempView(name)
