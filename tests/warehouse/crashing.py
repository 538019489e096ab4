"""A small warehouse of two tables that runs jobs and materializes them; it can kill itself at any step.

python -m tests.warehouse.crashing <folder> <step to die at>
python -m tests.warehouse.crashing <folder>                     dies at every step, in a folder named by its number
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from datetime import UTC, datetime

from headgate.delta.changes import JobId
from headgate.warehouse.base import FileLimits
from headgate.warehouse.ledger import Ledger
from headgate.warehouse.versioned import VersionedTable
from tests.warehouse.model import BY_KEY, BY_NUMBER, Key, Model, change_set

SPECS = (BY_KEY, BY_NUMBER)
JOBS = 4


def edits(job: int) -> dict[Key, int | None]:
    """Inserts, updates and deletes that follow from the job alone."""
    changed: dict[Key, int | None] = {(number, "x"): job * 10 + number for number in range(job, job + 12)}
    return changed | {(job + 3, "x"): None}


def model_at(job: int) -> Model:
    model = Model(BY_KEY)
    for number in range(1, job + 1):
        model.run(edits(number))
    return model


def run(root: str, step: Callable[[str], None]) -> dict[str, VersionedTable]:
    """Opens what the ledger names, runs the jobs that are missing, materializing after each."""
    ledger = Ledger.open(root, "test", lambda: datetime.now(UTC), step=step)
    named: dict[str, tuple[int, int]] = {}
    for entry in ledger.entries("tables"):
        named = {name: (version, through) for name, (version, through) in entry.body.items()}
    tables = {}
    for spec in SPECS:
        version, through = named.get(spec.name, (None, 0))
        tables[spec.name] = VersionedTable.open(
            f"{root}/{spec.name}",
            spec,
            version=version,
            through=JobId(through),
            limits=FileLimits(rows_per_file=5),
            step=step,
        )
    start = min(table.through for table in tables.values())
    model = model_at(start)
    for job in range(start + 1, JOBS + 1):
        rows = model.run(edits(job))
        for table in tables.values():
            table.apply(change_set(table.spec, rows, job - 1, job), JobId(job))
        for table in tables.values():
            table.materialize(None, JobId(job))
        body = {name: (table.version, table.through) for name, table in tables.items()}
        ledger.append([("tables", body)])
        for table in tables.values():
            table.release(JobId(job))
            table.vacuum()
    ledger.close()
    return tables


def dying_at(number: int) -> Callable[[str], None]:
    passed = 0

    def step(name: str) -> None:
        nonlocal passed
        passed += 1
        if passed == number:
            os.kill(os.getpid(), signal.SIGKILL)

    return step


def die_at_every_step(root: str) -> None:
    """One process per step; the last comes to the end, or fails. They are forks of this one: nothing is imported twice."""
    number, status = 0, signal.SIGKILL.value
    while os.WIFSIGNALED(status):
        number += 1
        child = os.fork()
        if child == 0:
            run(f"{root}/{number}", dying_at(number))
            os._exit(0)
        _, status = os.waitpid(child, 0)
    sys.exit(os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    if len(sys.argv) > 2:
        run(sys.argv[1], dying_at(int(sys.argv[2])))
    else:
        die_at_every_step(sys.argv[1])
