"""One query of a connection, done in a thread: translate, ask, have Spark write all rows, let the snapshot go."""

from __future__ import annotations

import textwrap
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from headgate.delta.changes import JobId
from headgate.errors import Cancelled
from headgate.gateway.answers import Fetched, Result
from headgate.gateway.problems import WireProblem
from headgate.gateway.types import columns_of
from headgate.runtime.spark.partitions import ReadLimit
from headgate.runtime.spark.problems import query_problem
from headgate.service.limits import ServiceLimits
from headgate.sql.tail import FreshnessClause
from headgate.warehouse.problems import format_size

if TYPE_CHECKING:
    from headgate.scheduling.session import Answer, Session

_SHOWN_TEXT = 500
_IN_FILES = ReadLimit(bytes=1 << 62)
"""A limit, which nothing reaches: with one, what is large waits in files."""


class Work:
    """A statement at work: `call_off` may come from any thread."""

    def __init__(self, identity: str, text: str, at: datetime, cancel: Callable[[], None]) -> None:
        self.id = identity
        self._text = text
        self.at = at
        self.phase = "waiting"
        self.is_streamed = False
        """Whether the rows go to a cursor or a copy, which have no limit of size."""
        self.ran = ""
        """What Spark was given."""
        self._began = time.monotonic()
        self._cancel = cancel
        self._called_off = threading.Event()

    @property
    def text(self) -> str:
        return textwrap.shorten(self._text, _SHOWN_TEXT, placeholder=" …")

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def call_off(self) -> None:
        self._called_off.set()
        self._cancel()

    def go_on(self) -> None:
        if self._called_off.is_set():
            raise Cancelled("the query was cancelled")


Made = Callable[[Work], Result]
"""What a statement does in a thread."""


@dataclass
class TransactionSnapshot:
    """What a transaction reads: the job of its first query, whose answer keeps it readable."""

    job: JobId | None = None
    held: Answer | None = None

    def release(self) -> None:
        if self.held is not None:
            self.held.close()
        self.job = self.held = None


def read_told(work: Work, session: Session, text: str) -> Fetched:
    """The rows of SHOW, DESCRIBE and EXPLAIN, which promise nothing."""
    work.go_on()
    work.ran = text
    try:
        with session.sql(text) as answer:
            batches = answer.read(_IN_FILES)
            return Fetched(columns_of(answer.schema), batches, batches.rows)
    except (PySparkException, Py4JError) as error:
        raise query_problem(error, text) from None


def read_answer(
    work: Work,
    session: Session,
    text: str,
    tail: FreshnessClause,
    limits: ServiceLimits,
    snapshot: TransactionSnapshot | None,
) -> Fetched:
    """The rows of a query in Spark's words; inside a transaction, of its snapshot."""
    work.go_on()
    work.ran = text
    try:
        with ExitStack() as opened:
            if snapshot is not None and snapshot.job is not None:
                answer = opened.enter_context(session.sql_at(text, snapshot.job))
                receipt = None
            else:
                answer = session.query(text, tail)
                receipt = answer.receipt
                if snapshot is not None and receipt.sources:
                    snapshot.job, snapshot.held = answer.job, answer
                else:
                    opened.enter_context(answer)
            work.phase = "reading"
            work.go_on()
            batches = answer.read(_IN_FILES if work.is_streamed else ReadLimit(limits.rows + 1, limits.bytes))
            columns = columns_of(answer.schema)
            receipt = None if receipt is None else answer.receipt
    except (PySparkException, Py4JError) as error:
        raise query_problem(error, text) from None
    work.phase = "sending"
    if not work.is_streamed and (batches.is_cut or batches.rows > limits.rows):
        most = format_size(limits.bytes) if batches.is_cut else f"{limits.rows:,} rows"
        raise WireProblem(
            "54000",
            f"the answer has more than {most}, which is the service's limit",
            hint="add LIMIT to the query, ask for fewer columns, or use COPY (…) TO STDOUT or a cursor, which have no limit",
        )
    return Fetched(columns, batches, batches.rows, receipt=receipt)
