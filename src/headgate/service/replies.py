"""One query's work, done in a thread: ask, read all rows, let the snapshot go, and begin to write the answer.

The rows are read before the first byte is sent. A client that takes them slowly, or goes away, therefore never holds a
snapshot; and a query that fails does so before its answer has begun.
"""

from __future__ import annotations

import textwrap
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException

from headgate.errors import Cancelled, DefiniteError
from headgate.scheduling.receipt import Receipt
from headgate.scheduling.session import Answer, Session
from headgate.service.bodies import QueryBody
from headgate.service.formats import CONTENT_TYPES, arrow_pieces, compact_json, in_parts, json_pieces
from headgate.service.limits import Limits
from headgate.service.problems import spark_problem

PART_BYTES = 256 << 10
"""About how much is sent at once."""

_SHOWN_TEXT = 500

RECEIPT_HEADER = "headgate-receipt"


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer on its way to a client: its first part is made."""

    headers: dict[str, str]
    first: bytes
    has_more: bool
    parts: Iterator[tuple[bytes, bool]]
    """Further parts, each with whether others follow."""
    rows: int
    receipt: Receipt | None

    def next_part(self) -> tuple[bytes, bool]:
        return next(self.parts)


class Run:
    """A query that runs; `make_reply` is called in a thread of its own, `call_off` from any other."""

    def __init__(self, identity: str, body: QueryBody, session: Session, limits: Limits, at: datetime) -> None:
        self.id = identity
        self.body = body
        self.at = at
        self.began = time.monotonic()
        self.phase: Literal["waiting", "reading", "sending"] = "waiting"
        self._session = session
        self._limits = limits
        self._called_off = threading.Event()
        self._reading: SparkContext | None = None

    @property
    def text(self) -> str:
        """The query, shortened if it is long."""
        return textwrap.shorten(self.body.sql, _SHOWN_TEXT, placeholder=" …")

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began

    def call_off(self) -> None:
        """Ends the waiting or reading; to be repeated until the thread has ended, since work may be about to begin."""
        self._called_off.set()
        self._session.cancel()
        context = self._reading
        if context is not None:
            context.cancelJobsWithTag(self.id)

    def make_reply(self) -> Reply:
        """The answer, read whole."""
        body = self.body
        self._go_on()
        try:
            with self._session.sql(
                body.sql,
                body.job,
                max_staleness=body.max_staleness,
                deadline=body.deadline,
                when_stale=body.when_stale,
            ) as answer:
                self.phase = "reading"
                self._go_on()
                with self._interruptible(answer):
                    rows = answer.to_arrow()
                types = [field.dataType.simpleString() for field in answer.dataframe.schema.fields]
                receipt = _receipt_of(answer)
        except (PySparkException, Py4JError) as error:
            raise spark_problem(error) from None
        self.phase = "sending"
        return self._encoded(self._limited(rows), types, receipt)

    def _go_on(self) -> None:
        if self._called_off.is_set():
            raise Cancelled("the query was cancelled")

    @contextmanager
    def _interruptible(self, answer: Answer) -> Iterator[None]:
        """Only the reading is marked: what else runs in this thread may be work that others wait for."""
        context = answer.dataframe.sparkSession.sparkContext
        context.addJobTag(self.id)
        self._reading = context
        try:
            yield
        finally:
            self._reading = None
            context.removeJobTag(self.id)

    def _limited(self, rows: pa.Table) -> pa.Table:
        asked, most = self.body.limit, self._limits.rows
        if asked is not None and asked <= most:
            return rows.slice(0, asked)
        if rows.num_rows > most:
            raise DefiniteError(
                f"the answer has {rows.num_rows:,} rows, and the service gives at most {most:,}",
                hint='add LIMIT to the query or "limit" to the request, or read the Delta tables themselves',
            )
        return rows

    def _encoded(self, rows: pa.Table, types: list[str], receipt: Receipt | None) -> Reply:
        shown = None if receipt is None else receipt.to_json()
        headers = {"content-type": CONTENT_TYPES[self.body.format]}
        if shown is not None:
            headers[RECEIPT_HEADER] = compact_json(shown)
        pieces = arrow_pieces(rows) if self.body.format == "arrow" else json_pieces(rows, types, shown)
        parts = in_parts(pieces, PART_BYTES)
        first, has_more = next(parts)
        if not has_more:
            headers["content-length"] = str(len(first))
        return Reply(headers, first, has_more, parts, rows.num_rows, receipt)


def _receipt_of(answer: Answer) -> Receipt | None:
    """None for the rows of a named job and of a setting, which promise nothing."""
    try:
        return answer.receipt
    except DefiniteError:
        return None
