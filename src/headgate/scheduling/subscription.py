"""A table as it changes: its rows at one job, then the weighted changes of each later job, exactly once and in order.

    rows at job 7 (or: the reader has them)   changes of job 8   changes of job 11   …
    |--------------- the sum up to here is the table at job 11 ---------------|

A subscription keeps the table's changes since the reader's job, and nothing in memory but the piece that it gives. A reader that
takes nothing for as long as a lease (`retention: {lease: …}`) loses that: it goes on while its job is still retained, and begins
anew otherwise. Every job that is given is durable, so that a position means the same after a crash.
"""

from __future__ import annotations

import hashlib
import re
import threading
import time
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Self

import pyarrow as pa
from pyspark.sql.types import StructType

from headgate.delta.changes import WEIGHT, JobId
from headgate.errors import Cancelled, DefiniteError, HeadgateError, SnapshotGone
from headgate.runtime.spark.partitions import ReadLimit
from headgate.runtime.tables.catalog import TableEntry
from headgate.runtime.tables.tables import Tables
from headgate.scheduling.bound import Bound
from headgate.scheduling.leases import Leases
from headgate.scheduling.scheduler import Scheduler
from headgate.warehouse.pieces import job_pieces
from headgate.warehouse.spec import arrow_columns
from headgate.warehouse.table_ranges import Pin

_IN_FILES = ReadLimit(bytes=1 << 62)
"""A limit, which nothing reaches: with one, what is large waits in files."""
_LOOK_SECONDS = 1.0
"""How often a subscription that waits looks whether its table fails, or was replaced."""
_POSITION = re.compile(r"(\d{1,18})(?:-([0-9a-f]{8}))?", re.ASCII)


@dataclass(frozen=True, slots=True, eq=False)
class JobChanges:
    """Changes of one job, or a piece of them."""

    job: JobId
    rows: pa.Table
    """The table's columns, and `__weight`: how many of the row came, or (negative) went."""
    is_snapshot: bool
    """Whether the rows are all that the table has at the job."""
    position: str | None
    """With the job's last piece: where to go on, as `as_of` of another subscription."""
    data_timestamp: datetime | None
    """What the sources had acknowledged before this instant is in the job."""


