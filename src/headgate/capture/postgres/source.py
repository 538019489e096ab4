"""A PostgreSQL database as a source: one capture method, driven by an agent at the pace that readers need.

A server that does not answer when a source is opened again, or that has lost what comes next, does not keep anyone from
what was captured: the source is then unopened. It opens itself once the server is back; after a loss, `resnapshot` does.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, TypeAlias, Unpack

from headgate.capture.gears.agent import Agent
from headgate.capture.gears.paced_source import PacedSource
from headgate.capture.postgres.first_loads import FirstLoads, left_loads
from headgate.capture.postgres.log import LogMethod
from headgate.capture.postgres.log_tables import TableDefinition
from headgate.capture.postgres.opening import Options
from headgate.capture.postgres.problems import SourceBusy, SourceHistoryLost, at_first_contact
from headgate.capture.postgres.slot import slot_name
from headgate.capture.postgres.timestamp import TimestampMethod
from headgate.capture.postgres.timestamp_tables import TimestampTable
from headgate.capture.postgres.trigger import TriggerMethod
from headgate.capture.ranges import LargeLoads
from headgate.capture.source import (
    NO_LOADS,
    Capabilities,
    FirstLoad,
    Progress,
    RangeRead,
    Sample,
    SourceStatus,
    SourceTable,
    TableProblem,
    lost_tables,
)
from headgate.capture.streamlog import StreamLog
from headgate.clock import Clock
from headgate.config.sources import PostgresSourceSettings
from headgate.errors import DefiniteError, TransientError
from headgate.ranges.key_set import Value

CaptureMethod: TypeAlias = LogMethod | TriggerMethod | TimestampMethod

_RETRY_SECONDS = 2.0
BUSY_SECONDS = 2.0
"""How long a reader waits for a source that is being opened or read whole."""


class PostgresSource(PacedSource[PostgresSourceSettings]):
    """Tables of one database; implements `Source`."""

    def __init__(
        self,
        project: str,
        name: str,
        settings: PostgresSourceSettings,
        log: StreamLog,
        clock: Clock,
        progress: Callable[[Progress], None] | None = None,
        large: LargeLoads | None = None,
        on_whole: Callable[[], None] = lambda: None,
    ) -> None:
        """At first contact by trigger or timestamp, returns once all tables are loaded; by log, `load` reads them."""
        super().__init__(name, settings, log)
        self._objects = slot_name(project, name)
        self._clock = clock
        self._progress = progress
        self._large = large
        self._on_whole = on_whole
        self._lock = threading.RLock()
        self._most_readers: int | None = None
        self._closing = threading.Event()
        self._method: CaptureMethod | None = None
        self._left = NO_LOADS
        """First loads as the last process left them."""
        try:
            self._open()
        except (TransientError, SourceHistoryLost) as error:
            # At first contact there is nothing to read without it.
            if not log.end and log.loss is None:
                raise (at_first_contact(error) if isinstance(error, TransientError) else error) from error
            self.unopened = error
            self._left = left_loads(log) if settings.capture == "log" else NO_LOADS
            if isinstance(error, TransientError):
                threading.Thread(target=self._open_later, name=f"open {name}", daemon=True).start()

    @property
    def tables(self) -> Mapping[str, SourceTable]:
        tables = {} if self._method is None else self._method.tables
        return MappingProxyType({name: table.source_table for name, table in tables.items()})

    @property
    def first_loads(self) -> Mapping[str, FirstLoad]:
        method = self._method
        if isinstance(method, LogMethod):
            return method.loads.found
        return self._left

    def load(self, tables: Collection[str], is_stopped: Callable[[], bool]) -> None:
        method = self._opened()[0]
        if isinstance(method, LogMethod):
            method.load(tables, is_stopped)

    # ranges: by log only. By trigger and by timestamp the log has no change from before the rows are there, and a table's rows and
    # the position as of which they are could not be told apart: tables are loaded whole.

    def bounds(self, table: str, column: str, count: int) -> tuple[Value, ...] | None:
        method = self._method
        return method.loads.bounds(table, column, count) if isinstance(method, LogMethod) else None

    def read_ranges(self, table: str, column: str, is_stopped: Callable[[], bool]) -> AbstractContextManager[RangeRead]:
        return self._by_log().read_ranges(table, column)

    def mark(self, position: int) -> None:
        self._by_log().mark(position)

    def loaded(self, table: str) -> None:
        self._by_log().loaded(table)

    def _by_log(self) -> FirstLoads:
        method = self._opened()[0]
        assert isinstance(method, LogMethod)
        return method.loads

    @property
    def capabilities(self) -> Capabilities:
        if self._method is not None:
            return self._method.capabilities
        sees_all = self._settings.capture != "timestamp"
        marked = all(table.deleted is not None for table in self._settings.tables.values())
        return Capabilities(
            deletes=sees_all or marked,
            transaction_boundaries=sees_all,
            intermediate_versions=sees_all,
            commit_times=self._settings.capture == "log",
        )

    @property
    def problems(self) -> Mapping[str, TableProblem]:
        """Tables whose changes cannot be followed any more, and what to do about it."""
        found = {} if self._method is None else self._method.problems
        found = {**found, **lost_tables(self._settings.tables, self.log.loss)}
        return {name: problem.told_for(f"{self.name}.{name}") for name, problem in found.items()}

    @property
    def status(self) -> SourceStatus:
        pace, method = self.pace, self._method
        retained = method.retained if isinstance(method, LogMethod) else None
        return replace(
            super().status,
            retained_wal=None if retained is None else retained.bytes,
            retained_wal_limit=self._settings.retained_wal,
            slot_dropped=retained is not None and retained.dropped,
            took=None if pace is None else pace.took,
            reads_in_order=self._settings.capture == "log",
            unloaded=tuple(name for name, each in self.first_loads.items() if each.entered_at is None),
            loading=method.loads.progress if isinstance(method, LogMethod) else None,
            alarms=(
                *(() if retained is None or retained.alarm is None else (retained.alarm,)),
                *(() if method is None else (f"{self.name}.{each}" for each in method.rereading)),
            ),
        )

    def sample(self, since: datetime | None = None) -> Sample:
        return self._opened()[0].sample()

    def cut(self) -> int:
        self.log.sync()
        return self.log.durable if self._method is None else self._method.whole_upto(lambda: self.log.durable)

    def capture(self, upto: Sample | datetime, window: timedelta) -> bool:
        return self._opened()[1].request(upto, window).met

    def limit_readers(self, most: int) -> None:
        """No more readers work at the same time than this, whatever the pace."""
        with self._pacing:
            self._most_readers = most
            if self._agent is not None:
                self._agent.limit_workers(most)

    def resnapshot(self, tables: Collection[str] | None = None) -> None:
        """Reads tables whole again, by default all; what differs from the replica becomes changes, history stays."""
        with self._lock:
            if self._method is None or self._agent is None:
                self._open(afresh=True)
                self.log.settle_loss()
                return
            self._method.resnapshot(tables if self.log.loss is None else None)
            self.log.settle_loss()
            if self._agent.status.stopped:
                self._agent.wait()
                self._start_agent(self._method)

    def close(self) -> None:
        self._closing.set()
        self.log.release_writers()
        with self._lock:
            if self._agent is not None:
                self._agent.close()
            self.log.close()

    def _opened(self) -> tuple[CaptureMethod, Agent[Any, Any]]:
        # Tables may take hours to be read whole: whoever asks meanwhile should hear that rather than wait.
        if not self._lock.acquire(timeout=BUSY_SECONDS):
            raise self.unopened or SourceBusy(
                f"the tables of {self.name} are being read whole",
                hint="try again when that is done; what was captured before stays readable",
            )
        try:
            if self._method is None or self._agent is None:
                if isinstance(self.unopened, DefiniteError):
                    raise self.unopened
                self._open()
            assert self._method is not None and self._agent is not None
            return self._method, self._agent
        finally:
            self._lock.release()

    def _open(self, *, afresh: bool = False) -> None:
        if self._closing.is_set():
            raise DefiniteError(f"the source {self.name} is closed", hint="open the warehouse again")
        self._method = open_method(
            self._objects,
            self._settings,
            log=self.log,
            clock=self._clock,
            afresh=afresh,
            progress=self._progress,
            large=self._large,
            on_whole=self._on_whole,
        )
        self._start_agent(self._method)
        self.unopened = None

    def _open_later(self) -> None:
        """Tries until the server is back: what it keeps for us should not pile up because nobody asks."""
        while not self._closing.wait(_RETRY_SECONDS):
            with self._lock:
                if self._method is not None:
                    return
                try:
                    self._open()
                except TransientError as error:
                    self.unopened = error
                except DefiniteError as error:
                    self.unopened = error
                    return

    def _start_agent(self, method: CaptureMethod) -> None:
        with self._pacing:
            self._agent = Agent(method, self._clock, self._settings.pace.for_method(self._settings.capture))
            self._agent.limit_workers(self._most_readers)


def open_method(objects: str, settings: PostgresSourceSettings, **options: Unpack[Options]) -> CaptureMethod:
    """The method that the source is captured by; `objects` is the name of what it creates at the server."""
    definitions = [
        TableDefinition(table.table or name, name, table.key or None, table.types)
        for name, table in settings.tables.items()
    ]
    match settings.capture:
        case "log":
            return LogMethod(settings.dsn, objects, definitions, retained_limit=settings.retained_wal, **options)
        case "trigger":
            return TriggerMethod(settings.dsn, objects, definitions, **options)
        case "timestamp":
            polled = [
                TimestampTable(definition, table.updated or "", table.deleted)
                for definition, table in zip(definitions, settings.tables.values(), strict=True)
            ]
            return TimestampMethod(settings.dsn, objects, polled, **options)
