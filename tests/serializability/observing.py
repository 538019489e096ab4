"""A run over the two databases, in this process or one of its own: a warehouse, readers, and the history they write.

python -m tests.serializability.observing '{"folder": …, "dsns": …, "seconds": …}'
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import headgate
from tests.serializability.history import History
from tests.serializability.readers import ShiftedClock, read_for
from tests.serializability.world import project


@dataclass(frozen=True)
class Run:
    folder: str
    dsns: Mapping[str, str]
    seconds: float
    master: str = "local[2]"
    capture: str = "log"
    clock_shift: float = 0.0
    threads: int = 6
    name: str = "reader"


def observe(run: Run) -> None:
    """Reads for the time of the run; the history lies in its folder."""
    folder = Path(run.folder)
    settings = project(folder, run.dsns, master=run.master, capture=run.capture)
    history = History(folder / f"{run.name}.jsonl")
    try:
        with headgate.open(settings, clock=ShiftedClock(run.clock_shift)) as warehouse:
            read_for(warehouse, history, run.seconds, name=run.name, threads=run.threads)
    finally:
        history.close()


if __name__ == "__main__":
    observe(Run(**json.loads(sys.argv[1])))
