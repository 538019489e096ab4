"""One query's work, done in a thread: ask, have Spark write all rows, let the snapshot go, and begin to send the answer.

The rows are outside of Spark before the first byte is sent, many of them in files. A client that takes them slowly, or goes away,
therefore holds neither a snapshot nor memory; and a query that fails does so before its answer has begun.
"""

from __future__ import annotations

import textwrap
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from headgate.errors import Cancelled, DefiniteError
from headgate.runtime.spark.partitions import Batches, ReadLimit
from headgate.runtime.spark.problems import query_problem
from headgate.scheduling.receipt import Receipt
from headgate.scheduling.session import Answer, Session
from headgate.service.bodies import QueryBody
from headgate.service.formats import CONTENT_TYPES, compact_json, first_rows, in_parts, json_pieces
from headgate.service.limits import ServiceLimits
from headgate.tabular import arrow_pieces, csv_pieces, parquet_pieces
from headgate.warehouse.problems import format_size

PART_BYTES = 256 << 10
"""About how much is sent at once."""

_SHOWN_TEXT = 500

_FILES = {"arrow": arrow_pieces, "csv": csv_pieces, "parquet": parquet_pieces}

RECEIPT_HEADER = "headgate-receipt"


@dataclass(frozen=True, slots=True)
class StreamedReply:
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


class RunningQuery:
    """A query that runs; `make_reply` is called in a thread of its own, `call_off` from any other."""

    def __init__(self, identity: str, body: QueryBody, session: Session, limits: ServiceLimits, at: datetime) -> None:
        self.id = identity
        self.body = body
        self.at = at
        self.began = time.monotonic()
        self.phase: Literal["waiting", "reading", "sending"] = "waiting"
        self._session = session
        self._limits = limits
        self._called_off = threading.Event()

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

    def make_reply(self) -> StreamedReply:
        """The answer, whose rows are out of Spark."""
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
                batches = answer.read(self._read_limit())
                types = [field.dataType.simpleString() for field in answer.schema.fields]
                receipt = _receipt_of(answer)
        except (PySparkException, Py4JError) as error:
            raise query_problem(error, body.sql) from None
        self.phase = "sending"
        self._require_whole(batches)
        return self._encoded(batches, types, receipt)

    def _go_on(self) -> None:
        if self._called_off.is_set():
            raise Cancelled("the query was cancelled")

    @property
    def _asked(self) -> int | None:
        """The rows after which the answer ends, unless the service's limit comes first."""
        asked = self.body.limit
        return asked if asked is not None and asked <= self._limits.rows else None

    def _read_limit(self) -> ReadLimit:
        return ReadLimit(self._limits.rows + 1 if self._asked is None else self._asked, self._limits.bytes)

    def _require_whole(self, batches: Batches) -> None:
        """Refuses an answer that is larger than the limits; one that is to end early need not be whole."""
        if self._asked is not None and batches.rows >= self._asked:
            return
        if batches.is_cut:
            raise DefiniteError(
                f"the answer has more than {format_size(self._limits.bytes)}, which is the service's limit",
                hint='ask for fewer rows or columns, add "limit" to the request, or read the Delta tables themselves',
            )
        if batches.rows > self._limits.rows:
            raise DefiniteError(
                f"the answer has more than {self._limits.rows:,} rows, which is the service's limit",
                hint='add LIMIT to the query or "limit" to the request, or read the Delta tables themselves',
            )

    def _encoded(self, batches: Batches, types: list[str], receipt: Receipt | None) -> StreamedReply:
        shown = None if receipt is None else receipt.to_json()
        headers = {"content-type": CONTENT_TYPES[self.body.format]}
        if shown is not None:
            headers[RECEIPT_HEADER] = compact_json(shown)
        rows = batches.rows if self._asked is None else min(batches.rows, self._asked)
        taken = first_rows(batches, rows)
        pieces = (
            json_pieces(batches.schema, types, taken, shown)
            if self.body.format == "json"
            else _FILES[self.body.format](batches.schema, taken)
        )
        parts = in_parts(pieces, PART_BYTES)
        first, has_more = next(parts)
        if not has_more:
            headers["content-length"] = str(len(first))
        return StreamedReply(headers, first, has_more, parts, rows, receipt)


def _receipt_of(answer: Answer) -> Receipt | None:
    """None for the rows of a named job and of a setting, which promise nothing."""
    try:
        return answer.receipt
    except DefiniteError:
        return None
