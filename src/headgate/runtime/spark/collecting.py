"""Small queries that several stages run at the same time: those that come while others run are run together, by one Spark job.

Of a query over a few rows, most of the cost is planning and starting it. Plans are kept (`kept_plans`); what has none is run by
itself, as text.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from headgate.runtime.spark.entered_rows import EnteredRows
from headgate.runtime.spark.kept_plans import KeptPlans, ReadyQuery
from headgate.runtime.spark.pools import use_pool, used_pool
from headgate.runtime.spark.threads import DaemonThreads

MOST_TOGETHER = 16
"""Parts of one job: the more there are, the longer the others wait for it."""


@dataclass(frozen=True, slots=True)
class _WaitingQuery:
    text: str
    part: ReadyQuery
    pool: str
    rows: Future[pa.Table] = field(default_factory=Future)


class Collector:
    """Brings the rows of queries to the driver; may be used by many threads."""

    def __init__(self, session: SparkSession, planning: SparkSession) -> None:
        """Queries are read as text in `session`; `planning` has no other use than keeping plans."""
        self.session = session
        self.rows = EnteredRows(session)
        self._plans = KeptPlans(planning)
        self._lock = threading.Lock()
        self._waiting: deque[_WaitingQuery] = deque()
        self._at_work = 0
        self._most_at_work = max(1, session.sparkContext.defaultParallelism)
        self._threads = DaemonThreads("spark-collect")
        self._entering = DaemonThreads("spark-enter")

    def enter_later(self, rows: pa.Table, schema: StructType) -> tuple[str, Future[object]]:
        """Names rows, which are entered while others are looked up."""
        name = self.rows.add(rows, schema)
        return name, self._entering.submit(partial(self._plans.enter, self.rows.get(name)))

    def collect(self, text: str, *, alone: bool = False) -> tuple[pa.Table, StructType]:
        """Runs the query, perhaps together with others."""
        part = None if alone else self._ready(text)
        if part is None:
            return self._as_text(text)
        request = _WaitingQuery(text, part, used_pool(self.session.sparkContext))
        with self._lock:
            self._waiting.append(request)
            if self._at_work < self._most_at_work:
                self._at_work += 1
                self._threads.submit(self._work)
        return request.rows.result(), part.kept.schema

    def _ready(self, text: str) -> ReadyQuery | None:
        found = self.rows.shape(text)
        if found is None:
            return None
        try:
            return self._plans.ready(*found)
        except (PySparkException, Py4JError):
            # Whose fault it is shows when Spark reads the text.
            return None

    def _as_text(self, text: str) -> tuple[pa.Table, StructType]:
        self.rows.register(text)
        frame = self.session.sql(text)
        return frame.toArrow(), frame.schema

    def _work(self) -> None:
        while requests := self._next():
            try:
                use_pool(self.session.sparkContext, requests[0].pool)
                self._run(requests)
            except BaseException as error:
                # Spark may be dead; nobody may wait for good.
                for request in requests:
                    if not request.rows.done():
                        request.rows.set_exception(error)

    def _next(self) -> list[_WaitingQuery]:
        """Those that wait, at most a fair share of them for each thread."""
        with self._lock:
            if not self._waiting:
                self._at_work -= 1
                return []
            share = min(MOST_TOGETHER, -(-len(self._waiting) // self._most_at_work))
            return [self._waiting.popleft() for _ in range(share)]

    def _run(self, requests: Sequence[_WaitingQuery]) -> None:
        try:
            parts = self._plans.collect([request.part for request in requests])
        except (PySparkException, Py4JError):
            # Whose fault it is shows when each is run by itself.
            for request in requests:
                try:
                    request.rows.set_result(self._as_text(request.text)[0])
                except BaseException as error:
                    request.rows.set_exception(error)
            return
        for request, rows in zip(requests, parts, strict=True):
            request.rows.set_result(rows)
