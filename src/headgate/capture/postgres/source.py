"""A PostgreSQL database as a source: one capture method, driven by an agent at the pace that readers need."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from types import MappingProxyType
from typing import Any, TypeAlias

from headgate.capture.gears.agent import Agent
from headgate.capture.gears.status import Status
from headgate.capture.postgres.log import LogMethod
from headgate.capture.postgres.log_tables import TableDefinition, TableProblem
from headgate.capture.postgres.slot import slot_name
from headgate.capture.postgres.snapshot import Progress
from headgate.capture.postgres.timestamp import TimestampMethod
from headgate.capture.postgres.timestamp_tables import TimestampTable
from headgate.capture.postgres.trigger import TriggerMethod
from headgate.capture.source import Capabilities, Sample, SourceTable
from headgate.capture.streamlog import StreamLog
from headgate.clock import Clock
from headgate.config.sources import PostgresSourceSettings

CaptureMethod: TypeAlias = LogMethod | TriggerMethod | TimestampMethod


class PostgresSource:
    """Tables of one database; implements `Source`."""

    def __init__(
        self,
        project: str,
        name: str,
        settings: PostgresSourceSettings,
        log: StreamLog,
        clock: Clock,
        progress: Callable[[Progress], None] | None = None,
    ) -> None:
        self.name = name
        self.log = log
        self._method = _open_method(slot_name(project, name), settings, log, clock, progress)
        # What the method reads and publishes is between it and the agent.
        self._agent: Agent[Any, Any] = Agent(self._method, clock, settings.pace.for_method(settings.capture))

    @property
    def tables(self) -> Mapping[str, SourceTable]:
        return MappingProxyType({name: table.source_table for name, table in self._method.tables.items()})

    @property
    def capabilities(self) -> Capabilities:
        return self._method.capabilities

    @property
    def problems(self) -> Mapping[str, TableProblem]:
        """Tables whose changes cannot be followed any more, and what to do about it."""
        return self._method.problems

    @property
    def status(self) -> Status:
        return self._agent.status

    def sample(self) -> Sample:
        return self._method.sample()

    def capture(self, upto: Sample, window: timedelta) -> bool:
        return self._agent.request(upto, window).met

    def resnapshot(self, tables: tuple[str, ...] | None = None) -> None:
        """Reads tables whole again, by default all; what differs from the replica becomes changes, history stays."""
        self._method.resnapshot(tables)

    def close(self) -> None:
        self._agent.close()
        self.log.close()


def _open_method(
    objects: str,
    settings: PostgresSourceSettings,
    log: StreamLog,
    clock: Clock,
    progress: Callable[[Progress], None] | None,
) -> CaptureMethod:
    """The method that the source is captured by; `objects` is the name of what it creates at the server."""
    definitions = [
        TableDefinition(table.table or name, name, table.key or None, table.types)
        for name, table in settings.tables.items()
    ]
    match settings.capture:
        case "log":
            limit = settings.retained_wal
            return LogMethod(
                settings.dsn, objects, definitions, log=log, clock=clock, retained_limit=limit, progress=progress
            )
        case "trigger":
            return TriggerMethod(settings.dsn, objects, definitions, log=log, clock=clock, progress=progress)
        case "timestamp":
            polled = [
                TimestampTable(definition, table.updated or "", table.deleted)
                for definition, table in zip(definitions, settings.tables.values(), strict=True)
            ]
            return TimestampMethod(settings.dsn, objects, polled, log=log, clock=clock, progress=progress)
