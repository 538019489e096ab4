"""A session: what a reader says once about freshness, and the promise that it never goes back in time."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from weakref import WeakSet

from headgate.config.durations import format_duration
from headgate.delta.changes import NO_JOB, JobId
from headgate.errors import DefiniteError, TooStale
from headgate.runtime.reading.answer import SnapshotAnswer
from headgate.runtime.reading.query_work import Interruption, TimeIsOver
from headgate.scheduling.bound import Bound, Duration
from headgate.scheduling.history import History
from headgate.scheduling.leases import Leases
from headgate.scheduling.receipt import Receipt, Waited
from headgate.scheduling.scheduler import Scheduler
from headgate.sql.references import TableText
from headgate.sql.tail import FreshnessClause, Setting, parse_setting, split_tail


class Answer(SnapshotAnswer):
    """The rows of a query, and the receipt that says how fresh they are and what that cost."""

    def __init__(self, answer: SnapshotAnswer, receipt: Receipt | None) -> None:
        # The snapshot is this answer's from now on.
        answer._finalizer.detach()
        super().__init__(
            answer._result,
            answer.job,
            answer._storage,
            answer._rows,
            answer._reading,
            answer._release,
            answer._interruption,
            answer._text,
            answer._drop,
        )
        self._receipt = receipt
        if receipt is not None and receipt.bound.ends_at_deadline:
            assert receipt.bound.deadline is not None
            self._allowed_seconds = max(0.0, receipt.bound.deadline.total_seconds() - receipt.waited.total)

    @property
    def receipt(self) -> Receipt:
        """What was promised and achieved; the time spent on reading is that of what has been read so far."""
        if self._receipt is None:
            raise DefiniteError(
                "an answer from a job that was named has no receipt",
                hint="the jobs that are kept say what they hold; ask without a job for a receipt",
            )
        waited = replace(self._receipt.waited, read=self._receipt.waited.read + self.read_seconds)
        receipt = replace(self._receipt, waited=waited)
        deadline = receipt.bound.deadline
        if deadline is None or receipt.missed or receipt.bound.when_stale != "serve":
            return receipt
        late = waited.total - deadline.total_seconds()
        return (
            receipt if late <= 0 else replace(receipt, missed=True, why_missed=f"read {late:.3g} s after the deadline")
        )

    def _too_late(self, seconds: float) -> Exception:
        assert self._receipt is not None
        waited = self._receipt.waited
        return _too_late(self._receipt.bound, replace(waited, read=waited.read + seconds))


class Session:
    """One reader's queries; may be used by several threads, which then share what it has seen."""

    def __init__(self, scheduler: Scheduler, leases: Leases, history: History) -> None:
        self._scheduler = scheduler
        self._leases = leases
        self._history = history
        self._lock = threading.Lock()
        self._said = FreshnessClause()
        self._floor = NO_JOB
        self._interruptions: WeakSet[Interruption] = WeakSet()

    @property
    def seen(self) -> JobId:
        """The newest job that an answer has shown: later answers do not go back behind it."""
        return self._floor

    def sql(
        self,
        text: str,
        job: int | None = None,
        *,
        max_staleness: Duration | None = None,
        deadline: Duration | None = None,
        when_stale: str | None = None,
    ) -> Answer:
        """Answers one SELECT from one snapshot of all its tables, at most as stale as it says.

        The bound can be given here, in the query's tail, by `SET` for the session, or in the project file; here counts
        first. With a job, that snapshot is read, whatever its age.
        """
        setting = parse_setting(text)
        if setting is not None:
            return self._set(setting)
        written, tail = split_tail(text)
        query = self._scheduler.reader.read(written)
        default = self._scheduler.settings.current.freshness
        bound = Bound.of(
            default, self._said, tail, max_staleness=max_staleness, deadline=deadline, when_stale=when_stale
        )
        interruption = Interruption()
        with self._lock:
            self._interruptions.add(interruption)
        with interruption.at_work():
            if job is not None:
                if job:
                    self._scheduler.journal.chain.get(JobId(job))
                    self._scheduler.make_again(self._scheduler.reader.tables_of(query), JobId(job))
                return self._held(Answer(self._scheduler.reader.sql(query, JobId(job), interruption), None))
            with self._history.asking(text) as asking:
                answer, asking.receipt = self._answer(query, bound, interruption)
            return self._held(Answer(answer, asking.receipt))

    def _answer(self, query: TableText, bound: Bound, interruption: Interruption) -> tuple[SnapshotAnswer, Receipt]:
        began = time.monotonic()
        tables = self._scheduler.reader.tables_of(query)
        snapshot, receipt = self._scheduler.snapshot(tables, bound, self._floor, lambda: interruption.is_set)
        until = None
        if bound.deadline is not None and bound.ends_at_deadline:
            until = began + bound.deadline.total_seconds()
        try:
            answer = self._scheduler.reader.answer(query, snapshot, interruption, until)
        except TimeIsOver:
            read = time.monotonic() - began - receipt.waited.total
            raise _too_late(bound, replace(receipt.waited, read=read)) from None
        with self._lock:
            self._floor = max(self._floor, answer.job) if tables else self._floor
        planned = max(0.0, time.monotonic() - began - receipt.waited.total)
        return answer, replace(receipt, waited=replace(receipt.waited, read=planned))

    def cancel(self) -> None:
        """Ends its queries that wait or are being read: each raises `Cancelled` and lets go of what it had."""
        with self._lock:
            running = list(self._interruptions)
        for interruption in running:
            interruption.set()
        self._scheduler.signal.notify()

    def _set(self, setting: Setting) -> Answer:
        with self._lock:
            self._said = setting.applied_to(self._said)
        bound = Bound.of(self._scheduler.settings.current.freshness, self._said)
        shown = [
            ("max_staleness", "any" if bound.max_staleness is None else format_duration(bound.max_staleness)),
            ("deadline", "none" if bound.deadline is None else format_duration(bound.deadline)),
            ("when_stale", bound.when_stale),
        ]
        return Answer(self._scheduler.reader.constant(shown, "key string, value string"), None)

    def _held(self, answer: Answer) -> Answer:
        self._leases.add(answer)
        return answer


def _too_late(bound: Bound, waited: Waited) -> TooStale:
    """The deadline passed while the rows were planned or read."""
    assert bound.deadline is not None
    return TooStale(
        f"the answer could not be read within {bound.deadline.total_seconds():g} s: it took {waited}",
        hint="allow a longer deadline or ask for less; WHEN STALE SERVE and WAIT let reading take its time",
    )
