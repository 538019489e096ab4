"""Small queries that several stages run at the same time: those that come while others run are run together, as one query.

Of a query over a few rows, most of the cost is planning and starting it. Many at once are parts of one UNION ALL: each part has a
number, and its columns stand in slots of their types, which the parts share.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DateType,
    NumericType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from headgate.dataflow.relation import quoted
from headgate.runtime.spark.pools import POOL_PROPERTY
from headgate.runtime.spark.threads import DaemonThreads
from headgate.runtime.spark.views import shape

MOST_TOGETHER = 16
"""Parts of one query: the larger a plan, the longer the others wait for it."""
_SLOTTED = (BinaryType, BooleanType, DateType, NumericType, TimestampNTZType, TimestampType)
"""Types whose columns can share a slot, besides texts of the default collation."""
_PART = "__part"
_KEPT_SCHEMAS = 2_000

Slot = tuple[str, int]
"""A type's name, and the number among the columns of that type."""


@dataclass(frozen=True, slots=True)
class _Request:
    session: SparkSession
    text: str
    schema: StructType
    pool: str | None
    rows: Future[pa.Table] = field(default_factory=Future)


class Collector:
    """Brings the rows of queries to the driver; may be used by many threads."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session
        self._lock = threading.Lock()
        self._waiting: deque[_Request] = deque()
        self._at_work = 0
        self._most_at_work = max(1, session.sparkContext.defaultParallelism)
        self._threads = DaemonThreads("spark-collect")
        self._schemas: dict[tuple[str, ...], StructType] = {}

    def collect(self, text: str) -> tuple[pa.Table, StructType]:
        """Runs the query, perhaps together with others."""
        schema = self._schema(text)
        request = _Request(self._session, text, schema, self._session.sparkContext.getLocalProperty(POOL_PROPERTY))
        with self._lock:
            self._waiting.append(request)
            if self._at_work < self._most_at_work:
                self._at_work += 1
                self._threads.submit(self._work)
        return request.rows.result(), schema

    def _schema(self, text: str) -> StructType:
        """The query's columns: of one with the same text over views with the same columns, they are known."""
        known = shape(text)
        if known is None:
            return self._session.sql(text).schema
        found = self._schemas.get(known)
        if found is None:
            if len(self._schemas) >= _KEPT_SCHEMAS:
                self._schemas.clear()
            found = self._schemas[known] = self._session.sql(text).schema
        return found

    def _work(self) -> None:
        while requests := self._next():
            try:
                self._session.sparkContext.setLocalProperty(POOL_PROPERTY, requests[0].pool)  # type: ignore[arg-type]
                _run(requests)
            except BaseException as error:
                # Spark may be dead; nobody may wait for good.
                for request in requests:
                    if not request.rows.done():
                        request.rows.set_exception(error)

    def _next(self) -> list[_Request]:
        """Those that wait and can be run together, at most a fair share of them for each thread."""
        with self._lock:
            if not self._waiting:
                self._at_work -= 1
                return []
            first = self._waiting.popleft()
            if not _can_share(first.schema):
                return [first]
            share = min(MOST_TOGETHER, -(-(len(self._waiting) + 1) // self._most_at_work))
            others = [request for request in self._waiting if _can_share(request.schema)][: share - 1]
            for request in others:
                self._waiting.remove(request)
            return [first, *others]


def _run(requests: Sequence[_Request]) -> None:
    if len(requests) > 1:
        try:
            parts = _together(requests)
        except (PySparkException, Py4JError):
            # Whose fault it is shows when each is run by itself.
            pass
        else:
            for request, rows in zip(requests, parts, strict=True):
                request.rows.set_result(rows)
            return
    for request in requests:
        try:
            request.rows.set_result(request.session.sql(request.text).toArrow())
        except BaseException as error:
            request.rows.set_exception(error)


def _can_share(schema: StructType) -> bool:
    return all(isinstance(part.dataType, _SLOTTED) or part.dataType == StringType() for part in schema.fields)


def _together(requests: Sequence[_Request]) -> list[pa.Table]:
    """The rows of each part, from one query.

    The query is put together as text: one analysis of it takes less than one for each part's columns and each union.
    """
    places = [_slots(request.schema) for request in requests]
    slots: dict[Slot, str] = {}
    for place in places:
        for slot in place:
            slots.setdefault(slot, f"c{len(slots)}")
    parts = []
    for number, (request, place) in enumerate(zip(requests, places, strict=True)):
        columns = dict(zip(place, request.schema.names, strict=True))
        shown = [
            f"{quoted(columns[slot])} AS {name}" if slot in columns else f"CAST(NULL AS {slot[0]}) AS {name}"
            for slot, name in slots.items()
        ]
        parts.append(f"SELECT {', '.join([f'{number} AS {_PART}', *shown])} FROM ({request.text})")
    rows = requests[0].session.sql(" UNION ALL ".join(parts)).toArrow()
    numbers = rows.column(_PART)
    return [
        rows.filter(pc.equal(numbers, number))
        .select([slots[slot] for slot in place])
        .rename_columns(request.schema.names)
        for number, (request, place) in enumerate(zip(requests, places, strict=True))
    ]


def _slots(schema: StructType) -> list[Slot]:
    """The slot of each column."""
    seen: Counter[str] = Counter()
    found = []
    for part in schema.fields:
        kind = part.dataType.simpleString()
        found.append((kind, seen[kind]))
        seen[kind] += 1
    return found
