"""Capture attached to the OLTP database, by any method, with the agent that sets its pace."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from benchmarks.oltp import TABLES, Oltp
from headgate.capture.gears.agent import Agent
from headgate.capture.locallog import LocalLog
from headgate.capture.postgres.log import LogMethod
from headgate.capture.postgres.log_tables import TableDefinition
from headgate.capture.postgres.source import CaptureMethod
from headgate.capture.postgres.timestamp import TimestampMethod
from headgate.capture.postgres.timestamp_tables import TimestampTable
from headgate.capture.postgres.trigger import TriggerMethod
from headgate.clock import SystemClock
from headgate.config import gears
from headgate.config.gears import GearSettings

METHODS: tuple[gears.CaptureMethod, ...] = ("log", "trigger", "timestamp")
NAME = "headgate_bench"
_SLOTS = "SELECT count(*) FROM pg_replication_slots"
_DROP_SLOTS = "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE NOT active"


def open_method(method: gears.CaptureMethod, dsn: str, log: LocalLog, name: str = NAME) -> CaptureMethod:
    """The method with all tables loaded."""
    definitions = [TableDefinition(table, table) for table in TABLES]
    clock = SystemClock()
    match method:
        case "log":
            opened = LogMethod(dsn, name, definitions, log=log, clock=clock)
            opened.load(TABLES)
            return opened
        case "trigger":
            return TriggerMethod(dsn, name, definitions, log=log, clock=clock)
        case "timestamp":
            polled = [TimestampTable(definition, "updated_at") for definition in definitions]
            return TimestampMethod(dsn, name, polled, log=log, clock=clock)


class Attached:
    """A method at work on a database until `close`, which leaves nothing behind at the server."""

    def __init__(
        self, oltp: Oltp, database: str, method: gears.CaptureMethod, settings: GearSettings | None = None
    ) -> None:
        self._oltp = oltp
        self._database = database
        self._folder = tempfile.TemporaryDirectory(prefix="headgate-bench-")
        self.log = LocalLog(Path(self._folder.name))
        if method == "timestamp":
            oltp.index_times(database, True)
        self.method = open_method(method, oltp.server.dsn_of(database), self.log)
        # What the method reads and publishes is between it and the agent.
        self.agent: Agent[Any, Any] = Agent(self.method, SystemClock(), (settings or GearSettings()).for_method(method))

    def __enter__(self) -> Attached:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        problem = self.agent.status.problem if self.agent.status.stopped else None
        self.agent.close()
        self.log.close()
        self._folder.cleanup()
        clean_up(self._oltp, self._database)
        self._oltp.index_times(self._database, False)
        if problem is not None:
            raise SystemExit(f"capture stopped: {problem}")


def clean_up(oltp: Oltp, database: str) -> None:
    """Drops what capture left at the server."""
    with oltp.server.connect(database) as connection:
        deadline = time.monotonic() + 10
        while connection.execute(_DROP_SLOTS).rowcount or connection.execute(_SLOTS).fetchone() != (0,):
            if time.monotonic() > deadline:
                raise SystemExit("a walsender does not end")
            time.sleep(0.02)
        connection.execute(f"DROP PUBLICATION IF EXISTS {NAME}".encode())
        connection.execute("DROP SCHEMA IF EXISTS headgate CASCADE")
