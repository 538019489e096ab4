"""A process that captures by trigger until it is killed; its arguments are the DSN and the folder of the stream log."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from headgate.capture.locallog import LocalLog
from headgate.capture.postgres.log_tables import TableDefinition
from headgate.capture.postgres.trigger import TriggerMethod
from headgate.clock import SystemClock
from headgate.errors import TransientError


def main(dsn: str, folder: str) -> None:
    definitions = [TableDefinition("accounts", "accounts"), TableDefinition("moves", "moves")]
    log = LocalLog(Path(folder))
    sys.stdout.write("opened\n")
    sys.stdout.flush()
    while True:
        try:
            method = TriggerMethod(dsn, "bank", definitions, log=log, clock=SystemClock())
            sys.stdout.write("captures\n")
            sys.stdout.flush()
            number = 0
            while True:
                task = method.plan(number)
                if task is not None:
                    number += 1
                    method.publish(method.read(task))
                else:
                    time.sleep(0.005)
        except TransientError:
            time.sleep(0.05)


if __name__ == "__main__":
    main(*sys.argv[1:])
