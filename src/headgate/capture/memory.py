"""A source in this process: the program itself commits transactions to it.

They go through the same durable stream log as any source's: a committed transaction survives a crash. Transactions may
be open at the same time in several threads; they commit one after another, each at the next position.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import MappingProxyType

from headgate.capture.events import Committed
from headgate.capture.shape import Shape
from headgate.capture.source import (
    NO_LOADS,
    Capabilities,
    Sample,
    SourceFreshness,
    SourceStatus,
    SourceTable,
    TableProblem,
    lost_tables,
)
from headgate.capture.spool import Spool
from headgate.capture.streamlog import StreamLog
from headgate.capture.transaction import Transaction
from headgate.clock import Clock
from headgate.errors import HeadgateError, TransactionError

_LOGGER = logging.getLogger(__name__)

_GO_ON = (
    "restore a backup (`headgate restore`); or `headgate refresh --table {}` goes on without them for all tables of the"
    " source, and the programs that wrote them write them again"
)


class MemorySource:
    """Tables that this program writes; implements `Source`."""

    capabilities = Capabilities(
        deletes=True, transaction_boundaries=True, intermediate_versions=True, commit_times=True
    )

    unopened: HeadgateError | None = None
    first_loads = NO_LOADS

    def __init__(self, name: str, tables: Mapping[str, SourceTable], log: StreamLog, clock: Clock) -> None:
        self.name = name
        self.tables: Mapping[str, SourceTable] = MappingProxyType(dict(tables))
        self.log = log
        self._clock = clock
        self._shapes = {table: Shape(name, definition) for table, definition in tables.items()}
        self._commit_lock = threading.Lock()

    def transaction(self, commit_at: datetime | None = None, initial: bool = False) -> Transaction:
        """A new transaction, for a `with` block.

        `commit_at` is its commit time, by default the clock's when it commits; no transaction commits before its
        predecessor. `initial` marks an initial load: its rows are valid from the beginning of time.
        """
        if commit_at is not None:
            if commit_at.tzinfo is None:
                raise TransactionError(f"the commit time {commit_at} has no time zone", hint="add tzinfo=UTC")
            commit_at = commit_at.astimezone(UTC)
        spool = Spool(self.log.spool_folder, self.log.transaction_bytes)
        return Transaction(self.name, self._shapes, spool, lambda rows: self._commit(rows, commit_at, initial))

    @property
    def problems(self) -> Mapping[str, TableProblem]:
        """All tables, while acknowledged transactions are lost that nobody decided about."""
        return {
            name: replace(problem, hint=_GO_ON.format(f"{self.name}.{name}"))
            for name, problem in lost_tables(self.tables, self.log.loss).items()
        }

    @property
    def status(self) -> SourceStatus:
        return SourceStatus(
            self.captured, self.log.held_bytes, self.log.limit_bytes, self.problems, queue=self.log.queue
        )

    @property
    def captured(self) -> SourceFreshness:
        """Everything: a transaction is in the log before it is acknowledged."""
        at = self._clock.now()
        return SourceFreshness(self.log.durable, at)

    def sample(self, since: datetime | None = None) -> Sample:
        """Where the source stands: every acknowledged transaction is durable. Never waits; the clocks are the same."""
        at = self._clock.now()
        return Sample(at, self.log.durable, timedelta(0), timedelta(0))

    def cut(self) -> int:
        self.log.sync()
        return self.log.durable

    def capture(self, upto: Sample | datetime, window: timedelta) -> bool:
        """Captured already."""
        return True

    def resnapshot(self, tables: Collection[str] | None = None) -> None:
        """Nothing to read: the program's own transactions are all there is.

        Whoever names a table says to go on without transactions that were lost.
        """
        if (loss := self.log.loss) is not None and tables is not None:
            _LOGGER.warning("going on without lost transactions: source=%s: %s", self.name, loss)
            self.log.go_on_without_lost()

    def close(self) -> None:
        """Closes the log; what was committed is durable already."""
        self.log.release_writers()
        with self._commit_lock:
            self.log.close()

    def _commit(self, spool: Spool, commit_at: datetime | None, initial: bool) -> Committed | None:
        if spool.rows == 0:
            return None
        with self._commit_lock:
            time = self._commit_time(commit_at)
            with self.log.begin(self.log.end + 1, time, initial=initial) as writer:
                for table, batch in spool.drain():
                    writer.write(table, batch)
                committed = writer.commit()
        # Outside the lock, so that transactions that commit at the same time share one wait for the disk.
        self.log.sync(committed.position)
        return committed

    def _commit_time(self, commit_at: datetime | None) -> datetime:
        last = self.log.end_commit_at
        if commit_at is None:
            now = self._clock.now()
            return now if last is None else max(now, last)
        if last is not None and commit_at < last:
            raise TransactionError(
                f"the commit time {commit_at.isoformat()} is before the last transaction's, {last.isoformat()}",
                hint=f"{self.name} commits in the order of time; give a later one, or none",
            )
        return commit_at
