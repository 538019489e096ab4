"""Rows of the driver that queries of one Spark session name.

Naming rows costs nothing. They are entered into Spark when a query needs them: as an RDD of one partition for a plan that is
kept (`kept_plans`), or as a temporary view for a query that Spark reads as text. Names are never reused.
"""

from __future__ import annotations

import itertools
import re
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cached_property

import pyarrow as pa
from py4j.java_gateway import JavaObject
from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from headgate.warehouse.local import local_frame

_FEW_ROWS = 10_000
_NAME = re.compile(r"\bheadgate_view_\d+\b")
_numbers = itertools.count()

Shape = tuple[str, ...]
"""A query's text without the names of its rows, and the columns of each of them."""


def fresh_name() -> str:
    return f"headgate_view_{next(_numbers)}"


def named_in(text: str) -> list[str]:
    """The names that the text has, each once."""
    return list(dict.fromkeys(_NAME.findall(text)))


def renamed(text: str, names: Sequence[str], others: Sequence[str]) -> str:
    places = dict(zip(names, others, strict=True))
    return _NAME.sub(lambda match: places[match.group()], text)


def place_names(count: int) -> list[str]:
    """The names that the rows of a query have in its shape."""
    return [f"headgate_view_{place}" for place in range(count)]


def as_view(session: SparkSession, rows: pa.Table, schema: StructType, name: str) -> None:
    """Registers the rows; the columns take the schema's types, by position.

    Of a few rows Spark is told that they are one partition: then grouping them needs no exchange, which costs more
    than the grouping.
    """
    frame = local_frame(session, rows, schema)
    register(frame.coalesce(1) if rows.num_rows < _FEW_ROWS else frame, name)


def register(frame: DataFrame, name: str) -> None:
    frame._jdf.createOrReplaceTempView(name)


def drop_view(session: SparkSession, name: str) -> None:
    """Without `session.catalog`, which plans the view first to see whether its rows are cached; they never are."""
    session._jsparkSession.sessionState().catalog().dropTempView(name)


class Entered:
    """Named rows; may be used by many threads."""

    def __init__(self, rows: pa.Table, schema: StructType) -> None:
        self.rows = rows
        self.schema = schema
        self._lock = threading.Lock()
        self._rdd: JavaObject | None = None
        self._is_view = False

    @cached_property
    def columns(self) -> str:
        return self.schema.json()

    def rdd(self, make: Callable[[pa.Table, StructType], JavaObject]) -> JavaObject:
        with self._lock:
            if self._rdd is None:
                self._rdd = make(self.rows, self.schema)
            return self._rdd

    def register(self, session: SparkSession, name: str) -> None:
        with self._lock:
            if not self._is_view:
                as_view(session, self.rows, self.schema, name)
                self._is_view = True

    def drop(self, session: SparkSession, name: str) -> None:
        with self._lock:
            if self._is_view:
                with suppress(Py4JError, ConnectionError):  # its Spark may have been stopped since
                    drop_view(session, name)


class EnteredRows:
    """All that is named in one session."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session
        self._entered: dict[str, Entered] = {}

    def add(self, rows: pa.Table, schema: StructType) -> str:
        name = fresh_name()
        self._entered[name] = Entered(rows, schema)
        return name

    @property
    def names(self) -> list[str]:
        return list(self._entered)

    def get(self, name: str) -> Entered:
        return self._entered[name]

    def forget(self, names: Sequence[str]) -> None:
        for name in names:
            self._entered.pop(name).drop(self._session, name)

    def register(self, text: str) -> None:
        """Makes views of all rows that the text names."""
        for name in named_in(text):
            if name in self._entered:
                self._entered[name].register(self._session, name)

    def shape(self, text: str) -> tuple[Shape, list[Entered]] | None:
        """The query's shape and its rows; None if it reads something else than named rows."""
        names = named_in(text)
        found = [self._entered.get(name) for name in names]
        entered = [each for each in found if each is not None and each.rows.num_rows]
        if not names or len(entered) < len(found):
            return None
        return (renamed(text, names, place_names(len(names))), *(each.columns for each in entered)), entered
