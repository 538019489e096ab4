"""A trigger capture that a test opens, steps and closes as a process would."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from headgate.capture.locallog import DEFAULT_TRANSACTION_BYTES, LocalLog
from headgate.capture.postgres.log_tables import TableDefinition
from headgate.capture.postgres.trigger import TriggerMethod
from headgate.clock import SystemClock

T = TableDefinition("t", "t")


class Capture:
    """A method and its log."""

    def __init__(self, dsn: str, folder: Path, *definitions: TableDefinition) -> None:
        self.dsn = dsn
        self.folder = folder
        self.definitions = definitions or (T,)
        self.transaction_bytes = DEFAULT_TRANSACTION_BYTES
        self.open()

    def open(self, *, afresh: bool = False) -> None:
        self.log = LocalLog(self.folder, transaction_bytes=self.transaction_bytes)
        try:
            self.method = TriggerMethod(
                self.dsn,
                "shop",
                self.definitions,
                log=self.log,
                clock=SystemClock(),
                afresh=afresh,
                trim_every=timedelta(0),
            )
        except BaseException:
            self.log.close()
            raise
        self.number = 0

    def close(self) -> None:
        self.method.close()
        self.log.close()

    def reopen(self) -> None:
        self.close()
        self.open()

    def step(self) -> bool:
        """Captures what is there; whether there was anything."""
        task = self.method.plan(self.number)
        if task is None:
            return False
        self.number += 1
        self.method.publish(self.method.read(task))
        assert self.method.captured == task.upto
        return True
