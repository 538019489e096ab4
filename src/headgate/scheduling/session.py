"""A session: what a reader says once about freshness, and the promise that it never goes back in time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING
from weakref import WeakSet

from pyspark.sql.types import StructType

from headgate.config.durations import format_duration
from headgate.delta.changes import NO_JOB, JobId
from headgate.errors import DefiniteError, TooStale
from headgate.notebook import SHOWN_ROWS, answer_html, to_pandas, to_polars
from headgate.runtime.placing.platforms import Serving
from headgate.runtime.reading.answer import SnapshotAnswer
from headgate.runtime.reading.narrowing import WHOLE, Narrowed
from headgate.runtime.reading.query_work import DeadlineExceeded, Interruption
from headgate.runtime.spark.partitions import ReadLimit
from headgate.scheduling.bound import Bound, Duration
from headgate.scheduling.history import History
from headgate.scheduling.leases import Leases
from headgate.scheduling.receipt import Receipt, Waited
from headgate.scheduling.scheduler import Scheduler
from headgate.scheduling.showing import Catalogue
from headgate.sql.references import TableText
from headgate.sql.showing import ExplainQuery, Showing, parse_showing
from headgate.sql.subscribing import parse_subscribe
from headgate.sql.tail import FreshnessClause, SetStatement, parse_setting, split_tail

if TYPE_CHECKING:
    import pandas
    import polars


class Answer(SnapshotAnswer):
    """The rows of a query, and the receipt that says how fresh they are and what that cost."""

    def __init__(
        self, answer: SnapshotAnswer, receipt: Receipt | None, took: Callable[[float], None] | None = None
    ) -> None:
        """`took` hears, once, how many seconds after the query's arrival Spark had read its rows, or could not."""
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
        self._took = took
        if receipt is not None and receipt.bound.ends_at_deadline:
            assert receipt.bound.deadline is not None
            self._allowed_seconds = max(0.0, receipt.bound.deadline.total_seconds() - receipt.waited.total)

    @property
    def receipt(self) -> Receipt:
        """What was promised and achieved; the time spent on reading is that of what has been read so far."""
        if self._receipt is None:
            raise DefiniteError(
                "an answer as of a job has no receipt",
                hint="ask without naming a job: the receipt then tells how fresh the answer is",
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

    def to_pandas(self) -> pandas.DataFrame:
        """All rows as a DataFrame of pandas."""
        return to_pandas(self.to_arrow())

    def to_polars(self) -> polars.DataFrame:
        """All rows as a DataFrame of polars, if that is installed."""
        return to_polars(self.to_arrow())

    def _repr_html_(self) -> str:
        """The first rows as a table, for a notebook, and what the receipt says."""
        if not self.is_open:
            return "<p>an answer that was closed, or whose lease has ended: ask again</p>"
        # One more than is shown tells whether there are others.
        found = self.read(ReadLimit(SHOWN_ROWS + 1)).to_arrow()
        receipt = None if self._receipt is None else self.receipt.to_json()
        return answer_html(found.slice(0, SHOWN_ROWS), found.num_rows <= SHOWN_ROWS, receipt)

    @contextmanager
    def _timed(self) -> Iterator[float | None]:
        try:
            with super()._timed() as until:
                yield until
        finally:
            took, self._took = self._took, None
            if took is not None and self._receipt is not None:
                took(self._receipt.waited.total + self.read_seconds)

    def _too_late(self, seconds: float) -> Exception:
        assert self._receipt is not None
        waited = self._receipt.waited
        return _too_late(self._receipt.bound, replace(waited, read=waited.read + seconds))


class Session:
    """One reader's queries; may be used by several threads, which then share what it has seen."""

    def __init__(self, scheduler: Scheduler, leases: Leases, history: History, catalogue: Catalogue) -> None:
        self._scheduler = scheduler
        self._catalogue = catalogue
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
        # What was translated before needs not be read again, unless Spark is to answer it.
        serving = None if job is not None else self._scheduler.platforms.known(text)
        written, tail = text, FreshnessClause()
        if serving is None:
            setting = parse_setting(text)
            if setting is not None:
                return self._set(setting)
            showing = parse_showing(text)
            if showing is not None:
                return self._show(showing)
            if parse_subscribe(text) is not None:
                raise DefiniteError(
                    "a subscription is not a query: it does not end",
                    hint="follow the table with `headgate subscribe TABLE`",
                )
            written, tail = split_tail(text)
        default = self._scheduler.settings.current.freshness
        bound = Bound.of(
            default, self._said, tail, max_staleness=max_staleness, deadline=deadline, when_stale=when_stale
        )
        if job is not None:
            return self._named(written, JobId(job), bound)
        return self._asked(text, written, serving, bound)

    def query(self, text: str, tail: FreshnessClause) -> Answer:
        """Answers one SELECT as `sql` does, whose tail was read and taken off before."""
        bound = Bound.of(self._scheduler.settings.current.freshness, self._said, tail)
        return self._asked(text, text, self._scheduler.platforms.known(text), bound)

    def _asked(self, text: str, written: str, serving: Serving | None, bound: Bound) -> Answer:
        """The answer to a query, which is `written` without its tail."""
        interruption = self._interruption()
        with interruption.at_work():
            query = None if serving is not None else self._read(written, interruption, bound)
            with self._history.asking(text) as asking:
                answer, asking.receipt = self._answer(written, query, serving, bound, interruption)
            return self._held(Answer(answer, asking.receipt, self._history.query_times.add))

    def _named(self, written: str, job: JobId, bound: Bound) -> Answer:
        """The answer from the snapshot of a job that is still held; 0 is the one before all."""
        interruption = self._interruption()
        with interruption.at_work():
            query = self._read(written, interruption, bound)
            if job:
                self._scheduler.journal.chain.get(job)
                keys = self._scheduler.reader.narrowed(query, interruption).keys
                tables = self._scheduler.reader.tables_of(query)
                self._scheduler.make_again(tables, job, keys, lambda: interruption.is_set)
                interruption.check()
            return self._held(Answer(self._scheduler.reader.sql(query, job, interruption), None))

    def sql_at(self, text: str, job: JobId) -> Answer:
        """Answers one SELECT from a job that was shown before; tables that are behind it are brought to it."""
        interruption = self._interruption()
        with interruption.at_work():
            query = self._read(text, interruption)
            tables = self._scheduler.reader.tables_of(query)
            keys = self._scheduler.reader.narrowed(query, interruption).keys
            self._scheduler.bring(tables, job, lambda: interruption.is_set, keys)
            return self._held(Answer(self._scheduler.reader.sql(query, job, interruption), None))

    def columns(self, text: str) -> StructType:
        """The columns that a SELECT would have; nothing is read."""
        interruption = self._interruption()
        with interruption.at_work():
            return self._scheduler.reader.columns(self._read(text, interruption), interruption)

    def say(self, freshness: FreshnessClause) -> None:
        """From now on the session's queries are to be this fresh, where they do not say otherwise."""
        with self._lock:
            self._said = freshness

    def _read(self, text: str, interruption: Interruption, bound: Bound | None = None) -> TableText:
        """The query; after an opening, its flows are there by then."""
        until = None
        if bound is not None and bound.deadline is not None and bound.when_stale != "wait":
            until = time.monotonic() + bound.deadline.total_seconds()
        query = self._scheduler.reader.read(text)
        names = [table.name for table in query.references]
        if self._scheduler.wait_until_built(names, until, lambda: interruption.is_set):
            # What a star means depends on the columns of its table.
            query = self._scheduler.reader.read(text)
        return query

    def _interruption(self) -> Interruption:
        made = Interruption()
        with self._lock:
            self._interruptions.add(made)
        return made

    def _answer(
        self,
        text: str,
        query: TableText | None,
        serving: Serving | str | None,
        bound: Bound,
        interruption: Interruption,
    ) -> tuple[SnapshotAnswer, Receipt]:
        began = time.monotonic()
        scheduler, until = self._scheduler, None
        if bound.deadline is not None and bound.ends_at_deadline:
            until = began + bound.deadline.total_seconds()
        if isinstance(serving, Serving):
            tables = serving.tables
        else:
            assert query is not None
            tables = scheduler.reader.tables_of(query)
            serving = scheduler.platforms.translated(text, tables)
        if isinstance(serving, Serving):
            reused = scheduler.reuse_shipped(serving, bound, self._floor)
            served = None if reused is None else self._served(serving, text, reused, interruption, until)
            if isinstance(served, tuple):
                return served

        def narrow() -> Narrowed:
            # A platform is at one job for all keys.
            if query is None or isinstance(serving, Serving):
                return WHOLE
            return scheduler.reader.narrowed(query, interruption, until)

        try:
            snapshot, receipt = scheduler.snapshot(tables, bound, self._floor, lambda: interruption.is_set, narrow)
        except DeadlineExceeded:
            raise _too_late(bound, Waited(0.0, 0.0, 0.0, time.monotonic() - began)) from None
        if isinstance(serving, Serving):
            try:
                problem = scheduler.platforms.bring(serving, snapshot.job, interruption, until)
                found = problem or self._served(serving, text, receipt, interruption, until)
            except BaseException:
                snapshot.release()
                raise
            if not isinstance(found, str):
                snapshot.release()
                return found
            serving = found
        receipt = replace(receipt, why_platform=serving or "")
        try:
            query = query or self._scheduler.reader.read(text)
            answer = self._scheduler.reader.answer(query, snapshot, interruption, until)
        except DeadlineExceeded:
            read = time.monotonic() - began - receipt.waited.total
            raise _too_late(bound, replace(receipt.waited, read=read)) from None
        with self._lock:
            self._floor = max(self._floor, answer.job) if tables else self._floor
        planned = max(0.0, time.monotonic() - began - receipt.waited.total)
        return answer, replace(receipt, waited=replace(receipt.waited, read=planned), kept=answer.kept)

    def _served(
        self, serving: Serving, text: str, receipt: Receipt, interruption: Interruption, until: float | None
    ) -> tuple[SnapshotAnswer, Receipt] | str:
        """The answer of the platform, at a job that keeps what the receipt promises, or why Spark is to answer."""
        scheduler, began, floor = self._scheduler, time.monotonic(), self._floor
        found = scheduler.platforms.answer(
            serving, lambda job: scheduler.meets(receipt, floor, job), interruption, until
        )
        if isinstance(found, str):
            return found
        with self._lock:
            self._floor = max(self._floor, found.job)
        waited = replace(receipt.waited, read=time.monotonic() - began)
        moved = replace(scheduler.receipts.moved(receipt, found.job), waited=waited, platform=serving.platform.name)
        schema = serving.query.shape.translated.schema
        return scheduler.reader.of_rows(schema, found.rows, found.job, interruption, text), moved

    def cancel(self) -> None:
        """Ends its queries that wait or are being read: each raises `Cancelled` and lets go of what it had."""
        with self._lock:
            running = list(self._interruptions)
        for interruption in running:
            interruption.set()
        self._scheduler.signal.notify()

    def _set(self, setting: SetStatement) -> Answer:
        with self._lock:
            self._said = setting.applied_to(self._said)
        bound = Bound.of(self._scheduler.settings.current.freshness, self._said)
        shown = [
            ("max_staleness", "any" if bound.max_staleness is None else format_duration(bound.max_staleness)),
            ("deadline", "none" if bound.deadline is None else format_duration(bound.deadline)),
            ("when_stale", bound.when_stale),
        ]
        return Answer(self._scheduler.reader.constant(shown, "key string, value string"), None)

    def _show(self, asked: Showing) -> Answer:
        if not isinstance(asked, ExplainQuery):
            rows, columns = self._catalogue.rows(asked)
            return Answer(self._scheduler.reader.constant(rows, columns), None)
        written, tail = split_tail(asked.text)
        reader = self._scheduler.reader
        query = reader.read(written)
        bound = Bound.of(self._scheduler.settings.current.freshness, self._said, tail)
        tables = reader.tables_of(query)
        keys = reader.narrowed(query, Interruption()).keys
        lines = [f"bound: {bound}", self._scheduler.decision(tables, bound, self._floor, keys)]
        lines += [f"reads {table} at job {reader.through(table, keys)}" for table in tables]
        newest = self._scheduler.journal.chain.newest
        for each in self._scheduler.receipts.ranges_read(tables, keys, newest, {}):
            lines.append(f"reads {len(each.read)} of {each.of} ranges of {each.table}: {', '.join(each.read)}")
        lines += ["", *reader.plan_text(query).splitlines()]
        return Answer(reader.constant([(line,) for line in lines], "plan string"), None)

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