class Subscription:
    """Iterate over it, or ask for `next`; one thread at a time, while any other may `cancel`."""

    def __init__(
        self,
        owner: Subscriptions,
        scheduler: Scheduler,
        tables: Tables,
        leases: Leases,
        table: str,
        as_of: int | str | None,
        bound: Bound,
    ) -> None:
        self._owner = owner
        self._scheduler = scheduler
        self._tables = tables
        self._leases = leases
        self.bound = bound
        entry = self._known(table)
        self.table = entry.name
        self._stored = tables.get(self.table)
        self._spec = self._stored.spec
        names = [name for name in self._spec.columns if name in entry.schema.names]
        if entry.is_versioned:
            names += entry.hidden.names
        self.columns = StructType([self._spec.schema[name] for name in names])
        """The columns of every row, before its weight."""
        self.key = entry.key if entry.key is not None and set(entry.key) <= set(names) else None
        """Columns whose values only one row has at a time, if there are any."""
        self.schema: pa.Schema = arrow_columns(self.columns).append(pa.field(WEIGHT, pa.int64()))
        """Of the rows of every piece."""
        self._build = hashlib.sha256(tables.path(self._stored.versioned).encode()).hexdigest()[:8]
        self._job: JobId | None = None if as_of is None else self._resumed(as_of)
        self._pin: _HeldPin | None = None
        self._pieces: Iterator[JobChanges] = iter(())
        self._is_over = threading.Event()

    def _known(self, table: str) -> TableEntry:
        reader, catalog = self._scheduler.reader, self._scheduler.catalog
        entry = catalog.find(reader.require_known(table))
        assert entry is not None
        if entry.is_fragment:
            raise DefiniteError(
                f"{entry.name} is run when it is read: nobody keeps its changes",
                hint=f"subscribe to a table that it reads; `headgate explain {entry.name}` says why it is not incremental",
            )
        return entry

    def _resumed(self, as_of: int | str) -> JobId:
        found = _POSITION.fullmatch(str(as_of).strip())
        if found is None:
            raise DefiniteError(
                f"a subscription cannot begin as of {str(as_of)[:50]!r}",
                hint="give a job's number, or the position that a subscription gave",
            )
        if found[2] is not None and found[2] != self._build:
            raise self._anew(f"{self.table} was built anew since that position")
        job, newest = JobId(int(found[1])), self._scheduler.journal.chain.newest
        if job > newest:
            raise self._anew(f"there is no job {job} yet: the newest is job {newest}")
        return job

    # taking

    def next(self, seconds: float | None = None) -> JobChanges | None:
        """The next piece; None when none came within so many seconds. Without a limit it waits for as long as it takes.

        Raises what keeps the table from going on, `SnapshotGone` when the reader has to begin anew, and `Cancelled`.
        """
        until = None if seconds is None else time.monotonic() + seconds
        while True:
            self._require_open()
            piece = next(self._pieces, None)
            if piece is not None:
                return piece
            if self._job is None:
                self._pieces = self._snapshot()
            elif self._arrived(self._job, until):
                self._pieces = self._changes(self._job)
            else:
                return None

    def _snapshot(self) -> Iterator[JobChanges]:
        """All rows of the table at a job that keeps the bound."""
        scheduler = self._scheduler
        snapshot, receipt = scheduler.snapshot((self.table,), self.bound, JobId(0), self._is_over.is_set)
        try:
            self._require_same()
            scheduler.journal.settle()
            job = snapshot.job
            self._hold(job)
            with scheduler.reader.table(self.table, job) as answer:
                batches = answer.read(_IN_FILES)
        finally:
            snapshot.release()
        self._job = job

        def pieces() -> Iterator[JobChanges]:
            left = batches.rows
            for batch in (each for each in batches if each.num_rows):
                left -= batch.num_rows
                rows = pa.Table.from_batches([batch]).append_column(WEIGHT, pa.repeat(pa.scalar(1), batch.num_rows))
                yield self._piece(job, rows, not left, True, receipt.data_timestamp)
            if not batches.rows:
                yield self._piece(job, self.schema.empty_table(), True, True, receipt.data_timestamp)

        return pieces()

    def _changes(self, after: JobId) -> Iterator[JobChanges]:
        """The changes of the jobs since, up to the newest that the table has reached."""
        scheduler, main = self._scheduler, self._stored.main
        upto = self._stored.through
        # A job that holds commits which are only in memory must not be known outside before they are durable.
        scheduler.journal.settle()
        if self._pin is None or not self._pin.is_open:
            self._hold(after)
        try:
            parts = main.change_parts(after, upto)
        except SnapshotGone:
            raise self._gone(after) from None
        known_from = self._stored.skipped_to(after)
        reached = after
        for job, rows, is_last in job_pieces(parts, self.columns.names, known_from):
            if not (self._pin and self._pin.is_open):
                # The lease ended in the middle of a job, whose files may go: it is given again from its beginning, or not at all.
                raise self._gone(after, "the reader took nothing for longer than a lease")
            yield self._piece(job, rows, is_last, False, self._timestamp(job))
            if is_last:
                reached = self._job = job
        self._hold(upto)
        self._job = upto
        if reached < upto:
            yield self._piece(upto, self.schema.empty_table(), True, False, self._timestamp(upto))

    def _piece(
        self, job: JobId, rows: pa.Table, is_last: bool, is_snapshot: bool, data_timestamp: datetime | None
    ) -> JobChanges:
        position = f"{job}-{self._build}" if is_last else None
        if self._pin is not None:
            self._leases.add(self._pin)
        return JobChanges(job, rows.cast(self.schema), is_snapshot, position, data_timestamp)

    def _timestamp(self, job: JobId) -> datetime | None:
        try:
            return self._scheduler.journal.chain.get(job).data_timestamp
        except SnapshotGone:
            return None

    # waiting

    def _arrived(self, job: JobId, until: float | None) -> bool:
        """Waits until the table has passed a job; False when the time comes first."""
        if self._stored.through < job:
            # It was there before the warehouse was opened.
            self._scheduler.make_again([self.table], job)
        if self._stored.through >= job and (self._pin is None or not self._pin.is_open):
            self._require_same()
            self._hold(job)

        def passed() -> bool:
            return self._is_over.is_set() or self._stored.through > job

        while not passed():
            self._require_same()
            self._require_no_failure()
            if self._pin is not None:
                self._leases.add(self._pin)
            look = time.monotonic() + _LOOK_SECONDS
            if until is not None and until < look:
                self._scheduler.signal.wait_until(passed, until)
                break
            self._scheduler.signal.wait_until(passed, look)
        self._require_open()
        self._require_same()
        return self._stored.through > job

    def _require_open(self) -> None:
        if self._is_over.is_set():
            raise Cancelled("the subscription was cancelled")

    def _require_same(self) -> None:
        if self._tables.by_name.get(self.table) is not self._stored:
            raise self._anew(f"{self.table} was built anew, or dropped")
        if self._stored.spec.schema != self._spec.schema:
            raise SnapshotGone(
                f"{self.table} has other columns now", hint="subscribe again, as of the last position that you got"
            )

    def _require_no_failure(self) -> None:
        failures = self._scheduler.executor.failures
        if failures:
            for stage in self._scheduler.flows.needed([self.table]):
                failure = failures.get(stage.name)
                if failure is not None:
                    raise copy(failure) if isinstance(failure, HeadgateError) else failure

    # holding

    def _hold(self, job: JobId) -> None:
        """Keeps the table's changes after a job in place of what was kept before."""
        before, main = self._pin, self._stored.main
        try:
            pin = _HeldPin(main.pin(job) if before is None or not before.is_open else main.pin_later(before.pin, job))
        except SnapshotGone:
            raise self._gone(job) from None
        self._pin = pin
        self._leases.add(pin)
        if before is not None:
            before.close()

    def _gone(self, job: JobId, why: str = "") -> SnapshotGone:
        oldest = self._stored.readable_from()
        return self._anew(
            f"the changes of {self.table} since job {job} are no longer kept{f': {why}' if why else ''}; "
            f"it holds jobs {oldest} to {self._stored.through}",
            "; a larger retention: {jobs: …} keeps changes for longer",
        )

    def _anew(self, what: str, more: str = "") -> SnapshotGone:
        return SnapshotGone(what, hint=f"begin anew without AS OF: the table's rows come first{more}")

    # ending

    def cancel(self) -> None:
        """Ends the waiting of another thread, which then raises `Cancelled`."""
        self._is_over.set()
        self._scheduler.signal.notify()

    def close(self) -> None:
        """Lets the changes go. May be called again."""
        self.cancel()
        self._owner.remove(self)
        pin, self._pin = self._pin, None
        if pin is not None:
            pin.close()

    def __iter__(self) -> Iterator[JobChanges]:
        while (piece := self.next()) is not None:
            yield piece

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _HeldPin:
    """A pin with a lease."""

    def __init__(self, pin: Pin) -> None:
        self.pin = pin
        self.is_open = True

    def close(self) -> None:
        self.is_open = False
        self.pin.release()


class Subscriptions:
    """The subscriptions that are open; may be used from any thread."""

    def __init__(self, scheduler: Scheduler, tables: Tables, leases: Leases) -> None:
        self._scheduler = scheduler
        self._tables = tables
        self._leases = leases
        self._lock = threading.Lock()
        self._open: set[Subscription] = set()

    def __len__(self) -> int:
        return len(self._open)

    def open(self, table: str, as_of: int | str | None, bound: Bound) -> Subscription:
        found = Subscription(self, self._scheduler, self._tables, self._leases, table, as_of, bound)
        with self._lock:
            self._open.add(found)
        return found

    def remove(self, subscription: Subscription) -> None:
        with self._lock:
            self._open.discard(subscription)

    def has(self, table: str) -> bool:
        """Whether somebody follows the table."""
        with self._lock:
            return any(each.table == table for each in self._open)

    def goal(self, table: str) -> timedelta | None:
        """How fresh those who follow the table want it to be, if they do."""
        with self._lock:
            bounds = [each.bound.max_staleness for each in self._open if each.table == table]
        return min((bound for bound in bounds if bound is not None), default=None)

    def close(self) -> None:
        for subscription in list(self._open):
            subscription.cancel()
