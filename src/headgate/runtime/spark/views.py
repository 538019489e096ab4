"""Temporary views of one Spark session: how rows that the driver holds reach a query's text.

A view made here lives until `close`. Names are never reused, so a cached plan can not meet other rows.
"""

from __future__ import annotations

import itertools
import re
import threading
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from headgate.warehouse.local import local_frame

_FEW_ROWS = 10_000

_abandoned: deque[tuple[SparkSession, str]] = deque()
"""Views that are to be dropped when Spark is called the next time."""

_schemas: dict[str, str] = {}
"""The columns of views of rows, by name."""
_NAME = re.compile(r"\bheadgate_view_\d+\b")

_numbers = itertools.count()
_numbers_lock = threading.Lock()


def fresh_name() -> str:
    with _numbers_lock:
        return f"headgate_view_{next(_numbers)}"


def shape(text: str) -> tuple[str, ...] | None:
    """The text without the names of the views in it, and their columns: queries of one shape have the same columns.

    None if it reads something else than views of rows that are known here.
    """
    names = list(dict.fromkeys(_NAME.findall(text)))
    found = [_schemas.get(name) for name in names]
    if not names or any(each is None for each in found):
        return None
    places = {name: f"headgate_view #{place}" for place, name in enumerate(names)}
    return (_NAME.sub(lambda match: places[match.group()], text), *(each for each in found if each is not None))


Execution = Callable[[DataFrame], AbstractContextManager[None]]
"""Inside the block that it gives, a frame may run."""


def any_time(_: DataFrame) -> AbstractContextManager[None]:
    return nullcontext()


class Views:
    def __init__(self, session: SparkSession, execution: Execution = any_time) -> None:
        """`execution` lets a frame run."""
        self.session = session
        self._execution = execution
        self._names: list[str] = []

    def of_rows(self, rows: pa.Table, schema: StructType, name: str | None = None) -> str:
        """A view of Arrow rows; the columns take the schema's types, by position.

        Of a few rows Spark is told that they are one partition: then grouping them needs no exchange, which costs more
        than the grouping.
        """
        frame = local_frame(self.session, rows, schema)
        name = self.of_frame(frame.coalesce(1) if rows.num_rows < _FEW_ROWS else frame, name)
        _schemas[name] = schema.json()
        return name

    def of_frame(self, frame: DataFrame, name: str | None = None) -> str:
        _drop_abandoned()
        name = name or fresh_name()
        frame.createOrReplaceTempView(name)
        self._names.append(name)
        return name

    def collect(self, text: str) -> tuple[pa.Table, StructType]:
        """Runs the query and brings its rows to the driver."""
        frame = self.session.sql(text)
        with self._execution(frame):
            return frame.toArrow(), frame.schema

    def close(self) -> None:
        self.abandon()
        _drop_abandoned()

    def abandon(self) -> None:
        """Lets the views go without a call of Spark: they are dropped with the next one."""
        _abandoned.extend((self.session, name) for name in self._names)
        self._names.clear()


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
    _schemas.pop(name, None)
    session._jsparkSession.sessionState().catalog().dropTempView(name)
