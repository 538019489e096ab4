"""What has been: the jobs that were closed and the queries that came, the latest thousand of each.

Jobs are those of the chain, which the ledger keeps. Queries and their receipts are noted in memory and written by the
background thread, never by the query:

    _headgate/receipts.jsonl          one query a line, the latest last; for its owner's eyes, since it holds their texts
    _headgate/receipts.before.jsonl   what was there when that file had become too large
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from headgate.delta.changes import JobId
from headgate.errors import Cancelled, TooStale
from headgate.runtime.recent import RecentTimes
from headgate.scheduling.expectations import Violations
from headgate.scheduling.json_lines import FILE_BYTES, JsonLines
from headgate.scheduling.receipt import Receipt
from headgate.scheduling.scheduler import Scheduler

LIMIT = 1_000
"""Jobs and queries that are remembered."""
LONGEST_TEXT = 300

Outcome = Literal["ok", "stale", "failed", "cancelled"]


@dataclass(frozen=True, slots=True)
class JobRecord:
    """A closed job."""

    id: JobId
    closed_at: datetime | None
    data_timestamp: datetime
    """What the sources had acknowledged before this instant is in it."""
    cut: Mapping[str, int]
    """Per source the position up to which it holds all."""
    rows: int | None
    """Source changes that it holds."""
    reached: tuple[str, ...]
    """The tables that have reached it."""
    seconds: Mapping[str, float]
    """By stage how long the batch took that brought it to this job, alone or with others; as far as that was timed."""
    ways: Mapping[str, str]
    """By stage the way in which that batch was taken, and why."""
    violations: Mapping[str, Mapping[str, int]]
    """By table and constraint how many rows violated it, as long as the job is retained."""


@dataclass(frozen=True, slots=True)
class QueryRecord:
    """A query that came, and what became of it."""

    id: int
    at: datetime
    """When it came."""
    seconds: float
    """From then until it had its snapshot, or failed."""
    text: str
    """On one line, shortened."""
    outcome: Outcome
    """`stale` also when it was answered, but later or from an older state than it wanted."""
    receipt: Receipt | None
    """None when there was no answer."""
    problem: str | None = None
    """Why there was none."""

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "at": self.at.isoformat(),
            "seconds": self.seconds,
            "text": self.text,
            "outcome": self.outcome,
            "receipt": None if self.receipt is None else self.receipt.to_json(),
            "problem": self.problem,
        }

    @staticmethod
    def from_json(body: Mapping[str, Any]) -> QueryRecord:
        receipt = body["receipt"]
        return QueryRecord(
            body["id"],
            datetime.fromisoformat(body["at"]),
            body["seconds"],
            body["text"],
            body["outcome"],
            None if receipt is None else Receipt.from_json(receipt),
            body["problem"],
        )


class QueryUnderWay:
    """A query under way, in a `with` block; it is noted with its receipt, or with why there is none."""

    def __init__(self, history: History, text: str, at: datetime) -> None:
        self.receipt: Receipt | None = None
        self._history = history
        self._text = text
        self._at = at
        self._began = time.monotonic()

    def __enter__(self) -> QueryUnderWay:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        seconds = time.monotonic() - self._began
        self._history.note(self._at, seconds, self._text, self.receipt, error)
        if isinstance(error, TooStale):
            self._history.query_times.add(seconds)


class History:
    """May be asked from any thread; asking for it does not delay a query."""

    def __init__(
        self,
        scheduler: Scheduler,
        folder: Path,
        violations: Violations | None = None,
        limit: int = LIMIT,
        file_bytes: int = FILE_BYTES,
    ) -> None:
        self._violations = violations
        self._scheduler = scheduler
        self._lines = JsonLines(folder, "receipts", file_bytes)
        self._limit = limit
        self._lock = threading.Lock()
        self._queries: deque[QueryRecord] = deque(self._read(), limit)
        self._unwritten: deque[QueryRecord] = deque(maxlen=limit)
        self._last_id = self._queries[-1].id if self._queries else 0
        self.query_times = RecentTimes()
        """How long queries that Spark reads took from their arrival until their rows were read, or their time was over."""

    def jobs(self, limit: int = LIMIT) -> list[JobRecord]:
        """The latest closed jobs, the newest last."""
        scheduler, chain = self._scheduler, self._scheduler.journal.chain
        with scheduler.journal.lock:
            newest = chain.newest
            oldest = max(chain.oldest, newest - min(limit, self._limit) + 1)
            jobs = [chain.get(JobId(job)) for job in range(oldest, newest + 1)]
            through = {name: scheduler.reader.through(name) for name in scheduler.catalog.names()}
        seconds: dict[int, dict[str, float]] = defaultdict(dict)
        ways: dict[int, dict[str, str]] = defaultdict(dict)
        for run in tuple(scheduler.executor.runs):
            for job in range(max(run.after + 1, oldest), run.upto + 1):
                seconds[job][run.stage] = run.seconds
                if run.choice is not None:
                    ways[job][run.stage] = str(run.choice)
        return [
            JobRecord(
                job.id,
                job.closed_at,
                job.data_timestamp,
                job.cut,
                job.rows,
                tuple(name for name, reached in through.items() if reached >= job.id),
                seconds[job.id],
                ways[job.id],
                {} if self._violations is None else self._violations.of_job(job.id),
            )
            for job in jobs
        ]

    def receipts(self, limit: int = LIMIT) -> list[QueryRecord]:
        """The latest queries, the newest last."""
        with self._lock:
            return list(self._queries)[-limit:] if limit > 0 else []

    def asking(self, text: str) -> QueryUnderWay:
        """A query that has just come."""
        return QueryUnderWay(self, text, self._scheduler.clock.now())

    def note(
        self, at: datetime, seconds: float, text: str, receipt: Receipt | None, error: BaseException | None
    ) -> None:
        shown, problem = _shortened(text), None if error is None else _shortened(str(error) or type(error).__name__)
        with self._lock:
            self._last_id += 1
            record = QueryRecord(self._last_id, at, seconds, shown, _outcome(receipt, error), receipt, problem)
            self._queries.append(record)
            self._unwritten.append(record)

    def write(self) -> None:
        """Writes what is not written yet; what cannot be written stays in memory alone."""
        with self._lock:
            records, self._unwritten = self._unwritten, deque(maxlen=self._limit)
        if not records:
            return
        self._lines.append(record.to_json() for record in records)

    def _read(self) -> Iterable[QueryRecord]:
        for body in self._lines.read(self._limit):
            try:
                yield QueryRecord.from_json(body)
            except (ValueError, KeyError, TypeError):
                # Of another version.
                continue


def _outcome(receipt: Receipt | None, error: BaseException | None) -> Outcome:
    match error:
        case None:
            return "stale" if receipt is not None and receipt.missed else "ok"
        case TooStale():
            return "stale"
        case Cancelled() | KeyboardInterrupt():
            return "cancelled"
        case _:
            return "failed"


def _shortened(text: str) -> str:
    """On one line; only the beginning is looked at."""
    shown = " ".join(text[: 2 * LONGEST_TEXT].split())
    return shown if len(text) <= 2 * LONGEST_TEXT and len(shown) <= LONGEST_TEXT else f"{shown[:LONGEST_TEXT]}…"
