"""Files as a source: found and read by one method, driven by an agent at the pace that readers need."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from types import MappingProxyType

from pyspark.sql.types import StructType

from headgate.capture.files.discovery import Entry
from headgate.capture.files.loads import FileLoads, begin_loads
from headgate.capture.files.method import FilesMethod, RunParts
from headgate.capture.files.tables import BAD_TABLE, FILES_TABLE, open_table
from headgate.capture.files.taken import TakenFiles
from headgate.capture.gears.agent import Agent
from headgate.capture.gears.paced_source import PacedSource
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
from headgate.config.files import FilesSourceSettings
from headgate.errors import HeadgateError, HistoryLost, raise_all
from headgate.ranges.key_set import Value

_LOGGER = logging.getLogger(__name__)
_WHOLE = timedelta(days=1)
"""How long the reading of whole tables may take."""


class FilesSource(PacedSource[FilesSourceSettings]):
    """Tables whose rows come in files; implements `Source`."""

    def __init__(
        self,
        name: str,
        settings: FilesSourceSettings,
        declared: Mapping[str, StructType | None],
        log: StreamLog,
        clock: Clock,
        run: RunParts,
        progress: Callable[[Progress], None] | None = None,
        beyond: int = 1 << 30,
    ) -> None:
        """`declared` has the columns of each table, or None where they are read from its files; `run` reads large files. Tables with
        ranges whose first files have more bytes than `beyond` are loaded range by range."""
        super().__init__(name, settings, log)
        self._declared = declared
        self._clock = clock
        self._run = run
        self._progress = progress
        self._beyond = beyond
        self._lock = threading.Lock()
        try:
            self._open()
        except HistoryLost as error:
            self.unopened = error
            self._method: FilesMethod | None = None
            self._loads: FileLoads | None = None

    @property
    def tables(self) -> Mapping[str, SourceTable]:
        if self._method is None:
            return MappingProxyType({})
        found = {name: table.table for name, table in self._method.tables.items()}
        return MappingProxyType({**found, FILES_TABLE.name: FILES_TABLE, BAD_TABLE.name: BAD_TABLE})

    @property
    def capabilities(self) -> Capabilities:
        snapshots = all(table.mode == "snapshot" for table in self._settings.tables.values())
        return Capabilities(
            deletes=snapshots, transaction_boundaries=False, intermediate_versions=True, commit_times=False
        )

    @property
    def problems(self) -> Mapping[str, TableProblem]:
        """Tables that a file stops, and what to do about it."""
        found = {} if self._method is None else self._method.problems
        lost = lost_tables(self.tables, self.log.loss)
        return {**found, **{name: problem.told_for(f"{self.name}.{name}") for name, problem in lost.items()}}

    @property
    def first_loads(self) -> Mapping[str, FirstLoad]:
        return NO_LOADS if self._loads is None else self._loads.found

    @property
    def status(self) -> SourceStatus:
        loading = None if self._loads is None else self._loads.progress
        alarms = () if self._loads is None else self._loads.problems
        return replace(super().status, unloaded=tuple(self.first_loads), loading=loading, alarms=alarms)

    def sample(self, since: datetime | None = None) -> Sample:
        return self._opened()[0].sample()

    def cut(self) -> int:
        self.log.sync()
        return self.log.durable

    def capture(self, upto: Sample | datetime, window: timedelta) -> bool:
        return self._opened()[1].request(upto, window).met

    def resnapshot(self, tables: Collection[str] | None = None) -> None:
        """Reads the files of tables with a key again, by default of all such tables; history stays.

        After a loss, the files of tables without a key are taken again whose rows were lost.
        """
        with self._lock:
            if self._method is None:
                self._open(afresh=True)
            loss = self.log.loss
            if loss is not None:
                assert self._agent is not None
                self._agent.close()
                self._taken.forget(loss.after, loss.upto)
                self._taken.save()
                self.log.settle_loss()
                self._open()
            method, agent = self._opened()
            named = self._settings.tables if tables is None or loss is not None else tables
            chosen = [
                name
                for name in named
                if name in self._settings.tables
                and (self._settings.tables[name].key or (tables is not None and loss is None))
            ]
            entries = method.read_whole(chosen)
            if entries:
                upto = Sample(self._clock.now(), entries[-1].position, timedelta(0), timedelta(0))
                agent.request(upto, _WHOLE)
            raise_all([error for entry in entries if (error := _failure(entry)) is not None])

    # first loads

    def load(self, tables: Collection[str], is_stopped: Callable[[], bool]) -> None:
        """Tables that are not loaded range by range are taken file by file, as any later file is."""
        for table in tables:
            self._opened_loads().release(table)

    def bounds(self, table: str, column: str, count: int) -> tuple[Value, ...] | None:
        return self._opened_loads().bounds(table, column, count)

    def distribute(self, table: str, is_stopped: Callable[[], bool]) -> None:
        self._opened_loads().distribute(table, is_stopped)

    @contextmanager
    def read_ranges(self, table: str, column: str, is_stopped: Callable[[], bool]) -> Iterator[RangeRead]:
        yield self._opened_loads().reading(table)

    def mark(self, position: int) -> None:
        """Behind all that is found by now, and so behind the position."""
        method, _ = self._opened()
        self._append(method.enter(next(iter(self._settings.tables)), lambda writer: None))

    def loaded(self, table: str) -> None:
        self._opened_loads().ranges_read(table)

    def _opened_loads(self) -> FileLoads:
        self._opened()
        assert self._loads is not None
        return self._loads

    def _append(self, entry: Entry) -> None:
        """Waits until the entry is in the log."""
        _, agent = self._opened()
        agent.request(Sample(self._clock.now(), entry.end, timedelta(0), timedelta(0)), _WHOLE)
        entry.done.result(timeout=0)

    def close(self) -> None:
        self.log.release_writers()
        if self._agent is not None:
            self._agent.close()
        self.log.close()

    def _opened(self) -> tuple[FilesMethod, Agent[tuple[Entry, ...], tuple[Entry, ...]]]:
        if self._method is None or self._agent is None:
            assert self.unopened is not None
            raise self.unopened
        return self._method, self._agent

    def _open(self, *, afresh: bool = False) -> None:
        is_begun = not afresh and (self.log.end > 0 or self.log.loss is not None)
        if afresh:
            _LOGGER.warning("the record of taken files is lost: source=%s", self.name)
            (self.log.folder / "cursor").unlink(missing_ok=True)
        self._taken = TakenFiles(self.log.folder, self.log.end, is_begun=is_begun)
        tables = {
            name: open_table(self.name, name, settings, self._declared[name], self._taken)
            for name, settings in self._settings.tables.items()
        }
        self._taken.save()
        begin_loads(tables, self._taken, self.log, self._clock, self._settings.settle, self._beyond)
        self._method = FilesMethod(
            self.name,
            tables,
            self._taken,
            self.log,
            self._clock,
            settle=self._settings.settle,
            remember=self._settings.remember,
            run=self._run,
            progress=self._progress,
        )
        self._loads = FileLoads(
            self._method, self._taken, self.log, self._append, self._settings.load_rate, self._progress
        )
        with self._pacing:
            pace = self._settings.pace.for_method(self._settings.capture)
            self._agent = Agent(self._method, self._clock, pace)
        self.unopened = None


def _failure(entry: Entry) -> HeadgateError | None:
    error = entry.done.exception(timeout=0) if entry.done.done() else None
    return error if isinstance(error, HeadgateError) else None
